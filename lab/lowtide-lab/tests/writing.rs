//! Promise: workloads that write verify their data by reading it back, report it, and leave no
//! file; with an artificially slow device lowtide runs without peers.

use crate::common::{files, memcg_or_skip, results, rows, run, text};
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
fn a_file_is_filled_by_every_system_proved_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    // A smaller budget would not hold the peers' own buffers.
    let results =
        results(dir.path(), &["bench", "fill", "--max", "8M", "--scale", "1.5", "--rounds", "2"]);
    let mut want = vec!["lowtide mglru", "lowtide mglru-7.1", "lowtide lru"];
    let dd = std::process::Command::new("dd").arg("--version").output().is_ok();
    want.push(if dd { "dd -" } else { "direct -" });
    if memcg_or_skip("pwrite and mmap beside fill") {
        want.extend(["pwrite -", "mmap -"]);
    }
    assert_eq!(labels(&results), want);
    for row in rows(&results) {
        assert_eq!(
            (&row["workload"], &row["errors"], &row["rounds"]),
            (&"fill".into(), &0.into(), &2.into())
        );
        assert_eq!(row["verified"], 2 * (12 << 10), "each record of each round: {row}");
        assert_eq!((&row["ops"], &row["data_bytes"]), (&24.into(), &(12 << 20).into()));
        assert!(
            row["mib_per_s"]["median"].as_f64() > Some(0.0)
                && row["speed_ratio"]["min"].as_f64() > Some(0.0)
        );
        assert!(number(row, "seconds") >= number(row, "flush_seconds"));
    }
    for row in &rows(&results)[..3] {
        assert_eq!(row["device_write_bytes"], 24 << 20, "each page is written once");
        assert_eq!(row["oom"], 0);
        assert!(number(row, "dirty_max_bytes") <= f64::from(8 << 20));
        let (writes, each) = (number(row, "device_writes"), number(row, "bytes_per_write"));
        assert!((writes * each - f64::from(24 << 20)).abs() < 1.0 && each >= 4096.0, "{row}");
        for name in [
            "throttled_ms",
            "dirty_throttled_ms",
            "dirty_pauses",
            "longest_pause_ms",
            "flusher_wakes",
        ] {
            assert!(number(row, name) >= 0.0);
        }
    }
    assert_eq!(
        rows(&results)[3]["speed_ratio"]["median"],
        1.0,
        "ratios are to the row that has no cache"
    );
    assert!(files(dir.path()).is_empty(), "{:?}", files(dir.path()));
}

#[test]
fn a_writer_survives_a_device_that_is_slow_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let results =
        results(dir.path(), &["bench", "dd-oom", "--max", "2M", "--device-delay", "write=20ms"]);
    assert_eq!(labels(&results), ["lowtide mglru", "lowtide mglru-7.1", "lowtide lru"]);
    for row in rows(&results) {
        assert_eq!(
            (&row["oom"], &row["errors"], &row["verified"]),
            (&0.into(), &0.into(), &3072.into())
        );
        assert_eq!(row["slowed"], "delay write=20ms");
        assert!(number(row, "seconds") >= 0.02, "no write ends before its delay");
        assert!(number(row, "dirty_max_bytes") <= f64::from(2 << 20));
        // Names and proportions are those of the simulation.
        assert_eq!(
            (&row["written_bytes"], &row["data_bytes"]),
            (&(3 << 20).into(), &(3 << 20).into())
        );
        assert!((0.0..=100.0).contains(&number(row, "unclean_pct")), "{row}");
        let naps = ["congested", "writeback", "isolated"];
        assert!(naps.iter().all(|nap| row["naps"][nap].is_u64()), "{row}");
        assert!(row["kill"].is_null() && row["mib_per_s"].is_null() && row["seed"].is_null());
    }
    assert!(files(dir.path()).is_empty(), "{:?}", files(dir.path()));
}

