//! Promise: workloads that write verify their data by reading it back, report it, and leave no
//! file; with an artificially slow device lowtide runs without peers.

mod common;

use common::{files, results, rows, run, text};
use serde_json::Value;

fn labels(results: &Value) -> Vec<String> {
    let name = |row: &Value, field: &str| row[field].as_str().unwrap_or("-").to_owned();
    rows(results)
        .iter()
        .map(|row| format!("{} {}", name(row, "system"), name(row, "policy")))
        .collect()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name} is missing in {row}"))
}

#[test]
fn updates_say_how_they_reached_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["bench", "ycsb-a", "--max", "2M", "--ops", "3000", "--rounds", "2", "--against", "none"];
    let results =
        results(dir.path(), &[args.as_slice(), &["--policy", "mglru-7.1+S10,mglru"]].concat());
    assert_eq!(labels(&results), ["lowtide mglru-7.1+S10", "lowtide mglru"]);
    for row in rows(&results) {
        let (writes, each) = (number(row, "device_writes"), number(row, "bytes_per_write"));
        assert!(
            (writes * each - number(row, "device_write_bytes")).abs() < 1.0 && each >= 1024.0,
            "{row}"
        );
        assert!(number(row, "flush_seconds") > 0.0 && number(row, "dirty_throttled_ms") >= 0.0);
        assert!(number(row, "dirty_bytes") <= f64::from(2 << 20));
        assert!(row["checkpoints"].is_null() && row["slowed"].is_null());
    }
}

#[test]
fn a_slowed_device_has_no_peers_and_takes_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let slow = ["--device-delay", "read=3ms", "--device-bandwidth", "write=64M"];
    let args = ["bench", "ycsb-b", "--max", "2M", "--scale", "2", "--ops", "200", "--rounds", "1"];
    let results =
        results(dir.path(), &[args.as_slice(), &slow, &["--policy", "mglru,lru"]].concat());
    assert_eq!(labels(&results), ["lowtide mglru", "lowtide lru"]);
    for row in rows(&results) {
        assert_eq!(row["slowed"], "delay read=3ms, bandwidth write=64M/s");
        let misses = number(&row["stat"], "pgmajfault");
        assert!(misses > 0.0 && number(row, "seconds") >= misses * 0.003, "{row}");
    }
}

/// Exit code and message of a command line that cannot be meant.
fn refused(args: &[&str], words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&[args, &["--dir", dir.path().to_str().unwrap()]].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{args:?}: {message}");
    assert!(files(dir.path()).is_empty());
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_made() {
    refused(&["bench", "ycsb-b", "--device-delay", "10ms"], &["--device-delay", "read="]);
    refused(&["bench", "ycsb-b", "--device-delay", "write=10"], &["10", "ms"]);
    refused(&["bench", "ycsb-b", "--device-bandwidth", "write=0"], &["--device-bandwidth", "50M"]);
    refused(
        &["bench", "ycsb-b", "--device-bandwidth", "sync=1M"],
        &["--device-bandwidth", "write=50M"],
    );
    let slow = ["--device-delay", "write=1ms"];
    refused(&[["bench", "ycsb-b", "--against", "mmap"].as_slice(), &slow].concat(), &["--against"]);
    refused(&["bench", "ycsb-b", "--against", "dd"], &["mmap-random"]);
    refused(&["bench", "ycsb-b", "--checkpoint", "1s"], &["--checkpoint", "ycsb-b"]);
}
