//! One request carried to its end, whichever engine moves the bytes.
//!
//! A transfer may be interrupted, refused for the moment, or stop short. The rules are the same for a
//! system call and for a ring, so they are written once, here, as a small state machine: an engine makes
//! an *attempt*, tells the job the *outcome*, and is told whether to go on.
//!
//! | outcome | a read | a write |
//! |---|---|---|
//! | all bytes | done | done |
//! | some bytes | go on after them | go on after them |
//! | 0 bytes | done: the file ends here | error `WriteZero`: the device takes nothing |
//! | `EINTR` | again | again |
//! | `EAGAIN` | again, at most [`REFUSALS_MAX`] times in a row | the same |
//! | `EINVAL` when going on off the block grid | done: the file ends here | error |
//! | another error | error | error |
//!
//! The odd one: a direct read stops off the block grid only at the end of a file whose size is no multiple
//! of the block. Going on from there is then not aligned, which some file systems refuse before they
//! notice that nothing is left to read.
//!
//! # Safety
//!
//! This file opts in to unsafe code for the three system calls. They get addresses and lengths from
//! requests, whose makers have promised that the memory is there (see `request.rs`).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

use super::request::{Read, Slice, Write};

/// How often in a row a request may be refused with `EAGAIN` before that becomes its error. A regular
/// file is not refused at all; the bound keeps a descriptor in non-blocking mode from spinning for ever.
pub(super) const REFUSALS_MAX: u32 = 64;

/// The most slices of one vectored transfer (`IOV_MAX`, see `limits.h(0p)`; Linux: 1024).
pub(super) const SLICES_MAX: usize = 1024;

/// The smallest logical block of a disk, in bytes: the grid that direct I/O is aligned to at least.
const BLOCK: u64 = 512;

/// What an engine does after an attempt.
#[derive(Debug)]
pub(super) enum Step {
    /// Attempt once more.
    Again,
    /// The request has ended: bytes moved, or its error.
    Done(io::Result<u64>),
}

/// A request under way.
pub(super) trait Job {
    /// Moves some bytes with one blocking system call in the calling thread.
    fn attempt(&mut self) -> io::Result<usize>;

    /// Takes the outcome of one attempt, the engine's or that of [`attempt`](Job::attempt).
    fn settle(&mut self, outcome: io::Result<usize>) -> Step;

    /// Carries the request to its end in the calling thread.
    fn run(&mut self) -> io::Result<u64> {
        loop {
            let outcome = self.attempt();
            if let Step::Done(result) = self.settle(outcome) {
                return result;
            }
        }
    }
}

/// How far a request has come.
#[derive(Debug, Default)]
struct Progress {
    moved: u64,
    refusals: u32,
}

impl Progress {
    /// Applies the rules that reads and writes share. `None` leaves the outcome to the caller.
    fn settle(&mut self, wanted: u64, outcome: &io::Result<usize>) -> Option<Step> {
        match outcome {
            Ok(0) => None,
            Ok(count) => {
                self.moved += *count as u64;
                self.refusals = 0;
                Some(if self.moved >= wanted { Step::Done(Ok(self.moved)) } else { Step::Again })
            }
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Some(Step::Again),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && self.refusals < REFUSALS_MAX => {
                self.refusals += 1;
                std::thread::yield_now();
                Some(Step::Again)
            }
            Err(_) => None,
        }
    }
}

/// A [`Read`] under way.
#[derive(Debug)]
pub(super) struct ReadJob {
    read: Read,
    progress: Progress,
}

impl ReadJob {
    /// A read of which nothing has been read.
    pub(super) fn new(read: Read) -> ReadJob {
        ReadJob { read, progress: Progress::default() }
    }

    /// What is left to read.
    pub(super) fn rest(&self) -> Read {
        let moved = self.progress.moved as usize;
        Read {
            offset: self.read.offset + self.progress.moved,
            ptr: self.read.ptr.wrapping_add(moved),
            len: self.read.len - moved as u32,
            ..self.read
        }
    }
}

