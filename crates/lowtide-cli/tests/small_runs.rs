//! Promise: every kind of benchmark runs, verifies what it reads, and writes the JSON that tools
//! depend on.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::{files, maps_or_skip, memcg_or_skip, results, rows, run, text};
use serde_json::Value;

const SMALL: [&str; 6] = ["--max", "2M", "--ops", "4000", "--rounds", "2"];

fn bench(workload: &'static str, more: &[&'static str]) -> Vec<&'static str> {
    [&["bench", workload], SMALL.as_slice(), more].concat()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// The names in the JSON are an interface: adding one is fine, losing or renaming one is not.
#[test]
fn the_names_in_the_json_are_pinned() {
    let dir = tempfile::tempdir().unwrap();
    // The default mapping reads ahead more than a smaller budget holds, and would be killed for it.
    let results = results(
        dir.path(),
        &bench("ycsb-b", &["--max", "16M", "--scale", "1.5", "--policy", "mglru"]),
    );
    assert!(keys(&results).is_superset(&BTreeSet::from(["command", "lowtide", "machine", "rows"])));
    assert!(results.get("interrupted").is_none());
    assert_eq!(results["lowtide"], env!("CARGO_PKG_VERSION"));
    for name in ["date", "kernel", "cpus", "cpu_model", "memory_total_bytes", "file_system", "io"] {
        assert!(!results["machine"][name].is_null(), "machine.{name} is missing");
    }
    let names = [
        "workload",
        "world",
        "system",
        "policy",
        "max_bytes",
        "data_bytes",
        "page_bytes",
        "threads",
        "batch",
        "seed",
        "seconds",
        "ops",
        "ops_per_s",
        "latency_us",
        "verified",
        "errors",
        "rounds",
        "speed_ratio",
        "round_ops_per_s",
        "cpu_seconds",
        "device_read_bytes",
        "device_write_bytes",
        "read_amplification",
        "stat",
    ];
    for row in rows(&results) {
        for name in names {
            assert!(row.as_object().unwrap().contains_key(name), "{name} is missing in {row}");
        }
        assert_eq!(
            keys(&row["latency_us"]),
            BTreeSet::from(["mean", "p50", "p90", "p95", "p99", "p999", "p9999", "max"])
        );
        assert_eq!(keys(&row["speed_ratio"]), BTreeSet::from(["median", "min", "max"]));
        for counter in ["pgfault", "pgmajfault", "workingset_refault_file", "pgpgin", "pgpgout"] {
            assert!(row["stat"][counter].is_u64(), "stat.{counter} is missing in {row}");
        }
        if row["system"] == "lowtide" {
            assert!(row["stat"]["pgscan"].is_u64() && row["stat"]["pgsteal"].is_u64());
        }
    }
}

#[test]
fn ycsb_rows_are_complete_verified_and_each_system_has_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let results =
        results(dir.path(), &bench("ycsb-b", &["--threads", "4", "--against", "mmap-random"]));
    let labels: Vec<String> = rows(&results)
        .iter()
        .map(|row| {
            format!("{} {}", row["system"].as_str().unwrap(), row["policy"].as_str().unwrap_or("-"))
        })
        .collect();
    let mut want = vec!["lowtide mglru", "lowtide mglru-7.1", "lowtide lru"];
    if memcg_or_skip("the mmap rows of ycsb-b") {
        want.push("mmap-random -");
    }
    assert_eq!(labels, want);
    for row in rows(&results) {
        assert_eq!((&row["workload"], &row["world"]), (&"ycsb-b".into(), &"real".into()));
        assert_eq!(
            (row["ops"].as_u64(), row["verified"].as_u64()),
            (Some(4000), Some(4000)),
            "{row}"
        );
        assert_eq!(row["errors"], 0);
        assert_eq!(
            (&row["threads"], &row["rounds"], &row["max_bytes"]),
            (&4.into(), &2.into(), &(2 << 20).into())
        );
        assert!(row["ops_per_s"].as_f64().unwrap() > 0.0);
        assert!(
            row["device_read_bytes"].as_u64().unwrap() > 0,
            "data of four budgets is not read from memory"
        );
    }
    assert_eq!(rows(&results)[0]["speed_ratio"]["median"], 1.0);
    assert_eq!(files(dir.path()).len(), want.len());
}

