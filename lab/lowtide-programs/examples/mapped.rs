//! A library for programs in other languages that map files by the name memmap2, for the proof that
//! databases lose nothing beside lowtide (`proofs/databases/run`).
//!
//! # Safety
//!
//! Callers pass a path that ends with a zero, and what `mapped_open` gave them once.

#![allow(unsafe_code)]

use lowtide_memmap2::Mmap;
use std::ffi::{CStr, OsStr, c_char};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// Maps a file, and touches each page; null if it cannot be mapped.
///
/// # Safety
/// See the head.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapped_open(path: *const c_char) -> *mut Mmap {
    // SAFETY: see the head.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    // The descriptor is the caller's affair, which has a lock of its own: it is never closed.
    let Ok(file) = File::open(path).map(|file| &*Box::leak(Box::new(file))) else {
        return ptr::null_mut();
    };
    // SAFETY: other processes store to it; what is read here is thrown away.
    let Ok(map) = (unsafe { Mmap::map(file) }) else { return ptr::null_mut() };
    std::hint::black_box(map.iter().step_by(4096).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    Box::into_raw(Box::new(map))
}

/// Ends a map.
///
/// # Safety
/// See the head.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapped_close(map: *mut Mmap) {
    // SAFETY: see the head.
    drop(unsafe { Box::from_raw(map) });
}
