//! Promise: `lowtide sim` prints the JSON that tools depend on, with the same bytes for the same
//! seed, and rejects invalid input with a message that names the error, its place and a remedy.

use crate::common;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::sim::{args, count, has_no, json, keys, refused};
use crate::common::{Running, rows, run, text};
use serde_json::Value;

const ZIPF: [&str; 8] = ["sim", "zipf", "--ops", "60k", "--size", "16M", "--max", "4M"];

fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// The names in the JSON are an interface: adding one is fine, losing or renaming one is not.
#[test]
fn the_names_in_the_json_are_pinned() {
    let machine = args(&ZIPF, &["--machine", "laptop", "--policy", "mglru-7.1,mglru"]);
    let results = json(&args(&machine, &["--timing=off"]));
    assert!(
        keys(&results)
            .is_superset(&BTreeSet::from(["command", "lowtide", "machine", "rows", "seed"]))
    );
    let line = "lowtide sim zipf --ops 60k --size 16M --max 4M --machine laptop";
    let command = results["command"].as_str().unwrap();
    assert!(command.starts_with(line) && !command.contains("--json"), "{command}");
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
        assert!(
            about_the_host.iter().all(|name| row[name].is_null()),
            "host fields only when requested: {row}"
        );
    }
    for row in rows(&json(&args(&machine, &["--timing"]))) {
        check(row, &about_the_host);
    }
    for row in rows(&json(&ZIPF)) {
        check(row, &about_the_host);
        assert!(
            in_time.iter().all(|name| row[name].is_null()),
            "the plain machine has no time: {row}"
        );
    }
}

#[test]
fn the_same_seed_prints_the_same_bytes_and_another_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, _) = mixed_trace(dir.path());
    let machine = ["--machine", "laptop"];
    let threads =
        ["--machine", "laptop", "--threads", "3", "--write", "10", "--access", "descriptor"];
    let of_trace = ["sim", "trace", trace.to_str().unwrap(), "--max", "1M"];
    for arguments in [
        args(&ZIPF, &["--timing=off"]),
        args(&ZIPF, &threads),
        of_trace.to_vec(),
        args(&of_trace, &machine),
    ] {
        for form in [&["--json"][..], &[]] {
            let [one, two] = [0; 2].map(|_| run(&args(&arguments, form)));
            assert!(one.status.success(), "{arguments:?}: {}", text(&one.stderr));
            assert!(one.stdout == two.stdout, "{arguments:?} {form:?}");
            assert!(text(&one.stdout).contains("42"), "the seed is printed");
        }
        let traced = arguments.contains(&"trace");
        let results = |seed| json(&args(&arguments, &["--seed", seed]))["rows"][0]["stat"].clone();
        assert!(traced || results("1") != results("2"), "{arguments:?}");
    }
}

#[test]
fn json_goes_to_standard_output_or_to_a_file_beside_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.json");
    let arguments = args(&ZIPF, &["--timing=off", "--json"]);
    let output = run(&args(&arguments, &[path.to_str().unwrap()]));
    assert!(output.status.success() && text(&output.stdout).contains("mglru-7.1"));
    let alone = run(&arguments).stdout;
    assert_eq!(fs::read(&path).unwrap(), alone);
    assert_eq!(run(&args(&arguments, &["-"])).stdout, alone);
}

#[test]
fn counters_mean_what_the_accesses_did() {
    // A loop over more pages than the budget holds: least recently used is the page that is wanted
    // next.
    let arguments =
        ["sim", "loop", "--size", "2M", "--max", "1M", "--ops", "5120", "--policy", "lru"];
    for access in ["mapped", "descriptor"] {
        let results = json(&args(&arguments, &["--access", access]));
        let row = &rows(&results)[0];
        assert_eq!((&row["accesses"], &row["misses"]), (&5120.into(), &5120.into()));
        assert_eq!((count(row, "pgpgin"), count(row, "pgpgout")), (5120 * 4, 0), "in KiB");
        assert_eq!(count(row, "pgmajfault"), if access == "mapped" { 5120 } else { 0 });
    }
    // And one that fits: every page is read once.
    let fits = args(&arguments, &["--max", "3M"]);
    for machine in [&[][..], &["--machine", "laptop", "--threads", "2"]] {
        let results = json(&args(&fits, machine));
        let row = &rows(&results)[0];
        assert_eq!((&row["accesses"], count(row, "pgpgin")), (&5120.into(), 2048), "{row}");
    }
    // What is written goes out when reclaim meets it: limits go by figures that are seconds old.
    let written = json(&args(&arguments, &["--write", "100", "--policy", "mglru"]));
    let row = rows(&written).last().unwrap();
    assert!(row["policy"] == "mglru" && count(row, "pgpgout") > 0, "{row}");
}

