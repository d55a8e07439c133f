//! Many requests of one thread at once: on a ring or on worker threads, past an injector if there
//! is one.
//!
//! [`Batch`] is for reads, which the thread will wait for anyway. [`Writer`] is for write-back: its
//! waits have a timeout, so that a device that has stopped answering cannot stop the thread that
//! uses it, and `fdatasync` is a request like any other.
//!
//! ```text
//!   push ──▶ injector ──pass──▶ engine: ring or threads ──▶ ended ──wait──▶ completions
//!               │ └──later, hang──▶ held ──due──▶ ▲          ▲
//!               └──fail──────────────────────────────────────┘
//! ```

use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::backend::Backend;
use super::inject::{Inject, InjectOp, Request, Start, Verdict, errno};
use super::job::{ReadJob, Run, SyncJob, Work};
use super::psync::PsyncQueue;
use super::request::{Completion, Read, ReadRun, Write, check_range};
use super::timed::{End, Left, TimedQueue};
use super::uring::UringQueue;
use crate::fault_sites::FaultSite;

/// How often a waiting thread looks at requests that an injector holds up.
const HELD_POLL: Duration = Duration::from_millis(1);

/// What carries requests out.
#[derive(Debug)]
pub(super) enum Engine<'b> {
    /// A ring of this thread.
    Uring(UringQueue),
    /// Threads.
    Psync(PsyncQueue<'b>),
    /// Threads whose reads may be left. They ask the injector.
    Timed(TimedQueue<'b>),
}

impl Engine<'_> {
    fn push(&mut self, user: u64, work: Work) {
        match self {
            Engine::Uring(queue) => queue.push(user, work),
            Engine::Psync(queue) => queue.push(user, work),
            Engine::Timed(queue) => queue.push(user, work),
        }
    }

    fn submit(&mut self) {
        match self {
            Engine::Uring(queue) => queue.submit(),
            Engine::Psync(queue) => queue.submit(),
            Engine::Timed(queue) => queue.submit(),
        }
    }

    fn wait(
        &mut self,
        min: usize,
        deadline: Option<Instant>,
        sink: impl FnMut(u64, &Work, io::Result<u64>),
    ) {
        match self {
            Engine::Uring(queue) => queue.wait(min, deadline, sink),
            Engine::Psync(queue) => queue.wait(min, deadline, sink),
            Engine::Timed(queue) => queue.wait(min, deadline, sink),
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            Engine::Uring(queue) => queue.in_flight(),
            Engine::Psync(queue) => queue.in_flight(),
            Engine::Timed(queue) => queue.in_flight(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Engine::Uring(queue) => queue.capacity(),
            Engine::Psync(queue) => queue.capacity(),
            Engine::Timed(queue) => queue.capacity(),
        }
    }
}

/// A request that the injector has seen.
#[derive(Debug)]
struct Watched {
    user: u64,
    op: InjectOp,
    path: Arc<PathBuf>,
    offset: u64,
    len: u64,
    number: u64,
}

impl Watched {
    fn request(&self) -> Request<'_> {
        Request {
            op: self.op,
            path: &self.path,
            offset: self.offset,
            len: self.len,
            number: self.number,
        }
    }
}

/// What is known about requests because there is an injector. Engines know such a request by its
/// slot.
struct Watch {
    inject: Arc<dyn Inject>,
    slots: Slab<Watched>,
    /// Held up, in the order of their arrival.
    held: Vec<(Start, u64, Work)>,
}

/// What becomes of a request at first.
enum Admitted {
    Started(u64, Work),
    Held,
    Ended(u64, Work, io::Result<u64>),
}

impl Watch {
    fn new(inject: Arc<dyn Inject>) -> Watch {
        Watch { inject, slots: Slab::new(), held: Vec::new() }
    }

    fn admit(&mut self, path: &Arc<PathBuf>, user: u64, number: u64, mut work: Work) -> Admitted {
        let (op, offset, len) = (work.op(), work.offset(), work.wanted());
        let watched = Watched { user, op, path: Arc::clone(path), offset, len, number };
        let verdict = self.inject.before(&watched.request());
        let slot = self.slots.insert(watched) as u64;
        let start = match verdict {
            Verdict::Pass => return Admitted::Started(slot, work),
            Verdict::Short(limit) => {
                work.shorten(limit);
                return Admitted::Started(slot, work);
            }
            Verdict::Fail(error) => return Admitted::Ended(slot, work, Err(error)),
            Verdict::Pretend => {
                let moved = work.wanted();
                return Admitted::Ended(slot, work, Ok(moved));
            }
            Verdict::Later(delay) => Start::after(delay),
            Verdict::Hang(gate) => Start::Opened(gate),
        };
        self.held.push((start, slot, work));
        Admitted::Held
    }

    /// Reports an end to the injector. Returns the number by which the caller knows the request.
    fn ended(&mut self, slot: u64, result: &io::Result<u64>) -> u64 {
        let watched = self.slots.try_remove(slot as usize);
        let watched = watched.expect("a request has its slot until it has ended");
        self.inject.after(&watched.request(), errno(result));
        watched.user
    }
}

