//! Promise: invalid input fails with a message that names the error, its place and a remedy, with
//! exit code 2 for bad usage and 1 for failed work, and leaves no files.

use std::fs;

use crate::common::{files, run, text};

/// Runs in an empty directory, and checks the exit code, the message, and that no file is left.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut all = args.to_vec();
    if !args.contains(&"--dir") && !args.contains(&"--file") {
        all.extend(["--dir", dir.path().to_str().unwrap()]);
    }
    let output = run(&all);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{args:?}: `{word}` is not in: {message}");
    }
    assert!(files(dir.path()).is_empty(), "{args:?} left {:?}", files(dir.path()));
}

#[test]
fn names_that_do_not_exist_are_answered_with_those_that_do() {
    refused(&["bench", "ycbs-b"], 2, &["ycbs-b", "'ycsb-b'"]);
    refused(&["bench", "ycsb-b", "--policy", "fifo"], 2, &["fifo", "mglru-7.1", "lru"]);
    refused(&["bench", "ycsb-b", "--policy", "mglru-S99"], 2, &["S99", "S7"]);
    refused(&["bench", "ycsb-b", "--against", "nmap"], 2, &["nmap", "mmap-random"]);
    refused(&["bench", "gather", "--skew", "zipf"], 2, &["zipf", "uniform", "hot-start"]);
    refused(&["bench", "gather", "--against", "read"], 2, &["pread-direct", "mmap-random"]);
    refused(&["bench", "random-read", "--against", "pread"], 2, &["pread", "mmap-random"]);
    let listing = run(&["list", "machines-of-war"]);
    assert_eq!(listing.status.code(), Some(2));
    assert!(text(&listing.stderr).contains("policies"));
}

#[test]
fn sizes_that_are_no_budget_are_refused() {
    refused(&["bench", "ycsb-b", "--max", "0"], 2, &["'0' for '--max", "256M"]);
    refused(&["bench", "ycsb-b", "--max", "max"], 2, &["'max' for '--max", "256M"]);
    refused(&["bench", "ycsb-b", "--max", "4K"], 2, &["4K", "too small", "at least"]);
    refused(&["bench", "ycsb-b", "--max", "lots"], 2, &["lots"]);
    refused(&["bench", "ycsb-b", "--max=-5M"], 2, &["--max", "-5M"]);
    refused(&["bench", "ycsb-b", "--page", "3K"], 2, &["--page", "power of two"]);
    refused(
        &["bench", "ycsb-b", "--max", "1M", "--page", "512"],
        2,
        &["512", "cross pages", "--page 1K"],
    );
    for row in ["0", "32", "100", "8K", "-512", "wide"] {
        refused(&["bench", "gather", "--row", row], 2, &["--row", row]);
    }
    refused(&["bench", "gather", "--row", "100"], 2, &["64 bytes to 4K", "multiple of 8"]);
    refused(&["bench", "gather", "--batch", "0"], 2, &["--batch", "0"]);
    refused(&["bench", "ycsb-b", "--scale", "nan"], 2, &["--scale", "4"]);
    refused(&["bench", "ycsb-b", "--seconds", "-1"], 2, &["--seconds"]);
    refused(&["bench", "ycsb-b", "--threads", "0"], 2, &["threads"]);
    refused(&["bench", "ycsb-b", "--threads", "1,2"], 2, &["'1,2' for '--threads"]);
    refused(&["bench", "ycsb-b", "--cuts", "3"], 2, &["--cuts", "ycsb-b"]);
    refused(&["bench", "ycsb-b", "--ops", "3", "--rounds", "5"], 2, &["3 operations", "--rounds"]);
}

#[test]
fn budgets_beyond_the_machine_are_refused_before_anything_is_made() {
    refused(&["bench", "ycsb-b", "--max", "1T", "--page", "64K"], 1, &["available", "--max"]);
    refused(
        &["bench", "ycsb-b", "--max", "1M", "--scale", "1000000"],
        1,
        &["free", "--dir", "--scale"],
    );
}

/// Like [`refused`], for commands without `--dir`.
fn answered(arguments: &[&str], words: &[&str]) {
    let output = run(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?}: `{word}` is not in: {message}");
    }
    assert!(!message.contains("use '-- -"), "{arguments:?}: {message}");
}