#[test]
fn the_delay_of_writes_has_one_option_in_both_worlds() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "dd-oom", "--max", "2M", "--size", "1M", "--policy", "mglru"];
    let delayed = results(dir.path(), &[args.as_slice(), &["--delay", "7ms"]].concat());
    assert_eq!(rows(&delayed)[0]["slowed"], "delay write=7ms");
    assert_eq!(rows(&delayed)[0]["data_bytes"], 1 << 20);
    let both = ["--delay", "7ms", "--device-bandwidth", "write=1M"];
    refused(&[args.as_slice(), &both].concat(), &["--delay", "--device-delay write="]);
}

#[test]
fn reads_beside_a_checkpoint_are_told_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["bench", "mixed", "--max", "4M", "--scale", "2", "--threads", "2", "--policy", "mglru"];
    let length = [
        "--checkpoint",
        "40ms",
        "--seconds",
        "0.5",
        "--rounds",
        "2",
        "--write",
        "20",
        "--against",
        "mmap-random",
    ];
    let results = results(dir.path(), &[args.as_slice(), &length].concat());
    assert_eq!(rows(&results).len(), 1 + usize::from(memcg_or_skip("mmap beside checkpoints")));
    for row in rows(&results) {
        assert_eq!((&row["workload"], &row["errors"]), (&"mixed".into(), &0.into()));
        let checkpoints = &row["checkpoints"];
        assert_eq!(checkpoints["every_s"], 0.04);
        assert!(number(checkpoints, "count") >= 1.0, "{row}");
        let (during, outside) =
            (number(checkpoints, "reads_during"), number(checkpoints, "reads_outside"));
        let share = (during + outside) / number(row, "ops");
        assert!((0.75..0.85).contains(&share), "80 of 100 operations are reads: {share}");
        for name in ["during_us", "outside_us"] {
            let quantiles = ["mean", "p50", "p90", "p95", "p99", "p999", "p9999", "max"];
            assert!(
                quantiles.iter().all(|quantile| checkpoints[name][quantile].is_number()),
                "{row}"
            );
        }
    }
    assert!(rows(&results)[0]["device_write_bytes"].as_u64() > Some(0));
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
    let slow = ["--device-delay", "write=1ms"];
    refused(&[["bench", "fill", "--against", "dd"].as_slice(), &slow].concat(), &["--against"]);
    refused(&[["bench", "hit"].as_slice(), &slow].concat(), &["--device-delay", "hit"]);
    refused(&["bench", "fill", "--size", "1M", "--scale", "2"], &["--size", "--scale"]);
    refused(&["bench", "fill", "--against", "fio"], &["dd, pwrite, mmap"]);
    refused(&["bench", "dd-oom", "--against", "dd"], &["--against"]);
    refused(&["bench", "fill", "--seconds", "5"], &["--seconds", "fill"]);
    refused(
        &["bench", "mixed", "--checkpoint", "1s", "--seconds", "1"],
        &["checkpoint", "--seconds"],
    );
    refused(&["bench", "mixed", "--checkpoint", "1us"], &["'1us' for '--checkpoint", "10s"]);
    refused(&["bench", "fil"], &["'fill'"]);
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

#[test]
fn delays_that_cannot_be_meant_are_refused_before_anything_is_made() {
    refused(&["bench", "ycsb-b", "--device-delay", "10ms"], &["--device-delay", "read="]);
    refused(&["bench", "ycsb-b", "--device-delay", "write=10"], &["10", "ms"]);
    refused(&["bench", "ycsb-b", "--device-bandwidth", "write=0"], &["--device-bandwidth", "50M"]);
    refused(
        &["bench", "ycsb-b", "--device-bandwidth", "sync=1M"],
        &["--device-bandwidth", "write=50M"],
    );
    let slow = ["--device-delay", "write=1ms"];
    refused(&[["bench", "ycsb-b", "--against", "mmap"].as_slice(), &slow].concat(), &["--against"]);
    let gather = ["bench", "gather", "--device-delay", "read=1ms", "--against", "pread"];
    refused(&gather, &["--device-delay", "--against"]);
}
