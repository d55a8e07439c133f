//! Promise: on a kernel that lacks a call, and in a sandbox that refuses one, `lowtide-lab bench`
//! leaves out the rows that cannot be had, with the reason, and measures the others; or it says
//! what to do. It never takes failures for work.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::programs::{plain, without};
use crate::common::{lowtide, memcg_or_skip, rows, text};
use lowtide_host::memcg::Memcg;
use serde_json::Value;

/// A small run of each program that has rows of maps, or of heaps behind pointers.
const THRASH: [&str; 8] =
    ["mmap-thrash", "--scale", "0.01", "--seconds", "0.3", "--rounds", "1", "--against"];
const FIO: [&str; 8] =
    ["fio-mmap", "--scale", "0.001", "--seconds", "0.3", "--rounds", "1", "--against"];
const FAULT: [&str; 5] = ["map-fault", "--size", "2M", "--rounds", "1"];
const HEAP: [&str; 9] =
    ["anon-zipf", "--max", "8M", "--ratio", "2", "--seconds", "1", "--rounds", "1"];

/// `lowtide-lab bench` where these calls are refused: what came out. `None` where nothing can be.
fn bench(calls: &[&str], dir: &Path, args: &[&str]) -> Option<Output> {
    let (dir, json) = (dir.to_str().unwrap(), dir.join("results.json"));
    let all = [&["bench"][..], args, &["--dir", dir, "--json", json.to_str().unwrap()]].concat();
    let output = without(calls, &lowtide(&all)).output().unwrap();
    if text(&output.stdout).contains("SKIPPED") {
        eprintln!("{}", text(&output.stdout));
        return None;
    }
    Some(output)
}

/// The rows of a run that ended well, and what was said besides.
fn measured(calls: &[&str], args: &[&str]) -> Option<(Vec<Value>, String)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = bench(calls, dir.path(), args)?;
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{calls:?} {args:?}: {said}");
    let results = fs::read(dir.path().join("results.json")).unwrap();
    let results = serde_json::from_slice(&results).unwrap();
    Some((rows(&results).clone(), said))
}

/// The systems of some rows, each once.
fn systems(rows: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = rows.iter().map(|row| row["system"].as_str().unwrap()).collect();
    names.dedup();
    names
}

/// It ends with this code, and says all of the first words and none of the others.
fn fails(output: &Output, code: i32, words: &[&str], others: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?} not in {message}");
    assert!(!others.iter().any(|word| message.contains(word)), "{others:?} in {message}");
}

#[test]
fn rows_of_maps_that_cannot_be_had_are_left_out_and_nothing_is_measured_of_them() {
    for program in [THRASH, FIO] {
        for refused in ["userfaultfd=1", "scan=25", "eventfd=38"] {
            let args = [&program[..], &["map-pagecache"]].concat();
            let Some((rows, said)) = measured(&[refused], &args) else { return };
            assert_eq!(systems(&rows), ["map-pagecache"], "{said}");
            assert!(said.contains("map-userfault mglru left out: "), "{said}");
            assert!(rows.iter().all(|row| row["errors"] == 0), "{rows:?}");
        }
        // Nothing else was to be measured.
        let dir = tempfile::tempdir().unwrap();
        let args = [&program[..], &["none"]].concat();
        let Some(output) = bench(&["userfaultfd=1"], dir.path(), &args) else { return };
        fails(&output, 1, &["`userfault` mode cannot be used"], &["wrong bytes"]);
    }
}

