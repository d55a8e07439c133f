//! Asynchronous reads of the C library (`aio(7)`): its own threads read, past `pread`.
//!
//! Nothing says when such a read is over, so it cannot go elsewhere. If its descriptor is not known
//! to copy (`copies.rs`), memory that it goes to is the kernel's from then on.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::calls::may_be_kept;
use crate::copies::{self, Manner};
use crate::interpose::Errno;
use crate::judge::Reason;
use crate::{heap, real_memory};
use libc::{aiocb, c_int, sigevent};
use std::slice;

/// Makes the memory of a read the kernel's, if something else than a copy may store to it.
///
/// # Safety
/// As `aio_read`.
unsafe fn prepare(what: *const aiocb) -> Result<(), c_int> {
    // SAFETY: the program's request, or none.
    let Some(what) = (unsafe { what.as_ref() }) else { return Ok(()) };
    let (to, len) = (what.aio_buf.cast_const(), what.aio_nbytes);
    if !may_be_kept(to, len) || copies::of(what.aio_fildes) == Manner::Copies {
        return Ok(());
    }
    let start = to as usize;
    heap::give_back_for(&(start..start.saturating_add(len)), Reason::Pinned)
}

fn failed(errno: c_int) -> c_int {
    Errno::set(errno);
    -1
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn aio_read(what: *mut aiocb) -> c_int {
    // SAFETY: the program's request.
    match unsafe { prepare(what) } {
        // SAFETY: the program's request.
        Ok(()) => unsafe { real_memory::aio_read(what) },
        // `ENOMEM` is none of its errors; this is: resources were exceeded.
        Err(_) => failed(libc::EAGAIN),
    }
}

/// The same: on 64-bit Linux offsets have one size.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn aio_read64(what: *mut aiocb) -> c_int {
    // SAFETY: the program's request.
    unsafe { aio_read(what) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn lio_listio(
    mode: c_int,
    all: *const *mut aiocb,
    count: c_int,
    event: *mut sigevent,
) -> c_int {
    let requests = match usize::try_from(count) {
        // SAFETY: the program's array.
        Ok(count @ 1..) if !all.is_null() => unsafe { slice::from_raw_parts(all, count) },
        _ => &[],
    };
    for request in requests {
        // SAFETY: the program's request, or none.
        let is_read = unsafe { request.as_ref() }
            .is_some_and(|request| request.aio_lio_opcode == libc::LIO_READ);
        // SAFETY: as above.
        if is_read && unsafe { prepare(*request) }.is_err() {
            return failed(libc::EAGAIN);
        }
    }
    // SAFETY: the program's arguments.
    unsafe { real_memory::lio_listio(mode, all, count, event) }
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn lio_listio64(
    mode: c_int,
    all: *const *mut aiocb,
    count: c_int,
    event: *mut sigevent,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { lio_listio(mode, all, count, event) }
}
