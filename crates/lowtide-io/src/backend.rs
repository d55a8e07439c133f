//! The interface of the I/O engines: one page now, many pages overlapped, runs of dirty pages.
//!
//! | call | used by | where it runs |
//! |---|---|---|
//! | [`read_one`](Backend::read_one) | a miss | in the calling thread, which waits |
//! | [`batch`](Backend::batch) | `get_many`, prefetch, read-ahead | overlapped, up to a capacity |
//! | [`timed_batch`](Backend::timed_batch) | reads with a deadline | in threads of the pager |
//! | [`writer`](Backend::writer) | write-back and flush | overlapped; waits have a timeout |
//! | [`write_run`](Backend::write_run) | one run to write | in the calling thread, which waits |
//! | [`set_len`], [`punch`], [`sync_name`] | a change of the file | in the calling thread |
//!
//! Every call carries a request to its end: interruptions are repeated, short transfers continued
//! (the rules are in `job.rs`). An error is the kernel's, unchanged, or one that a test injected.
//!
//! io_uring is used where it was found to work. A single read or write and `fdatasync` in the
//! calling thread are plain system calls in either case: there is nothing to overlap them with, and
//! a call costs less ([measured](super::uring)). When a thread cannot get a ring (the process has
//! no descriptor left, say), its requests quietly take the other engine.
//!
//! A backend must not be used in a child made by `fork`: rings and threads belong to the parent.
//!
//! [`set_len`]: Backend::set_len
//! [`punch`]: Backend::punch
//! [`sync_name`]: Backend::sync_name

use lowtide_sys::{room, tell};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::ops::Range;
#[cfg(test)]
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::choose::{IoEngine, Options};
use super::inject::{Inject, InjectOp, Numbers, Request, carry_out};
use super::job::{Job, Run};
use super::overlap::{Batch, Engine, Writer};
use super::psync::{Psync, read_in_this_thread};
use super::request::{Read, Write, check_range};
use super::timed::TimedQueue;
use super::uring::{Refusal, Uring};
use super::workers::Workers;
use crate::fault_sites::{FaultSite, FaultSites};

/// Threads that make reads with a deadline, of all files together. Reads of a device that hangs
/// keep theirs until the deadline, and others must not queue behind them: so these are many more
/// than keep any device busy.
const READERS_MAX: usize = 256;

/// Moves pages between files and the arena. Shared by all threads of a pager.
pub struct Backend {
    /// Absent when system calls are used for everything.
    uring: Option<Uring>,
    /// Outside of the room and in it: threads use the descriptors of their own table.
    psync: [Psync; 2],
    /// Those that make reads with a deadline.
    readers: [Arc<Workers>; 2],
    inject: Option<Arc<dyn Inject>>,
    sites: Arc<FaultSites>,
    /// Of the requests that the injector sees.
    numbers: Numbers,
    /// Whether requests were left in flight forever.
    abandoned: AtomicBool,
    reason: String,
}

