//! A thread's own table of descriptors, and its signals.
//!
//! # Safety
//!
//! System calls on the calling thread's own table, before it owns a descriptor; signal masks of the
//! calling thread, restored by the same thread.

#![allow(unsafe_code)]

use crate::tasks::Tasks;
use crate::{own, state};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives the calling thread a table of its own with nothing in it but the standard descriptors,
/// which are /dev/null.
///
/// # Errors
/// Those of [`lowtide_sys::descriptors::make_own`].
pub(crate) fn make_own() -> io::Result<()> {
    // SAFETY: the thread owns no descriptor yet; those of the program stay open in its own table.
    unsafe { lowtide_sys::descriptors::make_own(3) }?;
    // What is opened later must not become a standard descriptor, into which messages are written.
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for standard in 0..3 {
        if null.as_raw_fd() != standard {
            // SAFETY: nothing of this thread uses the standard descriptors of its own table.
            unsafe { libc::dup3(null.as_raw_fd(), standard, libc::O_CLOEXEC) };
        }
    }
    if null.as_raw_fd() < 3 {
        std::mem::forget(null);
    }
    Ok(())
}

/// Opens, in the calling thread's table, the file of another thread's descriptor. A path of /proc
/// leads to the file itself, also if its name is gone. Where that is not allowed, a duplicate is
/// requested (`pidfd_getfd(2)`). Says, too, whether the open file is the caller's alone.
pub(crate) fn reopen(thread: i32, fd: i32) -> Option<(OwnedFd, bool)> {
    let path = format!("/proc/self/task/{thread}/fd/{fd}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match open(path.as_str(), flags, Mode::empty()) {
        Ok(file) => Some((file, true)),
        Err(_) => Some((duplicate(fd)?, false)),
    }
}

fn duplicate(fd: i32) -> Option<OwnedFd> {
    let own: Pid = getpid();
    let process = pidfd_open(own, PidfdFlags::empty()).ok()?;
    pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).ok()
}

/// The program's standard error, in the table of a thread of ours, for the time of a message: a
/// program that closes it means that others read its end. The kernel duplicates it; where a sandbox
/// forbids that, or the first thread has ended, the file is opened through /proc, to write at its
/// end.
fn standard_error() -> Option<OwnedFd> {
    duplicate(libc::STDERR_FILENO).or_else(|| {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
        let is_ours =
            |number: i32| state::of_ours().is_some_and(|(state, _)| state.threads.has(number));
        let of = |number: i32| {
            let path = format!("/proc/self/task/{number}/fd/2");
            (!is_ours(number)).then(|| open(path, flags, Mode::empty()).ok())?
        };
        Tasks::open()?.find(of).ok()?
    })
}

/// Writes to the program's standard error, as far as it takes anything. Not by way of the standard
/// library: when this process was forked, another thread may have had the lock that is taken there.
pub(crate) fn say(text: &[u8]) {
    if !own::is_ours() {
        write(libc::STDERR_FILENO, text);
    } else if let Some(error) = standard_error() {
        write(error.as_raw_fd(), text);
    }
}

fn write(to: i32, text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the text, and its length.
        match unsafe { libc::write(to, rest.as_ptr().cast(), rest.len()) } {
            written @ 1.. => rest = &rest[written as usize..],
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// The file that standard error was at the beginning, one more than its number; zero is none.
static FIRST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Remembers which file standard error is.
pub(crate) fn note_first() {
    if let Some((device, number)) = file_of_2() {
        FIRST[0].store(device, Ordering::Relaxed);
        FIRST[1].store(number.wrapping_add(1), Ordering::Release);
    }
}

fn file_of_2() -> Option<(u64, u64)> {
    // SAFETY: the number of a descriptor, for a call that says whether it is open.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(2) }).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// As [`say`], by a thread of the program, and only if standard error is the file that it was at
/// the beginning: a daemon may have a file of its data there.
pub(crate) fn say_first(text: &[u8]) {
    let first = (FIRST[0].load(Ordering::Relaxed), FIRST[1].load(Ordering::Acquire));
    if file_of_2().is_some_and(|(device, number)| (device, number.wrapping_add(1)) == first) {
        say(text);
    }
}

/// No signal is delivered to this thread while this lives, nor to threads that it starts.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
    /// A mask belongs to a thread.
    thread: PhantomData<*const ()>,
}

impl SignalsBlocked {
    /// Blocks all of them, except those that the C library needs.
    pub(crate) fn all() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is written.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the first set was written, the second is written now.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: written by the call, and zeroes are a set.
        Self { before: unsafe { before.assume_init() }, thread: PhantomData }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the mask that this thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::thread;

    #[test]
    fn a_thread_with_its_own_descriptors_opens_files_of_others_and_takes_no_lock_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x");
        std::fs::write(&path, b"bytes").expect("a file");
        let file = File::options().read(true).write(true).open(&path).expect("the file");
        std::fs::remove_file(&path).expect("its name goes");
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .expect("a POSIX lock");
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let number = file.as_raw_fd();
        let text = thread::spawn(move || {
            make_own().expect("Linux 5.9");
            let mut text = String::new();
            let mut again = File::from(reopen(me, number).expect("the file, without its name").0);
            assert!(again.as_raw_fd() > 2);
            again.read_to_string(&mut text).expect("its bytes");
            text
        });
        assert_eq!(text.join().expect("the thread"), "bytes");
        // Its descriptor is closed now. Another process asks whether the file is still locked.
        let held = locked_by(&file);
        assert_eq!(held, Some(std::process::id() as i32), "the lock was lost");
    }

    /// The process that has a lock on the file, asked by a child, since a process does not stand in
    /// its own way.
    fn locked_by(file: &File) -> Option<i32> {
        let number = file.as_raw_fd();
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut lock = libc::flock {
                l_type: libc::F_WRLCK as i16,
                l_whence: 0,
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            };
            // SAFETY: the structure is of this kind of call.
            unsafe { libc::fcntl(number, libc::F_GETLK, &raw mut lock) };
            let is_ours = lock.l_type != libc::F_UNLCK as i16
                // SAFETY: asks for a number.
                && lock.l_pid == unsafe { libc::getppid() };
            // SAFETY: ends the child without running anything.
            unsafe { libc::_exit(i32::from(is_ours)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        (libc::WEXITSTATUS(status) == 1).then(|| std::process::id() as i32)
    }
}
