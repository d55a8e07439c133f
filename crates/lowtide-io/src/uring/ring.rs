//! One ring, used by one thread.
//!
//! An entry passes through three places, and its place determines what owns its memory:
//!
//! ```text
//!   stage ──▶ staged (in the submission queue: the kernel has not looked)
//!                │ enter
//!                ▼
//!             in the kernel (the memory is the device's) ──▶ completion queue ──reap──▶ ended
//! ```
//!
//! `io_uring_enter` can fail while entries are in any of them. A passing refusal (`EAGAIN`,
//! `EBUSY`) is tried again. Any other makes the ring *broken*, for instance when a seccomp filter
//! came into force after the ring was opened, or when its descriptor was closed. A broken ring
//! takes nothing new. What is staged will never be looked at and may be done another way. What is
//! in the kernel must still be waited for, for as long as it takes: returning would hand memory
//! back that a device is writing to.
//!
//! # Safety
//!
//! This file opts in to unsafe code to place entries in the submission queue and to call
//! `io_uring_enter` in a way that the safe wrapper lacks (waiting without submitting).
#![allow(unsafe_code)]

use lowtide_sys::tell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

use super::super::job::REFUSALS_MAX;
use super::super::request::{Arena, Read, Slice};

/// How long a broken ring rests between two looks at its completion queue.
const BROKEN_POLL: Duration = Duration::from_millis(1);

/// The longest timeout that is passed to the kernel at a time; longer waits are repeated.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// `IORING_ENTER_GETEVENTS` of `io_uring_enter(2)`: process and wait for completions.
const ENTER_GETEVENTS: u32 = 1;

/// A ring and the count of what is in it.
pub(super) struct Ring {
    /// Boxed, because a ring is moved out of its cache and back for every request.
    ring: Box<IoUring>,
    /// The range that is registered with this ring, in pieces whose index is their number.
    registered: Option<Arena>,
    /// Entries staged or in the kernel, that is: not reaped.
    outstanding: usize,
    /// Passing refusals in a row.
    refusals: u32,
    broken: bool,
    /// Counts the open rings of a backend.
    _open: Arc<()>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("registered", &self.registered)
            .field("outstanding", &self.outstanding)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Wraps an idle ring. The completion queue must have room for as many entries as the
    /// submission queue, so that it cannot overflow.
    pub(super) fn new(ring: IoUring, registered: Option<Arena>, open: Arc<()>) -> Ring {
        Ring {
            ring: Box::new(ring),
            registered,
            outstanding: 0,
            refusals: 0,
            broken: false,
            _open: open,
        }
    }

    /// How many entries fit.
    pub(super) fn entries(&self) -> usize {
        self.ring.params().sq_entries() as usize
    }

    /// Whether the kernel has refused for good.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether nothing is staged or in the kernel.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// Entries that the kernel has not looked at.
    pub(super) fn staged(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Entries whose memory belongs to the kernel.
    pub(super) fn in_kernel(&mut self) -> usize {
        self.outstanding - self.staged()
    }

    /// The entry for a read: into registered memory where it lies there.
    pub(super) fn read_entry(&self, read: &Read) -> Entry {
        let piece = self.registered.and_then(|arena| arena.piece_of(read.ptr, read.len as usize));
        match piece {
            Some(piece) => opcode::ReadFixed::new(Fd(read.fd), read.ptr, read.len, piece)
                .offset(read.offset)
                .build(),
            None => opcode::Read::new(Fd(read.fd), read.ptr, read.len).offset(read.offset).build(),
        }
    }

    /// The entry for a vectored read into the slices.
    pub(super) fn read_run_entry(&self, fd: i32, offset: u64, slices: &[Slice]) -> Entry {
        opcode::Readv::new(Fd(fd), slices.as_ptr().cast(), slices.len() as u32)
            .offset(offset)
            .build()
    }

    /// The entry for a vectored write of the slices.
    pub(super) fn write_entry(&self, fd: i32, offset: u64, slices: &[Slice]) -> Entry {
        opcode::Writev::new(Fd(fd), slices.as_ptr().cast(), slices.len() as u32)
            .offset(offset)
            .build()
    }

    /// The entry for `fdatasync`. The kernel carries it out in a thread of its own.
    pub(super) fn sync_entry(&self, fd: i32) -> Entry {
        opcode::Fsync::new(Fd(fd)).flags(FsyncFlags::DATASYNC).build()
    }

    /// Places an entry in the submission queue. Returns `false`, having done nothing, when it is
    /// full.
    ///
    /// # Safety
    ///
    /// All memory that the entry names stays valid for the operation until the entry is reaped, or
    /// until the ring is dropped if it is never [`enter`](Ring::enter)ed again.
    pub(super) unsafe fn stage(&mut self, entry: &Entry) -> bool {
        // SAFETY: the caller vouches for the memory for as long as the kernel may use it.
        let staged = unsafe { self.ring.submission().push(entry) }.is_ok();
        self.outstanding += usize::from(staged);
        staged
    }

    /// Hands what is staged to the kernel, and waits until `want` entries are to be reaped. May
    /// return earlier: after the timeout, a signal, or a refusal. `want` is at most the number of
    /// outstanding entries.
    pub(super) fn enter(&mut self, want: usize, timeout: Option<Duration>) {
        debug_assert!(!self.broken, "a broken ring is not entered");
        debug_assert!(want <= self.outstanding, "waiting for more than there is");
        let entered = match timeout {
            Some(timeout) if want > 0 => self.enter_for(want, timeout),
            _ => self.ring.submit_and_wait(want),
        };
        let error = match entered {
            Ok(_) => {
                self.refusals = 0;
                return;
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME) => {}
            Some(libc::EAGAIN | libc::EBUSY) if self.refusals < REFUSALS_MAX => {
                self.refusals += 1;
                std::thread::yield_now();
            }
            _ => {
                tell!(error, %error, "io_uring_enter failed: this ring is given up");
                self.broken = true;
            }
        }
    }

    /// As [`enter`](Ring::enter), for a limited time. Before Linux 5.11 the kernel has no such
    /// wait: then it looks, and rests a little.
    fn enter_for(&mut self, want: usize, timeout: Duration) -> io::Result<usize> {
        if self.ring.params().is_feature_ext_arg() {
            let timeout = Timespec::from(timeout.min(LONGEST_WAIT));
            return self
                .ring
                .submitter()
                .submit_with_args(want, &SubmitArgs::new().timespec(&timeout));
        }
        let submitted = self.ring.submit_and_wait(0)?;
        if self.ring.completion().is_empty() {
            std::thread::sleep(timeout.min(BROKEN_POLL));
        }
        Ok(submitted)
    }

    /// Waits a little for what a broken ring has in the kernel.
    pub(super) fn outlast(&mut self) {
        // SAFETY: nothing is submitted, so the kernel gets no new memory; the argument is absent.
        let entered =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, ENTER_GETEVENTS, None) };
        if entered.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            std::thread::sleep(BROKEN_POLL);
        }
    }

    /// Takes one ended entry: its user data and its outcome.
    pub(super) fn reap(&mut self) -> Option<(u64, io::Result<usize>)> {
        let entry = self.ring.completion().next()?;
        self.outstanding -= 1;
        let outcome = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        Some((entry.user_data(), outcome))
    }

    /// The number of the ring's descriptor.
    #[cfg(test)]
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.ring)
    }
}
