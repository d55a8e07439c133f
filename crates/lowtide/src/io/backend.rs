//! The face of the I/O engines: one page now, many pages overlapped, runs of dirty pages.
//!
//! | call | who uses it | where it runs |
//! |---|---|---|
//! | [`read_one`](Backend::read_one) | a miss | in the calling thread, which waits |
//! | [`batch`](Backend::batch) | `get_many`, prefetch, read-ahead | up to [`capacity`](Batch::capacity) at once |
//! | [`write_run`](Backend::write_run), [`write_runs`](Backend::write_runs) | write-back | the calling thread waits for all |
//! | [`sync`](Backend::sync) | flush | the calling thread waits |
//!
//! Every call carries a request to its end: interruptions are repeated, short transfers continued (the
//! rules are in `job.rs`). An error is the kernel's, unchanged, or one that a test injected.
//!
//! io_uring is used where it was found to work. A single write and `fdatasync` go through plain system
//! calls in either case, because there is nothing to overlap them with. When a thread cannot get a ring
//! (the process has no descriptor left, say), its requests quietly take the other engine.
//!
//! A backend must not be used in a child made by `fork`: rings and threads belong to the parent.
//!
//! # Safety
//!
//! This file opts in to unsafe code for `fdatasync`.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::choose::{IoEngine, OpenError, Options, hint};
use super::inject::{Inject, InjectOp};
use super::psync::{Psync, PsyncBatch, write_in_this_thread};
use super::request::{Completion, Read, Write, check_range};
use super::uring::{Uring, UringBatch};

/// Moves pages between files and the arena. Shared by all threads of a pager.
pub(crate) struct Backend {
    /// Absent when system calls are used for everything.
    uring: Option<Uring>,
    psync: Psync,
    inject: Option<Arc<dyn Inject>>,
    reason: String,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend")
            .field("engine", &self.engine())
            .field("reason", &self.reason)
            .field("inject", &self.inject.is_some())
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Opens a backend, and finds out what the kernel allows.
    ///
    /// With io_uring and an arena this pins all pages of the arena (see [`Arena`](super::Arena)): 0.3 ms for
    /// 256 MiB of huge pages that are already present, and the time to fault in those that are not.
    ///
    /// # Errors
    ///
    /// [`OpenError::Uring`] when io_uring was demanded and does not work. [`IoEngine::Auto`] never fails.
    pub(crate) fn open(options: Options) -> Result<Backend, OpenError> {
        let psync = Psync::new(options.depth.max(1) as usize);
        let with_calls = format!("system calls, up to {} threads for batches", psync.threads());
        let (uring, reason) = match options.engine {
            IoEngine::Psync => (None, format!("psync as asked for: {with_calls}")),
            IoEngine::Auto | IoEngine::Uring => match Uring::open(options.depth, options.arena) {
                Ok(uring) => {
                    let reason = format!("io_uring: {}", uring.describe());
                    (Some(uring), reason)
                }
                Err(refusal) if options.engine == IoEngine::Uring => {
                    let hint = hint(&refusal);
                    return Err(OpenError::Uring { refusal, hint });
                }
                Err(refusal) => {
                    let why = hint(&refusal);
                    (None, format!("psync, because {refusal} ({why}): {with_calls}"))
                }
            },
        };
        tracing::debug!(%reason, "I/O engine chosen");
        Ok(Backend { uring, psync, inject: options.inject, reason })
    }

    /// The engine in use: [`IoEngine::Uring`] or [`IoEngine::Psync`].
    pub(crate) fn engine(&self) -> IoEngine {
        if self.uring.is_some() { IoEngine::Uring } else { IoEngine::Psync }
    }

    /// One line for people: which engine, how it is set up, and why it is not the other.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// The error of a request that no device shall see: out of range, or injected.
    fn refuse(&self, op: InjectOp, offset: u64, len: u64) -> Option<io::Error> {
        match &self.inject {
            None => check_range(offset, len).err(),
            Some(inject) => check_range(offset, len).err().or_else(|| inject.before(op, offset, len)),
        }
    }

    /// Reads in the calling thread and returns the number of bytes. Fewer than wanted means that the file
    /// ends there; what the rest of the memory holds is not said (a direct read fills its last block).
    ///
    /// # Errors
    ///
    /// The kernel's: `EBADF` (not open for reading), `EINVAL` (not aligned, with `O_DIRECT`; no offset of a
    /// file), `EIO` and its like from the device. The memory then holds anything.
    pub(crate) fn read_one(&self, read: Read) -> io::Result<u32> {
        if let Some(error) = self.refuse(InjectOp::Read, read.offset, u64::from(read.len)) {
            return Err(error);
        }
        match &self.uring {
            Some(uring) => uring.read_one(read),
            None => super::psync::read_in_this_thread(read),
        }
    }