#[test]
fn slips_of_the_pen_are_answered_with_what_was_meant() {
    for start in [["bench", "scan"], ["sim", "zipf"]] {
        let answered = |more: [&str; 2], words: &[&str]| answered(&[start, more].concat(), words);
        answered(["--policy", "mglur"], &["mglur", "did you mean `mglru`?"]);
        answered(["--max", "-5M"], &["--max", "-5M"]);
        answered(["--seed", "-1"], &["--seed", "-1"]);
        answered(["--ops", "-3"], &["--ops", "-3"]);
    }
    answered(&["sim", "trace", "t", "--format", "orcale"], &["did you mean `oracle-general`?"]);
    answered(&["sim", "trace", "t", "--mrc", "--baseline", "sive"], &["did you mean `sieve`?"]);
    answered(&["sim", "zipf", "--machine", "xenon"], &["did you mean `xeon-96t`?"]);
    answered(&["sim", "zipf", "--max", "1E"], &["--max 1E", "too large to simulate"]);
    answered(&["sim", "trace", "/nowhere", "--advise", "2"], &["--advise", "from 0 to 1"]);
    answered(&["bench", "scan", "--against", "mmap,none"], &["--against", "none"]);
}

#[test]
fn what_is_named_twice_is_noted_and_has_one_row() {
    let small = [
        "sim",
        "zipf",
        "--ops",
        "2k",
        "--size",
        "4M",
        "--max",
        "1M",
        "--policy",
        "lru,MGLRU,lru,lru",
    ];
    let output = run(&small);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stderr).matches("lru is named more than once; it has one row").count(),
        1
    );
    assert_eq!(text(&output.stdout).lines().filter(|line| line.starts_with("lru ")).count(), 1);
}

#[test]
fn options_in_the_wrong_place_are_refused() {
    refused(&["bench", "ycsb-b", "--depth", "8"], 2, &["--depth", "ycsb-b"]);
    refused(&["bench", "ycsb-b", "--size", "1M"], 2, &["--size", "ycsb-b"]);
    refused(&["bench", "scan", "--distribution", "zipf"], 2, &["--distribution", "scan"]);
    refused(&["bench", "ycsb-c", "--row", "512"], 2, &["--row", "ycsb-c"]);
    refused(&["bench", "gather", "--against", "none,pread"], 2, &["--against", "none"]);
    refused(&["bench", "ycsb-b", "--format", "csv"], 2, &["--format", "ycsb-b"]);
    refused(&["bench", "ycsb-b", "--against", "fio"], 2, &["fio", "mmap-random"]);
    refused(
        &["bench", "ycsb-b", "--json", "/nonexistent/r.json"],
        2,
        &["/nonexistent/r.json", "--json"],
    );
}

#[test]
fn paths_that_are_no_data_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let absent = dir.path().join("absent");
    let absent = absent.to_str().unwrap();
    refused(
        &["bench", "random-read", "--file", absent],
        1,
        &[absent, "No such file", "check the path"],
    );
    refused(&["bench", "random-read", "--file", path], 1, &[path, "a directory"]);
    refused(&["bench", "random-read", "--file", "/dev/null"], 1, &["/dev/null", "regular file"]);
    refused(&["bench", "ycsb-b", "--dir", "/dev/null"], 1, &["/dev/null"]);
    refused(&["bench", "ycsb-b", "--dir", "/proc/nowhere"], 1, &["/proc/nowhere"]);

    let used = dir.path().join("used");
    fs::write(&used, vec![7; 128 << 10]).unwrap();
    let writer = fs::File::open(&used).unwrap();
    writer.lock().unwrap();
    let used = used.to_str().unwrap();
    refused(&["bench", "scan", "--file", used], 1, &[used, "--no-lock"]);
    let args = ["bench", "scan", "--file", used, "--ops", "10", "--against", "none", "--max", "1M"];
    let output = run(&[args.as_slice(), &["--no-lock"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));

    let small = dir.path().join("small");
    fs::write(&small, b"tiny").unwrap();
    refused(&["bench", "scan", "--file", small.to_str().unwrap()], 2, &["4 bytes", "64K"]);
    let foreign = dir.path().join("foreign");
    fs::write(&foreign, vec![7; 128 << 10]).unwrap();
    let foreign = foreign.to_str().unwrap();
    refused(&["bench", "ycsb-c", "--file", foreign], 2, &[foreign, "does not hold records"]);
    refused(&["bench", "ycsb-b", "--file", foreign], 2, &["--file", "ycsb-b"]);
    assert_eq!(
        fs::read(foreign).unwrap(),
        vec![7; 128 << 10],
        "a file of the user's is not touched"
    );
}

/// A data file of an earlier run that is now read-only.
#[test]
fn a_read_only_data_file_is_an_error_for_a_workload_that_writes() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may write read-only files");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = |workload| {
        [
            "bench",
            workload,
            "--max",
            "1M",
            "--ops",
            "100",
            "--policy",
            "lru",
            "--against",
            "none",
            "--dir",
            path,
        ]
    };
    assert!(run(&args("ycsb-c")).status.success());
    let data = dir.path().join(&files(dir.path())[0]);
    fs::set_permissions(&data, fs::Permissions::from_mode(0o444)).unwrap();
    let output = run(&args("ycsb-b"));
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains(data.to_str().unwrap()) && message.contains("ermission"), "{message}");
}
