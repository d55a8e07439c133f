//! A program that others watch: it maps a file, and touches a part of it after the other until its
//! standard input ends. With `fork`, a child does the same from its own mapping. Each says `ready`
//! and its number.
//!
//! ```text
//! watched FILE [fork]
//! ```
//!
//! # Safety
//!
//! The mapping is made once and never unmapped, and nothing changes the file.

#![allow(unsafe_code, clippy::print_stdout)]

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use std::{env, ptr, thread};

/// Pages of a part, and a pause after each: figures change, and a processor is left for others.
const PART: usize = 256;
const PAUSE: Duration = Duration::from_millis(50);

static ENDS: AtomicBool = AtomicBool::new(false);

fn map(file: &File) -> &'static [u8] {
    let len = file.metadata().expect("a file").len() as usize;
    let (prot, flags, fd) = (libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: mapped as long as the process lives.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

fn main() {
    let args: Vec<String> = env::args().collect();
    let file = File::open(&args[1]).expect("the file");
    let mut bytes = map(&file);
    if args.get(2).is_some_and(|word| word == "fork") {
        // SAFETY: this process has one thread of its own.
        if unsafe { libc::fork() } == 0 {
            bytes = map(&file);
        }
    }
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ENDS.store(true, Relaxed);
    });
    println!("ready {}", std::process::id());
    let mut parts = bytes.chunks(PART * 4096).cycle();
    let mut sum = 0_u64;
    while !ENDS.load(Relaxed) {
        let part = parts.next().expect("a file with bytes");
        sum = part.iter().step_by(4096).fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        thread::sleep(PAUSE);
    }
    // The sum is used, so the pages are touched.
    std::process::exit(i32::from(sum == 1));
}
