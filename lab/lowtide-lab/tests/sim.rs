//! Promise: `lowtide-lab sim` prints the JSON that tools depend on, with the same bytes for the
//! same seed, and rejects invalid input with a message that names the error, its place and a
//! remedy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::sim::{args, count, has_no, json, keys, refused};
use crate::common::{Running, rows, run, text};
use serde_json::Value;

/// A two-hundredth of the published experiment.
const YCSB: [&str; 6] = ["sim", "ycsb-b", "--scale", "0.005", "--ops", "5k"];

fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// The names in the JSON are an interface: adding one is fine, losing or renaming one is not.
#[test]
fn the_names_in_the_json_are_pinned() {
    let results = json(&args(&YCSB, &["--policy", "mglru-7.1,mglru"]));
    assert!(
        keys(&results)
            .is_superset(&BTreeSet::from(["command", "lowtide", "machine", "rows", "seed"]))
    );
    let commit = results["commit"].as_str().unwrap_or("outside of a repository");
    assert!(
        results["commit"].is_null() || commit.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{commit}"
    );
    assert_eq!(
        (&results["lowtide"], &results["seed"]),
        (&env!("CARGO_PKG_VERSION").into(), &42.into())
    );
    for name in ["name", "cpus", "memory", "page", "kernel", "device", "costs"] {
        assert!(!results["machine"][name].is_null(), "machine.{name} is missing");
    }
    let everywhere = [
        "workload",
        "world",
        "system",
        "policy",
        "machine",
        "max_bytes",
        "page_bytes",
        "threads",
        "seed",
        "accesses",
        "misses",
        "miss_ratio",
        "stat",
    ];
    let in_time = [
        "seconds",
        "ops",
        "ops_per_s",
        "latency_us",
        "errors",
        "oom",
        "device_util_pct",
        "device_read_kib_per_s",
        "throttled_ms",
        "dirty_throttled_ms",
        "flusher_wakes",
        "retry_io_miss",
        "retry_mmap_drop",
    ];
    let about_the_host = ["host_seconds", "accesses_per_s", "bytes_per_page"];
    let counters = [
        "pgfault",
        "pgmajfault",
        "pgscan",
        "pgsteal",
        "pgactivate",
        "workingset_refault_file",
        "workingset_refault_anon",
        "workingset_activate_file",
        "pgpgin",
        "pgpgout",
        "file",
        "anon",
        "file_dirty",
    ];
    let check = |row: &Value, names: &[&str]| {
        for name in everywhere.iter().chain(names) {
            assert!(!row[name].is_null(), "{name} is missing in {row}");
        }
        for name in counters {
            count(row, name);
        }
        assert_eq!(
            (&row["world"], &row["system"], &row["seed"]),
            (&"sim".into(), &"lowtide".into(), &42.into())
        );
    };
    for row in rows(&results) {
        check(row, &in_time);
        assert_eq!(
            keys(&row["latency_us"]),
            BTreeSet::from(["mean", "p50", "p90", "p95", "p99", "p999", "p9999", "max"])
        );
        assert_eq!(
            keys(&row["ratio"]),
            BTreeSet::from(["to", "ops_per_s", "pgpgin", "workingset_refault_file"])
        );
        assert!(
            about_the_host.iter().all(|name| row[name].is_null()),
            "host fields only when requested: {row}"
        );
    }
    for row in rows(&json(&args(&YCSB, &["--policy", "lru", "--timing"]))) {
        check(row, &about_the_host);
    }
}

/// A thrash as short as it can be.
const THRASH: [&str; 7] =
    ["sim", "high-thrash", "--no-readahead", "--seconds", "1", "--policy", "mglru"];
/// The program that does what the published patch does.
const TWIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bpf/refault_recency.bpf.o");

