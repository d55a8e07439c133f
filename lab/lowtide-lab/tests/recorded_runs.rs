//! Promise: `--record` writes the real accesses of the threads in order of time, the trace can be
//! replayed, and a failure leaves no file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::sim::refused;
use crate::common::{files, results, rows, run, text};
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

#[test]
fn a_recorded_trace_keeps_its_page_in_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["kept.csv", "kept.lt"] {
        let trace = dir.path().join(name);
        record(dir.path(), &trace, "ycsb-c", &["--page", "1K"]);
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
fn a_trace_is_replayed_with_every_kind_of_operation_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("results.json.trace");
    let mut lines = String::from("op,space,page,pages\n");
    for n in 0..1500_u64 {
        let page = n * 7919 % 1000;
        lines += &match n % 5 {
            0 => format!("load,file:a,{page},{}\n", n % 3 + 1),
            1 => format!("store,anon:heap,{page},1\n"),
            2 => format!("write,file:a,{page},2\n"),
            3 => format!("read,file:a,{page},{}\n", n % 4 + 1),
            _ if n % 250 == 4 => "sync,file:a,0,1\n".into(),
            _ if n % 250 == 9 => "free,anon:heap,3,1\n".into(),
            _ => format!("load,anon:heap,{page},1\n"),
        };
    }
    fs::write(&trace, lines).unwrap();
    let args = [
        "bench",
        "replay",
        "--trace",
        trace.to_str().unwrap(),
        "--max",
        "2M",
        "--against",
        "mmap-random",
    ];
    let results = results(dir.path(), &args);
    for row in rows(&results) {
        assert_eq!(
            (&row["ops"], &row["errors"], &row["ignored"]),
            (&1500.into(), &0.into(), &6.into()),
            "{row}"
        );
        assert!(row["verified"].as_u64().unwrap() > 900);
    }
    assert_eq!(files(dir.path()), ["results.json.trace"], "a rewritten file is not kept");
}

#[test]
fn places_where_nothing_can_be_recorded_are_refused_before_the_first_round() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("t.txt");
    refused(&["bench", "ycsb-b", "--record", text.to_str().unwrap()], 2, &["t.txt", ".csv", ".lt"]);
    let absent = dir.path().join("absent/t.csv");
    refused(
        &["bench", "ycsb-b", "--record", absent.to_str().unwrap()],
        1,
        &["absent/t.csv", "No such file"],
    );
    assert!(files(dir.path()).is_empty());
}

#[test]
fn a_trace_of_no_known_format_is_answered_with_the_formats() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    fs::write(&trace, "just text\n").unwrap();
    let words = ["byte 0", "not recognised", "--format", "lackey"];
    refused(&["bench", "replay", "--trace", trace.to_str().unwrap()], 1, &words);
}

#[test]
fn a_broken_trace_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.csv");
    let trace = trace.to_str().unwrap();
    fs::write(trace, "op,space,page,pages\nread,file:a,1,1\nread,file:a,x,1\n").unwrap();
    refused(&["bench", "replay", "--trace", trace], 1, &[trace, "line 3", "`x`"]);
    fs::write(trace, "op,space,page,pages\n").unwrap();
    refused(&["bench", "replay", "--trace", trace], 2, &[trace, "no operations"]);
    refused(&["bench", "replay", "--trace", "/nonexistent"], 1, &["/nonexistent"]);
}

#[test]
fn traces_that_cannot_be_replayed_are_refused() {
    refused(&["bench", "replay"], 2, &["--trace"]);
    refused(&["bench", "replay", "--trace", "-"], 2, &["standard input", "--trace FILE"]);
    refused(&["bench", "replay", "--format", "cvs"], 2, &["cvs", "oracle-general"]);
}
