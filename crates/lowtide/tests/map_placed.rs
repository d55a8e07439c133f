//! Mirrors at addresses that a program chose: one that ends leaves alone what has its addresses by
//! then.

#![expect(unsafe_code, reason = "the program maps and unmaps by itself")]

use crate::common::mapped::{PAGE, file, pager, word};
use lowtide::Pager;
use lowtide::map::run::Placed;
use lowtide::map::{MapError, MapOptions};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::ptr;
use std::sync::mpsc;
use std::time::Duration;

const PAGES: usize = 64;
const LEN: usize = PAGES * PAGE;

/// A sparse memfd of the length of the file.
fn memory() -> File {
    // SAFETY: a name that ends with a zero.
    let fd = unsafe { libc::memfd_create(c"placed".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is this function's.
    let memory = unsafe { File::from_raw_fd(fd) };
    memory.set_len(LEN as u64).unwrap();
    memory
}

/// Maps memory for loads, at an address or where the kernel wants it.
fn place(at: *mut u8, memory: &File) -> *mut u8 {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_SHARED | fixed;
    // SAFETY: the address is this test's, which has mapped something there, or none is named.
    let start =
        unsafe { libc::mmap(at.cast(), LEN, libc::PROT_READ, flags, memory.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the addresses were just mapped.
    assert_eq!(unsafe { libc::madvise(start, LEN, libc::MADV_DONTFORK) }, 0);
    start.cast()
}

/// A mirror of a file at these addresses, where there can be one.
fn serve(pager: &Pager, file: &File, memory: File, start: *mut u8) -> Option<Placed> {
    let addresses = start.addr()..start.addr() + LEN;
    // SAFETY: the addresses map the memory, and the test touches them only afterwards.
    match unsafe { MapOptions::new().serve(pager, file.as_fd(), memory, addresses) } {
        Err(error @ MapError::Mode { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        placed => Some(placed.unwrap()),
    }
}

/// Loads a word, in a thread that may be left behind if no thread serves it.
fn load(start: *mut u8, page: usize) -> Option<u64> {
    let (says, said) = mpsc::channel();
    let at = start.wrapping_add(page * PAGE).expose_provenance();
    std::thread::spawn(move || {
        // SAFETY: the page is mapped until the test ends.
        let bytes =
            unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(at), PAGE) };
        says.send(word(bytes, 0))
    });
    said.recv_timeout(Duration::from_secs(60)).ok()
}

#[test]
fn a_mirror_that_ends_does_not_end_the_serving_of_another_at_its_addresses() {
    let (first, second, pager) = (file(PAGES), file(2 * PAGES), pager("1M"));
    let own = memory();
    let start = place(ptr::null_mut(), &own);
    let Some(placed) = serve(&pager, first.as_file(), own, start) else { return };
    assert_eq!(load(start, 3), Some(3 * PAGE as u64));
    let mut next = None;
    placed
        .end(|| {
            let other = memory();
            assert_eq!(place(start, &other), start);
            next = serve(&pager, second.as_file(), other, start);
            Ok(())
        })
        .unwrap();
    let next = next.expect("the first one was served");
    for page in [3, 9] {
        let loaded = load(start, page);
        if loaded.is_none() {
            // Dropping it would wait for the thread that is left behind.
            std::mem::forget(next);
            panic!("no thread serves page {page} of the second mirror");
        }
        assert_eq!(loaded, Some((page * PAGE) as u64));
    }
    drop(placed);
    assert_eq!(load(start, 20), Some(20 * PAGE as u64));
    next.end(|| {
        place(start, &memory());
        Ok(())
    })
    .unwrap();
    assert_eq!(load(start, 20), Some(0));
    drop(next);
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0);
}
