//! Promise: no flushed byte is lost in a kill or a power cut, and the proofs fail when it is.

use crate::common::{files, results, rows, run, text};

#[test]
fn killed_writers_leave_every_flushed_byte() {
    let mut undrawn = vec!["files shrunk", "ranges punched"];
    // On a busy machine writers are killed after a few calls: further cycles draw what is seldom.
    for seed in ["1", "2", "3", "4", "5"] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["bench", "crash", "--cycles", "60", "--threads", "8", "--seed", seed];
        let results = results(dir.path(), &args);
        let row = &rows(&results)[0];
        assert_eq!((row["workload"].as_str(), row["cycles"].as_u64()), (Some("crash"), Some(60)));
        assert_eq!((row["lost_bytes"].as_u64(), row["wrong_bytes"].as_u64()), (Some(0), Some(0)));
        let data = row["data_bytes"].as_u64().unwrap();
        assert_eq!(row["verified_bytes"].as_u64().unwrap(), 60 * data);
        assert!(row["flushes"].as_u64().unwrap() > 0, "nothing was promised: {row}");
        assert!(files(dir.path()).is_empty(), "files are left behind");
        undrawn.retain(|what| drawn(row, what) == 0);
        if undrawn.is_empty() {
            return;
        }
    }
    panic!("not drawn: {undrawn:?}");
}

/// How often this happened.
fn drawn(row: &serde_json::Value, what: &str) -> u64 {
    let drawn = row["drawn"].as_array().unwrap();
    drawn.iter().find(|of| of["what"] == what).map_or(0, |of| of["count"].as_u64().unwrap())
}

/// That each of these happened.
fn assert_drawn(row: &serde_json::Value, whats: &[&str]) {
    for what in whats {
        assert!(drawn(row, what) > 0, "{what}: {row}");
    }
}

#[test]
fn power_cuts_on_a_failing_disk_leave_every_flushed_byte() {
    let dir = tempfile::tempdir().unwrap();
    let results = results(dir.path(), &["bench", "power-cut", "--cuts", "200", "--seed", "1"]);
    let row = &rows(&results)[0];
    assert_eq!((row["workload"].as_str(), row["cycles"].as_u64()), (Some("power-cut"), Some(200)));
    assert_eq!((row["lost_bytes"].as_u64(), row["wrong_bytes"].as_u64()), (Some(0), Some(0)));
    for counted in ["flushes", "writes", "reads", "refused"] {
        assert!(row[counted].as_u64().unwrap() > 100, "{counted}: {row}");
    }
    for lost in ["sectors_dropped", "sectors_kept", "writes_torn", "cuts_reordered"] {
        assert!(row["disk"][lost].as_u64().unwrap() > 0, "{lost}: the disk is too kind: {row}");
    }
    assert_drawn(
        row,
        &[
            "files shrunk",
            "ranges punched",
            "ranges discarded",
            "files that began sparse",
            "files that the pager made",
        ],
    );
    for kind in ["faults", "sites"] {
        let reached =
            row[kind].as_array().unwrap().iter().filter(|of| of["count"].as_u64() > Some(0));
        assert!(reached.count() >= 10, "{row}");
    }
    assert!(files(dir.path()).is_empty(), "files are left behind");
}

/// Each lie within a number of cuts: a part of them at a time, since most lies show within the
/// first, and a run goes on to its end.
#[test]
fn a_disk_that_lies_is_found_out_within_200_cuts() {
    const PARTS: [&str; 5] = ["1", "2", "3", "4", "5"];
    for lie in ["lost-sync", "lost-write", "lost-shrink", "lost-tail", "lost-punch", "lost-name"] {
        let is_found_out = |seed: &&str| {
            let dir = tempfile::tempdir().unwrap();
            let lying = ["--sabotage", lie, "--dir", dir.path().to_str().unwrap()];
            let bench = ["bench", "power-cut", "--cuts", "40", "--seed", seed];
            let output = run(&[&bench[..], &lying].concat());
            let message = text(&output.stderr);
            match output.status.code() {
                Some(0) => false,
                Some(1) if message.contains("power-cut") && message.contains("lost") => true,
                code => panic!("{lie}: {code:?}, {message}"),
            }
        };
        assert!(PARTS.iter().any(is_found_out), "{lie} went unnoticed");
    }
}

#[test]
fn what_is_for_measurements_is_refused() {
    for args in [
        &["bench", "crash", "--cuts", "3"][..],
        &["bench", "power-cut", "--cycles", "3"],
        &["bench", "crash", "--seconds", "3"],
        &["bench", "power-cut", "--against", "mmap"],
        &["bench", "hit", "--cuts", "3"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(args[2]), "{args:?}: {}", text(&output.stderr));
    }
}
