//! Locks of bytes of a file that belong to an open file (`F_OFD_SETLK` of `fcntl(2)`).
//!
//! The kernel gives such a lock up when the last descriptor of the open file is closed: at the
//! latest when the process ends, however it ends. So a lock says that its process lives, to others
//! in other namespaces of process numbers, too. A child of `fork` shares it if it has the
//! descriptor.
//!
//! # Safety
//!
//! Calls that read and write one structure of this file.

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Locks bytes, unless another open file has a lock of one of them. Returns whether it did.
///
/// # Errors
///
/// `InvalidInput` for an empty range, or one that no file has; those of `fcntl(2)`.
pub fn try_lock(fd: impl AsFd, bytes: Range<u64>) -> io::Result<bool> {
    match call(fd, libc::F_OFD_SETLK, &bytes) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether another open file has a lock of one of these bytes.
///
/// # Errors
///
/// As [`try_lock`].
pub fn is_locked(fd: impl AsFd, bytes: Range<u64>) -> io::Result<bool> {
    Ok(call(fd, libc::F_OFD_GETLK, &bytes)?.l_type != libc::F_UNLCK as libc::c_short)
}

fn call(fd: impl AsFd, command: libc::c_int, bytes: &Range<u64>) -> io::Result<libc::flock> {
    let number = |n: u64| {
        i64::try_from(n).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("no file has a byte {n}"))
        })
    };
    let len = bytes.end.checked_sub(bytes.start).filter(|len| *len > 0).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("cannot lock {bytes:?}: it is empty"))
    })?;
    // SAFETY: Zeroes are such a structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (number(bytes.start)?, number(len)?);
    // SAFETY: The call reads the structure, and may write it.
    let failed = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, &raw mut lock) } == -1;
    if failed { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_belongs_to_an_open_file_and_ends_with_it() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let (one, other) = (named.reopen().unwrap(), named.reopen().unwrap());
        assert!(try_lock(&one, 3..4).unwrap());
        assert!(try_lock(&one, 3..4).unwrap(), "it has it");
        assert!(!is_locked(&one, 0..10).unwrap(), "its own does not count");
        assert!(is_locked(&other, 0..10).unwrap() && !is_locked(&other, 0..3).unwrap());
        assert!(!try_lock(&other, 3..4).unwrap() && try_lock(&other, 4..5).unwrap());
        drop(one);
        assert!(try_lock(&other, 3..4).unwrap());
        assert_eq!(try_lock(&other, 3..3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
