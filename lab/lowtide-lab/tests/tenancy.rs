//! Promise: benchmarks with tenants run on real memory, verify what they read, use the names of
//! `lowtide-lab sim` for their figures, and reject invalid options.

use crate::common;
use std::path::Path;

use crate::common::{results, rows, run, text};
use serde_json::Value;

/// A program that has no opinion.
const NOOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bpf/noop.bpf.o");

/// The rows that lowtide measured, each without errors and with contents verified.
fn measured(results: &Value) -> Vec<&Value> {
    let found: Vec<&Value> =
        rows(results).iter().filter(|row| row["system"] == "lowtide").collect();
    for row in &found {
        assert_eq!(row["world"], "real");
        assert_eq!(row["errors"], 0, "{row}");
        assert!(row["verified"].as_u64().unwrap() > 0, "{row}");
    }
    found
}

/// Everything in `names` is there and a number.
fn has_numbers(row: &Value, names: &[&str]) {
    for name in names {
        assert!(row[name].is_number(), "{name} is missing in {row}");
    }
}

/// What the simulator does not know of.
const ONLY_REAL: [&str; 5] =
    ["verified", "device_source", "own_reads_per_s", "own_read_kib_per_s", "program_runs"];

/// Every field of a row is one that the simulator's rows of the same workload have, by the list
/// that `json_names.rs` verifies, or one that only real rows can have.
fn has_the_names_of_the_simulator(row: &Value) {
    let list = include_str!("json_names.txt");
    let heading = format!("# {}", row["workload"].as_str().unwrap());
    let mut sections = list.split("\n\n");
    let common = sections.next().unwrap();
    let own = sections.find(|section| section.lines().next() == Some(&heading)).unwrap();
    for name in row.as_object().unwrap().keys() {
        let known = common.lines().chain(own.lines()).chain(ONLY_REAL).any(|known| known == name);
        assert!(known, "`{name}` is not a name of `sim`: {row}");
    }
}

fn refused(dir: &Path, args: &[&str], words: &[&str]) {
    let mut all = args.to_vec();
    all.extend(["--dir", dir.to_str().unwrap()]);
    let output = run(&all);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{args:?}: `{word}` is not in: {message}");
    }
}

#[test]
fn a_thrash_has_a_row_for_each_law_and_each_number_of_threads_beside_what_was_published() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "high-thrash",
        "--base",
        "3M",
        "--seconds",
        "0.2",
        "--threads",
        "1,4",
        "--bpf",
        NOOP,
    ];
    let results = results(dir.path(), &args);
    let found = measured(&results);
    let cases: Vec<(u64, &str, bool)> = found
        .iter()
        .map(|row| {
            let throttle = row["high_policy"].as_str().unwrap();
            (row["threads"].as_u64().unwrap(), throttle, row["readahead"].as_bool().unwrap())
        })
        .collect();
    let mut want = Vec::new();
    for threads in [1, 4] {
        for throttle in ["overage", "refault-recency", "stall-debt", "bpf:noop"] {
            want.extend([(threads, throttle, true), (threads, throttle, false)]);
        }
    }
    assert_eq!(cases, want);
    for row in &found {
        has_the_names_of_the_simulator(row);
        has_numbers(
            row,
            &[
                "ops_per_s",
                "device_tps",
                "device_read_kib_per_s",
                "own_read_kib_per_s",
                "throttled_ms",
            ],
        );
        has_numbers(&row["neighbour"], &["ops_per_s", "alone_ops_per_s", "thrasher_ops_per_s"]);
        assert!(row["neighbour"]["latency_us"]["p99"].is_number());
        assert_eq!(
            (&row["high_bytes"], &row["data_bytes"]),
            (&(3 << 20).into(), &(4 << 20).into())
        );
        let sample = &row["samples"][0];
        has_numbers(sample, &["tps", "read_kib"]);
        assert_eq!(row["jain"].is_number(), row["threads"] == 4);
        assert_eq!(row["program_runs"].is_number(), row["high_policy"] == "bpf:noop");
    }
    let free = |row: &&&Value| row["high_policy"] == "overage";
    assert!(
        found.iter().filter(free).all(|row| row["misses"].as_u64().unwrap() > 0),
        "it thrashes"
    );
    let published: Vec<&Value> =
        rows(&results).iter().filter(|row| row["system"] == "published").collect();
    assert_eq!(published.len(), 3);
    assert_eq!(published[0]["samples"].as_array().unwrap().len(), 6);
    assert!((published[2]["device_tps"].as_f64().unwrap() - 533.3).abs() < 0.1);
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent.bpf.o");
    refused(
        dir.path(),
        &["bench", "high-thrash", "--bpf", absent.to_str().unwrap()],
        &["absent.bpf.o", "--bpf"],
    );
    let text = dir.path().join("text.bpf.o");
    std::fs::write(&text, "no object file").unwrap();
    refused(
        dir.path(),
        &["bench", "high-thrash", "--bpf", text.to_str().unwrap()],
        &["text.bpf.o", "clang"],
    );
    refused(
        dir.path(),
        &["bench", "high-thrash", "--high-policy", "mercy"],
        &["mercy", "stall-debt"],
    );
    refused(dir.path(), &["bench", "high-thrash", "--ops", "5"], &["--ops", "high-thrash"]);
    refused(dir.path(), &["bench", "high-thrash", "--page", "512"], &["--page", "1K"]);
    refused(dir.path(), &["bench", "fill", "--bpf", NOOP], &["--bpf", "fill"]);
    refused(dir.path(), &["bench", "tenants", "--scale", "3"], &["'3' for '--scale", "0.001"]);
    refused(dir.path(), &["bench", "tenants", "--threads", "3"], &["--threads", "tenants"]);
    refused(dir.path(), &["bench", "noisy-neighbour", "--scale", "3"], &["--scale", "noisy"]);
    refused(dir.path(), &["bench", "noisy-neighbour", "--rounds", "3"], &["--rounds", "noisy"]);
    refused(dir.path(), &["bench", "file-anon-mix", "--against", "mmap"], &["--against"]);
    refused(
        dir.path(),
        &["bench", "file-anon-mix", "--high-policy", "overage"],
        &["--high-policy"],
    );
    refused(dir.path(), &["bench", "hihg-thrash"], &["hihg-thrash", "high-thrash"]);
    assert_eq!(common::files(dir.path()), ["text.bpf.o"]);
}

