//! Promise: a run that ends early, by Ctrl-C or because its file is truncated, stops soon, shows
//! its results so far and the reason, exits with 130 (143 for SIGTERM, 1 for an error), and leaves
//! no process, memory cgroup or unfinished file. The next run removes the files of a killed run.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use crate::common::{Running, files, groups_of, memcg_or_skip, rows, run, text};
use serde_json::Value;

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
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("interrupted while"), "{message}");
    assert!(groups_of(pid).is_empty(), "{:?}", groups_of(pid));
    assert!(
        files(dir.path()).iter().all(|name| name.ends_with(".data")),
        "{:?}",
        files(dir.path())
    );
}

#[test]
fn rounds_that_had_ended_are_shown_and_written_when_a_run_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("results.json");
    let more = [
        "--against",
        "none",
        "--seconds",
        "900",
        "--rounds",
        "1800",
        "--json",
        json.to_str().unwrap(),
    ];
    // However slow the machine is: sooner or later the first round has ended when the signal comes.
    for seconds in [2, 10, 30, 50] {
        let mut running = Running::start(&args(dir.path(), &more));
        running.wait_until_set_up();
        std::thread::sleep(Duration::from_secs(seconds));
        running.terminate();
        let (code, output, message) = running.end_with_output();
        assert_eq!(code, Some(143), "{message}");
        if message.contains("interrupted while warming up") || message.contains("round 1 of") {
            continue;
        }
        assert!(message.contains("interrupted while measuring lowtide mglru, round "), "{message}");
        assert!(message.contains("the results shown were measured before that"), "{message}");
        assert!(output.contains("contents verified, 0 errors"), "{output}");
        let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(results["interrupted"], true);
        let rounds = rows(&results)[0]["rounds"].as_u64().unwrap();
        assert!((1..1800).contains(&rounds), "{rounds}");
        return;
    }
    panic!("not one round has ended in 50 seconds");
}

#[test]
fn the_next_run_removes_what_a_killed_one_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&args(dir.path(), &["--no-keep"]));
    let pid = running.id();
    running.wait_until_set_up();
    running.kill();
    let left = files(dir.path());
    assert!(!left.is_empty() && left.iter().all(|name| name.starts_with("scratch-")), "{left:?}");
    let next = [
        "bench",
        "ycsb-c",
        "--max",
        "1M",
        "--ops",
        "1000",
        "--rounds",
        "1",
        "--policy",
        "mglru",
        "--no-keep",
    ];
    let output = run(&[next.as_slice(), &["--dir", dir.path().to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(files(dir.path()), Vec::<String>::new());
    if memcg_or_skip("groups of a killed run") {
        assert!(groups_of(pid).is_empty(), "{:?}", groups_of(pid));
    }
}

#[test]
fn ctrl_c_while_a_data_file_is_made_leaves_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("made");
    let mut running =
        Running::start(&args(&data, &["--max", "64M", "--scale", "32", "--against", "none"]));
    let partial = data.join("records-2G-1.data.partial");
    running.wait_until(|| partial.exists());
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(130), "{message}");
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
