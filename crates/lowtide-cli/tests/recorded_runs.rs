//! Promise: `--record` writes the real accesses of the threads in order of time, the trace can be
//! replayed, and a failure leaves no file.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::{files, results, rows, run, text};
use lowtide_workload::OpKind;
use lowtide_workload::trace::{TraceRecord, open};
use serde_json::Value;

fn record(dir: &Path, trace: &Path, workload: &str, more: &[&str]) {
    let trace = trace.to_str().unwrap();
    let args = [
        "bench",
        workload,
        "--max",
        "2M",
        "--ops",
        "4000",
        "--rounds",
        "2",
        "--policy",
        "mglru,lru",
    ];
    let args =
        [args.as_slice(), &["--against", "none", "--no-keep", "--record", trace], more].concat();
    let results = results(dir, &args);
    for row in rows(&results) {
        assert_eq!(
            (&row["ops"], &row["errors"]),
            (&4000.into(), &0.into()),
            "the recorded turn counts nowhere"
        );
    }
}

fn read(path: &Path) -> Vec<TraceRecord> {
    let mut trace = open(path, None).unwrap();
    let records: Vec<_> = trace.by_ref().map(Result::unwrap).collect();
    let spaces: Vec<_> = trace.names().spaces().iter().map(ToString::to_string).collect();
    assert_eq!(spaces, ["file:data"]);
    assert!(records.is_sorted_by_key(|record| record.time_ns.unwrap()), "in order of time");
    records
}

fn count(records: &[TraceRecord], kind: OpKind) -> usize {
    records.iter().filter(|record| record.op.kind == kind).count()
}

#[test]
fn every_access_of_every_thread_is_recorded_and_can_be_played() {
    let dir = tempfile::tempdir().unwrap();
    for (name, more) in [("one.csv", ["--batch", "1"]), ("many.lt.zst", ["--batch", "16"])] {
        let trace = dir.path().join(name);
        record(
            dir.path(),
            &trace,
            "ycsb-a",
            &[&["--threads", "4", "--page", "4K"], more.as_slice()].concat(),
        );
        let records = read(&trace);
        // Every operation looks at one record, and half of them write it back.
        assert_eq!(count(&records, OpKind::Load), 4000);
        assert!((1600..2400).contains(&count(&records, OpKind::Store)));
        assert_eq!(count(&records, OpKind::Sync), 1);
        let threads: BTreeSet<_> = records.iter().map(|record| record.thread.unwrap()).collect();
        assert_eq!(threads, BTreeSet::from([0, 1, 2, 3]));
        let accesses = records.iter().filter(|record| record.op.kind != OpKind::Sync);
        assert!(
            accesses
                .clone()
                .all(|record| record.op.pages == 1 && record.op.page < (8 << 20) / 4096)
        );

        let trace = trace.to_str().unwrap();
        let args = [
            "bench",
            "replay",
            "--trace",
            trace,
            "--max",
            "2M",
            "--policy",
            "mglru",
            "--against",
            "none",
        ];
        let results = results(dir.path(), &args);
        let row = &rows(&results)[0];
        assert_eq!(
            (row["ops"].as_u64(), row["errors"].as_u64()),
            (Some(records.len() as u64), Some(0)),
            "{row}"
        );
        assert_eq!(row["verified"], 4000);
    }
    assert_eq!(files(dir.path()), ["many.lt.zst", "one.csv"]);
}

#[test]
fn a_replay_reads_what_the_trace_misses_and_nothing_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("scan.csv");
    let lines = (0..3000).map(|at| format!("load,file:f,{},1\n", at % 1500));
    fs::write(&trace, format!("op,space,page,pages\n{}", lines.collect::<String>())).unwrap();
    let args = ["bench", "replay", "--trace", trace.to_str().unwrap(), "--max", "4M"];
    let results = results(dir.path(), &[&args[..], &["--against", "none"]].concat());
    for row in rows(&results) {
        let (read, misses) = (&row["device_read_bytes"], row["stat"]["pgmajfault"].as_u64());
        assert!(misses >= Some(1500), "{row}");
        assert_eq!(read.as_u64(), misses.map(|misses| misses * 4096), "{row}");
    }
}

/// What `lowtide sim trace` says of a trace, and its standard error.
fn simulated(trace: &Path, more: &[&str]) -> (Value, String) {
    let output =
        run(&[&["sim", "trace", trace.to_str().unwrap(), "--policy", "mglru", "--json"], more]
            .concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), text(&output.stderr))
}

