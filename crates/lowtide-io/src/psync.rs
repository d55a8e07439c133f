//! The engine that works everywhere: blocking system calls, and a few threads to overlap them.
//!
//! A single request runs in the calling thread: nothing is faster for one transfer, and nothing can
//! be refused. A queue needs several transfers at once, which blocking calls only reach with
//! several threads:
//!
//! ```text
//!   queue ──push──▶ waiting ──submit──▶ task list ──thread: pread──▶ mailbox ──wait──▶ caller
//!                (beyond capacity)                                (one per queue)
//! ```
//!
//! The *workers* of a queue are up to `min(depth, 4 × processors)` threads, started when there is
//! work and none is idle: enough to keep a device busy whose transfers take longer than the system
//! call around them, few enough not to fight for the processors. All queues of reads share their
//! workers. A queue of writes has workers of its own while it exists, because a device that hangs
//! keeps every thread that made a request to it. Where no thread can be started, a queue runs its
//! requests in the calling thread, one after the other.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::job::{Job, ReadJob, Work};
use super::request::Read;
use super::workers::Workers;

/// Locks, whether or not another thread panicked while it held the lock: every critical section of
/// this module leaves its data whole at each step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads are called.
const NAME: &str = "lowtide-io";

/// The engine. Cheap until the first queue.
#[derive(Debug)]
pub(super) struct Psync {
    depth: usize,
    readers: Workers,
    /// Workers of queues of writes that are gone.
    idle: Mutex<Vec<Workers>>,
}

impl Psync {
    /// An engine whose queues keep up to `depth` transfers in flight.
    pub(super) fn new(depth: usize) -> Psync {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Psync { depth, readers: Workers::new(NAME, depth.min(4 * cpus)), idle: Mutex::default() }
    }

    /// How many transfers a queue keeps in flight at most.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// How many threads overlap the transfers of a queue.
    pub(super) fn threads(&self) -> usize {
        self.readers.most()
    }

    /// A queue that shares its workers with others.
    pub(super) fn shared_queue(&self) -> PsyncQueue<'_> {
        self.queue(None)
    }

    /// A queue with workers of its own.
    pub(super) fn own_queue(&self) -> PsyncQueue<'_> {
        let idle = lock(&self.idle).pop();
        self.queue(Some(idle.unwrap_or_else(|| Workers::new(NAME, self.threads()))))
    }

    fn queue(&self, own: Option<Workers>) -> PsyncQueue<'_> {
        PsyncQueue {
            psync: self,
            own,
            mailbox: Arc::default(),
            waiting: VecDeque::new(),
            flying: 0,
            capacity: self.depth,
        }
    }
}

/// Reads with blocking calls. Returns the bytes read; fewer than wanted means the end of the file.
pub(super) fn read_in_this_thread(read: Read) -> io::Result<u32> {
    ReadJob::new(read).run().map(|moved| moved as u32)
}

/// Work, and where its result goes.
#[derive(Debug)]
struct Task {
    work: Work,
    user: u64,
    reply: Arc<Mailbox>,
}

impl Task {
    fn run(mut self) {
        let result = self.work.run();
        self.reply.put(self.user, self.work, result);
    }
}

/// What has ended: its number, the job, the result.
type Ended = (u64, Work, io::Result<u64>);

/// Results on their way back to the one thread that waits for them.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    results: Mutex<Vec<Ended>>,
    arrived: Condvar,
}

impl Mailbox {
    /// Adds what has ended.
    pub(super) fn put(&self, user: u64, work: Work, result: io::Result<u64>) {
        lock(&self.results).push((user, work, result));
        self.arrived.notify_one();
    }

    /// Waits for at least `min` results, or until the deadline, and takes all there are.
    pub(super) fn take(&self, min: usize, deadline: Option<Instant>) -> Vec<Ended> {
        let mut results = lock(&self.results);
        while results.len() < min {
            results =
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    None => self.arrived.wait(results).unwrap_or_else(PoisonError::into_inner),
                    Some(left) if left.is_zero() => break,
                    Some(left) => {
                        self.arrived
                            .wait_timeout(results, left)
                            .unwrap_or_else(PoisonError::into_inner)
                            .0
                    }
                };
        }
        std::mem::take(&mut *results)
    }
}

/// Requests of one caller, overlapped by worker threads.
#[derive(Debug)]
pub(super) struct PsyncQueue<'b> {
    psync: &'b Psync,
    /// The workers that are only this queue's.
    own: Option<Workers>,
    mailbox: Arc<Mailbox>,
    /// Pushed, and not yet given to the workers.
    waiting: VecDeque<(u64, Work)>,
    /// Given to the workers, and not yet returned.
    flying: usize,
    capacity: usize,
}

impl PsyncQueue<'_> {
    /// Adds a job. It does not start before [`submit`](PsyncQueue::submit).
    pub(super) fn push(&mut self, user: u64, work: Work) {
        self.waiting.push_back((user, work));
    }

    /// Gives as many jobs to the workers as may be in flight, without waiting.
    pub(super) fn submit(&mut self) {
        while self.flying < self.capacity
            && let Some((user, work)) = self.waiting.pop_front()
        {
            self.flying += 1;
            let workers = self.own.as_ref().unwrap_or(&self.psync.readers);
            let task = Task { work, user, reply: Arc::clone(&self.mailbox) };
            workers.give(Box::new(move || task.run()));
        }
    }

    /// Waits until at least `min` jobs have ended (or all in flight, if there are fewer), or until
    /// the deadline, and gives the number, the job and the result of each that has ended to `sink`.
    /// Others start in their place: a caller that wants more calls again.
    pub(super) fn wait(
        &mut self,
        min: usize,
        deadline: Option<Instant>,
        mut sink: impl FnMut(u64, &Work, io::Result<u64>),
    ) {
        self.submit();
        let taken = self.mailbox.take(min.min(self.flying), deadline);
        self.flying -= taken.len();
        for (user, work, result) in taken {
            sink(user, &work, result);
        }
        self.submit();
    }

    /// Jobs pushed and not yet given to a sink.
    pub(super) fn in_flight(&self) -> usize {
        self.waiting.len() + self.flying
    }

    /// How many jobs are kept in flight at most.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for PsyncQueue<'_> {
    fn drop(&mut self) {
        self.mailbox.take(self.flying, None);
        if let Some(workers) = self.own.take() {
            lock(&self.psync.idle).push(workers);
        }
    }
}
