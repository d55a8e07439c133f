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

/// Defines functions that take from a stream, or give to it, and note it.
macro_rules! noted {
    ($($way:ident $name:ident($memory:ty);)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(
                memory: $memory,
                size: size_t,
                count: size_t,
                stream: *mut FILE,
            ) -> size_t {
                // SAFETY: the program's arguments.
                let done = unsafe { real::$name(memory, size, count, stream) };
                reads::stream_done(stream, done.saturating_mul(size), Way::$way);
                done
            }
        )*
    };
}

noted! {
    Read fread(*mut c_void);
    Read fread_unlocked(*mut c_void);
    Written fwrite(*const c_void);
    Written fwrite_unlocked(*const c_void);
}

/// Defines functions that checked headers call in the place of others.
macro_rules! also {
    ($($name:ident, $checked:ident;)*) => {
        $(
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

also! {
    fread, __fread_chk;
    fread_unlocked, __fread_unlocked_chk;
}
