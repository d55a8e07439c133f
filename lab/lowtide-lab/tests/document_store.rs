//! Promise: `lowtide sim wt` and `sim ycsb-b` say what the store requested and what was read for
//! it, and options that decide about reads do what they say or are refused with a remedy.

use std::collections::BTreeSet;

use crate::common::{rows, run, text};
use serde_json::Value;

/// A short run of each.
const WT: [&str; 8] = ["sim", "wt", "--ops", "5k", "--policy", "mglru-7.1", "--threads", "8"];
const YCSB: [&str; 8] =
    ["sim", "ycsb-b", "--scale", "0.005", "--ops", "5k", "--policy", "mglru-7.1"];

fn row(start: &[&str], more: &[&str]) -> Value {
    let output = run(&[start, more, &["--json"]].concat());
    assert!(output.status.success(), "{more:?}: {}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    rows(&results)[0].clone()
}

fn number(row: &Value, name: &str) -> f64 {
    row["database"][name].as_f64().unwrap_or_else(|| panic!("database.{name}: {row}"))
}

fn refused(arguments: &[&str], words: &[&str]) {
    let output = run(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?}: `{word}` is not in: {message}");
    }
}

#[test]
fn a_row_says_what_was_requested_and_what_was_read_for_it() {
    for (start, more, read_ahead) in
        [(&WT, &[][..], 4 << 20), (&YCSB, &["--read-ahead", "128K"], 128 << 10)]
    {
        let row = row(start, more);
        let names: BTreeSet<&str> =
            row["database"].as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "asked_kib_per_op",
            "dirty_share_pct",
            "marked_hits",
            "marked_windows",
            "mean_window_pages",
            "missing_again_pages",
            "missing_pages",
            "read_ahead_bytes",
            "read_kib_per_op",
            "readahead_pages",
            "readahead_unused_pages",
            "readahead_used_pages",
        ];
        assert_eq!(names, BTreeSet::from(expected));
        assert_eq!(row["database"]["read_ahead_bytes"], read_ahead);
        let ops = row["ops"].as_f64().unwrap();
        let read = row["stat"]["pgpgin"].as_f64().unwrap() / ops;
        assert!((number(&row, "read_kib_per_op") - read).abs() < 0.01, "{row}");
        let pages = number(&row, "missing_pages") + number(&row, "readahead_pages");
        assert!((read - 4.0 * pages / ops).abs() < 0.1 * read, "all reads have a source: {row}");
        assert!(number(&row, "missing_pages") * 4.0 / ops < number(&row, "asked_kib_per_op"));
        assert!(number(&row, "missing_again_pages") < number(&row, "missing_pages"));
    }
}

#[test]
fn options_decide_what_is_read() {
    let usual = row(&WT, &[]);
    assert!(number(&usual, "marked_hits") > 10.0 && number(&usual, "dirty_share_pct") > 5.0);
    assert_eq!(usual["machine"], "emulated");

    let none = row(&WT, &["--read-ahead", "0"]);
    assert_eq!((number(&none, "readahead_pages"), number(&none, "read_ahead_bytes")), (0.0, 0.0));
    let clean = row(&WT, &["--updates", "0"]);
    assert_eq!(number(&clean, "dirty_share_pct"), 0.0);
    assert!(number(&clean, "marked_hits") < 0.5 * number(&usual, "marked_hits"), "{clean}");
    let appended = row(&WT, &["--layout", "appended"]);
    assert!(number(&appended, "readahead_pages") < number(&usual, "readahead_pages"));
    let full = row(&WT, &["--free", "0", "--max", "800M", "--ops", "2k"]);
    assert_eq!((&full["max_bytes"], &full["ops"]), (&(800 << 20).into(), &2000.into()));
    assert!(number(&full, "missing_pages") / 2.0 > number(&usual, "missing_pages") / 5.0);
    let dirty = row(&WT, &["--dirty-background", "1", "--dirty-limit", "2"]);
    assert!(number(&dirty, "dirty_share_pct") < 3.0, "{dirty}");
}

#[test]
fn a_device_takes_the_place_of_the_machines_own_and_is_named() {
    let nvme = row(&YCSB, &[]);
    let hdd = row(&YCSB, &["--device", "HDD"]);
    assert_eq!(
        (&nvme["machine"], &hdd["machine"]),
        (&"xeon-96t".into(), &"xeon-96t on hdd".into())
    );
    assert!(hdd["seconds"].as_f64() > nvme["seconds"].as_f64().map(|seconds| 5.0 * seconds));
    let head =
        text(&run(&[&YCSB[..], &["--machine", "phone", "--device", "ramdisk"]].concat()).stdout);
    assert!(head.contains("phone on ramdisk: 8 CPUs, 6G of memory, ramdisk;"), "{head}");
    refused(&[&YCSB[..], &["--device", "hd"]].concat(), &["'hd'", "'hdd'", "nvme-gen4"]);
}

#[test]
fn every_byte_read_is_explained_by_policy() {
    let explained = ["--explain", "--policy", "mglru-7.1,mglru-7.1+series,mglru,lru"];
    for start in [&WT[..4], &YCSB[..6]] {
        let output = text(&run(&[start, &explained].concat()).stdout);
        let (_, table) = output.split_once("where each byte read came from").expect("a table");
        for line in ["requested, read again", "read ahead, evicted unused", "all"] {
            assert!(table.contains(line), "{line}: {table}");
        }
        for line in output.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        let all = table.lines().find(|line| line.starts_with("all")).unwrap();
        assert_eq!(all.matches("(100.0 %)").count(), 4, "{all}");
    }
}

#[test]
fn options_that_make_no_database_are_refused() {
    let wt = |more: &[&'static str]| [&["sim", "wt"], more].concat();
    refused(&wt(&["--free", "100"]), &["'100'", "--free", "0 to 90"]);
    refused(&wt(&["--free", "-1"]), &["'-1'", "0 to 90"]);
    refused(&wt(&["--layout", "appended", "--free", "5"]), &["--free", "omit"]);
    refused(&wt(&["--layout", "apended"]), &["'appended'"]);
    refused(&wt(&["--max", "400M"]), &["400M", "489M", "raise --max"]);
    refused(&wt(&["--max", "8G"]), &["8G", "emulated", "lower --max"]);
    refused(&wt(&["--updates", "101"]), &["101", "--updates"]);
    refused(&wt(&["--dirty-limit", "0"]), &["--dirty-limit"]);
    refused(&wt(&["--dirty-background", "30"]), &["30 %", "20 %", "raise --dirty-limit"]);
    refused(&wt(&["--read-ahead", "5000"]), &["readahead = 5000", "multiple of the page"]);
    refused(&wt(&["--read-ahead", "32M"]), &["32M", "16M"]);
    refused(&wt(&["--ops", "0"]), &["--ops"]);
    refused(&wt(&["--scale", "0.1"]), &["--scale"]);
    refused(&["sim", "wtt"], &["'wt'"]);
}
