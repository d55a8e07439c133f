//! Read leases: the kernel's promise that a file does not change before its holder agrees.
//!
//! A mirror shows a file as it was when its pages came in. So a mapping is mirrored only while this
//! process holds a *read lease* on its file (`F_SETLEASE` of `fcntl(2)`): the kernel gives one only
//! if no process has the file open for writing, and makes each process that opens it for writing,
//! or cuts it (`truncate(2)`), wait until the lease is given up. Punching holes, writing and
//! cutting by descriptor need a descriptor that is open for writing, and so does a writable shared
//! mapping. Then the mapping becomes the kernel's again, the lease is given up, and the other
//! process goes on.
//!
//! The kernel says by a signal that a lease is to be given up. It is sent to a thread that does
//! nothing else: the signal is blocked there and taken with `sigwaitinfo(2)`. It wakes the thread
//! that gives leases up, which never waits for one of the program. So a program that opens its own
//! mapped file for writing waits for that thread, and not for itself. In case a signal is lost (the
//! queue of signals has an end), leases are also looked at now and then ([`LOOK`]).
//!
//! A lease belongs to an open file, which children of `fork` share: a host opens one for each
//! mirror, and children close what they have of it.
//!
//! One call changes a file and breaks no lease: `open(2)` with `O_TRUNC` for reading, which empties
//! it. What is empty is found at the next look; until then a mirror shows pages that were cut.
//!
//! An opener waits for `/proc/sys/fs/lease-break-time` at most (45 s). A process that is stopped
//! for longer loses its leases meanwhile, and may see old pages for a moment when it continues.
//!
//! # Safety
//!
//! System calls on descriptors that are borrowed, and on sets of signals that were written.

#![allow(unsafe_code)]

use crate::local::is_local;
use lowtide_sys::threads;
use rustix::fs::fstat;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, ptr};
use thiserror::Error;

/// How often leases are looked at, in case that a signal was lost.
pub const LOOK: Duration = Duration::from_millis(250);

/// Constants of `fcntl(2)`.
const SETSIG: i32 = 10;
const SETOWN_EX: i32 = 15;
const OWNER_TID: i32 = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// Leases that this process has, or is about to have. In ordinary memory: those who open files read
/// it without asking the keeper.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Leases that it gave up, for whatever reason.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has a lease on any file.
pub fn are_any() -> bool {
    HELD.load(Ordering::Acquire) > 0
}

/// How many leases were given up so far. One that was in the way of an `open` which has failed is
/// counted when the keeper has answered a question that was asked afterwards, if it is ours.
pub fn given_up() -> usize {
    GIVEN_UP.load(Ordering::Acquire)
}

/// A child of `fork` has no leases.
pub fn begin_in_child() {
    HELD.store(0, Ordering::Release);
}

/// The signal: one that programs hardly use.
fn signal() -> i32 {
    libc::SIGRTMAX() - 4
}

/// Why there is no lease on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoLease {
    /// A process has it open for writing, or as a writable mapping.
    #[error("the file is open for writing")]
    OpenForWriting,
    /// Leases are for owners.
    #[error("the file belongs to another user: no lease")]
    NotOwner,
    /// The file system gives none, or none that binds all that may change the file.
    #[error("the file system gives no lease that could be trusted")]
    Unsupported,
    /// No memory, thread or lock is left.
    #[error("no memory, thread or lock is left for a lease")]
    Resources,
}

/// The thread that gets the signals.
#[derive(Debug)]
pub struct Leases {
    thread: i32,
    looks: bool,
    ends: Arc<AtomicBool>,
}

impl Drop for Leases {
    /// The thread ends: what it waits for comes once more.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.wake();
    }
}

