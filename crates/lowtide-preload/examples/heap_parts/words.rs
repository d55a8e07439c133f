//! Memory of the test programs, and what it must contain.

#![allow(dead_code, reason = "each program uses some of it")]

use libc::{c_int, c_void};
use std::{io, ptr, slice};

pub(crate) const PAGE: usize = 4096;
pub(crate) const MIB: usize = 1 << 20;
pub(crate) const PROT: c_int = libc::PROT_READ | libc::PROT_WRITE;
pub(crate) const FLAGS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// What is stored at a word. It compresses, and no two pages are the same.
pub(crate) fn word(at: usize, seed: u64) -> u64 {
    ((at / 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

/// What does not compress.
pub(crate) fn noise(at: usize, seed: u64) -> u64 {
    let mut x = (at as u64).wrapping_add(seed).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

pub(crate) struct Words(pub(crate) *mut u64, pub(crate) usize);

impl Words {
    pub(crate) fn of(start: *mut c_void, bytes: usize) -> Self {
        Self(start.cast(), bytes / 8)
    }

    pub(crate) fn all(&self) -> &'static mut [u64] {
        // SAFETY: the commands use memory of theirs, of this length.
        unsafe { slice::from_raw_parts_mut(self.0, self.1) }
    }

    pub(crate) fn fill(&self, seed: u64) {
        self.all().iter_mut().enumerate().for_each(|(at, to)| *to = word(at, seed));
    }

    pub(crate) fn check(&self, what: &str, seed: u64) {
        let wrong = self.all().iter().enumerate().find(|(at, found)| **found != word(*at, seed));
        assert!(wrong.is_none(), "{what}: wrong at word {wrong:?} of {}", self.1);
    }

    pub(crate) fn check_zero(&self, what: &str) {
        let wrong = self.all().iter().position(|found| *found != 0);
        assert!(wrong.is_none(), "{what}: not zero at word {wrong:?} of {}", self.1);
    }
}

pub(crate) fn map(bytes: usize, prot: c_int, flags: c_int) -> *mut c_void {
    // SAFETY: no address is demanded.
    let got = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    got
}

pub(crate) fn plus(start: *mut c_void, bytes: usize) -> *mut c_void {
    start.wrapping_byte_add(bytes)
}

/// Whether system calls can read a page: the program can then, too.
pub(crate) fn is_readable(at: *mut c_void) -> bool {
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the kernel checks the address.
    let wrote = unsafe { libc::write(pipe[1], at, 1) };
    // SAFETY: descriptors of ours.
    unsafe { (libc::close(pipe[0]), libc::close(pipe[1])) };
    wrote == 1
}

/// KiB of memory that the program has for itself, with shared memory. A page that is mapped twice
pub(crate) fn wait(child: c_int) {
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
}
