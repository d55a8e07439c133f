//! Streams of the C library: what it reads and writes by itself, past `read` and `write`, is noted
//! (`reads.rs`).
//!
//! A large `fread(3)` goes straight to the program's memory, by a call that no library can stand in
//! front of, and `fwrite(3)` is the same. What other functions read and write (`fgets`, `getline`,
//! `fscanf`, `fprintf`) is seen by the keeper's look at descriptors alone.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::calls::checked;
use crate::reads::{self, Way};
use crate::real_reads as real;
use libc::{FILE, c_void, size_t};

/// Defines functions that take from a stream and note it, and those that checked headers call in
/// their place.
macro_rules! noted {
    ($($name:ident, $checked:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(
                to: *mut c_void,
                size: size_t,
                count: size_t,
                stream: *mut FILE,
            ) -> size_t {
                // SAFETY: the program's arguments.
                let got = unsafe { real::$name(to, size, count, stream) };
                reads::stream_done(stream, got.saturating_mul(size), Way::Read);
                got
            }

            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $checked(
                to: *mut c_void,
                room: size_t,
                size: size_t,
                count: size_t,
                stream: *mut FILE,
            ) -> size_t {
                checked(size.saturating_mul(count), room);
                // SAFETY: the program's arguments.
                unsafe { $name(to, size, count, stream) }
            }
        )*
    };
}

noted! {
    fread, __fread_chk;
    fread_unlocked, __fread_unlocked_chk;
}

/// Defines functions that give to a stream, and note it.
macro_rules! written {
    ($($name:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(
                from: *const c_void,
                size: size_t,
                count: size_t,
                stream: *mut FILE,
            ) -> size_t {
                // SAFETY: the program's arguments.
                let put = unsafe { real::$name(from, size, count, stream) };
                reads::stream_done(stream, put.saturating_mul(size), Way::Written);
                put
            }
        )*
    };
}

written! {
    fwrite;
    fwrite_unlocked;
}
