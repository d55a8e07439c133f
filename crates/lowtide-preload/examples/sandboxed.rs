//! A program that builds a sandbox around itself, then maps a file twice: through the C library,
//! and with a map of lowtide, first forced to serve page faults itself, then as it likes.
//!
//! ```text
//! sandboxed userfaultfd|scan FILE
//! ```
//!
//! The word says which calls the sandbox refuses: those for page faults that a process serves
//! itself, or the scan of page tables. The file is one of `maps make`. Every page is read, and what
//! is printed is the same under `lowtide run` and without.
//!
//! # Safety
//!
//! Nothing else changes the file, and the mapping is as long as it.

#![allow(unsafe_code, clippy::print_stdout)]

#[path = "../../lowtide/tests/common/scene.rs"]
mod scene;

use lowtide::map::{MapOptions, Way};
use lowtide::{Pager, Size};
use scene::{NEW_USERFAULTFD, PAGEMAP_SCAN, refuse};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::{env, ptr, slice};

const PAGE: usize = 4096;

/// A sum of the first words of all pages.
fn sum(bytes: &[u8]) -> u64 {
    let word = |page: &[u8]| u64::from_ne_bytes(page[..8].try_into().expect("eight bytes"));
    bytes.chunks(PAGE).map(word).fold(0, |sum, word| sum.rotate_left(5) ^ word)
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [what, path] = &args[..] else { panic!("sandboxed userfaultfd|scan FILE") };
    let ioctl = |request| (libc::SYS_ioctl, Some(request));
    let installed = match what.as_str() {
        "userfaultfd" => {
            refuse(&[(libc::SYS_userfaultfd, None), ioctl(NEW_USERFAULTFD)], libc::EPERM)
        }
        "scan" => refuse(&[ioctl(PAGEMAP_SCAN)], libc::ENOTTY),
        other => panic!("no sandbox against {other}"),
    };
    if !installed {
        println!("SKIPPED: this kernel takes no filter");
        return;
    }
    let file = File::open(path).expect("the file");
    let len = file.metadata().expect("its length").len() as usize;
    let (prot, fd) = (libc::PROT_READ, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // SAFETY: mapped, and as long.
    let mapped = unsafe { slice::from_raw_parts(start.cast::<u8>(), len) };
    println!("mapped {:x}", sum(mapped));
    let pager = Pager::builder().max(Size::new(4 << 20)).build().expect("a pager");
    for way in [Way::Userfault, Way::Auto] {
        // SAFETY: nothing changes the file.
        match unsafe { MapOptions::new().way(way).map(&pager, &file) } {
            Ok(map) => println!("{way} is {}: {:x}", map.report().way, sum(&map)),
            Err(error) => println!("{way}: {error}"),
        }
    }
}
