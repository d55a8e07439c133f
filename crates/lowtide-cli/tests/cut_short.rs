//! Promise: a run that is cut short, by Ctrl-C or by somebody who truncates its file, ends soon, says why, exits with 1,
//! and leaves no process, memory cgroup or unfinished file.

mod common;

use std::fs::OpenOptions;
use std::path::Path;

use common::{Running, files, groups_of, memcg_or_skip};

fn args<'a>(dir: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let start = ["bench", "ycsb-c", "--max", "4M", "--seconds", "50", "--policy", "mglru"];
    [start.as_slice(), &["--dir", dir.to_str().unwrap()], more].concat()
}

fn truncate(path: &Path) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
}

#[test]
fn ctrl_c_during_the_measurement_removes_peers_and_groups_and_keeps_complete_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&args(dir.path(), &[]));
    let pid = running.id();
    running.wait_until_set_up();
    if memcg_or_skip("groups of an interrupted run") {
        assert_eq!(groups_of(pid).len(), 2, "one for each mmap peer");
    }
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("interrupted while"), "{message}");
    assert!(groups_of(pid).is_empty(), "{:?}", groups_of(pid));
    assert!(files(dir.path()).iter().all(|name| name.ends_with(".data")), "{:?}", files(dir.path()));
}

#[test]
fn ctrl_c_before_and_while_a_trace_is_recorded_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.csv");
    let partial = dir.path().join("trace.csv.partial");
    let more = ["--against", "none", "--record", trace.to_str().unwrap()];
    let mut running = Running::start(&args(dir.path(), &more));
    running.wait_until_set_up();
    assert!(partial.exists());
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(1), "{message}");
    assert!(!partial.exists() && !trace.exists(), "{:?}", files(dir.path()));

    // The recorded turn is as long as the rounds, and has begun when the file grows.
    let more = [more.as_slice(), &["--seconds", "4", "--rounds", "1", "--max", "1M"]].concat();
    let mut running = Running::start(&args(dir.path(), &more));
    running.wait_until_set_up();
    running.wait_until(|| partial.metadata().is_ok_and(|metadata| metadata.len() > 0));
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("interrupted while recording lowtide mglru"), "{message}");
    assert!(!partial.exists() && !trace.exists(), "{:?}", files(dir.path()));
}

#[test]
fn ctrl_c_while_files_are_filled_leaves_none_and_no_group() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("made");
    let text = data.to_str().unwrap();
    let mut running = Running::start(&["bench", "fill", "--max", "8M", "--rounds", "10000", "--dir", text]);
    let pid = running.id();
    running.wait_until_set_up();
    running.wait_until(|| !files(&data).is_empty());
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("interrupted while measuring"), "{message}");
    assert!(groups_of(pid).is_empty(), "{:?}", groups_of(pid));
    assert!(!data.exists(), "the directory was made for it and is empty");
}

#[test]
fn ctrl_c_while_a_data_file_is_made_leaves_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("made");
    let mut running = Running::start(&args(&data, &["--max", "64M", "--scale", "32", "--against", "none"]));
    let partial = data.join("records-2G-1.data.partial");
    running.wait_until(|| partial.exists());
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("interrupted while making the data file"), "{message}");
    assert!(!data.exists(), "the directory was made for it and is empty");
}

#[test]
fn a_file_truncated_under_lowtide_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&args(dir.path(), &["--against", "none"]));
    running.wait_until_set_up();
    truncate(&dir.path().join("records-16M-1.data"));
    let (code, message) = running.end();
    assert_eq!(code, Some(1), "{message}");
    let names_the_place = message.contains("records-16M-1.data") || message.contains("truncated");
    assert!(message.contains("lowtide mglru") && names_the_place, "{message}");
}

#[test]
fn a_file_truncated_under_mmap_is_an_error_of_the_peer() {
    if !memcg_or_skip("an mmap peer whose file is truncated") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&args(dir.path(), &["--against", "mmap-random"]));
    let pid = running.id();
    running.wait_until_set_up();
    truncate(&dir.path().join("records-16M-2.data"));
    let (code, message) = running.end();
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("mmap-random") && message.contains("truncated"), "{message}");
    assert!(groups_of(pid).is_empty(), "{:?}", groups_of(pid));
}
