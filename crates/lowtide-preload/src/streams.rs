//! Streams of the C library: what it reads by itself, past `read`.
//!
//! A large `fread(3)` goes straight to the program's memory, by a call that no library can stand in
//! front of. Where a read of the stream's descriptor is not known to copy (`copies.rs`), the C
//! library reads elsewhere, and the bytes are copied from there.
//!
//! Everything else that reads a stream (`fgets`, `getline`, `fscanf`) copies from its buffer. That
//! is the C library's own, and small, unless the program gives one of its own memory. In the
//! place of a buffer that is in memory that is kept the stream has one of ours, at the same place
//! in a page and up to a limit as large. A program may not look at what a stream does with its
//! array. Nothing says when a stream is closed, so our buffer stays for the next stream at the same
//! address.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::calls::{checked, may_be_kept};
use crate::copies::{self, Manner};
use crate::elsewhere::{Elsewhere, copy_out};
use crate::interpose::Errno;
use crate::reads::{self, fileno_unlocked};
use crate::real_memory;
use libc::{FILE, c_char, c_int, c_void, iovec, size_t};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Buffers that streams have in the place of the program's: the stream, and where the buffer is.
/// Others have the C library's.
static BUFFERS: [(AtomicUsize, AtomicUsize); 64] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 64];

unsafe extern "C" {
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
}

/// Whether the C library must not read from this stream into this memory.
///
/// # Safety
/// The stream is open.
unsafe fn pins(to: *const c_void, len: usize, stream: *mut FILE) -> bool {
    if !may_be_kept(to, len) {
        return false;
    }
    let _errno = Errno::save();
    // SAFETY: the caller's promise. Without the lock: the number changes only where the program
    // opens the stream again.
    let fd = unsafe { fileno_unlocked(stream) };
    // A stream without a descriptor reads from memory, or by functions of the program.
    fd >= 0 && copies::of(fd) != Manner::Copies
}

/// Reads elements elsewhere: how many, and as many bytes of the next as there were.
///
/// # Safety
/// As `fread`, of a stream that no other thread uses meanwhile.
unsafe fn read_elsewhere(to: *mut c_void, size: usize, count: usize, stream: *mut FILE) -> usize {
    let all = size.saturating_mul(count);
    let Some(memory) = Elsewhere::new(all.min(PIECE)) else {
        Errno::set(libc::ENOMEM);
        return 0;
    };
    let mut done = 0;
    while done < all {
        let wanted = (all - done).min(PIECE);
        // SAFETY: there is room for a piece.
        let got = unsafe { real_memory::fread_unlocked(memory.start.cast(), 1, wanted, stream) };
        let here = to.wrapping_byte_add(done);
        let from = [iovec { iov_base: memory.start.cast(), iov_len: got }];
        let copied = copy_out(&from, &[iovec { iov_base: here, iov_len: got }], got);
        // An address that is none would end the program in the C library, too.
        done += copied.unwrap_or(0);
        if got < wanted || copied != Ok(got) {
            break;
        }
    }
    memory.end();
    done / size
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fread(
    to: *mut c_void,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    // SAFETY: the program's stream.
    if !unsafe { pins(to, size.saturating_mul(count), stream) } {
        // SAFETY: the program's arguments.
        let got = unsafe { real_memory::fread(to, size, count, stream) };
        reads::stream_done(stream, got.saturating_mul(size));
        return got;
    }
    // SAFETY: the program's stream, which may be locked by this thread already.
    unsafe { flockfile(stream) };
    // SAFETY: the program's arguments, and the stream is locked.
    let got = unsafe { read_elsewhere(to, size, count, stream) };
    // SAFETY: locked above.
    unsafe { funlockfile(stream) };
    reads::stream_done(stream, got.saturating_mul(size));
    got
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fread_unlocked(
    to: *mut c_void,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    // SAFETY: the program's stream.
    let got = if unsafe { pins(to, size.saturating_mul(count), stream) } {
        // SAFETY: the program's arguments; it has locked the stream, or needs no lock.
        unsafe { read_elsewhere(to, size, count, stream) }
    } else {
        // SAFETY: the program's arguments.
        unsafe { real_memory::fread_unlocked(to, size, count, stream) }
    };
    reads::stream_done(stream, got.saturating_mul(size));
    got
}

/// What checked headers call.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __fread_chk(
    to: *mut c_void,
    room: size_t,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    checked(size.saturating_mul(count), room);
    // SAFETY: the program's arguments.
    unsafe { fread(to, size, count, stream) }
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __fread_unlocked_chk(
    to: *mut c_void,
    room: size_t,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    checked(size.saturating_mul(count), room);
    // SAFETY: the program's arguments.
    unsafe { fread_unlocked(to, size, count, stream) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn setvbuf(
    stream: *mut FILE,
    buffer: *mut c_char,
    mode: c_int,
    size: size_t,
) -> c_int {
    let (buffer, size) = if may_be_kept(buffer.cast(), size) {
        let _errno = Errno::save();
        (in_place_of(buffer, stream), size.min(PIECE))
    } else {
        (buffer, size)
    };
    // SAFETY: the program's arguments, or a buffer that nothing else uses, or none.
    unsafe { real_memory::setvbuf(stream, buffer, mode, size) }
}

/// Our buffer of a stream; null is none.
fn in_place_of(buffer: *mut c_char, stream: *mut FILE) -> *mut c_char {
    let page = rustix::param::page_size();
    let key = stream as usize;
    let is_its = |of: &AtomicUsize| {
        let found = of.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
        found.is_ok() || found == Err(key)
    };
    let known = BUFFERS.iter().find(|(of, _)| of.load(Ordering::Relaxed) == key);
    let Some((_, start)) = known.or_else(|| BUFFERS.iter().find(|(of, _)| is_its(of))) else {
        return ptr::null_mut();
    };
    // One thread opens a stream: no other has this place.
    if start.load(Ordering::Relaxed) == 0 {
        let Some(memory) = Elsewhere::new(PIECE + page) else { return ptr::null_mut() };
        start.store(memory.start.expose_provenance(), Ordering::Relaxed);
    }
    let start: *mut c_char = ptr::with_exposed_provenance_mut(start.load(Ordering::Relaxed));
    start.wrapping_add(buffer as usize % page)
}

/// As `setvbuf`, of the C library's own size.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn setbuf(stream: *mut FILE, buffer: *mut c_char) {
    // SAFETY: the program's arguments.
    unsafe { setbuffer(stream, buffer, libc::BUFSIZ as size_t) };
}

/// The same, of any size. Without a buffer the stream has none.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn setbuffer(stream: *mut FILE, buffer: *mut c_char, size: size_t) {
    let mode = if buffer.is_null() { libc::_IONBF } else { libc::_IOFBF };
    // SAFETY: the program's arguments.
    unsafe { setvbuf(stream, buffer, mode, size) };
}
