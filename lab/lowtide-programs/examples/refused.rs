//! A sandbox that refuses single system calls, for the tests of `lowtide run`:
//!
//! ```text
//! refused CALL=ERRNO... -- PROGRAM ARGS
//! ```
//!
//! It becomes the program. With `ERRNO` 0 the call seems to succeed, and does nothing. So a kernel
//! is played that lacks a call, or a sandbox that only pretends to have it.

#![allow(unsafe_code, clippy::print_stdout)]

#[path = "../../../crates/lowtide/tests/common/scene.rs"]
mod scene;

use scene::{Call, NEW_USERFAULTFD, PAGEMAP_SCAN, SKIPPED, ioctl, refuse};
use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The calls of a name.
fn calls(name: &str) -> Vec<Call> {
    let dontunmap = (libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP).cast_unsigned();
    match name {
        "close_range" => vec![(libc::SYS_close_range, None)],
        "unshare" => vec![(libc::SYS_unshare, None)],
        "dontfork" => vec![(libc::SYS_madvise, Some((2, libc::MADV_DONTFORK.cast_unsigned())))],
        "eventfd" => vec![(libc::SYS_eventfd2, None)],
        "flock" => vec![(libc::SYS_flock, None)],
        "wipe" => vec![(libc::SYS_madvise, Some((2, libc::MADV_WIPEONFORK.cast_unsigned())))],
        "cachestat" => vec![(451, None)],
        "huge" => vec![
            (libc::SYS_madvise, Some((2, libc::MADV_HUGEPAGE.cast_unsigned()))),
            (libc::SYS_madvise, Some((2, libc::MADV_POPULATE_WRITE.cast_unsigned()))),
            (libc::SYS_madvise, Some((2, libc::MADV_DONTDUMP.cast_unsigned()))),
        ],
        "userfaultfd_call" => vec![(libc::SYS_userfaultfd, None)],
        "userfaultfd" => vec![(libc::SYS_userfaultfd, None), ioctl(NEW_USERFAULTFD)],
        "dontunmap" => vec![(libc::SYS_mremap, Some((3, dontunmap)))],
        "scan" => vec![ioctl(PAGEMAP_SCAN)],
        "mincore" => vec![(libc::SYS_mincore, None)],
        "getrandom" => vec![(libc::SYS_getrandom, None)],
        "membarrier" => vec![(libc::SYS_membarrier, None)],
        other => panic!("no call {other}"),
    }
}

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    for refusal in args.by_ref().take_while(|arg| arg != "--") {
        let (name, errno) = refusal.split_once('=').expect("CALL=ERRNO");
        if !refuse(&calls(name), errno.parse().expect("a number")) {
            println!("SKIPPED: this kernel takes no filter");
            return ExitCode::from(SKIPPED as u8);
        }
    }
    let program = args.next().expect("a program");
    let error = Command::new(&program).args(args).exec();
    panic!("{program}: {error}");
}