/// Whose table of descriptors the calling thread has.
fn side() -> usize {
    usize::from(room::is_inside())
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
    /// With io_uring and an arena this pins all pages of the arena (see [`Arena`](super::Arena)):
    /// 0.3 ms for 256 MiB of huge pages that are already present, and the time to fault in those
    /// that are not.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when io_uring was demanded and does not work. [`IoEngine::Auto`]
    /// never fails.
    pub fn open(options: Options) -> Result<Backend, Refusal> {
        let psync = [(); 2].map(|()| Psync::new(options.depth.max(1) as usize));
        let with_calls = format!("system calls, up to {} threads for batches", psync[0].threads());
        let (uring, reason) = match options.engine {
            IoEngine::Psync => (None, format!("psync as requested: {with_calls}")),
            IoEngine::Auto | IoEngine::Uring => match Uring::open(options.depth, options.arena) {
                Ok(uring) => {
                    let reason = format!("io_uring: {}", uring.describe());
                    (Some(uring), reason)
                }
                Err(refusal) if options.engine == IoEngine::Uring => return Err(refusal),
                Err(refusal) => {
                    let why = refusal.hint();
                    (None, format!("psync, because {refusal} ({why}): {with_calls}"))
                }
            },
        };
        tell!(debug, %reason, "I/O engine chosen");
        let (inject, sites) = (options.inject, options.sites);
        let (numbers, abandoned) = (options.numbers, AtomicBool::new(false));
        let readers = [(); 2].map(|()| Arc::new(Workers::new("lowtide-read", READERS_MAX)));
        Ok(Backend { uring, psync, readers, inject, sites, numbers, abandoned, reason })
    }

    /// The engine in use: [`IoEngine::Uring`] or [`IoEngine::Psync`].
    pub fn engine(&self) -> IoEngine {
        if self.uring.is_some() { IoEngine::Uring } else { IoEngine::Psync }
    }

    /// One line for people: which engine, how it is set up, and why it is not the other.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    fn psync(&self) -> &Psync {
        &self.psync[side()]
    }

    /// What decides about requests, in tests.
    pub(super) fn injector(&self) -> Option<&Arc<dyn Inject>> {
        self.inject.as_ref()
    }

    /// Where faults are counted.
    pub(super) fn sites(&self) -> &FaultSites {
        &self.sites
    }

    /// A number for a request that an injector decides about.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.next()
    }

    pub(super) fn note_abandoned(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Whether requests were left in flight forever. Then the memory and the descriptors that they
    /// name must never be given back, and a ring or threads are leaked.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Reads from the file called `path` in the calling thread and returns the number of bytes.
    /// Fewer than wanted means that the file ends there; the content of the rest of the memory is
    /// then undefined (a direct read fills its last block).
    ///
    /// # Errors
    ///
    /// The kernel's: `EBADF` (not open for reading), `EINVAL` (not aligned, with `O_DIRECT`; no
    /// offset of a file), `EIO` and its like from the device. The memory then holds anything.
    pub fn read_one(&self, path: &Arc<PathBuf>, read: Read) -> io::Result<u32> {
        if self.inject.is_some() {
            return self.read_past_injector(path, read);
        }
        check_range(read.offset, u64::from(read.len))?;
        read_in_this_thread(read)
    }

    #[cold]
    fn read_past_injector(&self, path: &Arc<PathBuf>, read: Read) -> io::Result<u32> {
        let mut batch = self.batch(path);
        batch.push(read);
        let mut ended = Vec::with_capacity(1);
        batch.wait(1, &mut ended);
        ended.pop().expect("the read was waited for").result
    }

    /// Starts a batch of reads of the file called `path` in the calling thread. Costs nothing but a
    /// few small allocations once the thread has a ring. Batches may be nested, and single reads
    /// made meanwhile.
    pub fn batch(&self, path: &Arc<PathBuf>) -> Batch<'_> {
        let ring = self.uring.as_ref().and_then(Uring::queue);
        let engine = ring.map_or_else(|| Engine::Psync(self.psync().shared_queue()), Engine::Uring);
        Batch::new(self, engine, path)
    }

    /// The same, of reads that are made by threads of the pager, so that they can be
    /// [left](Batch::leave).
    pub fn timed_batch(&self, path: &Arc<PathBuf>) -> Batch<'_> {
        let queue = TimedQueue::new(self, (&self.readers[side()], self.psync().depth()), path);
        Batch::new(self, Engine::Timed(queue), path)
    }

    /// Starts a series of writes and syncs in the calling thread. Costs as little as a batch;
    /// without io_uring it starts threads as they are needed, and the next writer takes them over.
    pub fn writer(&self) -> Writer<'_> {
        let ring = self.uring.as_ref().and_then(Uring::queue);
        let engine = ring.map_or_else(|| Engine::Psync(self.psync().own_queue()), Engine::Uring);
        Writer::new(self, engine)
    }

    /// Writes one run completely, in the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's: those of [`read_one`](Backend::read_one), `ENOSPC`, `EDQUOT`, `EFBIG`; and
    /// [`WriteZero`](io::ErrorKind::WriteZero) when the file takes no bytes and gives no reason.
    /// Any part of the run may have been written; writing it again is right.
    pub fn write_run(&self, write: Write) -> io::Result<()> {
        if self.inject.is_none() {
            check_range(write.offset, write.bytes())?;
            return if write.bytes() == 0 { Ok(()) } else { Run::write(write).run().map(drop) };
        }
        let mut writer = self.writer();
        writer.push(write);
        let mut ended = Vec::with_capacity(1);
        writer.wait(1, None, &mut ended);
        ended.pop().expect("the write was waited for").result.map(drop)
    }

    /// Makes the file `len` bytes long (`ftruncate(2)`), in the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's: `EFBIG`, `EINVAL`, `EPERM`, `ENOSPC` and `EDQUOT` where metadata must grow.
    pub fn set_len(&self, path: &Arc<PathBuf>, file: &File, len: u64) -> io::Result<()> {
        let shrinks = lowtide_sys::file::size(file).is_ok_and(|size| len < size);
        let (op, site) = match shrinks {
            true => (InjectOp::Shrink, FaultSite::ShrinkFailed),
            false => (InjectOp::Extend, FaultSite::ExtendFailed),
        };
        self.change(path, op, len..len, || file.set_len(len)).inspect_err(|_| self.sites.mark(site))
    }

    /// Makes a hole in the file, and leaves its length (`fallocate(2)`), in the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's: `EOPNOTSUPP` and its like where the file system makes no holes.
    pub fn punch(&self, path: &Arc<PathBuf>, file: &File, bytes: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = bytes.end - bytes.start;
        self.change(path, InjectOp::Punch, bytes.clone(), || {
            Ok(fallocate(file, flags, bytes.start, len)?)
        })
    }

    /// Makes the name of a file durable, as `sync` does it, in the calling thread.
    ///
    /// # Errors
    ///
    /// Those of `sync`.
    pub fn sync_name(
        &self,
        path: &Arc<PathBuf>,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let synced = self.change(path, InjectOp::Name, 0..0, sync);
        synced.inspect_err(|_| self.sites.mark(FaultSite::NameNotDurable))
    }

    /// Changes a file in another way than by a transfer.
    fn change(
        &self,
        path: &Arc<PathBuf>,
        op: InjectOp,
        bytes: Range<u64>,
        act: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(inject) = &self.inject else { return act() };
        let (number, len) = (self.next_number(), bytes.end - bytes.start);
        carry_out(&**inject, &Request { op, path, offset: bytes.start, len, number }, |_| act())
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
