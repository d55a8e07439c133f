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
//! nothing else: the signal is blocked there, as all are, and taken with `sigwaitinfo(2)`. It wakes
//! the keeper, which never waits for a thread of the program. So a program that opens its own
//! mapped file for writing waits for the keeper, and not for itself. In case a signal is lost (the
//! queue of signals has an end), the keeper also looks now and then.
//!
//! An opener waits for `/proc/sys/fs/lease-break-time` at most (45 s). A process that is stopped
//! for longer loses its leases meanwhile, and may see old pages for a moment when it continues.
//!
//! # Safety
//!
//! System calls on descriptors that are borrowed, and on sets of signals that were written.

#![allow(unsafe_code)]

use crate::descriptors::SignalsBlocked;
use crate::local::is_local;
use crate::state;
use crate::ways::Why;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use std::{io, ptr, thread};

/// How often leases are looked at, in case that a signal was lost.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

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
pub(crate) fn are_any() -> bool {
    HELD.load(Ordering::Acquire) > 0
}

/// How many leases were given up so far. One that was in the way of an `open` which has failed is
/// counted when the keeper has answered a question that was asked afterwards, if it is ours.
pub(crate) fn given_up() -> usize {
    GIVEN_UP.load(Ordering::Acquire)
}

/// A child of `fork` has no leases.
pub(crate) fn begin_in_child() {
    HELD.store(0, Ordering::Release);
}

/// The signal: one that programs hardly use.
fn signal() -> i32 {
    libc::SIGRTMAX() - 4
}

/// The thread that gets the signals.
#[derive(Debug)]
pub(crate) struct Leases {
    thread: i32,
}

impl Leases {
    /// Starts the thread; `None` if that is impossible.
    pub(crate) fn begin() -> Option<Self> {
        let (send, receive) = mpsc::channel();
        let _blocked = SignalsBlocked::all();
        let run = move || {
            let _ = send.send(rustix::thread::gettid().as_raw_nonzero().get());
            listen();
        };
        thread::Builder::new().name("lowtide-lease".into()).spawn(run).ok()?;
        Some(Self { thread: receive.recv().ok()? })
    }

    /// Takes a lease on a file; the descriptor was opened for reading, and is the keeper's own.
    pub(crate) fn take(&self, file: BorrowedFd<'_>) -> Result<(), Why> {
        if !is_local(file) {
            return Err(Why::NoLease);
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
            return Ok(());
        }
        let error = io::Error::last_os_error();
        HELD.fetch_sub(1, Ordering::Release);
        Err(match error.raw_os_error() {
            Some(libc::EAGAIN) => Why::OpenForWriting,
            Some(libc::EACCES | libc::EPERM) => Why::NotOwner,
            Some(libc::ENOMEM | libc::ENOLCK) => Why::Resources,
            _ => Why::NoLease,
        })
    }
}

/// Whether the lease is there, and nothing waits for it.
pub(crate) fn is_held(file: BorrowedFd<'_>) -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}

/// Gives the lease up.
pub(crate) fn give_up(file: BorrowedFd<'_>) {
    // SAFETY: takes a number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    HELD.fetch_sub(1, Ordering::Release);
    GIVEN_UP.fetch_add(1, Ordering::Release);
}

/// Waits for signals as long as the process lives.
fn listen() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was written.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal()) };
    loop {
        // SAFETY: the set was written; the information is not wanted.
        let got = unsafe { libc::sigwaitinfo(set.as_ptr(), ptr::null_mut()) };
        if got == signal()
            && let Some((state, _)) = state::of_ours()
        {
            state.line.want_look();
        }
    }
}
