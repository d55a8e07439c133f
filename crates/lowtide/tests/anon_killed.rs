//! A process that is killed while it swaps to a file leaves nothing behind.

use crate::common::Dir;
use crate::common::scene::again;
use lowtide::{Pager, Size, SwapOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

/// The variable by which the process that is to be killed knows where its swap file goes.
const PLACE: &str = "LOWTIDE_TEST_KILLED_IN";
/// What it says when it has swapped.
const READY: &str = "pages are in the file";

/// Bytes that do not compress.
fn noise(page: u64, round: u64, bytes: &mut [u8]) {
    let mut state = (page << 20 | round).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

/// Swaps until it is killed.
fn swap_for_ever(dir: &Path) -> ! {
    let swap = SwapOptions::compressed(Size::kib(256)).file(dir, Size::mib(16));
    let pager = Pager::builder().max(Size::mib(2)).swap(swap).build().unwrap();
    let heap = pager.root().region(8 << 20).unwrap();
    for round in 0.. {
        std::thread::scope(|scope| {
            for number in 0..4 {
                let heap = &heap;
                scope.spawn(move || {
                    for page in (0..heap.page_count()).filter(|page| page % 4 == number) {
                        noise(page, round, &mut heap.page_mut(page).unwrap());
                    }
                });
            }
        });
        if round == 0 {
            assert!(pager.swap_file().unwrap().used > 1000);
            let mut out = std::io::stdout();
            writeln!(out, "{READY}").unwrap();
        }
    }
    unreachable!("it is killed before")
}

/// The swap file of a process: a regular file without a name that is open, below a folder.
fn swap_file(process: u32, dir: &Path) -> Option<std::fs::Metadata> {
    // Its threads do not have one table of descriptors.
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let tables = tasks.flatten().filter_map(|task| std::fs::read_dir(task.path().join("fd")).ok());
    tables.flatten().flatten().find_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        let of = std::fs::metadata(entry.path()).ok()?;
        (target.starts_with(dir) && of.is_file() && of.nlink() == 0).then_some(of)
    })
}

#[test]
fn a_process_that_is_killed_while_it_swaps_leaves_no_file() {
    if let Some(dir) = std::env::var_os(PLACE) {
        swap_for_ever(Path::new(&dir));
    }
    let dir = Dir::new();
    let place = dir.path().canonicalize().unwrap();
    let this = "anon_killed::a_process_that_is_killed_while_it_swaps_leaves_no_file";
    // All that it could leave is below this folder.
    let mut child = again(this)
        .env(PLACE, &place)
        .env("TMPDIR", &place)
        .current_dir(&place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = said.any(|line| line.is_ok_and(|line| line.contains(READY)));
    let file = swap_file(child.id(), &place);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(ready && status.signal() == Some(9), "it has ended before: {status}");
    let file = file.expect("its swap file has no name, and is in the folder");
    assert_eq!(file.mode() & 0o777, 0o600, "it is its owner's alone");
    assert!(file.blocks() * 512 > 4 << 20, "{} blocks: there was something in it", file.blocks());
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