/// Requests of one thread that overlap. Dropping it waits for those that the kernel has, or that an
/// injector pretends to have.
struct Overlap<'b> {
    backend: &'b Backend,
    engine: Engine<'b>,
    /// Ended, and not yet returned.
    ended: Vec<Completion>,
    /// Bytes of writes that have not ended.
    write_bytes: u64,
    watch: Option<Watch>,
    /// A ring works only in the thread that opened it.
    not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for Overlap<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlap")
            .field("engine", &self.engine)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl<'b> Overlap<'b> {
    fn new(backend: &'b Backend, engine: Engine<'b>) -> Overlap<'b> {
        let asks = !matches!(engine, Engine::Timed(_));
        let watch = backend.injector().filter(|_| asks).cloned().map(Watch::new);
        Overlap { backend, engine, ended: Vec::new(), write_bytes: 0, watch, not_send: PhantomData }
    }

    fn push(&mut self, path: &Arc<PathBuf>, user: u64, work: Work) {
        if let Err(error) = check_range(work.offset(), work.wanted()) {
            return self.ended.push(Completion { user, result: Err(error) });
        }
        if let Work::Write(_) = work {
            if work.wanted() == 0 {
                return self.ended.push(Completion { user, result: Ok(0) });
            }
            self.write_bytes += work.wanted();
        }
        let Some(watch) = &mut self.watch else { return self.engine.push(user, work) };
        match watch.admit(path, user, self.backend.next_number(), work) {
            Admitted::Started(slot, work) => self.engine.push(slot, work),
            Admitted::Held => {}
            Admitted::Ended(slot, work, result) => self.end(slot, &work, result),
        }
    }

    /// Takes the end of a request that is known to the engine by `number`.
    fn end(&mut self, number: u64, work: &Work, result: io::Result<u64>) {
        let Overlap { backend, ended, write_bytes, watch, .. } = self;
        end(backend, ended, write_bytes, watch, number, work, result);
    }

    fn submit(&mut self) {
        self.start_due();
        self.engine.submit();
    }

    /// Hands held requests to the engine when their time has come.
    fn start_due(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        if watch.held.is_empty() {
            return;
        }
        let now = Instant::now();
        for (_, slot, work) in watch.held.extract_if(.., |(start, _, _)| start.is_due(now)) {
            self.engine.push(slot, work);
        }
    }

    fn held(&self) -> usize {
        self.watch.as_ref().map_or(0, |watch| watch.held.len())
    }

    fn wait(&mut self, min: usize, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        // A timeout beyond what a clock can say is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let min = min.min(self.in_flight());
        loop {
            self.start_due();
            let look = (self.held() > 0).then(|| Instant::now() + HELD_POLL);
            let until = [deadline, look].into_iter().flatten().min();
            let missing = min.saturating_sub(self.ended.len());
            if missing > 0 && self.engine.in_flight() == 0 {
                // Everything that is missing is held up.
                std::thread::sleep(
                    until.map_or(HELD_POLL, |at| at.saturating_duration_since(Instant::now())),
                );
            }
            let Overlap { backend, engine, ended, write_bytes, watch, .. } = self;
            engine.wait(missing, until, |number, work, result| {
                end(backend, ended, write_bytes, watch, number, work, result);
            });
            if self.ended.len() >= min
                || deadline.is_some_and(|deadline| deadline <= Instant::now())
            {
                return completions.append(&mut self.ended);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.ended.len() + self.held() + self.engine.in_flight()
    }
}

/// [`Overlap::end`], for when the engine is borrowed.
fn end(
    backend: &Backend,
    ended: &mut Vec<Completion>,
    write_bytes: &mut u64,
    watch: &mut Option<Watch>,
    number: u64,
    work: &Work,
    result: io::Result<u64>,
) {
    if work.was_continued() {
        backend.sites().mark(match work {
            Work::Read(_) | Work::ReadRun(_) => FaultSite::ShortReadContinued,
            _ => FaultSite::ShortWriteContinued,
        });
    }
    if let Work::Write(_) = work {
        *write_bytes -= work.wanted();
    }
    let user = watch.as_mut().map_or(number, |watch| watch.ended(number, &result));
    ended.push(Completion { user, result: result.map(|moved| moved as u32) });
}

impl Drop for Overlap<'_> {
    fn drop(&mut self) {
        if self.watch.is_some() {
            // An injector sees every end, and what it holds up is in flight like anything else.
            self.wait(self.in_flight(), None, &mut Vec::new());
        }
    }
}

/// Reads of one thread that overlap, from one file.
///
/// Push any number, wait for some, push more. At most [`capacity`](Batch::capacity) are with the
/// device at once, the others wait here. Completions come in any order. To keep a device busy at
/// depth *d*, keep some more than *d* pushed, and wait for a few at a time (`pipeline.rs`).
///
/// Dropping a batch forgets the reads that have not started and waits for those that have.
#[derive(Debug)]
pub struct Batch<'b> {
    overlap: Overlap<'b>,
    path: Arc<PathBuf>,
}