#[test]
fn a_machine_file_and_options_change_what_is_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let slow = write(
        dir.path(),
        "slow.toml",
        "base = \"laptop\"\n[device]\nbase = \"nvme\"\nread_ns = 5_000_000\n",
    );
    let seconds = |machine: &str| {
        let results = json(&args(&ZIPF, &["--machine", machine, "--policy", "lru", "--ops", "3k"]));
        assert_eq!(results["machine"]["name"], rows(&results)[0]["machine"]);
        rows(&results)[0]["seconds"].as_f64().unwrap()
    };
    assert!(seconds(slow.to_str().unwrap()) > 5.0 * seconds("laptop"));
    let phone = args(&ZIPF, &["--machine", "phone", "--device", "ramdisk", "--policy", "lru"]);
    let head = text(&run(&phone).stdout);
    assert!(head.contains("phone on ramdisk: 8 CPUs, 6G of memory, ramdisk;"), "{head}");
}

/// Every kind of operation, by three threads and one that is not named.
fn mixed_trace(dir: &Path) -> (PathBuf, usize) {
    let mut lines = String::from("op,space,page,pages,thread\n");
    let mut touched = BTreeSet::new();
    for n in 0..6000_u64 {
        let (page, thread) = (n * 7919 % 1000, n % 3);
        let (op, space, page, pages) = match n % 7 {
            0 => ("load", "file:a", page, n % 3 + 1),
            1 => ("store", "anon:heap", page % 50, 1),
            2 => ("write", "file:a", page, 2),
            3 => ("read", "file:b", page, n % 4 + 1),
            _ if n % 350 == 4 => ("sync", "file:a", 0, 1),
            _ if n % 350 == 11 => ("free", "anon:heap", 3, 1),
            _ => ("read", "file:a", page % 100, 1),
        };
        if !matches!(op, "sync" | "free") {
            touched.extend((page..page + pages).map(|page| (space, page)));
        }
        let thread = if n % 7 == 3 { String::new() } else { thread.to_string() };
        lines += &format!("{op},{space},{page},{pages},{thread}\n");
    }
    (write(dir, "mixed.csv", lines), touched.len())
}

#[test]
fn a_trace_is_played_on_both_machines_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, touched) = mixed_trace(dir.path());
    let arguments = ["sim", "trace", trace.to_str().unwrap(), "--max", "1M"];
    let plain = json(&arguments);
    assert_eq!(plain["machine"]["name"], "plain");
    let full = json(&args(&arguments, &["--machine", "laptop"]));
    for (results, threads) in [(&plain, 1), (&full, 3)] {
        assert_eq!(rows(results).len(), 3);
        for row in rows(results) {
            assert_eq!((&row["workload"], &row["threads"]), (&"replay".into(), &threads.into()));
            assert!(row["trace"].as_str().unwrap().ends_with("mixed.csv"));
            assert_eq!(row["footprint_pages"], touched);
            assert_eq!(row["data_bytes"], 4096 * touched);
            assert!(row["misses"].as_u64().unwrap() > 2000 && count(row, "pgpgout") > 0, "{row}");
        }
    }
    assert_eq!(rows(&full)[0]["ops"], 6000);
    let accesses = |results: &Value| rows(results)[0]["accesses"].as_u64();
    assert_eq!(accesses(&plain), accesses(&full));
    // Without a budget: a quarter of what is touched.
    let row = rows(&json(&arguments[..3]))[0].clone();
    assert_eq!(row["max_bytes"], touched / 4 * 4096);
}

