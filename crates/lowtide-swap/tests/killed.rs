//! What ends a process: one that is killed with pages in its swap file leaves no file behind, and
//! one that may not write large files is not ended by its swap file.
//!
//! A test runs another one in a process of its own.

#![expect(clippy::print_stdout, reason = "the process that is killed reports by it")]

use crate::common::page;
use lowtide_swap::{CreateError, Outgoing, SwapFile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The directory for the process that is to be killed.
const DIR: &str = "LOWTIDE_SWAP_KILLED_DIR";

#[test]
#[ignore = "it is the process that is killed, and runs only with a directory"]
fn fills_a_file_and_waits() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the other test starts this one"));
    let file = SwapFile::create(&dir, 1024).expect("a swap file");
    let pages: Vec<Vec<u8>> = (0..256).map(page).collect();
    let out: Vec<Outgoing> = pages.iter().map(|bytes| Outgoing { bytes, tag: 0 }).collect();
    file.write(&out).expect("free slots");
    // The end of the line that says which test is running, and a line of our own.
    println!("\nfilled");
    loop {
        std::thread::park();
    }
}

/// The kernel ends a process that writes beyond the limit, with `SIGXFSZ`.
#[test]
#[ignore = "it sets a limit for its process, and runs only with a directory"]
fn fills_the_largest_file_that_it_may_write() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the other test starts this one"));
    let limit = Rlimit { current: Some(64 * 4096), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, limit).expect("a lower limit");
    let error = SwapFile::create(&dir, 65).expect_err("a page more than it may write");
    assert!(matches!(error, CreateError::Limit { bytes: 266_240, limit: 262_144 }), "{error}");
    assert!(error.to_string().contains("ulimit -f"), "{error}");
    let file = SwapFile::create(&dir, 64).expect("all that it may write");
    let pages: Vec<Vec<u8>> = (0..64).map(page).collect();
    let out: Vec<Outgoing> = pages.iter().map(|bytes| Outgoing { bytes, tag: 0 }).collect();
    file.write(&out).expect("the last page, too");
}

#[test]
fn a_process_is_not_ended_by_a_swap_file_larger_than_it_may_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "killed::fills_the_largest_file_that_it_may_write"])
        .env(DIR, dir.path())
        .output()
        .expect("another process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

#[test]
fn a_killed_process_leaves_no_file_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--ignored", "--exact", "--nocapture", "killed::fills_a_file_and_waits"])
        .env(DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let filled = output.lines().any(|line| line.expect("text") == "filled");
    let names = std::fs::read_dir(dir.path()).expect("the directory").count();
    // What it has open is a file of the directory's file system, without a name, for its owner.
    let opened = std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("its descriptors");
    let device = std::fs::metadata(dir.path()).expect("the directory").dev();
    let unnamed = opened
        .filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok())
        .filter(|data| data.dev() == device && data.nlink() == 0 && data.size() >= 256 * 4096);
    let modes: Vec<u32> = unnamed.map(|data| data.mode() & 0o7777).collect();
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    assert!(filled, "the file was filled before the process was killed");
    assert_eq!((names, modes), (0, vec![0o600]));
    assert_eq!(std::fs::read_dir(dir.path()).expect("the directory").count(), 0);
}
