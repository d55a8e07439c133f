//! Texts and buffers of C.

use crate::code::{Failure, Outcome};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// A text; `None` for null.
///
/// # Safety
/// The pointer is null or a text that ends with a zero byte.
pub(crate) unsafe fn text<'a>(at: *const c_char, what: &str) -> Outcome<Option<&'a str>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(at) }.to_str();
    text.map(Some).map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// A text that has to be there.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn name<'a>(at: *const c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { text(at, what) }?.ok_or_else(|| Failure::argument(format!("{what} is null")))
}

/// One of some names; `None` for null.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn choice<T: FromStr<Err: ToString>>(
    at: *const c_char,
    what: &str,
) -> Outcome<Option<T>> {
    // SAFETY: the caller's promise.
    let text = unsafe { text(at, what) }?;
    let parse = |text: &str| text.parse().map_err(|e: T::Err| Failure::argument(e.to_string()));
    text.map(parse).transpose()
}

/// A path, which is bytes.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(at: *const c_char) -> Outcome<&'a Path> {
    if at.is_null() {
        return Err(Failure::argument("the path is null"));
    }
    // SAFETY: the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(at) }.to_bytes())))
}

/// An array to read; null is an empty one.
///
/// # Safety
/// There are as many elements, and no one changes them meanwhile.
pub(crate) unsafe fn array<'a, T>(at: *const T, count: usize, what: &str) -> Outcome<&'a [T]> {
    match (at.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format!("{what} is null"))),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(at, count) }),
    }
}

/// A buffer to fill.
///
/// # Safety
/// There are as many bytes, and no one else uses them meanwhile.
pub(crate) unsafe fn buffer<'a>(at: *mut c_void, len: usize) -> Outcome<&'a mut [MaybeUninit<u8>]> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::argument("the buffer is null")),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }),
    }
}

/// A descriptor.
///
/// # Safety
/// It stays open meanwhile.
pub(crate) unsafe fn descriptor<'a>(fd: c_int) -> Outcome<BorrowedFd<'a>> {
    // SAFETY: it takes any number.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        let text = format!("the descriptor {fd} is not an open one: did open(2) fail?");
        return Err(Failure::new(libc::EBADF, text));
    }
    // SAFETY: it is open, and the caller promises that it stays so.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A time in milliseconds: `None` for 0, which is the default.
pub(crate) fn time(ms: u64) -> Option<Duration> {
    match ms {
        0 => None,
        u64::MAX => Some(Duration::MAX),
        ms => Some(Duration::from_millis(ms)),
    }
}