#[test]
fn foreign_and_compressed_traces_are_told_by_their_content_or_forced() {
    let dir = tempfile::tempdir().unwrap();
    let lackey = write(
        dir.path(),
        "sort.txt",
        "==1== Lackey\nI  0401ab70,3\n S 1fff000658,8\n L 1fff000ffc,8\n",
    );
    let arguments = ["sim", "trace", lackey.to_str().unwrap(), "--max", "1M", "--policy", "mglru"];
    for forced in [&[][..], &["--format", "lackey"]] {
        let row = rows(&json(&args(&arguments, forced)))[0].clone();
        // The last access crosses a page's end.
        assert_eq!((&row["accesses"], &row["footprint_pages"]), (&4.into(), &3.into()));
    }
    refused(&args(&arguments, &["--format", "csv"]), 1, &["sort.txt", "byte 0"]);
    refused(&args(&arguments, &["--format", "csb"]), 2, &["csb", "oracle-general"]);
}

#[test]
fn traces_that_are_damaged_are_errors_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let header = "op,space,page,pages\n";
    let good = "read,file:a,1,1\n".repeat(100);
    let cases = [
        (
            "cut.csv",
            format!("{header}{good}read,file:a,1"),
            1,
            vec!["line 102", "byte 1620", "truncated"],
        ),
        (
            "corrupt.csv",
            format!("{header}{good}read,file:a,x,1\n"),
            1,
            vec!["line 102", "byte 1620", "`x`"],
        ),
        (
            "huge.csv",
            format!("{header}{good}read,file:a,4294967296,1\n"),
            1,
            vec!["line 102", "byte 1620", "2^32"],
        ),
        (
            "huger.csv",
            format!("{header}read,file:a,99999999999999999999,1\n"),
            1,
            vec!["line 2", "byte 20"],
        ),
        ("empty.csv", String::new(), 1, vec!["empty"]),
        ("header.csv", header.into(), 2, vec!["no operations"]),
        ("noise", "\u{1}\u{2}nothing".repeat(50), 1, vec!["recognised", "--format"]),
    ];
    for (name, content, code, words) in cases {
        let path = write(dir.path(), name, content);
        let arguments = ["sim", "trace", path.to_str().unwrap(), "--policy", "mglru"];
        let words = [&[name][..], &words].concat();
        for more in [&[][..], &["--max", "1M"], &["--machine", "laptop"]] {
            refused(&args(&arguments, more), code, &words);
        }
    }
    let whole = write(dir.path(), "whole.csv", format!("{header}{}", good.repeat(100)));
    let packed = zstd_like_cut(&whole);
    refused(&["sim", "trace", packed.to_str().unwrap(), "--max", "1M"], 1, &["cut.zst", "byte"]);
    refused(&["sim", "trace", "/nonexistent/t.csv"], 1, &["/nonexistent/t.csv"]);
    refused(&["sim", "trace", dir.path().to_str().unwrap()], 1, &["cannot open"]);
}

/// A zstd file that ends before its first block: magic and half a header.
fn zstd_like_cut(beside: &Path) -> PathBuf {
    write(beside.parent().unwrap(), "cut.zst", [0x28, 0xB5, 0x2F, 0xFD, 0x24])
}

