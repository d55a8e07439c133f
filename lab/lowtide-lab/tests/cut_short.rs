//! Promise: an experiment or a proof that Ctrl-C ends stops soon, shows its results so far and the
//! reason, exits with 130, and leaves no process, memory cgroup or unfinished file.

use std::path::Path;
use std::time::Duration;

use crate::common::{Running, files, groups_of};

fn args<'a>(dir: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let start = ["bench", "ycsb-c", "--max", "4M", "--seconds", "50", "--policy", "mglru"];
    [start.as_slice(), &["--dir", dir.to_str().unwrap()], more].concat()
}

#[test]
fn a_proof_that_is_interrupted_shows_what_it_has_found() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    // However slow the machine is: sooner or later the power has been cut when the signal comes.
    for seconds in [1, 10, 50] {
        let running = Running::start(&["bench", "power-cut", "--cuts", "999999", "--dir", place]);
        std::thread::sleep(Duration::from_secs(seconds));
        running.interrupt();
        let (code, output, message) = running.end_with_output();
        if code == Some(130) && output.contains("0 lost, 0 wrong") {
            assert!(message.contains("the results shown were measured before that"), "{message}");
            return;
        }
        assert!(!output.contains("verified"), "{code:?} {output} {message}");
    }
    panic!("the power was not cut once in 50 seconds");
}

#[test]
fn ctrl_c_while_files_are_filled_leaves_none_and_no_group() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("made");
    let text = data.to_str().unwrap();
    let mut running =
        Running::start(&["bench", "fill", "--max", "8M", "--rounds", "10000", "--dir", text]);
    let pid = running.id();
    running.wait_until_set_up();
    running.wait_until(|| !files(&data).is_empty());
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("interrupted while measuring"), "{message}");
    assert!(groups_of(pid).is_empty(), "{:?}", groups_of(pid));
    assert!(!data.exists(), "the directory was made for it and is empty");
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
    assert_eq!(code, Some(130), "{message}");
    assert!(!partial.exists() && !trace.exists(), "{:?}", files(dir.path()));

    // The recorded turn is as long as the rounds, and has begun when the file grows.
    let more = [more.as_slice(), &["--seconds", "4", "--rounds", "1", "--max", "1M"]].concat();
    let mut running = Running::start(&args(dir.path(), &more));
    running.wait_until_set_up();
    running.wait_until(|| partial.metadata().is_ok_and(|metadata| metadata.len() > 0));
    running.interrupt();
    let (code, message) = running.end();
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("interrupted while recording lowtide mglru"), "{message}");
    assert!(!partial.exists() && !trace.exists(), "{:?}", files(dir.path()));
}
