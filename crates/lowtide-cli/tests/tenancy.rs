//! Promise: benchmarks with tenants run on real memory, verify what they read, name their figures as `lowtide sim` does, and refuse what cannot be meant.

mod common;

use std::path::Path;

use common::{results, rows, run, text};
use serde_json::Value;

/// A program that has no opinion.
const NOOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bpf/noop.bpf.o");

/// The rows that lowtide measured, each without errors and with contents verified.
fn measured(results: &Value) -> Vec<&Value> {
    let found: Vec<&Value> = rows(results).iter().filter(|row| row["system"] == "lowtide").collect();
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
    let args = ["bench", "high-thrash", "--max", "3M", "--seconds", "0.4", "--threads", "1,4", "--bpf", NOOP];
    let results = results(dir.path(), &args);
    let found = measured(&results);
    let cases: Vec<(u64, &str, bool)> = found
        .iter()
        .map(|row| {
            let law = row["high_policy"].as_str().unwrap();
            (row["threads"].as_u64().unwrap(), law, row["readahead"].as_bool().unwrap())
        })
        .collect();
    let mut want = Vec::new();
    for threads in [1, 4] {
        for law in ["overage", "refault-recency", "stall-debt", "bpf:noop"] {
            want.extend([(threads, law, true), (threads, law, false)]);
        }
    }
    assert_eq!(cases, want);
    for row in &found {
        has_numbers(
            row,
            &["ops_per_s", "device_tps", "device_read_kib_per_s", "own_read_kib_per_s", "throttled_ms"],
        );
        has_numbers(&row["neighbour"], &["ops_per_s", "alone_ops_per_s", "thrasher_ops_per_s"]);
        assert!(row["neighbour"]["latency_us"]["p99"].is_number());
        assert_eq!((&row["high_bytes"], &row["data_bytes"]), (&(3 << 20).into(), &(4 << 20).into()));
        let sample = &row["samples"][0];
        has_numbers(sample, &["tps", "read_kib"]);
        assert_eq!(row["jain"].is_number(), row["threads"] == 4);
        assert_eq!(row["program_runs"].is_number(), row["high_policy"] == "bpf:noop");
    }
    let free = |row: &&&Value| row["high_policy"] == "overage";
    assert!(found.iter().filter(free).all(|row| row["misses"].as_u64().unwrap() > 0), "it thrashes");
    let published: Vec<&Value> = rows(&results).iter().filter(|row| row["system"] == "published").collect();
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
    refused(dir.path(), &["bench", "high-thrash", "--bpf", text.to_str().unwrap()], &["text.bpf.o", "clang"]);
    refused(dir.path(), &["bench", "high-thrash", "--high-policy", "mercy"], &["mercy", "stall-debt"]);
    refused(dir.path(), &["bench", "high-thrash", "--ops", "5"], &["--ops", "--seconds"]);
    refused(dir.path(), &["bench", "high-thrash", "--page", "512"], &["--page", "1K"]);
    refused(dir.path(), &["bench", "ycsb-b", "--bpf", NOOP], &["--bpf", "high-thrash"]);
    refused(dir.path(), &["bench", "ycsb-b", "--threads", "1,2"], &["--threads", "high-thrash"]);
    refused(dir.path(), &["bench", "hihg-thrash"], &["hihg-thrash", "high-thrash"]);
    assert_eq!(common::files(dir.path()), ["text.bpf.o"]);
}