#[test]
fn a_scanner_has_rows_without_and_with_low_beside_the_tenants_alone() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["bench", "noisy-neighbour", "--max", "3M", "--seconds", "1.5", "--policy", "mglru,lru"];
    let results = results(dir.path(), &args);
    let found = measured(&results);
    let companies: Vec<&str> = found.iter().map(|row| row["company"].as_str().unwrap()).collect();
    assert_eq!(companies, ["alone", "scanner", "scanner, low"].repeat(2));
    for row in &found {
        has_the_names_of_the_simulator(row);
        has_numbers(
            row,
            &["accesses", "misses", "hit_ratio", "hit_ratio_change_pct", "scanned_pages_per_s"],
        );
        assert_eq!(row["scanned_pages_per_s"] == 0.0, row["company"] == "alone", "{row}");
    }
    assert_eq!(found[0]["hit_ratio_change_pct"], 0.0);
}

#[test]
fn tenants_alike_have_the_statistics_of_the_simulator_and_published_rows() {
    let dir = tempfile::tempdir().unwrap();
    let policy = "mglru-7.1+series";
    let args = ["bench", "tenants", "--scale", "0.0005", "--seconds", "1", "--policy", policy];
    let results = results(dir.path(), &args);
    let found = measured(&results);
    let row = found[0];
    let requests: Vec<u64> = row["workers"]["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count.as_u64().unwrap())
        .collect();
    assert_eq!((requests.len(), row["threads"].as_u64()), (64, Some(64)));
    assert_eq!(row["ops"].as_u64(), Some(requests.iter().sum()));
    has_numbers(&row["workers"], &["mean", "stdev", "least", "most"]);
    assert!((1.0 / 64.0..=1.0).contains(&row["jain"].as_f64().unwrap()));
    let counted: u64 = row["latency_buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| bucket["ops"].as_u64().unwrap())
        .sum();
    assert!(counted > 0);
    assert!(row["misses"].as_u64().unwrap() > 0, "a half of it has no room");
    assert!(row["stat"]["pswpin"].as_u64().unwrap() > 0, "it is swapped: {row}");
    let published =
        rows(&results).iter().find(|row| row["source"] == "v7").expect("a published row");
    assert_eq!((&published["system"], &published["ops"]), (&"published".into(), &82_901.into()));
}

#[test]
fn a_file_and_a_heap_that_do_not_fit_together_finish_their_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "file-anon-mix",
        "--max",
        "16M",
        "--rounds",
        "3",
        "--seconds",
        "50",
        "--policy",
        "mglru,lru",
    ];
    let results = results(dir.path(), &args);
    for row in measured(&results) {
        assert_eq!((&row["oom"], &row["rounds"]), (&0.into(), &3.into()), "{row}");
        assert!(row["stat"]["peak"].as_u64().unwrap() <= 16 << 20);
        assert!(
            row["stat"]["pgsteal"].as_u64().unwrap() > 0,
            "each round pushes pages of the file out"
        );
        assert_eq!(row["data_bytes"], 22 << 20);
    }
}

#[test]
fn what_a_program_costs_is_measured_in_pairs() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "program-cost",
        "--max",
        "3M",
        "--seconds",
        "0.4",
        "--rounds",
        "4",
        "--bpf",
        NOOP,
    ];
    let results = results(dir.path(), &args);
    let found = measured(&results);
    let row = found[0];
    assert_eq!((&row["high_policy"], &row["rounds"]), (&"bpf:noop".into(), &4.into()));
    assert!(row["program_runs"].as_u64().unwrap() > 0, "it was asked: {row}");
    assert!(row["misses"].as_u64().unwrap() > 0);
    for ratio in [&row["time_ratio"], &row["cpu_ratio"]] {
        has_numbers(ratio, &["median", "min", "max"]);
    }
    assert_eq!(row["cpu_ratio_ci95"].as_array().unwrap().len(), 2);
    refused(dir.path(), &["bench", "program-cost"], &["--bpf <FILE>"]);
}

#[test]
fn tenants_with_a_file_and_objects_swap_and_are_slowed_down_above_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let small = ["bench", "tenants", "--scale", "0.0005", "--seconds", "1", "--policy", "mglru"];
    let with = ["--file", "64M", "--content", "objects", "--swap-high", "1G"];
    let results = results(dir.path(), &[&small[..], &with[..]].concat());
    let [row] = &rows(&results)[..] else { panic!("what was published had none of it: {results}") };
    assert_eq!(row["swap_high_bytes"], 131 * 4096);
    assert!(row["stat"]["pswpout"].as_u64().unwrap() > 0, "{row}");
    assert!(row["throttled_ms"].as_f64().unwrap() > 0.0, "{row}");
}
