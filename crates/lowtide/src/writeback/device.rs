//! Devices, and what is requested of their flushers.
//!
//! Each device that has a file open for writing has a flusher of its own: a thread, from the first
//! such file until the pager goes. So a device that hangs holds up nobody else's files. Without
//! background threads there is no flusher, and whoever needs something written does its work, one
//! thread at a time.
//!
//! Threads that wait for a file to be durable put *tickets* on the device's *desk*, and ring. What
//! else there is to do the flusher finds out by itself (`work.rs`) when somebody rings.

use super::ledger::Failure;
use crate::deadline::Deadline;
use crate::space::Space;
use lowtide_core::{DeviceId, WriteBudget};
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

/// What is requested of a flusher.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) tickets: Vec<Arc<Ticket>>,
    pub(super) rung: bool,
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
    desk: Mutex<Desk>,
    /// The flusher has something to do.
    bell: Condvar,
    /// Tickets are finished.
    finished: Condvar,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Whoever does the work where there is no thread.
    pub(super) turn: Mutex<()>,
    /// Latency of a read that ended lately, in nanoseconds; 0 if it was taken notice of.
    read_ns: AtomicU64,
    budget: Mutex<WriteBudget>,
}

impl Device {
    pub(super) fn new(key: u64, id: DeviceId, now: u64) -> Self {
        Self {
            key,
            id,
            desk: Mutex::default(),
            bell: Condvar::new(),
            finished: Condvar::new(),
            thread: Mutex::default(),
            turn: Mutex::default(),
            read_ns: AtomicU64::new(0),
            budget: Mutex::new(WriteBudget::new(now)),
        }
    }

    /// Takes what is on the desk, or waits for the bell that long.
    pub(super) fn orders(&self, patience: Duration) -> Desk {
        let mut desk = crate::sync::lock(&self.desk);
        if !desk.rung && !patience.is_zero() {
            (desk, _) =
                self.bell.wait_timeout(desk, patience).unwrap_or_else(PoisonError::into_inner);
        }
        let left = Desk { closing: desk.closing, ..Desk::default() };
        std::mem::replace(&mut *desk, left)
    }

    pub(super) fn put(&self, put: impl FnOnce(&mut Desk)) {
        let mut desk = crate::sync::lock(&self.desk);
        put(&mut desk);
        desk.rung = true;
        self.bell.notify_one();
    }

    /// Wakes the flusher to look for something to do.
    pub(crate) fn ring(&self) {
        self.put(|_| ());
    }

    /// Has a file written that nobody has open and nobody waits for.
    pub(crate) fn write_orphan(&self, space: &Arc<Space>) {
        self.put(|desk| desk.tickets.push(Ticket::new(space, 0..u64::MAX)));
    }

    /// Tells those who wait that tickets have been finished.
    pub(super) fn announce(&self) {
        let _desk = crate::sync::lock(&self.desk);
        self.finished.notify_all();
    }

    /// Says that the flusher's thread is about to end.
    pub(super) fn say_ended(&self) {
        crate::sync::lock(&self.desk).ended = true;
        self.finished.notify_all();
    }

    /// Waits until something is true of the desk; false if that did not come in time.
    pub(super) fn wait(&self, deadline: Deadline, mut done: impl FnMut(&Desk) -> bool) -> bool {
        let mut desk = crate::sync::lock(&self.desk);
        loop {
            if done(&desk) {
                return true;
            }
            let in_time;
            (desk, in_time) = deadline.wait(&self.finished, desk);
            if !in_time {
                return false;
            }
        }
    }

    /// How many bytes of writes may be in flight.
    pub(super) fn budget(&self, urgency: Urgency, now: u64) -> u64 {
        let mut budget = crate::sync::lock(&self.budget);
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
        let mut budget = crate::sync::lock(&self.budget);
        budget.write_done(bytes, now);
        budget.write_took(now.saturating_sub(begun));
    }

    /// A read from this device took so long.
    pub(crate) fn note_read(&self, latency: Duration) {
        self.read_ns.store(latency.as_nanos() as u64, Relaxed);
    }
}

/// All devices of a pager. Its lock comes after the pool's.
#[derive(Debug, Default)]
pub(crate) struct Devices(pub(super) Mutex<Vec<Arc<Device>>>);

impl Devices {
    pub(super) fn all(&self) -> Vec<Arc<Device>> {
        crate::sync::lock(&self.0).clone()
    }
}
