//! A thread's own table of descriptors.
//!
//! Threads of a process share one table. A thread that leaves it (`CLOSE_RANGE_UNSHARE` of
//! `close_range(2)`, Linux 5.9) has a copy, which is its own and that of threads that it starts:
//! what it opens and closes is not seen by the others. Before 5.9, and where a sandbox hides the
//! call, `unshare(2)` with `CLONE_FILES` makes the copy, and descriptors are closed one by one.
//!
//! # Safety
//!
//! Calls on the table of the calling thread, which it has just made its own.

#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_uint;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// `CLOSE_RANGE_UNSHARE`.
const UNSHARE: c_uint = 1 << 1;

/// Descriptors that are tried one by one where `/proc` cannot say which are open.
const TRIED: u64 = 1 << 20;

/// Gives the calling thread a table of its own, without descriptors from `first` on. Two system
/// calls, or one for each of these descriptors.
///
/// # Safety
///
/// No value of this thread owns a descriptor from `first` on.
///
/// # Errors
///
/// `ENOMEM`; `EPERM` and its like where a sandbox refuses both calls.
pub unsafe fn make_own(first: c_uint) -> io::Result<()> {
    // SAFETY: The call takes numbers. It closes descriptors in a new table only, and the caller
    // promises that none of them has an owner there.
    if unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, UNSHARE) } == 0 {
        return Ok(());
    }
    // SAFETY: The thread has a copy of the table from now on; no descriptor changes.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for number in open_from(first) {
        // SAFETY: In this thread's own table, where the caller promises that it has no owner.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// The same, with nothing in the table but the standard descriptors, which are /dev/null, or where
/// that is not to be had the root, without a right to it: what is opened later must not become one,
/// into which messages are written.
///
/// # Safety
///
/// No value of this thread owns a descriptor.
///
/// # Errors
///
/// As [`make_own`].
pub unsafe fn make_own_empty() -> io::Result<()> {
    // SAFETY: The caller's promise.
    unsafe { make_own(3) }?;
    // From here on the table is the thread's own, whatever it can open.
    let root = || open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).or_else(|_| root());
    let Ok(null) = null else { return Ok(()) };
    for standard in 0..3 {
        if null.as_raw_fd() != standard {
            // SAFETY: Nothing of this thread uses the standard descriptors of its own table.
            unsafe { libc::dup3(null.as_raw_fd(), standard, libc::O_CLOEXEC) };
        }
    }
    if null.as_raw_fd() < 3 {
        std::mem::forget(null);
    }
    Ok(())
}

/// Opens, in the calling thread's table, the file of another thread's descriptor, for reading. A
/// path of /proc leads to the file itself, also if its name is gone. Where that is not allowed, the
/// descriptor is [duplicated](duplicate). Says, too, whether the open file is the caller's alone.
///
/// # Errors
///
/// As [`duplicate`].
pub fn reopen(thread: i32, fd: i32) -> io::Result<(OwnedFd, bool)> {
    let path = format!("/proc/self/task/{thread}/fd/{fd}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match open(path.as_str(), flags, Mode::empty()) {
        Ok(file) => Ok((file, true)),
        Err(_) => Ok((duplicate(thread, fd)?, false)),
    }
}

/// Duplicates, in the calling thread's table, a descriptor of another thread of this process
/// (`pidfd_getfd(2)`, Linux 5.6). Before Linux 6.9 that of the first thread.
///
/// # Errors
///
/// `EBADF` where it has no such descriptor, or has ended; `EPERM` and `ENOSYS` in a sandbox.
pub fn duplicate(thread: i32, fd: i32) -> io::Result<OwnedFd> {
    /// `PIDFD_THREAD`.
    const OF_THREAD: u32 = libc::O_EXCL.cast_unsigned();
    let of_thread = PidfdFlags::from_bits_retain(OF_THREAD);
    let thread = Pid::from_raw(thread).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = pidfd_open(thread, of_thread)
        .or_else(|_| pidfd_open(rustix::process::getpid(), PidfdFlags::empty()))?;
    Ok(pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty())?)
}

/// Descriptors from `first` on are closed where this process becomes another program, or starts
/// one. A system call for each of them.
///
/// # Errors
///
/// Those of `fcntl(2)`, of which none is known for an open descriptor.
pub fn close_on_exec(first: c_uint) -> io::Result<()> {
    for number in open_from(first) {
        // SAFETY: The call takes numbers, and changes what `execve(2)` does.
        let failed = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0;
        let error = io::Error::last_os_error();
        // The one through which they were listed is closed.
        if failed && error.raw_os_error() != Some(libc::EBADF) {
            return Err(error);
        }
    }
    Ok(())
}

/// Whether a thread can have a table of its own. Starts one to try.
///
/// # Errors
///
/// As [`make_own`], and that of `pthread_create(3)`.
pub fn try_own() -> io::Result<()> {
    // SAFETY: No descriptor has this number.
    let tried = std::thread::Builder::new().spawn(|| unsafe { make_own(c_uint::MAX) })?;
    tried.join().unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
}

/// The numbers of open descriptors, or of all that may be.
fn open_from(first: c_uint) -> Vec<i32> {
    let Ok(first) = i32::try_from(first) else { return Vec::new() };
    let listed = fs::read_dir("/proc/thread-self/fd").map(|entries| {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        entries.flatten().filter_map(number).filter(|number| *number >= first).collect()
    });
    listed.unwrap_or_else(|_| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        (first..limit.unwrap_or(TRIED).min(TRIED) as i32).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_table_of_ones_own_is_empty_and_the_others_keep_theirs() {
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        let is_open = move || {
            // SAFETY: The call says whether a number is that of a descriptor.
            unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
        };
        let own = std::thread::spawn(move || {
            // SAFETY: This thread owns no descriptor.
            unsafe { make_own(3) }.unwrap();
            (is_open(), open_from(3).len())
        });
        let (is_open_there, count) = own.join().unwrap();
        // The list is read by a descriptor.
        assert!(!is_open_there && count <= 1, "{count}");
        assert!(is_open() && open_from(number as c_uint).contains(&number));
        try_own().unwrap();
        assert!(is_open());
    }
}