#[test]
fn a_trace_comes_from_standard_input_too() {
    use std::io::Write;
    use std::process::Stdio;
    let mut child =
        common::lowtide(&["sim", "trace", "-", "--max", "1M", "--policy", "mglru", "--json"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
    child.stdin.take().unwrap().write_all(b"op,space,page,pages\nload,file:a,0,300\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows(&results)[0]["misses"], 300);
    refused(&["sim", "trace", "-"], 2, &["standard input", "--max"]);
    refused(
        &["sim", "trace", "-", "--max", "1M", "--machine", "laptop"],
        2,
        &["twice", "--machine"],
    );
}

#[test]
fn a_heap_that_does_not_fit_is_a_row_that_ends_and_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let heap = write(dir.path(), "heap.csv", "op,space,page,pages\nstore,anon:heap,0,1000\n");
    let arguments =
        ["sim", "trace", heap.to_str().unwrap(), "--max", "1M", "--policy", "mglru,lru"];
    for machine in [&["--swap", "0"][..], &["--machine", "laptop"]] {
        let output = run(&args(&args(&arguments, machine), &["--json"]));
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        assert!(message.contains("mglru: out of memory") && message.contains("--max"), "{message}");
        let results: Value = serde_json::from_slice(&output.stdout).expect("rows all the same");
        let ooms: Vec<&Value> = rows(&results).iter().map(|row| &row["oom"]).collect();
        assert_eq!(ooms, [1, 1]);
    }
}

#[test]
fn budgets_and_machines_that_cannot_be_are_refused() {
    refused(&args(&ZIPF, &["--max", "0"]), 2, &["--max 0", "256M"]);
    refused(&args(&ZIPF, &["--max", "max"]), 2, &["--max max", "--machine"]);
    refused(&args(&ZIPF, &["--max", "100K"]), 2, &["100K", "25 pages", "--max 128K"]);
    refused(&args(&ZIPF, &["--size", "0"]), 2, &["--size 0", "1G"]);
    refused(&args(&ZIPF, &["--size", "32T"]), 2, &["--size 32T", "16T"]);
    refused(&args(&ZIPF, &["--size", "16T", "--max", "15T"]), 1, &["available", "--max"]);
    refused(
        &args(&ZIPF, &["--machine", "laptop", "--max", "64G"]),
        2,
        &["64G", "laptop", "16G", "--max max"],
    );
    refused(&args(&ZIPF, &["--machine", "lapto"]), 2, &["did you mean `laptop`"]);
    refused(&args(&ZIPF, &["--machine", "/nonexistent.toml"]), 1, &["/nonexistent.toml"]);
    let dir = tempfile::tempdir().unwrap();
    for (content, key) in [
        ("cpus = 0\nmemory = \"1G\"\n", "cpus"),
        ("cpus = 2\nmemory = 0\n", "memory"),
        ("base = \"laptop\"\ncolour = 1\n", "colour"),
        ("cpus = 2\nmemory = \"1G\"\nkernel = \"2G\"\n", "kernel"),
        ("base = \n", "invalid"),
    ] {
        let file = write(dir.path(), "machine.toml", content);
        refused(&args(&ZIPF, &["--machine", file.to_str().unwrap()]), 2, &["machine", key]);
    }
}

#[test]
fn options_in_the_wrong_place_and_words_that_mean_nothing_are_refused() {
    refused(&args(&ZIPF, &["--threads", "2"]), 2, &["required", "--machine"]);
    for (option, value) in [("--scale", "2"), ("--format", "csv"), ("--swap", "1G")] {
        has_no(&ZIPF, option, value);
    }
    for (option, value) in [("--high-policy", "overage"), ("--bpf", "x.o"), ("--checkpoint", "1s")]
    {
        has_no(&ZIPF, option, value);
    }
    has_no(&ZIPF, "--seconds", "5");
    has_no(&ZIPF, "--rounds", "3");
    refused(&args(&ZIPF, &["--device", "hdd"]), 2, &["--machine"]);
    refused(&["sim", "zipf", "--trace", "t.csv"], 2, &["--trace"]);
    refused(&["sim"], 2, &["<WORKLOAD>", "zipf", "trace"]);
    refused(&["sim", "zipff"], 2, &["'zipf'"]);
    refused(&args(&ZIPF, &["--ops", "1.5"]), 2, &["1.5", "50M"]);
    refused(&args(&ZIPF, &["--write", "101"]), 2, &["101"]);
    refused(&args(&ZIPF, &["--policy", "mglru-S99"]), 2, &["S99", "S7"]);
    refused(
        &args(&ZIPF, &["--json", "/nonexistent/results.json"]),
        2,
        &["/nonexistent/results.json", "--json"],
    );
}

#[test]
fn options_of_a_trace_have_an_effect_or_are_refused() {
    let trace = ["sim", "trace", "t.csv"];
    has_no(&trace, "--ops", "5");
    has_no(&trace, "--threads", "5");
    for (more, words) in [
        (&["--seed", "1"][..], ["required", "--machine"]),
        (&["--points", "5"], ["required", "--mrc"]),
        (&["--plot", "x.html"], ["required", "--mrc"]),
        (&["--mrc", "--max", "1G"], ["cannot be used with", "--max"]),
        (&["--advise", "0.1", "--machine", "laptop"], ["cannot be used with", "--machine"]),
        (&["--mrc", "--timing"], ["cannot be used with", "--timing"]),
        (&["--machine", "laptop", "--swap", "1G"], ["cannot be used with", "--swap"]),
        (&["--machine", "laptop", "--swappiness", "9"], ["cannot be used with", "--swappiness"]),
    ] {
        refused(&args(&trace, more), 2, &words);
    }
}

#[test]
fn the_help_explains_every_option_and_the_list_every_workload() {
    for (what, words) in [
        ("--help", &["zipf", "trace", "accesses_per_s", "Exit codes", "seed"][..]),
        ("zipf", &["--machine", "--accesses", "--timing", "[default: 20M]"]),
        ("trace", &["--mrc", "--advise", "standard input"]),
    ] {
        let help = text(&run(&["sim", what, "--help"]).stdout);
        for word in words {
            assert!(help.contains(word), "{what}: {word}: {help}");
        }
    }
    let list = text(&run(&["list", "workloads"]).stdout);
    for name in ["zipf", "uniform", "loop"] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{name}");
    }
}

#[test]
fn ctrl_c_ends_a_run_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let endless = write(
        dir.path(),
        "endless.csv",
        format!("op,space,page,pages\n{}", "read,file:a,0,4000000000\n".repeat(100)),
    );
    for arguments in [
        vec!["sim", "zipf", "--ops", "100G", "--size", "16M", "--max", "4M"],
        vec![
            "sim",
            "uniform",
            "--ops",
            "100G",
            "--size",
            "16M",
            "--max",
            "4M",
            "--machine",
            "laptop",
        ],
        vec!["sim", "trace", endless.to_str().unwrap(), "--max", "1M"],
    ] {
        let mut running = Running::start(&arguments);
        running.wait_until_set_up();
        running.interrupt();
        let (code, message) = running.end();
        assert_eq!(code, Some(130), "{arguments:?}: {message}");
        assert!(message.contains("interrupted while"), "{arguments:?}: {message}");
    }
}