#[test]
fn a_recorded_trace_keeps_its_page_in_the_simulator_and_in_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["kept.csv", "kept.lt"] {
        let trace = dir.path().join(name);
        record(dir.path(), &trace, "ycsb-c", &["--page", "1K"]);
        let touched: BTreeSet<u64> = read(&trace).iter().map(|record| record.op.page).collect();
        let touched = touched.len() as u64;

        let (results, notes) = simulated(&trace, &[]);
        assert_eq!((&results["machine"]["page"], notes.as_str()), (&1024.into(), ""));
        let row = &rows(&results)[0];
        assert_eq!((&row["page_bytes"], &row["footprint_pages"]), (&1024.into(), &touched.into()));
        assert_eq!(
            (&row["data_bytes"], &row["max_bytes"]),
            (&(touched * 1024).into(), &(touched / 4 * 1024).into())
        );
        // A machine has pages of its own: four of the trace's share one.
        let (results, _) = simulated(&trace, &["--machine", "laptop"]);
        let row = &rows(&results)[0];
        let shared: BTreeSet<u64> = read(&trace).iter().map(|record| record.op.page / 4).collect();
        assert_eq!(
            (&row["page_bytes"], &row["footprint_pages"]),
            (&4096.into(), &shared.len().into())
        );
        let (results, _) = simulated(&trace, &["--mrc", "--baseline", "none", "--points", "3"]);
        assert_eq!(results["machine"]["footprint_bytes"], touched * 1024);

        let path = trace.to_str().unwrap();
        let replay = ["bench", "replay", "--trace", path, "--policy", "mglru", "--against", "none"];
        let json = dir.path().join("results.json");
        let output = run(&[
            replay.as_slice(),
            &["--dir", dir.path().to_str().unwrap(), "--json", json.to_str().unwrap()],
        ]
        .concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            text(&output.stdout).contains("page      1K: pages of the trace"),
            "{}",
            text(&output.stdout)
        );
        let results: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let row = &rows(&results)[0];
        assert_eq!((&row["page_bytes"], &row["errors"]), (&1024.into(), &0.into()));
        assert!(
            row["data_bytes"].as_u64().unwrap() <= 8 << 20,
            "as large as what was recorded: {row}"
        );
    }
}

#[test]
fn a_page_is_said_for_a_trace_that_does_not_and_what_differs_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let silent = dir.path().join("silent.csv");
    let lines: String = (0..400).map(|page| format!("load,file:a,{page},1\n")).collect();
    fs::write(&silent, format!("op,space,page,pages\n{lines}")).unwrap();
    for (more, page) in [(&[][..], 4096), (&["--page", "512"][..], 512)] {
        let (results, notes) = simulated(&silent, more);
        let row = &rows(&results)[0];
        assert_eq!((&row["page_bytes"], &row["data_bytes"]), (&page.into(), &(400 * page).into()));
        assert_eq!(notes, "");
    }
    let said = dir.path().join("said.csv");
    fs::write(&said, format!("# page_bytes: 1024\nop,space,page,pages\n{lines}")).unwrap();
    let (results, notes) = simulated(&said, &["--page", "8K"]);
    assert_eq!(rows(&results)[0]["data_bytes"], 400 * 8192);
    assert!(notes.contains("the trace has pages of 1K") && notes.contains("as 8K"), "{notes}");

    let table = |more: &[&str]| {
        let output =
            run(&[&["sim", "trace", silent.to_str().unwrap(), "--policy", "lru"], more].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    assert!(table(&[]).1.contains("pages of 4K (the trace does not say; --page may)"));
    assert!(table(&[]).1.contains("400 pages of 4K touched (1.6M)"), "{}", table(&[]).1);
    for page in ["3K", "256", "128K"] {
        let (code, message) = table(&["--page", page]);
        assert!(code == Some(2) && message.contains("power of two"), "{message}");
    }
    let output = run(&["sim", "zipf", "--page", "1K"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--page"));
}

#[test]
fn reads_at_random_and_in_order_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.lt");
    for workload in ["random-read", "scan"] {
        record(dir.path(), &trace, workload, &["--threads", "2"]);
        let records = read(&trace);
        assert_eq!((records.len(), count(&records, OpKind::Load)), (4000, 4000), "{workload}");
        if workload == "scan" {
            for thread in 0..2 {
                let own = records.iter().filter(|record| record.thread == Some(thread));
                let pages: Vec<_> = own.map(|record| record.op.page).collect();
                let steps = pages.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
                assert!(steps + 10 > pages.len(), "a scan goes on where it was");
            }
        }
    }
}

#[test]
fn a_full_disk_ends_the_recording_after_the_rows_have_been_said() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full.csv");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let json = dir.path().join("results.json");
    let output = run(&[
        "bench",
        "ycsb-c",
        "--max",
        "2M",
        "--ops",
        "20000",
        "--rounds",
        "2",
        "--policy",
        "mglru",
        "--against",
        "none",
        "--no-keep",
        "--dir",
        dir.path().to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
        "--record",
        full.to_str().unwrap(),
    ]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("full.csv") && message.contains("No space left"), "{message}");
    assert!(text(&output.stdout).contains("20000 contents verified"), "{}", text(&output.stdout));
    assert!(fs::read(&json).is_ok_and(|json| !json.is_empty()));
    assert_eq!(files(dir.path()), ["full.csv"], "nothing but the link is left");
}