#[test]
fn updates_in_batches_and_on_pages_of_every_kind_stay_whole() {
    let dir = tempfile::tempdir().unwrap();
    for page in ["1K", "4K", "64K"] {
        for batch in ["1", "16"] {
            let args = ["--threads", "4", "--policy", "mglru", "--against", "none"];
            let args =
                [args.as_slice(), &["--page", page, "--batch", batch, "--max", "8M"]].concat();
            let args =
                [&["bench", "ycsb-a", "--ops", "4000", "--rounds", "2"], args.as_slice()].concat();
            let results = results(dir.path(), &args);
            let row = &rows(&results)[0];
            assert_eq!(row["verified"], 4000, "page {page}, batch {batch}");
            assert!(row["device_write_bytes"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn data_is_kept_for_the_next_run_and_removed_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let args = bench("ycsb-c", &["--policy", "mglru,lru", "--against", "none"]);
    results(dir.path(), &args);
    assert_eq!(files(dir.path()), ["records-8M-1.data"], "readers share one file");
    let inode = || fs::metadata(dir.path().join("records-8M-1.data")).unwrap().ino();
    let first = inode();
    results(dir.path(), &args);
    assert_eq!(inode(), first);
    results(dir.path(), &[args.as_slice(), &["--no-keep"]].concat());
    assert!(files(dir.path()).is_empty());
}

#[test]
fn pages_are_read_at_random_and_in_order_and_from_a_file_of_the_users() {
    let dir = tempfile::tempdir().unwrap();
    for workload in ["random-read", "scan"] {
        let results =
            results(dir.path(), &bench(workload, &["--threads", "2", "--against", "mmap-random"]));
        for row in rows(&results) {
            assert_eq!((&row["verified"], &row["errors"]), (&4000.into(), &0.into()), "{row}");
        }
    }
    let own = dir.path().join("own");
    fs::write(&own, vec![9; 4 << 20]).unwrap();
    let json = dir.path().join("own.json");
    let file = ["--file", own.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = run(&[bench("random-read", &["--against", "none"]).as_slice(), &file].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let row = &rows(&results)[0];
    assert_eq!(
        (&row["ops"], &row["verified"], &row["errors"]),
        (&4000.into(), &0.into(), &0.into())
    );
}

#[test]
fn the_time_of_misses_is_explained_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let args = |more: &[&str]| {
        let place = ["--dir", dir.path().to_str().unwrap()];
        let usual = ["--against", "none", "--policy", "mglru,lru"];
        run(&[bench("random-read", &usual).as_slice(), &place, more].concat())
    };
    let plain = args(&[]);
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    assert!(!text(&plain.stdout).contains("engine ns"), "{}", text(&plain.stdout));
    let output = args(&["--explain"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let table = printed.lines().skip_while(|line| !line.starts_with("misses ")).skip(1);
    let rows: Vec<Vec<f64>> = table
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let number = |word: &str| word.replace('\u{a0}', "").parse().unwrap();
            line.split_whitespace().skip(2).map(number).collect()
        })
        .collect();
    assert_eq!(rows.len(), 2, "{printed}");
    for row in rows {
        let [thousands, allocate, read, publish, locks, _, held, engine] = row[..] else {
            panic!("{printed}")
        };
        assert!((1.0..=4.0).contains(&thousands), "three quarters of 4000 reads miss: {printed}");
        assert!([allocate, read, publish].iter().all(|&part| part > 0.0), "{printed}");
        assert!(locks >= 1.0, "each miss takes the lock: {printed}");
        // A thread that loses its processor in between makes the first larger than the second.
        assert!(engine > 0.0 && held > 0.0, "the engine works, and under the lock: {printed}");
    }
}

#[test]
fn maps_are_read_beside_views_under_each_policy_and_verified() {
    let maps = maps_or_skip("the rows of maps");
    for (workload, threads) in [("random-read", "1"), ("scan", "2"), ("ycsb-c", "32")] {
        let dir = tempfile::tempdir().unwrap();
        let both = ["--policy", "mglru,lru", "--against", "map-userfault,map-pagecache"];
        let args = [both.as_slice(), &["--threads", threads]].concat();
        let results = results(dir.path(), &bench(workload, &args));
        let mut want = vec![("lowtide", "mglru"), ("lowtide", "lru")];
        want.extend(maps.iter().flat_map(|map| [(*map, "mglru"), (*map, "lru")]));
        let named = |row: &'_ Value| (row["system"].clone(), row["policy"].clone());
        let found: Vec<_> = rows(&results).iter().map(named).collect();
        let want: Vec<_> = want.iter().map(|(a, b)| (Value::from(*a), Value::from(*b))).collect();
        assert_eq!(found, want, "{workload}");
        for row in rows(&results) {
            assert_eq!((&row["verified"], &row["errors"]), (&4000.into(), &0.into()), "{row}");
            let refaults = row["stat"]["workingset_refault_file"].as_u64().unwrap();
            assert!(refaults > 0, "data of four budgets comes in again: {row}");
            let is_cached = row["system"] == "map-pagecache";
            assert_eq!(row.get("cached_max_bytes").is_some(), is_cached, "{row}");
        }
        // One for the views and the maps that fill their own memory, one for each page cache.
        let caches = 2 * usize::from(maps.contains(&"map-pagecache"));
        assert_eq!(files(dir.path()).len(), 1 + caches, "{workload}");
    }
}

#[test]
fn a_scan_with_a_stride_reads_every_page() {
    let dir = tempfile::tempdir().unwrap();
    let some = ["--policy", "mglru", "--against", "mmap-random", "--stride", "7"];
    let results = results(dir.path(), &bench("scan", &some));
    for row in rows(&results) {
        assert_eq!((&row["stride"], &row["verified"]), (&7.into(), &4000.into()), "{row}");
    }
}

#[test]
fn maps_are_left_out_of_workloads_that_write() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("results.json");
    let at = ["--dir", dir.path().to_str().unwrap(), "--json", json.to_str().unwrap()];
    let some = ["--policy", "mglru", "--against", "map-userfault"];
    let output = run(&[bench("ycsb-b", &some).as_slice(), &at].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let note = "map-userfault left out: a map is read-only, and ycsb-b writes";
    assert!(text(&output.stderr).contains(note), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(rows(&results).len(), 1);
}

#[test]
fn the_lists_and_the_doctor_answer() {
    let said = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success());
        text(&output.stdout)
    };
    let workloads = said(&["list", "workloads"]);
    assert!(
        ["ycsb-a", "ycsb-b", "ycsb-c", "random-read", "gather", "scan"]
            .iter()
            .all(|name| workloads.lines().any(|line| line.starts_with(name)))
    );
    let policies = said(&["list", "policies"]);
    assert!(policies.contains("mglru-7.1") && policies.contains("S15"));
    assert!(said(&["doctor"]).contains("io_uring"));
    assert!(!said(&["--help"]).contains("peer-mmap"), "the worker is not a public command");
}