#[test]
fn policies_that_had_ended_are_shown_when_a_simulation_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let mut text = String::from("op,space,page,pages\n");
    text += &"read,file:a,0,4000000000\n".repeat(100);
    let endless = write(dir.path(), "endless.csv", text);
    // The trace is played by all policies in step, so each has a row for what had been read.
    let trace = endless.to_str().unwrap();
    let arguments = ["sim", "trace", trace, "--max", "1M", "--json", json.to_str().unwrap()];
    let mut running = Running::start(&arguments);
    running.wait_until_set_up();
    running.interrupt();
    let (code, output, message) = running.end_with_output();
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("the results shown were measured before that"), "{message}");
    assert!(output.contains("mglru-7.1") && output.contains("pages of 4K touched"), "{output}");
    let results: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((&results["interrupted"], rows(&results).len()), (&true.into(), 3));
}

#[test]
fn results_that_cannot_be_written_are_errors_and_places_are_checked_first() {
    let zipf = args(&ZIPF, &["--policy", "mglru"]);
    for arguments in
        [zipf.as_slice(), &["list", "policies"], &["doctor"], &args(&zipf, &["--json"])]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = common::lowtide(arguments).stdout(full).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
        assert!(
            message.contains("standard output: No space left on device"),
            "{arguments:?}: {message}"
        );
    }
    // A reader that has left is no error.
    let mut child = common::lowtide(&["list", "workloads"]).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    refused(&args(&zipf, &["--json", "/"]), 2, &["/: it is a directory", "--json"]);
    refused(&args(&zipf, &["--json", "/nowhere/r.json"]), 2, &["/nowhere is not a directory"]);
}

#[test]
fn the_curves_are_printed_even_if_their_picture_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, _) = mixed_trace(dir.path());
    let curves =
        ["sim", "trace", trace.to_str().unwrap(), "--mrc", "--points", "3", "--baseline", "none"];
    // No directory says beforehand that it takes no new files, if it belongs to the kernel and the
    // user is root.
    let output = run(&args(&curves, &["--plot", "/proc/x.html"]));
    let message = text(&output.stderr);
    if output.status.code() == Some(1) {
        assert!(message.contains("cannot write the plot to /proc/x.html"), "{message}");
        assert!(text(&output.stdout).contains("mglru-7.1"), "{}", text(&output.stdout));
    } else {
        assert!(
            output.status.code() == Some(2) && message.contains("Permission denied"),
            "{message}"
        );
    }
    let drawn = dir.path().join("curves.html");
    let plot = ["--plot", drawn.to_str().unwrap(), "--advise", "0.9"];
    assert!(run(&args(&curves, &plot)).status.success());
    let page = fs::read_to_string(&drawn).unwrap();
    let parts = ["Miss ratio by memory budget", "<svg", "is enough for at most 90 % misses"];
    assert!(parts.iter().all(|part| page.contains(part)), "{page}");
    refused(&args(&curves, &["--plot", "x.png"]), 2, &["its name does not end in", ".html"]);
}
