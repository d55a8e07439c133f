//! A program that builds a sandbox around itself, then maps a file twice: through the C library,
//! and with a map of lowtide, first forced to serve page faults itself, then as it likes.
//!
//! ```text
//! sandboxed userfaultfd|privilege|scan FILE
//! ```
//!
//! The word says which calls the sandbox refuses: those for page faults that a process serves
//! itself, those of them that need a privilege (for faults in system calls), or the scan of page
//! tables. The file is one of `maps make`. Every page is read, and what
//! is printed is the same under `lowtide run` and without.
//!
//! # Safety
//!
//! Nothing else changes the file, and the mapping is as long as it.

#![allow(unsafe_code, clippy::print_stdout)]

#[path = "../../../crates/lowtide/tests/common/scene.rs"]
mod scene;

use lowtide::map::{MapMode, MapOptions};
use lowtide::{Pager, Size};
use scene::{NEW_USERFAULTFD, PAGEMAP_SCAN, ioctl, refuse};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::{env, ptr, slice};

const PAGE: usize = 4096;

/// A sum of the first words of all pages.
fn sum(bytes: &[u8]) -> u64 {
    let word = |page: &[u8]| u64::from_ne_bytes(page[..8].try_into().expect("eight bytes"));
    bytes.chunks(PAGE).map(word).fold(0, |sum, word| sum.rotate_left(5) ^ word)
}

/// Gives up the capability with which faults in system calls may be served, for good. False if
/// that is not enough: the system may let every user do so.
fn give_up_tracing() -> bool {
    const CAP_SYS_PTRACE: u32 = 19;
    let everyone = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    let mut header = [0x2008_0522_u32, 0]; // the third version; this thread
    let mut sets = [0_u32; 6]; // effective, permitted, inheritable: the lower halves, the upper
    // SAFETY: the call reads two numbers and writes six.
    if unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) } != 0 {
        return false;
    }
    sets[..3].iter_mut().for_each(|set| *set &= !(1 << CAP_SYS_PTRACE));
    // SAFETY: the call reads two numbers and six.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) } == 0;
    set && everyone.is_ok_and(|text| text.trim() == "0")
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [what, path] = &args[..] else { panic!("sandboxed userfaultfd|privilege|scan FILE") };
    let installed = match what.as_str() {
        "userfaultfd" => {
            refuse(&[(libc::SYS_userfaultfd, None), ioctl(NEW_USERFAULTFD)], libc::EPERM)
        }
        "privilege" => give_up_tracing() && refuse(&[ioctl(NEW_USERFAULTFD)], libc::EPERM),
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
    for way in [MapMode::Userfault, MapMode::Auto] {
        // SAFETY: nothing changes the file.
        match unsafe { MapOptions::new().mode(way).map(&pager, &file) } {
            Ok(map) => println!("{way} is {}: {:x}", map.report().mode, sum(&map)),
            Err(error) => println!("{way}: {error}"),
        }
    }
}
