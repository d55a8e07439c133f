//! Promise: workloads that write verify their data by reading it back, report it, and leave no
//! file.

use crate::common::{files, results, rows, run, text};
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
    refused(&["bench", "ycsb-b", "--against", "dd"], &["mmap-random"]);
    refused(&["bench", "ycsb-b", "--checkpoint", "1s"], &["--checkpoint", "ycsb-b"]);
    refused(&["bench", "ycsb-b", "--device-delay", "read=1ms"], &["--device-delay", "ycsb-b"]);
    refused(&["bench", "ycsb-b", "--record", "t.csv"], &["--record", "ycsb-b"]);
}