impl Job for ReadJob {
    fn attempt(&mut self) -> io::Result<usize> {
        let rest = self.rest();
        // SAFETY: the maker of the request promised that the memory is writable, nobody else's, and stays
        // so until this request is complete, which it is not; `rest` lies inside it.
        let count =
            unsafe { libc::pread(rest.fd, rest.ptr.cast(), rest.len as usize, rest.offset as libc::off_t) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn settle(&mut self, outcome: io::Result<usize>) -> Step {
        if let Some(step) = self.progress.settle(u64::from(self.read.len), &outcome) {
            return step;
        }
        let moved = self.progress.moved;
        match outcome {
            Ok(_) => Step::Done(Ok(moved)),
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL)
                    && moved > 0
                    && !(self.read.offset + moved).is_multiple_of(BLOCK) =>
            {
                Step::Done(Ok(moved))
            }
            Err(error) => Step::Done(Err(error)),
        }
    }
}

/// A [`Write`] under way: a cursor over its slices.
///
/// It holds the address of the slices instead of borrowing them, so that it can wait in a queue between
/// threads.
#[derive(Debug)]
pub(super) struct WriteJob {
    fd: RawFd,
    offset: u64,
    wanted: u64,
    /// The slices not yet written completely.
    slices: *const Slice,
    count: usize,
    /// Bytes of the first of them that are already written.
    within: usize,
    /// A copy of the next slices with the first one shortened; used only after a stop inside a slice.
    shortened: Vec<Slice>,
    progress: Progress,
}

// SAFETY: the pointer is to `Slice`s, which are `Sync`, and they stay where they are until the job has
// ended (promise of `WriteJob::new`).
unsafe impl Send for WriteJob {}

impl WriteJob {
    /// A write of which nothing has been written.
    ///
    /// # Safety
    ///
    /// The job is dropped, or never used again, before the borrow inside `write` ends.
    pub(super) unsafe fn new(write: &Write<'_>) -> WriteJob {
        let mut job = WriteJob {
            fd: write.fd,
            offset: write.offset,
            wanted: write.len(),
            slices: write.slices.as_ptr(),
            count: write.slices.len(),
            within: 0,
            shortened: Vec::new(),
            progress: Progress::default(),
        };
        job.advance(0);
        job
    }

    /// The next transfer: the file, the offset in it, the first slice and the number of slices. The
    /// pointer is good until the job is told an outcome or dropped; moving the job does no harm.
    pub(super) fn rest(&mut self) -> (RawFd, u64, *const Slice, usize) {
        let count = self.count.min(SLICES_MAX);
        let mut first = self.slices;
        if self.within > 0 {
            // SAFETY: `slices` points at `self.count` slices that the promise of `new` keeps alive, and
            // `count` is no more than that.
            let whole = unsafe { std::slice::from_raw_parts(self.slices, count) };
            self.shortened.clear();
            self.shortened.extend_from_slice(whole);
            self.shortened[0] = whole[0].tail(self.within);
            first = self.shortened.as_ptr();
        }
        (self.fd, self.offset + self.progress.moved, first, count)
    }

    /// Moves the cursor over `moved` bytes, and over empty slices behind them.
    fn advance(&mut self, moved: usize) {
        self.within += moved;
        while self.count > 0 {
            // SAFETY: `slices` points at `self.count` (at least one) living slices (promise of `new`).
            let len = unsafe { (*self.slices).len() };
            if self.within < len {
                break;
            }
            self.within -= len;
            self.count -= 1;
            self.slices = self.slices.wrapping_add(1);
        }
    }
}

impl Job for WriteJob {
    fn attempt(&mut self) -> io::Result<usize> {
        let (fd, offset, slices, count) = self.rest();
        // SAFETY: `Slice` is laid out as `iovec`, `count` of them are alive, and the maker of the request
        // promised that the memory they name is readable. `count` is at most 1024, so the cast is exact.
        let moved = unsafe { libc::pwritev(fd, slices.cast(), count as libc::c_int, offset as libc::off_t) };
        usize::try_from(moved).map_err(|_| io::Error::last_os_error())
    }

