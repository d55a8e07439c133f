//! The engine that works everywhere: blocking system calls, and a few threads to overlap them.
//!
//! A single request runs in the calling thread: nothing is faster for one transfer, and nothing can be
//! refused. A batch needs several transfers at once, which blocking calls only reach with several threads.
//! They are started by the first batch, and shared by all batches of the backend:
//!
//! ```text
//!   batch ──push──▶ queued ──submit──▶ pool queue ──thread: pread──▶ mailbox ──wait──▶ caller
//!                (beyond capacity)    (one per backend)            (one per batch)
//! ```
//!
//! The threads are `min(depth, 4 × processors)`: enough to keep a device busy whose transfers take longer
//! than the system call around them, few enough not to fight for the processors. Where no thread can be
//! started, a batch runs its requests in the calling thread, one after the other.
//!
//! # Safety
//!
//! This file opts in to unsafe code to make [`WriteJob`]s, which remember the address of a borrowed list.
//! Both places wait for the job's end before the borrow ends.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::job::{Job, ReadJob, WriteJob};
use super::request::{Completion, Read, Write};

/// Locks, whether or not another thread panicked while it held the lock: every critical section of this
/// module leaves its data whole at each step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine. Cheap until the first batch.
#[derive(Debug)]
pub(super) struct Psync {
    depth: usize,
    pool: OnceLock<Pool>,
}

impl Psync {
    /// An engine whose batches keep up to `depth` transfers in flight.
    pub(super) fn new(depth: usize) -> Psync {
        Psync { depth, pool: OnceLock::new() }
    }

    /// How many threads overlap the transfers of batches.
    pub(super) fn threads(&self) -> usize {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.depth.min(4 * cpus)
    }

    fn pool(&self) -> &Pool {
        self.pool.get_or_init(|| Pool::start(self.threads()))
    }

    /// A batch of reads that keeps at most `depth` in flight.
    pub(super) fn batch(&self) -> PsyncBatch<'_> {
        PsyncBatch {
            pool: self.pool(),
            mailbox: Arc::default(),
            queued: VecDeque::new(),
            flying: 0,
            capacity: self.depth,
        }
    }

    /// Writes several runs at once. Returns one result for each, in their order.
    pub(super) fn write_runs(&self, writes: &[Write<'_>]) -> Vec<io::Result<()>> {
        if let [write] = writes {
            return vec![write_in_this_thread(write)];
        }
        let pool = self.pool();
        let mailbox = Arc::<Mailbox>::default();
        for (index, write) in writes.iter().enumerate() {
            // SAFETY: this function returns only when every run has its result, which is the last thing a
            // job does; `writes` is borrowed for longer than that.
            let job = unsafe { WriteJob::new(write) };
            pool.give(Task { work: Work::Write(job), user: index as u64, reply: Arc::clone(&mailbox) });
        }
        let mut results: Vec<io::Result<()>> = writes.iter().map(|_| Ok(())).collect();
        let mut left = writes.len();
        while left > 0 {
            for (index, result) in mailbox.take(1) {
                results[index as usize] = result.map(drop);
                left -= 1;
            }
        }
        results
    }
}

/// Writes one run with blocking calls.
pub(super) fn write_in_this_thread(write: &Write<'_>) -> io::Result<()> {
    // SAFETY: the job is gone when this function returns, and `write` is borrowed for longer than that.
    let mut job = unsafe { WriteJob::new(write) };
    job.run().map(drop)
}

/// Reads with blocking calls. Returns the bytes read; fewer than wanted means the end of the file.
pub(super) fn read_in_this_thread(read: Read) -> io::Result<u32> {
    ReadJob::new(read).run().map(|moved| moved as u32)
}

/// What a thread of the pool carries to its end.
#[derive(Debug)]
enum Work {
    Read(ReadJob),
    Write(WriteJob),
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
        let result = match &mut self.work {
            Work::Read(job) => job.run(),
            Work::Write(job) => job.run(),
        };
        lock(&self.reply.results).push((self.user, result));
        self.reply.arrived.notify_one();
    }
}

/// Results on their way back to the one thread that waits for them.
#[derive(Debug, Default)]
struct Mailbox {
    results: Mutex<Vec<(u64, io::Result<u64>)>>,
    arrived: Condvar,
}

impl Mailbox {
    /// Waits for at least `min` results and takes all there are.
    fn take(&self, min: usize) -> Vec<(u64, io::Result<u64>)> {
        let mut results = lock(&self.results);
        while results.len() < min {
            results = self.arrived.wait(results).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut *results)
    }
}

/// The threads, and the queue they take tasks from. Dropping it joins them.
#[derive(Debug)]
struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    tasks: VecDeque<Task>,
    closed: bool,
}

impl Queue {
    /// The life of a pool thread: tasks until the queue is closed and empty.
    fn serve(&self) {
        loop {
            let mut state = lock(&self.state);
            let task = loop {
                if let Some(task) = state.tasks.pop_front() {
                    break task;
                }
                if state.closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            task.run();
        }
    }
}

impl Pool {
    /// Starts up to `count` threads: fewer when the system refuses.
    fn start(count: usize) -> Pool {
        let queue = Arc::<Queue>::default();
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let theirs = Arc::clone(&queue);
            match Builder::new().name(format!("lowtide-io-{index}")).spawn(move || theirs.serve()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(started = index, wanted = count, %error, "fewer I/O threads than wanted");
                    break;
                }
            }
        }
        Pool { queue, threads }
    }

    /// Hands a task to the pool; runs it at once when the pool has no thread.
    fn give(&self, task: Task) {
        if self.threads.is_empty() {
            return task.run();
        }
        lock(&self.queue.state).tasks.push_back(task);
        self.queue.changed.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.queue.state).closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A task does not panic; if one did, its message is already on stderr.
            let _ = thread.join();
        }
    }
}

/// Reads of one caller, overlapped by the pool.
#[derive(Debug)]
pub(super) struct PsyncBatch<'b> {
    pool: &'b Pool,
    mailbox: Arc<Mailbox>,
    /// Pushed, and not yet given to the pool.
    queued: VecDeque<Read>,
    /// Given to the pool, and not yet returned.
    flying: usize,
    capacity: usize,
}

impl PsyncBatch<'_> {
    pub(super) fn push(&mut self, read: Read) {
        self.queued.push_back(read);
    }

    pub(super) fn submit(&mut self) {
        while self.flying < self.capacity
            && let Some(read) = self.queued.pop_front()
        {
            self.flying += 1;
            self.pool.give(Task {
                work: Work::Read(ReadJob::new(read)),
                user: read.user,
                reply: Arc::clone(&self.mailbox),
            });
        }
    }

    pub(super) fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) {
        let mut left = min.min(self.in_flight());
        loop {
            self.submit();
            let taken = self.mailbox.take(left.min(self.flying));
            self.flying -= taken.len();
            left = left.saturating_sub(taken.len());
            completions.extend(
                taken
                    .into_iter()
                    .map(|(user, result)| Completion { user, result: result.map(|moved| moved as u32) }),
            );
            if left == 0 {
                return self.submit();
            }
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queued.len() + self.flying
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for PsyncBatch<'_> {
    fn drop(&mut self) {
        self.mailbox.take(self.flying);
    }
}
