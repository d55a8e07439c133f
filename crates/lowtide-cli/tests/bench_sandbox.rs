//! Promise: on a kernel that lacks a call, and in a sandbox that refuses one, `lowtide bench`
//! leaves out the rows that cannot be had, with the reason, and measures the others; or it says
//! what to do. It never takes failures for work.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::programs::{plain, without};
use crate::common::{lowtide, rows, text};
use serde_json::Value;

/// A small run.
const READS: [&str; 9] =
    ["random-read", "--max", "1M", "--seconds", "0.2", "--rounds", "1", "--against", "none"];

/// `lowtide bench` where these calls are refused: what came out. `None` where nothing can be.
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

/// It ends with this code, and says all of the first words and none of the others.
fn fails(output: &Output, code: i32, words: &[&str], others: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?} not in {message}");
    assert!(!others.iter().any(|word| message.contains(word)), "{others:?} in {message}");
}

#[test]
fn where_files_cannot_be_locked_the_option_is_named_that_helps() {
    for refused in ["flock=37", "flock=38"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(output) = bench(&[refused], dir.path(), &READS) else { return };
        fails(&output, 1, &["cannot lock", "--no-lock"], &[]);
        let unlocked = [&READS[..], &["--no-lock"]].concat();
        let Some((rows, _)) = measured(&[refused], &unlocked) else { return };
        assert!(rows.iter().all(|row| row["errors"] == 0), "{rows:?}");
    }
}

#[test]
fn advice_that_memory_needs_is_named_and_what_it_does_not_need_is_done_without() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = bench(&["dontfork=1"], dir.path(), &READS) else { return };
    fails(&output, 1, &["MADV_DONTFORK", "seccomp"], &["smaller budget"]);
    for errno in ["1", "38", "22"] {
        let refused = format!("huge={errno}");
        let Some((rows, _)) = measured(&[&refused], &READS) else { return };
        assert!(rows.iter().all(|row| row["errors"] == 0), "{rows:?}");
    }
}

#[test]
fn the_doctor_agrees_with_itself() {
    let doctor = |calls: &[&str]| {
        let output = without(calls, &lowtide(&["doctor"])).output().unwrap();
        text(&output.stdout)
    };
    let row = |report: &str, name: &str| {
        let line = report.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name} is not in {report}"))[name.len()..].trim().to_owned()
    };
    for calls in
        [&[][..], &["userfaultfd_call=1"], &["userfaultfd=1"], &["scan=25"], &["eventfd=38"]]
    {
        let report = doctor(calls);
        if report.contains("SKIPPED") {
            return eprintln!("{report}");
        }
        let (faults, way) = (row(&report, "userfaultfd "), row(&report, "way of maps "));
        let exact = way.starts_with("userfault ");
        assert!(!exact || faults.starts_with("yes"), "{calls:?}: {report}");
        let possible = exact || way.contains("`userfault` if named");
        let said = faults.contains("for maps with an exact budget");
        assert_eq!(possible, said, "{calls:?}: {report}");
        assert!(exact || way.contains("userfault"), "it says why not: {report}");
        let run = row(&report, "run --mode userfault ");
        assert_eq!(exact, run.starts_with("yes"), "{calls:?}: {report}");
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
fn a_file_system_that_does_not_count_its_space_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let ramfs = format!("mount -t ramfs none {} && exec \"$@\"", dir.path().display());
    let Some(output) = apart(&ramfs, dir.path(), &READS) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
}