    /// Starts a batch of reads in the calling thread. Costs nothing but a few small allocations once the
    /// thread has a ring. Batches may be nested, and single reads made meanwhile.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let engine = match self.uring.as_ref().and_then(Uring::batch) {
            Some(batch) => Engine::Uring(batch),
            None => Engine::Psync(self.psync.batch()),
        };
        Batch { backend: self, engine, refused: Vec::new(), not_send: PhantomData }
    }

    /// Writes one run completely, in the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's: those of [`read_one`](Backend::read_one), `ENOSPC`, `EDQUOT`, `EFBIG`; and
    /// [`WriteZero`](io::ErrorKind::WriteZero) when the file takes no bytes and says no reason. Any part of
    /// the run may have been written; writing it again is right.
    pub(crate) fn write_run(&self, write: Write<'_>) -> io::Result<()> {
        match self.refuse(InjectOp::Write, write.offset, write.len()) {
            Some(error) => Err(error),
            None if write.len() == 0 => Ok(()),
            None => write_in_this_thread(&write),
        }
    }

    /// Writes several runs, overlapped, and returns when all have ended: one result for each, in their
    /// order. Runs that overlap in the file reach it in any order.
    pub(crate) fn write_runs(&self, writes: &[Write<'_>]) -> Vec<io::Result<()>> {
        let mut results: Vec<io::Result<()>> = Vec::with_capacity(writes.len());
        let mut passed = Vec::with_capacity(writes.len());
        for (index, write) in writes.iter().enumerate() {
            let len = write.len();
            let refused = self.refuse(InjectOp::Write, write.offset, len);
            if refused.is_none() && len > 0 {
                passed.push((index, *write));
            }
            results.push(refused.map_or(Ok(()), Err));
        }
        if passed.is_empty() {
            return results;
        }
        let (indices, runs): (Vec<usize>, Vec<Write<'_>>) = passed.into_iter().unzip();
        let written = self.uring.as_ref().and_then(|uring| uring.write_runs(&runs));
        let written = written.unwrap_or_else(|| self.psync.write_runs(&runs));
        for (index, result) in indices.into_iter().zip(written) {
            results[index] = result;
        }
        results
    }

    /// Makes everything written to the file durable (`fdatasync(2)`), in the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's. After `EIO` the kernel may have dropped what it could not write, and a second call may
    /// succeed without having written it: the pages of the file that were written since the last success
    /// must be written again first.
    pub(crate) fn sync(&self, fd: RawFd) -> io::Result<()> {
        if let Some(error) = self.refuse(InjectOp::Sync, 0, 0) {
            return Err(error);
        }
        loop {
            // SAFETY: the call takes a number and touches no memory; a stale number is an error of the call.
            if unsafe { libc::fdatasync(fd) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Counts the open rings: one strong reference for each, and one for the backend.
    #[cfg(test)]
    pub(super) fn rings(&self) -> std::sync::Weak<()> {
        self.uring.as_ref().map(Uring::rings).unwrap_or_default()
    }

    /// Makes the descriptor of this thread's ring refer to another file.
    #[cfg(test)]
    pub(super) fn replace_idle_ring(&self, with: RawFd) {
        self.uring.as_ref().expect("io_uring is in use").replace_idle_ring(with);
    }
}

/// Reads of one thread that overlap.
///
/// Push any number, wait for some, push more. At most [`capacity`](Batch::capacity) are with the device at
/// once, the others wait here. Completions come in any order. To keep a device busy at depth *d*, wait for
/// about *d* / 4 at a time: with io_uring a fifth more reads a second than waiting for one, for less
/// processor time (measured in `uring.rs`).
///
/// Dropping a batch forgets the reads that have not started and waits for those that have.
pub(crate) struct Batch<'b> {
    backend: &'b Backend,
    engine: Engine<'b>,
    /// Ended without having started.
    refused: Vec<Completion>,
    /// A ring works only in the thread that opened it.
    not_send: PhantomData<*const ()>,
}

enum Engine<'b> {
    Uring(UringBatch),
    Psync(PsyncBatch<'b>),
}

impl Batch<'_> {
    /// Adds a read. It starts with the next [`submit`](Batch::submit) or [`wait`](Batch::wait).
    pub(crate) fn push(&mut self, read: Read) {
        match self.backend.refuse(InjectOp::Read, read.offset, u64::from(read.len)) {
            Some(error) => self.refused.push(Completion { user: read.user, result: Err(error) }),
            None => match &mut self.engine {
                Engine::Uring(batch) => batch.push(read),
                Engine::Psync(batch) => batch.push(read),
            },
        }
    }

    /// Starts as many reads as there is room for, and returns at once. One system call (io_uring).
    pub(crate) fn submit(&mut self) {
        match &mut self.engine {
            Engine::Uring(batch) => batch.submit(),
            Engine::Psync(batch) => batch.submit(),
        }
    }

    /// Starts what can start, waits until `min` reads have ended (all of them, if there are fewer), and
    /// appends every read that has ended to `completions`. With `min` 0 it only looks.
    pub(crate) fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) {
        let min = min.saturating_sub(self.refused.len());
        completions.append(&mut self.refused);
        match &mut self.engine {
            Engine::Uring(batch) => batch.wait(min, completions),
            Engine::Psync(batch) => batch.wait(min, completions),
        }
    }

    /// Reads that were pushed and whose completion has not been returned.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.refused.len()
            + match &self.engine {
                Engine::Uring(batch) => batch.in_flight(),
                Engine::Psync(batch) => batch.in_flight(),
            }
    }

    /// How many reads are with the device at once, at most.
    pub(crate) fn capacity(&self) -> usize {
        match &self.engine {
            Engine::Uring(batch) => batch.capacity(),
            Engine::Psync(batch) => batch.capacity(),
        }
    }
}