    fn settle(&mut self, outcome: io::Result<usize>) -> Step {
        if let Ok(moved) = outcome {
            self.advance(moved);
        }
        match (self.progress.settle(self.wanted, &outcome), outcome) {
            (Some(step), _) => step,
            (None, Err(error)) => Step::Done(Err(error)),
            // Empty slices are skipped, so a transfer always had something to move.
            (None, Ok(_)) => Step::Done(Err(io::ErrorKind::WriteZero.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(code: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(code))
    }

    fn read_of(offset: u64, len: u32) -> ReadJob {
        // SAFETY: no test here makes an attempt, so the address is never used.
        ReadJob::new(unsafe { Read::new(-1, offset, std::ptr::without_provenance_mut(4096), len, 0) })
    }

    #[test]
    fn a_short_read_goes_on_where_it_stopped() {
        let mut job = read_of(8192, 4096);
        assert!(matches!(job.settle(Ok(1024)), Step::Again));
        let rest = job.rest();
        assert_eq!((rest.offset, rest.ptr.addr(), rest.len), (9216, 5120, 3072));
        assert!(matches!(job.settle(errno(libc::EINTR)), Step::Again));
        assert!(matches!(job.settle(Ok(3072)), Step::Done(Ok(4096))));
    }

    #[test]
    fn a_read_ends_with_the_file_even_off_the_block_grid() {
        let mut job = read_of(0, 8192);
        assert!(matches!(job.settle(Ok(5000)), Step::Again));
        assert!(matches!(job.settle(Ok(0)), Step::Done(Ok(5000))));
        let mut job = read_of(0, 8192);
        assert!(matches!(job.settle(Ok(5000)), Step::Again));
        assert!(matches!(job.settle(errno(libc::EINVAL)), Step::Done(Ok(5000))));
        let mut job = read_of(0, 8192);
        assert!(matches!(job.settle(Ok(4096)), Step::Again));
        assert!(matches!(job.settle(errno(libc::EINVAL)), Step::Done(Err(_))), "aligned: a true error");
    }

    #[test]
    fn refusals_end_after_a_while_and_progress_forgives_them() {
        let mut job = read_of(0, 8192);
        for _ in 0..REFUSALS_MAX {
            assert!(matches!(job.settle(errno(libc::EAGAIN)), Step::Again));
        }
        assert!(matches!(job.settle(Ok(4096)), Step::Again));
        for _ in 0..REFUSALS_MAX {
            assert!(matches!(job.settle(errno(libc::EAGAIN)), Step::Again));
        }
        assert!(matches!(job.settle(errno(libc::EAGAIN)), Step::Done(Err(_))));
    }

    #[test]
    fn a_short_write_goes_on_inside_a_slice_and_skips_empty_ones() {
        let memory = [7_u8; 300];
        let slices = [
            Slice::new(memory.as_ptr(), 0),
            Slice::new(memory.as_ptr(), 100),
            Slice::new(memory.as_ptr(), 0),
            Slice::new(memory.as_ptr().wrapping_add(100), 200),
            Slice::new(memory.as_ptr(), 0),
        ];
        // SAFETY: the memory outlives the job, and no attempt is made.
        let write = unsafe { Write::new(-1, 1000, &slices) };
        // SAFETY: `slices` outlives the job.
        let mut job = unsafe { WriteJob::new(&write) };
        let next = |job: &mut WriteJob| {
            let (_, offset, first, count) = job.rest();
            // SAFETY: `rest` returns a pointer to `count` living slices.
            (offset, unsafe { std::slice::from_raw_parts(first, count) }.iter().map(Slice::len).collect())
        };
        assert_eq!(next(&mut job), (1000, vec![100, 0, 200, 0]));
        assert!(matches!(job.settle(Ok(30)), Step::Again));
        assert_eq!(next(&mut job), (1030, vec![70, 0, 200, 0]));
        assert!(matches!(job.settle(Ok(70)), Step::Again));
        assert_eq!(next(&mut job), (1100, vec![200, 0]));
        assert!(matches!(job.settle(Ok(200)), Step::Done(Ok(300))));
    }

    #[test]
    fn a_device_that_takes_nothing_is_an_error() {
        let memory = [0_u8; 10];
        let slices = [Slice::new(memory.as_ptr(), 10)];
        // SAFETY: the memory outlives the job, and no attempt is made.
        let write = unsafe { Write::new(-1, 0, &slices) };
        // SAFETY: `slices` outlives the job.
        let mut job = unsafe { WriteJob::new(&write) };
        let Step::Done(Err(error)) = job.settle(Ok(0)) else { panic!("expected an error") };
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }
}
