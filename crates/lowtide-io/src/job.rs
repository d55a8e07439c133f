//! One request carried to its end, whichever engine moves the bytes.
//!
//! A transfer may be interrupted, refused for the moment, or stop short. The rules are the same for
//! a system call and for a ring, so they are written once, here, as a small state machine: an
//! engine makes an *attempt* and passes its *outcome* to the job, which returns the next *step*.
//!
//! | outcome | a read | a write |
//! |---|---|---|
//! | all bytes | done | done |
//! | some bytes | go on after them | go on after them |
//! | 0 bytes | done: the file ends here | error `WriteZero`: the device takes nothing |
//! | `EINTR` | again | again |
//! | `EAGAIN`, `ECANCELED` | again, at most [`REFUSALS_MAX`] times in a row | the same |
//! | `EINVAL` when going on off the block grid | done: the file ends here | error |
//! | another error | error | error |
//!
//! The `EINVAL` row: a direct read stops off the block grid only at the end of a file whose size is
//! no multiple of the block. Going on from there is then not aligned, which some file systems
//! refuse before they notice that nothing is left to read.
//!
//! Nothing here cancels a request. The kernel does so by itself when a signal arrives while it
//! needs another thread for io_uring; then nothing of the request was done.
//!
//! A sync has no bytes: it is repeated after `EINTR`, and any other outcome ends it.
//!
//! # Safety
//!
//! This file opts in to unsafe code for the four system calls. They get addresses and lengths from
//! requests; the caller that made a request promised that the memory is there (see `request.rs`).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

use super::inject::InjectOp;
use super::request::{Read, ReadRun, Slice, Write};

/// How often in a row a request may be refused with `EAGAIN`, or cancelled, before that becomes its
/// error. A regular file is not refused at all; the bound keeps a descriptor in non-blocking mode
/// from spinning forever.
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
    /// Whether a transfer has stopped short and another went on.
    continued: bool,
    /// The most bytes of the next transfer, if an injector wants it short.
    limit: Option<u64>,
}

