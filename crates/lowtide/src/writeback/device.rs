//! Devices, and what is asked of their flushers.
//!
//! Each device that has a file open for writing has a flusher of its own: a thread, from the first
//! such file until the pager goes. So a device that hangs holds up nobody else's files. Without
//! background threads there is no flusher, and whoever needs something written does its work, one
//! thread at a time.
//!
//! Threads that wait for a file to be durable put *tickets* on the device's *desk*, and ring. What
//! else there is to do the flusher finds out by itself (`work.rs`) when somebody rings.

use super::ledger::Failure;
use super::worker::{Worker, flusher};
use crate::deadline::Deadline;
use crate::error::{Error, OpenError};
use crate::fault_sites::FaultSite;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::{DeviceId, MemcgId, WriteBudget};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Somebody wants pages of a file to be durable.
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

/// What is asked of a flusher.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) tickets: Vec<Arc<Ticket>>,
    pub(super) rung: bool,
    /// The pager goes: what is not written by then stays unwritten.
    pub(super) closing: Option<Deadline>,
    ended: bool,
}

/// Something that takes writes at a rate of its own.
#[derive(Debug)]
pub(crate) struct Device {
    /// The kernel's number for it.
    key: u64,
    pub(super) id: DeviceId,
    desk: Mutex<Desk>,
    /// The flusher has something to do.
    bell: Condvar,
    /// Tickets are finished.
    finished: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Whoever does the work where there is no thread.
    turn: Mutex<()>,
    /// Latency of a read that ended lately, in nanoseconds; 0 if it was taken notice of.
    read_ns: AtomicU64,
    budget: Mutex<WriteBudget>,
}

impl Device {
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

    fn put(&self, put: impl FnOnce(&mut Desk)) {
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
    fn wait(&self, deadline: Deadline, mut done: impl FnMut(&Desk) -> bool) -> bool {
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

    /// How many bytes of writes may be in flight, for the background or for somebody who waits.
    pub(super) fn budget(&self, waited: bool, now: u64) -> u64 {
        let mut budget = crate::sync::lock(&self.budget);
        match self.read_ns.swap(0, Relaxed) {
            0 => {}
            latency => budget.read_done(latency, now),
        }
        if waited { budget.in_flight_max_waited(now) } else { budget.in_flight_max(now) }
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
pub(crate) struct Devices(Mutex<Vec<Arc<Device>>>);

impl Devices {
    pub(super) fn all(&self) -> Vec<Arc<Device>> {
        crate::sync::lock(&self.0).clone()
    }
}

impl Pool {
    /// Gives a file that has become writable to the flusher of its device, which is started if
    /// there is none yet.
    ///
    /// # Errors
    /// [`OpenError::Thread`]
    pub(crate) fn attach_device(self: &Arc<Self>, space: &Arc<Space>) -> Result<(), OpenError> {
        let key = space.backing.key().device;
        let mut state = self.lock();
        let mut devices = crate::sync::lock(&self.devices.0);
        if space.device.get().is_some() {
            return Ok(());
        }
        let device = match devices.iter().find(|d| d.key == key) {
            Some(device) => Arc::clone(device),
            None => {
                let device = Arc::new(Device {
                    key,
                    id: state.engine.add_device(self.now()),
                    desk: Mutex::default(),
                    bell: Condvar::new(),
                    finished: Condvar::new(),
                    thread: Mutex::default(),
                    turn: Mutex::default(),
                    read_ns: AtomicU64::new(0),
                    budget: Mutex::new(WriteBudget::new(self.now())),
                });
                if self.background {
                    let (pool, own) = (Arc::clone(self), Arc::clone(&device));
                    let thread = std::thread::Builder::new().name("lowtide-flush".to_owned());
                    let thread = thread.spawn(move || flusher(&pool, &own)).map_err(|source| {
                        OpenError::Thread { path: space.path().to_path_buf(), source }
                    })?;
                    *crate::sync::lock(&device.thread) = Some(thread);
                }
                devices.push(Arc::clone(&device));
                device
            }
        };
        state.engine.set_device_of_space(space.id, device.id);
        // Nobody else sets it: the lock is held.
        drop(space.device.set(device));
        Ok(())
    }

    /// Makes pages durable that were stored to before the call.
    ///
    /// # Errors
    /// What could not be written; [`Error::Timeout`]; [`Error::Name`].
    pub(crate) fn make_durable(
        &self,
        space: &Arc<Space>,
        pages: Range<u64>,
    ) -> Result<Result<(), Failure>, Error> {
        let Some(device) = space.device.get() else { return Ok(Ok(())) };
        self.check()?;
        let ticket = Ticket::new(space, pages);
        if !self.background {
            self.do_work(device, |worker| worker.serve(&ticket));
        } else {
            device.put(|desk| desk.tickets.push(Arc::clone(&ticket)));
            let deadline = Deadline::after(self.io_deadline);
            if !device.wait(deadline, |desk| desk.ended || ticket.outcome().is_some()) {
                self.fault_sites.mark(FaultSite::DeadlinePassed);
                let seconds = self.io_deadline.as_secs_f64();
                return Err(Error::Timeout {
                    path: space.path(),
                    seconds,
                    what: "writing and syncing it",
                });
            }
        }
        // What was being written then may be anything.
        self.check()?;
        let outcome = ticket.outcome().expect("it is finished").clone();
        if outcome.is_ok() {
            // In this thread: the flusher has other files to write.
            space.sync_name(&self.backend)?;
        }
        Ok(outcome)
    }

    /// Does work of a device in this thread, when nobody else does any.
    fn do_work<R>(&self, device: &Arc<Device>, work: impl FnOnce(&mut Worker<'_>) -> R) -> R {
        let _turn = crate::sync::lock(&device.turn);
        work(&mut Worker::new(self, device))
    }

    /// Writes some of a group's dirty pages in this thread, unless another does such work.
    pub(super) fn write_some(&self, device: &Arc<Device>, group: MemcgId) -> u64 {
        let Ok(_turn) = device.turn.try_lock() else { return 0 };
        Worker::new(self, device).write_some(group)
    }

    /// Ends the flushers: each writes what is left of files that nobody has open, for as long as
    /// the deadline allows.
    pub(crate) fn end_flushers(&self) {
        let devices = self.devices.all();
        let deadline = Deadline::after(self.io_deadline);
        for device in &devices {
            device.put(|desk| desk.closing = Some(deadline));
        }
        for device in &devices {
            match crate::sync::lock(&device.thread).take() {
                Some(thread) if thread.thread().id() == std::thread::current().id() => {}
                Some(thread) => {
                    // A thread that hangs is left behind; it keeps what it uses.
                    let ended =
                        device.wait(deadline.later(Duration::from_secs(1)), |desk| desk.ended);
                    if ended && !self.backend.is_abandoned() {
                        drop(thread.join());
                    }
                }
                None => self.do_work(device, |worker| worker.serve_all()),
            }
        }
        for space in self.lock().spaces.iter().flatten().filter(|space| !self.is_clean(space)) {
            let path = space.path_ref().display();
            tracing::error!(%path, "the pager goes with pages that could not be written: they are \
                lost");
        }
    }
}
