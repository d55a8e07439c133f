//! What is in memory of the files that are mapped is within the budget. In a process of its own:
//! the budget is the process's.

#![allow(clippy::print_stdout, reason = "says what is skipped, and to the test that runs it")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the files that are mapped are known to these tests alone"
)]

use lowtide_memmap2::{Mmap, MmapMut, MmapOptions, budget};
use lowtide_sys::page_cache::{cached_pages, drop_cached};
use std::env;
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const FILE: usize = 32 << 20;
const BUDGET: u64 = 4 << 20;
/// Looks at something that comes true after a moment.
const LOOKS: usize = 30_000;

fn make(path: &std::path::Path) -> File {
    let mut file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    for part in 0..FILE >> 20 {
        file.write_all(&vec![part as u8; 1 << 20]).unwrap();
    }
    file.sync_all().unwrap();
    drop_cached(&file, 0, 0).unwrap();
    file
}

#[track_caller]
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    assert!(
        (0..LOOKS).any(|_| is() || {
            thread::sleep(Duration::from_millis(1));
            false
        }),
        "{what}"
    );
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().step_by(4096).map(|b| u64::from(*b)).sum()
}

#[test]
#[ignore = "run by the test below, with a budget"]
fn within() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (make(&dir.path().join("one")), make(&dir.path().join("two")));
    let expected: u64 = (0..32).map(|part| part * 256).sum();
    // A sixteenth of the budget that is cached beside what is charged is not worth dropping.
    let cached = || {
        let all = 4096 * (cached_pages(&one).unwrap() + cached_pages(&two).unwrap());
        all.saturating_sub(BUDGET / 16)
    };
    let first = unsafe { Mmap::map(&one) }.unwrap();
    let mut second = unsafe { MmapMut::map_mut(&two) }.unwrap();
    for _ in 0..2 {
        assert_eq!((sum(&first), sum(&second)), (expected, expected));
        eventually("both files are within one budget", || cached() <= BUDGET);
    }
    // Stores are not lost when their pages leave.
    for at in (0..FILE).step_by(4096) {
        second[at + 7] = 99;
    }
    second.flush().unwrap();
    eventually("pages that were stored to leave, too", || cached() <= BUDGET);
    assert!((0..FILE).step_by(4096).all(|at| second[at + 7] == 99));
    assert!(budget::pager().unwrap().unwrap().stat().memory.events.workingset_refault_file > 0);

    // What is locked stays, and is read from memory alone.
    let locked = unsafe { MmapOptions::new().len(2 << 20).map(&one) }.unwrap();
    if locked.lock().is_ok() {
        assert_eq!(sum(&first), expected);
        eventually("the rest is evicted", || cached() <= BUDGET + (2 << 20));
        assert!(cached() + BUDGET / 16 >= 2 << 20);
    } else {
        println!("SKIPPED: this process may not lock 2 MiB");
    }
    drop((first, second, locked));
}

#[test]
fn files_that_are_mapped_stay_within_one_budget() {
    let run = Command::new(env::current_exe().unwrap())
        .args(["within::within", "--exact", "--ignored", "--nocapture"])
        .env("LOWTIDE_MAX", BUDGET.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{text}{}", String::from_utf8_lossy(&run.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_budget_that_makes_no_sense_is_an_error_of_the_map() {
    if env::var_os("LOWTIDE_MAX").is_some() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "bytes").unwrap();
        let map = unsafe { Mmap::map(&File::open(dir.path().join("file")).unwrap()) };
        println!("{}", map.unwrap_err());
        return;
    }
    let name = "within::a_budget_that_makes_no_sense_is_an_error_of_the_map";
    let run = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env("LOWTIDE_MAX", "much")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && text.contains("LOWTIDE_MAX"), "{text}");
}

#[test]
#[ignore = "run by the test below, with a budget"]
fn forks_beside_the_first_map() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 1 << 16]).unwrap();
    let (file, is_made) = (&file, &AtomicBool::new(false));
    let map = || unsafe { Mmap::map(file) }.is_ok_and(|map| map[5000] == 7);
    let (beside, failed) = thread::scope(|scope| {
        scope.spawn(move || {
            assert!(map(), "the first map of the process");
            is_made.store(true, Ordering::Release);
        });
        let (mut beside, mut failed) = (0, 0);
        while !is_made.load(Ordering::Acquire) {
            beside += 1;
            let child = unsafe { libc::fork() };
            if child == 0 {
                unsafe { libc::alarm(60) };
                let code = i32::from(!map());
                unsafe { libc::_exit(code) };
            }
            let mut status = -1;
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            failed += i32::from(status != 0);
        }
        (beside, failed)
    });
    assert_eq!(failed, 0, "of {beside} children");
}

#[test]
fn a_child_that_is_forked_beside_the_first_map_makes_its_own() {
    for _ in 0..20 {
        let run = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", "within::forks_beside_the_first_map"])
            .env("LOWTIDE_MAX", "8M")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("1 passed"), "{text}");
    }
}