#[test]
fn a_row_of_a_thrash_says_what_device_and_neighbour_got_and_published_samples_stand_at_the_end() {
    let results =
        json(&args(&THRASH, &["--high-policy", "refault-recency,stall-debt", "--bpf", TWIN]));
    let all = rows(&results);
    assert_eq!((&results["machine"]["name"], all.len()), (&"thrash".into(), 3 + 3));
    let names: Vec<&str> =
        all[..3].iter().map(|row| row["high_policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["refault-recency", "stall-debt", "bpf:refault_recency"]);
    for row in &all[..3] {
        for name in
            ["device_tps", "device_read_kib_per_s", "device_util_pct", "throttled_ms", "ops_per_s"]
        {
            assert!(row[name].as_f64().unwrap() > 0.0, "{name} in {row}");
        }
        assert_eq!((&row["high_bytes"], &row["readahead"]), (&(150 << 20).into(), &false.into()));
        let samples = row["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 1);
        assert_eq!(keys(&samples[0]), BTreeSet::from(["tps", "read_kib", "util_pct"]));
        let neighbour = &row["neighbour"];
        assert_eq!(
            keys(neighbour),
            BTreeSet::from(["ops_per_s", "alone_ops_per_s", "latency_us", "thrasher_ops_per_s"])
        );
        assert!(neighbour["ops_per_s"].as_f64() <= neighbour["alone_ops_per_s"].as_f64(), "{row}");
    }
    for name in ["stat", "samples", "neighbour", "throttled_ms"] {
        assert_eq!(all[0][name], all[2][name], "the program decides as the patch does: {name}");
    }
    for (row, samples) in all[3..].iter().zip([6, 5, 6]) {
        assert_eq!((&row["system"], &row["source"]), (&"published".into(), &"patch".into()));
        assert_eq!(row["samples"].as_array().unwrap().len(), samples);
    }
    let output = text(&run(&args(&THRASH, &["--high-policy", "stall-debt"])).stdout);
    assert!(
        output.contains("the neighbour alone") && output.contains("ours, random: device busy"),
        "{output}"
    );
}

#[test]
fn a_row_of_a_noisy_neighbour_says_what_the_tenants_lost() {
    let results = json(&["sim", "noisy-neighbour", "--policy", "mglru", "--seconds", "1"]);
    let all = rows(&results);
    let company: Vec<&str> = all.iter().map(|row| row["company"].as_str().unwrap()).collect();
    assert_eq!(company, ["alone", "scanner", "scanner, low"]);
    let change = |at: usize| all[at]["hit_ratio_change_pct"].as_f64().unwrap();
    assert!(change(0) == 0.0 && change(1) < change(2) && change(2).abs() <= 2.0, "{results}");
    for row in all {
        assert_eq!(row["tenant_hit_ratios"].as_array().unwrap().len(), 4);
        assert!((0.0..=1.0).contains(&row["hit_ratio"].as_f64().unwrap()));
    }
    assert!(
        all[0]["scanned_pages_per_s"] == 0.0
            && all[2]["scanned_pages_per_s"].as_f64() > Some(1000.0)
    );
}

#[test]
fn options_of_a_thrash_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let noise = write(dir.path(), "noise.o", "no program");
    refused(&args(&THRASH, &["--bpf", noise.to_str().unwrap()]), 2, &["noise.o", "ELF", "clang"]);
    refused(&args(&THRASH, &["--bpf", "/nonexistent.o"]), 2, &["/nonexistent.o", "--bpf"]);
    refused(&args(&THRASH, &["--high-policy", "overrage"]), 2, &["overrage", "stall-debt"]);
    has_no(&THRASH, "--swappiness", "200");
    has_no(&THRASH, "--ops", "5");
    has_no(&YCSB, "--no-readahead", "--json");
    has_no(&["sim", "noisy-neighbour"], "--threads", "2");
    refused(&["sim", "noisy-neighbor"], 2, &["similar", "'noisy-neighbour'"]);
    let small = write(dir.path(), "small.toml", "cpus = 2\nmemory = \"256M\"\n");
    for workload in ["high-thrash", "noisy-neighbour"] {
        refused(
            &["sim", workload, "--machine", small.to_str().unwrap()],
            2,
            &["small", "at least"],
        );
    }
}

/// The throttling OOM: a kill before the series, a file written after it.
#[test]
fn a_writer_to_a_slow_device_has_rows_with_outcomes_and_a_verdict() {
    let results = json(&["sim", "dd-oom", "--policy", "mglru-7.1,mglru-7.1+series"]);
    let all = rows(&results);
    let kinds: Vec<_> =
        all.iter().map(|row| (row["system"].as_str(), row["policy"].as_str())).collect();
    let of = |policy| [(Some("lowtide"), Some(policy)), (Some("published"), Some(policy))];
    assert_eq!(kinds, [of("mglru-7.1"), of("mglru-7.1+series")].concat());
    let (before, after) = (&all[0], &all[2]);
    assert_eq!(
        (&before["oom"], &before["kill"]["faulted"]),
        (&1.into(), &"writer".into()),
        "{before}"
    );
    assert!(
        before["unclean_pct"].as_f64() > Some(90.0)
            && before["written_bytes"].as_u64() < Some(192 << 20)
    );
    assert_eq!(
        (&after["oom"], &after["written_bytes"]),
        (&0.into(), &(192 << 20).into()),
        "{after}"
    );
    assert!(after["kill"].is_null());
    assert_eq!(keys(&after["naps"]), BTreeSet::from(["congested", "writeback", "isolated"]));
    assert_eq!(
        (before["naps"]["congested"].as_u64(), count(before, "file_writeback") > 0),
        (Some(0), true)
    );
    assert!(after["naps"]["congested"].as_u64() > Some(0), "{after}");
    assert_eq!(all[1]["outcome_published"], "killed immediately");
    let said = text(&run(&["sim", "dd-oom", "--policy", "mglru-7.1,mglru-7.1+series,lru"]).stdout);
    assert_eq!(said.lines().filter(|line| line.ends_with("  reproduced")).count(), 4, "{said}");
    assert!(
        said.contains("mglru-7.1: killed after") && said.contains("published v2_v3_v7"),
        "{said}"
    );
    let quick = json(&[
        "sim", "dd-oom", "--policy", "lru", "--delay", "20ms", "--max", "32M", "--size", "40M",
    ]);
    let [row] = &rows(&quick)[..] else {
        panic!("another experiment has no published row: {quick}")
    };
    assert_eq!((&row["max_bytes"], &row["data_bytes"]), (&(32 << 20).into(), &(40 << 20).into()));
    assert_eq!(quick["machine"]["device"]["write_ns"], 20_000_000);
    refused(&["sim", "dd-oom", "--delay", "5"], 2, &["`5`", "10ms"]);
    refused(&["sim", "dd-oom", "--max", "max"], 2, &["'max' for '--max", "256M"]);
    has_no(&["sim", "dd-oom"], "--threads", "2");
}

#[test]
fn a_writer_of_a_whole_file_has_a_rate_beside_its_device() {
    let results = json(&["sim", "fill", "--policy", "mglru,lru", "--max", "32M"]);
    let all = rows(&results);
    assert_eq!(all.len(), 2);
    for row in all {
        let rate = row["mib_per_s"]["median"].as_f64().unwrap();
        let device = row["device_write_mib_per_s"].as_f64().unwrap();
        assert!(rate > 0.5 * device && rate <= device, "{rate} of {device}");
        assert_eq!(
            (&row["written_bytes"], &row["data_bytes"]),
            (&(128 << 20).into(), &(128 << 20).into())
        );
        assert_eq!(count(row, "pgpgout"), 128 << 10, "all of it is on the device");
        assert!(row["dirty_pauses"].is_u64() && row["latency_us"]["p999"].is_f64());
    }
    has_no(&["sim", "fill"], "--ops", "5");
    refused(&["sim", "fill", "--max", "max"], 2, &["'max' for '--max", "256M"]);
}

#[test]
fn reads_that_meet_a_checkpoint_are_told_apart() {
    let mixed = [
        "sim",
        "mixed",
        "--max",
        "16M",
        "--seconds",
        "4",
        "--checkpoint",
        "1s",
        "--policy",
        "mglru",
    ];
    let results = json(&mixed);
    let [row] = &rows(&results)[..] else { panic!("{results}") };
    let checkpoints = &row["checkpoints"];
    assert_eq!(
        keys(checkpoints),
        BTreeSet::from([
            "every_s",
            "count",
            "seconds",
            "reads_during",
            "reads_outside",
            "during_us",
            "outside_us"
        ])
    );
    assert!((3..=5).contains(&checkpoints["count"].as_u64().unwrap()), "{checkpoints}");
    let p99 = |place: &str| checkpoints[place]["p99"].as_f64().unwrap();
    assert!(p99("during_us") > p99("outside_us"), "{checkpoints}");
    refused(&["sim", "mixed", "--checkpoint", "0s"], 2, &["'0s' for '--checkpoint", "10s"]);
    has_no(&["sim", "mixed"], "--ops", "5");
}

#[test]
fn the_same_seed_prints_the_same_bytes_and_another_one_does_not() {
    for arguments in [YCSB.to_vec(), args(&THRASH, &["--high-policy", "stall-debt"])] {
        for form in [&["--json"][..], &[]] {
            let [one, two] = [0; 2].map(|_| run(&args(&arguments, form)));
            assert!(one.status.success(), "{arguments:?}: {}", text(&one.stderr));
            assert!(one.stdout == two.stdout, "{arguments:?} {form:?}");
            assert!(text(&one.stdout).contains("42"), "the seed is printed");
        }
        let results = |seed| json(&args(&arguments, &["--seed", seed]))["rows"][0]["stat"].clone();
        assert!(results("1") != results("2"), "{arguments:?}");
    }
}

#[test]
fn policies_are_compared_with_mglru_7_1_wherever_it_stands() {
    let results = json(&args(&YCSB, &["--policy", "mglru,mglru-7.1+S10,mglru-7.1,mglru"]));
    let found: Vec<&str> =
        rows(&results).iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(found, ["mglru", "mglru-7.1+S10", "mglru-7.1"], "each once");
    for row in rows(&results) {
        assert_eq!(row["ratio"]["to"], "mglru-7.1");
        assert_eq!(row["world"], "sim", "a part of the experiment is not what was published");
    }
    assert_eq!(rows(&results)[2]["ratio"]["ops_per_s"], 1.0);
}

#[test]
fn options_change_what_is_simulated() {
    let row = rows(&json(&args(&YCSB, &["--threads", "2", "--max", "60M", "--policy", "lru"])))[0]
        .clone();
    assert_eq!(
        (&row["threads"], &row["max_bytes"], &row["ops"]),
        (&2.into(), &(60 << 20).into(), &5000.into())
    );
    let row = rows(&json(&args(&YCSB, &["--max", "max", "--policy", "mglru"])))[0].clone();
    assert!(row["max_bytes"].is_null(), "no limit but the machine's memory");
}

#[test]
fn budgets_and_machines_that_cannot_be_are_refused() {
    refused(&args(&YCSB, &["--max", "20M"]), 2, &["20M", "its cache", "--scale"]);
    refused(&args(&YCSB, &["--machine", "phone", "--scale", "1"]), 2, &["10G", "phone"]);
    refused(&args(&YCSB, &["--machine", "lapto"]), 2, &["did you mean `laptop`"]);
    refused(&args(&YCSB, &["--machine", "/nonexistent.toml"]), 1, &["/nonexistent.toml"]);
}

#[test]
fn options_in_the_wrong_place_and_words_that_mean_nothing_are_refused() {
    has_no(&YCSB, "--size", "1G");
    has_no(&YCSB, "--write", "5");
    has_no(&["sim", "fill"], "--timing", "");
    refused(&args(&YCSB, &["--scale", "0"]), 2, &["--scale", "0.001"]);
    refused(&["sim"], 2, &["<WORKLOAD>", "ycsb-b", "swarm"]);
    has_no(&["sim", "swarm", "9"], "--policy", "mglru");
    refused(&["sim", "swarm"], 2, &["required", "N"]);
    refused(&["sim", "swarm", "9", "--plan", "seed=7"], 2, &["seed=7"]);
}

#[test]
fn the_corpus_sets_half_of_its_traces_aside_and_ends_in_a_verdict() {
    let short = ["sim", "corpus", "--scale", "0.02", "--points", "3"];
    let shown = |more: &[&str]| text(&run(&args(&short, more)).stdout);
    let aside = shown(&["--policy", "sieve,mglru", "--trace", "loop"]);
    assert!(aside.contains("loop-20k") && !aside.contains("loop-8k"), "{aside}");
    assert!(aside.contains("verdict") && aside.contains(" of 9 cases"), "{aside}");
    let tuning = shown(&["--half", "tuning", "--policy", "sieve", "--trace", "loop-8k", "--json"]);
    let results: Value = serde_json::from_str(&tuning).unwrap();
    let rows = rows(&results);
    assert_eq!(rows.len(), 3, "{tuning}");
    for row in rows {
        let count = |name: &str| row[name].as_u64().unwrap();
        assert!(count("misses") >= count("opt_misses") && row["half"] == "tuning", "{row}");
    }
    refused(&args(&short, &["--trace", "nothing"]), 2, &["no trace", "--half all"]);
    refused(&args(&short, &["--policy", "fifo"]), 2, &["unknown policy", "s3-fifo"]);
}

#[test]
fn the_help_explains_every_option_and_the_list_every_workload() {
    for (what, words) in [
        ("--help", &["ycsb-b", "swarm", "Exit codes", "seed"][..]),
        ("ycsb-b", &["[default: xeon-96t]", "[default: 10G x"]),
        ("high-thrash", &["[default: mglru,mglru-7.1]", "[default: thrash]"]),
    ] {
        let help = text(&run(&["sim", what, "--help"]).stdout);
        for word in words {
            assert!(help.contains(word), "{what}: {word}: {help}");
        }
    }
    let list = text(&run(&["list"]).stdout);
    for name in ["bench  hit", "bench  crash", "sim    wt", "sim    swarm"] {
        let line = list.lines().find(|line| line.starts_with(name)).expect(name);
        assert!(line.split_whitespace().count() > 4, "{line}");
    }
}

#[test]
fn ctrl_c_ends_a_run_with_a_message() {
    let mut running = Running::start(&["sim", "ycsb-b", "--scale", "0.01", "--ops", "1G"]);
    running.wait_until_set_up();
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("interrupted while"), "{message}");
}

/// A 256th of the published experiment, a minute of it.
const TENANTS: [&str; 6] = ["sim", "tenants", "--scale", "0.00390625", "--seconds", "60"];

#[test]
fn tenants_are_shown_with_their_fairness_beside_what_was_published() {
    let results = json(&args(&TENANTS, &["--policy", "mglru-7.1,mglru-7.1+series"]));
    let rows = rows(&results);
    assert_eq!(results["machine"]["swap"]["kind"], "zram");
    let sources: Vec<_> = rows.iter().map(|row| row["source"].as_str()).collect();
    let postings = [None, Some("v1_secondary"), Some("v2"), Some("v3"), Some("v7")];
    assert_eq!(sources, [postings, postings].concat());
    for row in rows.iter().filter(|row| row["world"] == "sim") {
        for name in [
            "ops",
            "seconds",
            "scale",
            "jain",
            "latency_us",
            "lruvec_lock_ms",
            "swap_lock_ms",
            "ratio",
        ] {
            assert!(!row[name].is_null(), "{name} is missing in {row}");
        }
        let workers = &row["workers"];
        for name in ["mean", "ci95", "stdev", "least", "most", "requests"] {
            assert!(!workers[name].is_null(), "workers.{name} is missing in {row}");
        }
        let each: Vec<u64> =
            workers["requests"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert_eq!((each.len(), &row["threads"]), (64, &64.into()));
        let buckets = row["latency_buckets"].as_array().unwrap();
        let bounds: Vec<u64> =
            buckets.iter().map(|bucket| bucket["from_s"].as_u64().unwrap()).collect();
        assert_eq!(bounds, [0, 1, 2, 4, 8, 16, 32, 64, 128]);
        let counted: u64 = buckets.iter().map(|bucket| bucket["ops"].as_u64().unwrap()).sum();
        assert_eq!((counted, row["ops"].as_u64()), (each.iter().sum(), Some(counted)));
        assert!(count(row, "pswpin") > 0 && count(row, "pswpout") > 0);
    }
    let published = &rows[4];
    assert_eq!((&published["jain"], &published["ops"]), (&0.995_893.into(), &81_898.into()));
    assert_eq!(published["latency_buckets"][3]["ops"], 39_354);

    let output = run(&args(&TENANTS, &["--policy", "mglru-7.1,mglru-7.1+series"]));
    let table = text(&output.stdout);
    for word in ["Jain", "published v7", "reproduced?", "a page stands for 256", "of zram for swap"]
    {
        assert!(table.contains(word), "`{word}` is not in: {table}");
    }
}

#[test]
fn tenants_on_two_nodes_with_files_and_a_limit_of_swap_are_all_there() {
    let with = ["--nodes", "2", "--file", "64M", "--swap-high", "256M", "--policy", "lru"];
    let results = json(&args(&TENANTS, &with));
    let [row] = &rows(&results)[..] else { panic!("what was published had neither: {results}") };
    assert_eq!(
        (&row["nodes"], row["workers"]["requests"].as_array().unwrap().len()),
        (&2.into(), 64)
    );
    assert_eq!(row["swap_high_bytes"], 1 << 20);
    assert!(row["throttled_ms"].as_f64().unwrap() > 0.0, "4 GiB of heap a worker: {row}");
    assert!(count(row, "pgpgin") >= 32 * 256 && count(row, "pswpin") > 0, "32 files: {row}");
}

#[test]
fn tenants_print_the_same_bytes_for_the_same_seed_and_refuse_what_they_do_not_have() {
    let arguments = args(&TENANTS, &["--policy", "lru"]);
    assert_eq!(json(&arguments), json(&arguments));
    for (option, value) in [("--ops", "5k"), ("--threads", "4"), ("--size", "1G")] {
        has_no(&TENANTS, option, value);
    }
}