impl Leases {
    /// Starts the thread, which calls `broken` when a lease is to be given up; `None` if that is
    /// impossible. Where it `looks`, it also does so each [`LOOK`] while there are leases: else the
    /// caller does that.
    pub fn begin(looks: bool, broken: impl Fn() + Send + 'static) -> Option<Self> {
        let (send, receive) = mpsc::channel();
        let ends = Arc::new(AtomicBool::new(false));
        let must_end = Arc::clone(&ends);
        let run = move || {
            let set = blocked();
            let _ = send.send(rustix::thread::gettid().as_raw_nonzero().get());
            listen(&set, looks, &must_end, &broken);
        };
        threads::spawn("lowtide-lease", run).ok()?;
        Some(Self { thread: receive.recv().ok()?, looks, ends })
    }

    fn wake(&self) {
        // SAFETY: takes numbers; the thread has the signal blocked, and takes it.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), self.thread, signal()) };
    }

    /// Takes a lease on a file; the descriptor was opened for reading, by the caller alone.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(&self, file: BorrowedFd<'_>) -> Result<(), NoLease> {
        if !is_local(file) {
            return Err(NoLease::Unsupported);
        }
        let fd = file.as_raw_fd();
        HELD.fetch_add(1, Ordering::AcqRel);
        let owner = Owner { kind: OWNER_TID, id: self.thread };
        // SAFETY: takes a number.
        let signal_set = unsafe { libc::fcntl(fd, SETSIG, signal()) } == 0;
        // SAFETY: takes a structure of this kind.
        let owned = signal_set && unsafe { libc::fcntl(fd, SETOWN_EX, &raw const owner) } == 0;
        // SAFETY: takes a number.
        if owned && unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
            if self.looks {
                // The thread may sleep for as long as there is none.
                self.wake();
            }
            return Ok(());
        }
        let error = io::Error::last_os_error();
        HELD.fetch_sub(1, Ordering::Release);
        Err(match error.raw_os_error() {
            Some(libc::EAGAIN) => NoLease::OpenForWriting,
            Some(libc::EACCES | libc::EPERM) => NoLease::NotOwner,
            Some(libc::ENOMEM | libc::ENOLCK) => NoLease::Resources,
            _ => NoLease::Unsupported,
        })
    }
}

/// Whether the lease is there, nothing waits for it, and the file was not emptied past it.
pub fn is_held(file: BorrowedFd<'_>) -> bool {
    // SAFETY: asks for a number.
    let is_there = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK };
    is_there && fstat(file).is_ok_and(|stat| stat.st_size > 0)
}

/// Gives the lease up.
pub fn give_up(file: BorrowedFd<'_>) {
    // SAFETY: takes a number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    HELD.fetch_sub(1, Ordering::Release);
    GIVEN_UP.fetch_add(1, Ordering::Release);
}

/// The set with the signal alone, which is blocked in this thread from now on.
fn blocked() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was written.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal()) };
    // SAFETY: as above.
    let set = unsafe { set.assume_init() };
    // SAFETY: the mask of this thread alone; what it was before is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
    set
}

/// Waits for signals until it is to end.
fn listen(set: &libc::sigset_t, looks: bool, ends: &AtomicBool, broken: &impl Fn()) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    while !ends.load(Ordering::Acquire) {
        let until = if looks && are_any() { &raw const pause } else { ptr::null() };
        // SAFETY: the set was written; the information is not wanted, and null is no time limit.
        let got = unsafe { libc::sigtimedwait(set, ptr::null_mut(), until) };
        if got == signal() || looks && are_any() {
            broken();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn what_empties_a_file_for_reading_is_seen_by_a_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, [7; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        let (send, looks) = mpsc::channel();
        let leases = Leases::begin(true, move || send.send(()).unwrap()).unwrap();
        if let Err(why) = leases.take(file.as_fd()) {
            return eprintln!("SKIPPED: {why}");
        }
        assert!(is_held(file.as_fd()));
        // Whatever the file is called, and who may use it, its bytes stay.
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        assert!(is_held(file.as_fd()));
        File::options().read(true).custom_flags(libc::O_TRUNC).open(&path).unwrap();
        assert!(!is_held(file.as_fd()));
        // One look for the lease that was taken, and others by themselves.
        (0..3).for_each(|_| looks.recv_timeout(Duration::from_secs(60)).unwrap());
        give_up(file.as_fd());
    }
}