#[test]
fn steps_of_a_map_that_cannot_be_measured_are_left_out() {
    for refused in ["scan=25", "userfaultfd=1", "cachestat=38"] {
        let Some((rows, said)) = measured(&[refused], &FAULT) else { return };
        let has = |step: &str| rows.iter().any(|row| row["step"] == step);
        assert_eq!(has("scan"), refused != "scan=25", "{said}");
        assert_eq!(said.contains("the step `scan` is left out"), refused == "scan=25", "{said}");
        let served = systems(&rows).contains(&"map-userfault");
        assert_eq!(served, refused == "cachestat=38", "{said}");
        for system in ["map-pagecache", "mmap-random"] {
            for step in ["fault", "zap", "touch"] {
                let is = |row: &&Value| row["system"] == system && row["step"] == step;
                let row = rows.iter().find(is).unwrap_or_else(|| panic!("{system} {step}: {said}"));
                assert_eq!(row["errors"], 0, "{row}");
            }
        }
    }
}

#[test]
fn a_heap_behind_a_pointer_that_cannot_be_had_is_left_out() {
    let args = [&HEAP[..], &["--against", "pointer"]].concat();
    let Some((rows, said)) = measured(&["userfaultfd=1"], &args) else { return };
    assert_eq!(systems(&rows), ["lowtide"], "{said}");
    assert!(said.contains("lowtide pointer mglru left out: "), "{said}");
    assert!(!said.contains("wrong bytes"), "{said}");
}

#[test]
fn writers_are_killed_through_the_maps_that_there_are() {
    let crash = ["crash", "--cycles", "24", "--threads", "2", "--seed", "1"];
    let Some((rows, said)) = measured(&["eventfd=38"], &crash) else { return };
    assert_eq!((&rows[0]["lost_bytes"], &rows[0]["wrong_bytes"]), (&0.into(), &0.into()), "{said}");
}

#[test]
fn advice_that_a_map_does_not_need_is_done_without() {
    for errno in ["1", "38", "22"] {
        let refused = format!("huge={errno}");
        let Some((rows, said)) = measured(&[&refused], &FAULT) else { return };
        assert!(systems(&rows).contains(&"map-pagecache"), "{said}");
    }
}

/// Runs `script` as root of a namespace of its own, where mounts are seen by no other process.
/// `"$@"` in it is the command. `None` where that is not allowed.
fn apart(script: &str, dir: &Path, args: &[&str]) -> Option<Output> {
    let command = lowtide(&[&["bench"][..], args, &["--dir", dir.to_str().unwrap()]].concat());
    let mut apart = plain("unshare");
    apart.args(["-m", "sh", "-c", script, "sh"]).arg(command.get_program());
    let Ok(output) = apart.args(command.get_args()).output() else {
        eprintln!("SKIPPED: there is no `unshare` here");
        return None;
    };
    let error = text(&output.stderr);
    if error.contains("unshare") || error.contains("mount:") {
        eprintln!("SKIPPED: no mounts of our own here: {error}");
        return None;
    }
    Some(output)
}

#[test]
fn without_proc_files_are_filled_and_writers_killed() {
    for args in [
        &["fill", "--max", "8M", "--rounds", "1", "--policy", "mglru"][..],
        &["crash", "--cycles", "8", "--threads", "2", "--seed", "1"],
    ] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let hidden = "mount -t tmpfs none /proc && exec \"$@\"";
        let Some(output) = apart(hidden, dir.path(), args) else { return };
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    }
}

/// What is to be written may be larger than the memory that there is.
#[test]
fn a_file_is_filled_in_less_memory_than_it_has_bytes() {
    if !memcg_or_skip("filling a file in a small memory cgroup") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let group = Memcg::create("fill", 64 << 20).unwrap();
    let args = ["bench", "fill", "--max", "16M", "--scale", "8", "--rounds", "1"];
    let rest = ["--policy", "mglru", "--against", "none", "--dir", dir.path().to_str().unwrap()];
    let command = lowtide(&[&args[..], &rest].concat());
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; exec \"$@\"", "sh"]).arg(command.get_program());
    shell.args(command.get_args()).stdin(Stdio::piped());
    let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    group.add(child.id()).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    assert!(said.contains("memory has no room for 128M of what is to be written"), "{said}");
}