impl<'b> Batch<'b> {
    pub(super) fn new(backend: &'b Backend, engine: Engine<'b>, path: &Arc<PathBuf>) -> Batch<'b> {
        Batch { overlap: Overlap::new(backend, engine), path: Arc::clone(path) }
    }

    /// Adds a read. It starts with the next [`submit`](Batch::submit) or [`wait`](Batch::wait).
    pub fn push(&mut self, read: Read) {
        self.overlap.push(&self.path, read.user, Work::Read(ReadJob::new(read)));
    }

    /// Adds a read into scattered memory. It is one request like any other.
    pub fn push_run(&mut self, read: ReadRun) {
        self.overlap.push(&self.path, read.user, Work::ReadRun(Run::read(read)));
    }

    /// Starts as many reads as there is room for, and returns at once. One system call (io_uring).
    pub fn submit(&mut self) {
        self.overlap.submit();
    }

    /// Starts what can start, waits until `min` reads have ended (all of them, if there are fewer),
    /// and appends every read that has ended to `completions`. With `min` 0 it only looks.
    pub fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) {
        self.wait_for(min, None, completions);
    }

    /// The same, but not after the timeout.
    pub fn wait_for(
        &mut self,
        min: usize,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) {
        self.overlap.wait(min, timeout, completions);
    }

    /// Waits for a read no longer. If the device has it, it goes on without this thread, and `end`
    /// makes what is called with its result; the promise about its memory ends there.
    ///
    /// # Panics
    /// When the batch was not [made](Backend::timed_batch) for this, or has no such read.
    pub fn leave(&mut self, user: u64, end: impl FnOnce() -> End) -> Left {
        match &mut self.overlap.engine {
            Engine::Timed(queue) => queue.leave(user, end),
            Engine::Uring(_) | Engine::Psync(_) => unreachable!("these reads have no deadline"),
        }
    }

    /// Reads that were pushed and whose completion has not been returned.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        self.overlap.in_flight()
    }

    /// How many reads are with the device at once, at most.
    pub fn capacity(&self) -> usize {
        self.overlap.engine.capacity()
    }
}

/// Writes and syncs of one thread that overlap, of any files.
///
/// Push any number, wait for some, push more. What is pushed reaches the file in any order, a sync
/// covers what had *ended* before it was pushed, and completions come in any order.
///
/// A request that has started cannot be taken back, since the device may be reading the memory. So
/// dropping a writer waits for what has started, for as long as it takes, and forgets the rest. A
/// thread that cannot wait forever calls [`wait`](Writer::wait) with a timeout first, and in the
/// end [`abandon`](Writer::abandon).
#[derive(Debug)]
pub struct Writer<'b> {
    overlap: Overlap<'b>,
}

impl<'b> Writer<'b> {
    pub(super) fn new(backend: &'b Backend, engine: Engine<'b>) -> Writer<'b> {
        Writer { overlap: Overlap::new(backend, engine) }
    }

    /// Adds a write. It starts with the next [`submit`](Writer::submit) or [`wait`](Writer::wait).
    ///
    /// Its result has the kernel's errors, or [`WriteZero`](io::ErrorKind::WriteZero) when the file
    /// takes no bytes and says no reason. After an error any part of the run may have been written;
    /// writing it again is right.
    pub fn push(&mut self, write: Write) {
        let (path, user) = (Arc::clone(&write.path), write.user);
        self.overlap.push(&path, user, Work::Write(Run::write(write)));
    }

    /// Adds an `fdatasync(2)` of a descriptor, which stays open until the completion is returned.
    ///
    /// After an error the kernel may have dropped what it could not write, and a second sync may
    /// succeed without having written it: what was written since the last good one must be written
    /// again first.
    pub fn push_sync(&mut self, path: &Arc<PathBuf>, fd: RawFd, user: u64) {
        self.overlap.push(path, user, Work::Sync(SyncJob { fd }));
    }

    /// Starts as many requests as there is room for, and returns at once.
    pub fn submit(&mut self) {
        self.overlap.submit();
    }

    /// Starts what can start, waits until `min` requests have ended (all of them, if there are
    /// fewer) or the timeout has passed, and appends all that have ended to `completions`. With
    /// `min` 0 it only looks.
    pub fn wait(
        &mut self,
        min: usize,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) {
        self.overlap.wait(min, timeout, completions);
    }

    /// Requests that were pushed and whose completion has not been returned.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        self.overlap.in_flight()
    }

    /// Bytes of the writes that were pushed and have not ended.
    pub fn bytes_in_flight(&self) -> u64 {
        self.overlap.write_bytes
    }

    /// Gives up a device that does not answer: what is in flight stays in flight, and its end is
    /// never reported.
    ///
    /// The ring, or the worker threads, are leaked. The promise about memory and descriptors never
    /// ends (see `request.rs`): their owner has to leak them, and learns so from
    /// [`Backend::is_abandoned`]. A thread that has abandoned a ring may never end, because the
    /// kernel waits for the ring's requests when a thread exits: do not join it.
    pub fn abandon(self) {
        if self.overlap.in_flight() > self.overlap.ended.len() {
            self.overlap.backend.note_abandoned();
            std::mem::forget(self);
        }
    }
}
