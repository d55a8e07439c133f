//! Devices, and the queue of requests to their flushers.
//!
//! Each device that has a file open for writing has a flusher of its own: a thread, from the first
//! such file until the pager goes. So a device that hangs delays only its own files. Without
//! background threads there is no flusher, and a thread that needs something written does the
//! flusher's work, one thread at a time.
//!
//! Threads that wait for a file to be durable put *tickets* into the device's *queue* and wake the
//! flusher. It finds all other work by itself (`work.rs`) when it wakes.

use super::ledger::Failure;
use crate::space::Space;
use lowtide_core::{DeviceId, WriteBudget};
use lowtide_io::Deadline;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request to make pages of a file durable.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) space: Arc<Space>,
    pub(super) pages: Range<u64>,
    outcome: OnceLock<Result<(), Failure>>,
}

impl Ticket {
    pub(super) fn new(space: &Arc<Space>, pages: Range<u64>) -> Arc<Self> {
        Arc::new(Self { space: Arc::clone(space), pages, outcome: OnceLock::new() })
    }

    pub(super) fn outcome(&self) -> Option<&Result<(), Failure>> {
        self.outcome.get()
    }

    pub(super) fn finish(&self, outcome: Result<(), Failure>) {
        // A ticket is finished once.
        drop(self.outcome.set(outcome));
    }
}

/// Why something is written: how much may be in flight depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    /// A thread waits for it.
    Waited,
    Background,
}

/// Requests to a flusher.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) tickets: Vec<Arc<Ticket>>,
    pub(super) woken: bool,
    /// The pager goes: what is not written by then stays unwritten.
    pub(super) closing: Option<Deadline>,
    pub(super) ended: bool,
}

/// Something that takes writes at a rate of its own.
#[derive(Debug)]
pub(crate) struct Device {
    /// The kernel's number for it.
    pub(super) key: u64,
    pub(super) id: DeviceId,
    queue: Mutex<Queue>,
    /// The flusher has something to do.
    wakeup: Condvar,
    /// Tickets are finished.
    finished: Condvar,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Held by the thread that does the work where there is no flusher.
    pub(super) turn: Mutex<()>,
    /// Latency of a read that ended lately, in nanoseconds; 0 if it has been taken into account.
    read_ns: AtomicU64,
    budget: Mutex<WriteBudget>,
}

impl Device {
    pub(super) fn new(key: u64, id: DeviceId, now: u64) -> Self {
        Self {
            key,
            id,
            queue: Mutex::default(),
            wakeup: Condvar::new(),
            finished: Condvar::new(),
            thread: Mutex::default(),
            turn: Mutex::default(),
            read_ns: AtomicU64::new(0),
            budget: Mutex::new(WriteBudget::new(now)),
        }
    }

    /// Takes what is in the queue, or waits up to `timeout` for something to come.
    pub(super) fn orders(&self, timeout: Duration) -> Queue {
        let mut queue = lowtide_pin::sync::lock(&self.queue);
        if !queue.woken && !timeout.is_zero() {
            (queue, _) =
                self.wakeup.wait_timeout(queue, timeout).unwrap_or_else(PoisonError::into_inner);
        }
        let left = Queue { closing: queue.closing, ..Queue::default() };
        std::mem::replace(&mut *queue, left)
    }

    pub(super) fn put(&self, put: impl FnOnce(&mut Queue)) {
        let mut queue = lowtide_pin::sync::lock(&self.queue);
        put(&mut queue);
        queue.woken = true;
        self.wakeup.notify_one();
    }

    /// Wakes the flusher to look for something to do.
    pub(crate) fn wake(&self) {
        self.put(|_| ());
    }

    /// Requests the write of a file that is not open and that no thread waits for.
    pub(crate) fn write_orphan(&self, space: &Arc<Space>) {
        self.request(space, 0..u64::MAX);
    }

    /// Requests that pages are made durable, and does not wait.
    pub(crate) fn request(&self, space: &Arc<Space>, pages: Range<u64>) {
        self.put(|queue| queue.tickets.push(Ticket::new(space, pages)));
    }

    /// Wakes the threads that wait for tickets, since some have been finished.
    pub(super) fn announce(&self) {
        let _queue = lowtide_pin::sync::lock(&self.queue);
        self.finished.notify_all();
    }

    /// Reports that the flusher's thread is about to end.
    pub(super) fn say_ended(&self) {
        lowtide_pin::sync::lock(&self.queue).ended = true;
        self.finished.notify_all();
    }

    /// Waits until a condition of the queue is true; false if that did not come in time.
    pub(super) fn wait(&self, deadline: Deadline, mut done: impl FnMut(&Queue) -> bool) -> bool {
        let mut queue = lowtide_pin::sync::lock(&self.queue);
        loop {
            if done(&queue) {
                return true;
            }
            let in_time;
            (queue, in_time) = deadline.wait(&self.finished, queue);
            if !in_time {
                return false;
            }
        }
    }

    /// How many bytes of writes may be in flight.
    pub(super) fn budget(&self, urgency: Urgency, now: u64) -> u64 {
        let mut budget = lowtide_pin::sync::lock(&self.budget);
        match self.read_ns.swap(0, Relaxed) {
            0 => {}
            latency => budget.read_done(latency, now),
        }
        match urgency {
            Urgency::Waited => budget.in_flight_max_waited(now),
            Urgency::Background => budget.in_flight_max(now),
        }
    }

    /// Bytes have been written, by a request that was begun at that time.
    pub(super) fn note_write(&self, bytes: u64, begun: u64, now: u64) {
        let mut budget = lowtide_pin::sync::lock(&self.budget);
        budget.write_done(bytes, now);
        budget.write_took(now.saturating_sub(begun));
    }

    /// A read from this device had this latency.
    pub(crate) fn note_read(&self, latency: Duration) {
        self.read_ns.store(latency.as_nanos() as u64, Relaxed);
    }
}

/// All devices of a pager. Its lock comes after the pool's.
#[derive(Debug, Default)]
pub(crate) struct Devices(pub(super) Mutex<Vec<Arc<Device>>>);

impl Devices {
    pub(super) fn all(&self) -> Vec<Arc<Device>> {
        lowtide_pin::sync::lock(&self.0).clone()
    }
}
