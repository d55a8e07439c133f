//! The flushers of a pager: one is started for each device and ends with the pager; threads that
//! wait for a file to be durable wait for its flusher. Without background threads the thread that
//! needs something written does the work.

use super::device::{Device, Ticket};
use super::ledger::Failure;
use super::worker::{Worker, flusher};
use crate::error::{Error, OpenError};
use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::MemcgId;
use lowtide_io::{Deadline, FaultSite};
use lowtide_sys::{room, tell, threads};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

impl Pool {
    /// Gives a file that has become writable to the flusher of its device, which is started if
    /// there is none yet.
    ///
    /// # Errors
    /// [`OpenError::Thread`]
    pub(crate) fn attach_device(self: &Arc<Self>, space: &Arc<Space>) -> Result<(), OpenError> {
        let key = space.backing.key().device;
        let mut state = self.lock();
        let mut devices = lowtide_pin::sync::lock(&self.devices.0);
        if space.device.get().is_some() {
            return Ok(());
        }
        let device = match devices.iter().find(|d| d.key == key) {
            Some(device) => Arc::clone(device),
            None => {
                let id = state.engine.add_device(self.now());
                let device = Arc::new(Device::new(key, id, self.now()));
                if self.background {
                    let (pool, own) = (Arc::clone(self), Arc::clone(&device));
                    let run = move || flusher(&pool, &own);
                    let thread = threads::spawn("lowtide-flush", run).map_err(|source| {
                        OpenError::Thread { path: space.path().to_path_buf(), source }
                    })?;
                    *lowtide_pin::sync::lock(&device.thread) = Some(thread);
                }
                devices.push(Arc::clone(&device));
                device
            }
        };
        state.engine.set_device_of_space(space.id, device.id);
        // No other thread sets it: the lock is held.
        drop(space.device.set(device));
        Ok(())
    }

    /// Makes pages durable that were stored to before the call.
    ///
    /// # Errors
    /// What could not be written; [`Error::Timeout`]; [`Error::NameNotDurable`].
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
            device.put(|queue| queue.tickets.push(Arc::clone(&ticket)));
            let deadline = Deadline::after(self.io_timeout);
            if !device.wait(deadline, |queue| queue.ended || ticket.outcome().is_some()) {
                self.fault_sites.mark(FaultSite::DeadlinePassed);
                let waited = self.io_timeout;
                return Err(Error::Timeout {
                    path: space.path(),
                    waited,
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

    /// Does work of a device in this thread, when no other thread does any. What writes files has
    /// its descriptors outside of the room.
    fn do_work<R: Send>(
        &self,
        device: &Arc<Device>,
        work: impl FnOnce(&mut Worker<'_>) -> R + Send,
    ) -> R {
        room::outside(|| {
            let _turn = lowtide_pin::sync::lock(&device.turn);
            work(&mut Worker::new(self, device))
        })
    }

    /// Writes some of a group's dirty pages in this thread, unless another does such work.
    pub(super) fn write_some(&self, device: &Arc<Device>, group: MemcgId) -> u64 {
        room::outside(|| {
            let Ok(_turn) = device.turn.try_lock() else { return 0 };
            Worker::new(self, device).write_some(group)
        })
    }

    /// Ends the flushers: each writes what is left of files that are not open, for as long as the
    /// deadline allows.
    pub(crate) fn end_flushers(&self) {
        let devices = self.devices.all();
        let deadline = Deadline::after(self.io_timeout);
        for device in &devices {
            device.put(|queue| queue.closing = Some(deadline));
        }
        for device in &devices {
            match lowtide_pin::sync::lock(&device.thread).take() {
                Some(thread) if thread.thread().id() == std::thread::current().id() => {}
                Some(thread) => {
                    // A thread that hangs is left behind; it keeps what it uses.
                    let ended =
                        device.wait(deadline.later(Duration::from_secs(1)), |queue| queue.ended);
                    if ended && !self.backend.is_abandoned() {
                        drop(thread.join());
                    }
                }
                None => self.do_work(device, |worker| worker.serve_all()),
            }
        }
        for space in self.lock().spaces.iter().flatten().filter(|space| !self.is_clean(space)) {
            let path = space.path_ref().display();
            tell!(error, %path, "the pager goes with pages that could not be written: they are \
                lost");
        }
    }
}