impl Progress {
    /// Applies the rules that reads and writes share. `None` leaves the outcome to the caller.
    fn settle(&mut self, wanted: u64, outcome: &io::Result<usize>) -> Option<Step> {
        self.limit = None;
        match outcome {
            Ok(0) => None,
            Ok(count) => {
                self.moved += *count as u64;
                self.refusals = 0;
                if self.moved >= wanted {
                    return Some(Step::Done(Ok(self.moved)));
                }
                self.continued = true;
                Some(Step::Again)
            }
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Some(Step::Again),
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECANCELED))
                    && self.refusals < REFUSALS_MAX =>
            {
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
    /// A read that has not begun.
    pub(super) fn new(read: Read) -> ReadJob {
        ReadJob { read, progress: Progress::default() }
    }

    /// The next transfer.
    pub(super) fn rest(&self) -> Read {
        let moved = self.progress.moved;
        let left = u64::from(self.read.len) - moved;
        Read {
            offset: self.read.offset + moved,
            ptr: self.read.ptr.wrapping_add(moved as usize),
            len: left.min(self.progress.limit.unwrap_or(left)) as u32,
            ..self.read
        }
    }
}

impl Job for ReadJob {
    fn attempt(&mut self) -> io::Result<usize> {
        let rest = self.rest();
        // SAFETY: the maker of the request promised that the memory is writable and that no other
        // thread uses it until this request is complete, which it is not; `rest` lies inside it.
        let count = unsafe {
            libc::pread(rest.fd, rest.ptr.cast(), rest.len as usize, rest.offset as libc::off_t)
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn settle(&mut self, outcome: io::Result<usize>) -> Step {
        if let Some(step) = self.progress.settle(u64::from(self.read.len), &outcome) {
            return step;
        }
        read_ended(self.read.offset, self.progress.moved, outcome)
    }
}

/// What an outcome means that ends a read from `offset` of which `moved` bytes were read: the end
/// of the file, or an error.
fn read_ended(offset: u64, moved: u64, outcome: io::Result<usize>) -> Step {
    match outcome {
        Ok(_) => Step::Done(Ok(moved)),
        Err(error)
            if error.raw_os_error() == Some(libc::EINVAL)
                && moved > 0
                && !(offset + moved).is_multiple_of(BLOCK) =>
        {
            Step::Done(Ok(moved))
        }
        Err(error) => Step::Done(Err(error)),
    }
}

/// A [`ReadRun`] or a [`Write`] under way: a range of a file and the scattered memory that belongs
/// to it, with a cursor over its slices.
#[derive(Debug)]
pub(super) struct Run {
    writes: bool,
    fd: RawFd,
    offset: u64,
    wanted: u64,
    slices: Vec<Slice>,
    /// The first slice that is not transferred completely.
    first: usize,
    /// Bytes of it that are already transferred.
    within: usize,
    /// A copy of the next slices, cut to what the next transfer may move; used only after a stop
    /// inside a slice.
    cut: Vec<Slice>,
    progress: Progress,
}

impl Run {
    /// A read that has not begun.
    pub(super) fn read(read: ReadRun) -> Run {
        Run::new(false, read.fd, read.offset, read.slices)
    }

    /// A write that has not begun.
    pub(super) fn write(write: Write) -> Run {
        Run::new(true, write.fd, write.offset, write.slices)
    }

    fn new(writes: bool, fd: RawFd, offset: u64, slices: Vec<Slice>) -> Run {
        let wanted = slices.iter().map(|slice| slice.bytes() as u64).sum();
        let progress = Progress::default();
        let mut run = Run {
            writes,
            fd,
            offset,
            wanted,
            slices,
            first: 0,
            within: 0,
            cut: Vec::new(),
            progress,
        };
        run.advance(0);
        run
    }

    /// The next transfer: the file, the offset in it, and the slices. They stay where they are
    /// until the next [`settle`](Job::settle) or a drop; moving the run does no harm.
    pub(super) fn rest(&mut self) -> (RawFd, u64, &[Slice]) {
        let end = self.slices.len().min(self.first + SLICES_MAX);
        let whole = &self.slices[self.first..end];
        let offset = self.offset + self.progress.moved;
        if self.within == 0 && self.progress.limit.is_none() {
            return (self.fd, offset, whole);
        }
        self.cut.clear();
        self.cut.extend_from_slice(whole);
        if let Some(first) = self.cut.first_mut() {
            *first = first.tail(self.within);
        }
        if let Some(limit) = self.progress.limit {
            let mut left = limit as usize;
            for slice in &mut self.cut {
                *slice = slice.head(slice.bytes().min(left));
                left -= slice.bytes();
            }
        }
        (self.fd, offset, &self.cut)
    }

    /// Moves the cursor over `moved` bytes, and over empty slices behind them.
    fn advance(&mut self, moved: usize) {
        self.within += moved;
        while let Some(slice) = self.slices.get(self.first)
            && self.within >= slice.bytes()
        {
            self.within -= slice.bytes();
            self.first += 1;
        }
    }
}

impl Job for Run {
    fn attempt(&mut self) -> io::Result<usize> {
        let writes = self.writes;
        let (fd, offset, slices) = self.rest();
        let (first, offset) = (slices.as_ptr().cast(), offset as libc::off_t);
        // At most 1024: exact.
        let count = slices.len() as libc::c_int;
        let moved = if writes {
            // SAFETY: `Slice` is laid out as `iovec`, `count` of them are alive, and the maker of
            // the request promised that the memory they name is readable.
            unsafe { libc::pwritev(fd, first, count, offset) }
        } else {
            // SAFETY: as above; and the maker of a read promised that the memory is writable and
            // that no other thread uses it until the request is complete, which it is not.
            unsafe { libc::preadv(fd, first, count, offset) }
        };
        usize::try_from(moved).map_err(|_| io::Error::last_os_error())
    }

    fn settle(&mut self, outcome: io::Result<usize>) -> Step {
        if let Ok(moved) = outcome {
            self.advance(moved);
        }
        match (self.progress.settle(self.wanted, &outcome), outcome) {
            (Some(step), _) => step,
            (None, outcome) if !self.writes => {
                read_ended(self.offset, self.progress.moved, outcome)
            }
            (None, Err(error)) => Step::Done(Err(error)),
            // Empty slices are skipped, so a transfer always had something to move.
            (None, Ok(_)) => Step::Done(Err(io::ErrorKind::WriteZero.into())),
        }
    }
}

/// A file being made durable.
#[derive(Debug)]
pub(super) struct SyncJob {
    pub(super) fd: RawFd,
}

impl Job for SyncJob {
    fn attempt(&mut self) -> io::Result<usize> {
        // SAFETY: the call takes a number and touches no memory; a stale number is an error of the
        // call.
        match unsafe { libc::fdatasync(self.fd) } {
            0 => Ok(0),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn settle(&mut self, outcome: io::Result<usize>) -> Step {
        match outcome {
            // Not `EAGAIN`: after any other error a second sync may call durable what was lost.
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Step::Again,
            outcome => Step::Done(outcome.map(|_| 0)),
        }
    }
}

/// Any request under way, for engines that carry out several kinds side by side.
#[derive(Debug)]
pub(super) enum Work {
    /// See [`ReadJob`].
    Read(ReadJob),
    /// See [`Run::read`].
    ReadRun(Run),
    /// See [`Run::write`].
    Write(Run),
    /// See [`SyncJob`].
    Sync(SyncJob),
}

impl Work {
    /// Which kind, for an injector.
    pub(super) fn op(&self) -> InjectOp {
        match self {
            Work::Read(_) | Work::ReadRun(_) => InjectOp::Read,
            Work::Write(_) => InjectOp::Write,
            Work::Sync(_) => InjectOp::Sync,
        }
    }

    /// Where in the file it begins, in bytes.
    pub(super) fn offset(&self) -> u64 {
        match self {
            Work::Read(job) => job.read.offset,
            Work::ReadRun(run) | Work::Write(run) => run.offset,
            Work::Sync(_) => 0,
        }
    }

    /// How many bytes it is to move altogether.
    pub(super) fn wanted(&self) -> u64 {
        match self {
            Work::Read(job) => u64::from(job.read.len),
            Work::ReadRun(run) | Work::Write(run) => run.wanted,
            Work::Sync(_) => 0,
        }
    }

    /// Makes the next transfer move no more than `limit` bytes.
    pub(super) fn shorten(&mut self, limit: u64) {
        match self {
            Work::Read(job) => job.progress.limit = Some(limit),
            Work::ReadRun(run) | Work::Write(run) => {
                run.progress.limit = Some(limit);
            }
            Work::Sync(_) => {}
        }
    }

    /// Whether a transfer stopped short and another went on behind it.
    pub(super) fn was_continued(&self) -> bool {
        match self {
            Work::Read(job) => job.progress.continued,
            Work::ReadRun(run) | Work::Write(run) => run.progress.continued,
            Work::Sync(_) => false,
        }
    }
}

impl Job for Work {
    fn attempt(&mut self) -> io::Result<usize> {
        match self {
            Work::Read(job) => job.attempt(),
            Work::ReadRun(run) | Work::Write(run) => run.attempt(),
            Work::Sync(job) => job.attempt(),
        }
    }

    fn settle(&mut self, outcome: io::Result<usize>) -> Step {
        match self {
            Work::Read(job) => job.settle(outcome),
            Work::ReadRun(run) | Work::Write(run) => run.settle(outcome),
            Work::Sync(job) => job.settle(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn errno(code: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(code))
    }

    fn read_of(offset: u64, len: u32) -> ReadJob {
        // SAFETY: no test here makes an attempt, so the address is never used.
        ReadJob::new(unsafe {
            Read::new(-1, offset, std::ptr::without_provenance_mut(4096), len, 0)
        })
    }

    fn write_of(offset: u64, slices: &[Slice]) -> Run {
        // SAFETY: no test here makes an attempt, so the memory is never read.
        Run::write(unsafe { Write::new(&Arc::default(), -1, offset, slices.to_vec(), 0) })
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
        assert!(
            matches!(job.settle(errno(libc::EINVAL)), Step::Done(Err(_))),
            "aligned: a true error"
        );
    }

    #[test]
    fn refusals_end_after_a_while_and_progress_forgives_them() {
        let mut job = read_of(0, 8192);
        for _ in 0..REFUSALS_MAX {
            assert!(matches!(job.settle(errno(libc::ECANCELED)), Step::Again));
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
        let mut job = write_of(1000, &slices);
        let next = |job: &mut Run| {
            let (_, offset, slices) = job.rest();
            (offset, slices.iter().map(Slice::bytes).collect::<Vec<_>>())
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
        let mut job = write_of(0, &slices);
        let Step::Done(Err(error)) = job.settle(Ok(0)) else { panic!("expected an error") };
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn a_shortened_transfer_is_followed_by_the_rest() {
        let memory = [0_u8; 300];
        let slices = [0, 100, 200].map(|at| Slice::new(memory.as_ptr().wrapping_add(at), 100));
        let mut job = write_of(0, &slices);
        let lens = |job: &mut Run| job.rest().2.iter().map(Slice::bytes).collect::<Vec<_>>();
        job.progress.limit = Some(150);
        assert_eq!(lens(&mut job), [100, 50, 0]);
        assert!(matches!(job.settle(Ok(150)), Step::Again));
        assert_eq!(lens(&mut job), [50, 100]);
        assert!(job.progress.continued);

        let mut job = read_of(0, 4096);
        job.progress.limit = Some(512);
        assert_eq!(job.rest().len, 512);
        assert!(matches!(job.settle(Ok(512)), Step::Again));
        assert_eq!(job.rest().len, 3584);
    }
}
