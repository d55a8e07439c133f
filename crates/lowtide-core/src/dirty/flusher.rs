//! What the flusher of a device does next.

use super::wb::DeviceId;
use crate::engine::Engine;
use crate::units::MemcgId;

/// Why pages are to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushReason {
    /// Reclaim met nothing but dirty pages ([`Engine::ask_to_flush`]).
    Reclaim,
    /// They have been dirty for long.
    Periodic,
    /// More is dirty than should be.
    Background,
}

/// A piece of work for the flusher of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushWork {
    /// Why.
    pub reason: FlushReason,
    /// Whose pages: those of this group and below it; `None`: all of the device.
    pub group: Option<MemcgId>,
    /// How many pages at most. Then ask again.
    pub pages: u64,
    /// Only what has been dirty since before this time (ns).
    pub older_than: Option<u64>,
}

/// The flusher of a device, as far as the engine knows it.
#[derive(Debug)]
pub(super) struct Device {
    /// The flusher is at work.
    pub(super) writing: bool,
    /// Pages whose writes were begun, ever.
    pub(super) started: u64,
    /// When old pages were last looked for.
    pub(super) looked: u64,
    /// Groups for which reclaim asked.
    pub(super) asked: Vec<MemcgId>,
}

impl Device {
    pub(super) const fn new(now: u64) -> Self {
        Self { writing: false, started: 0, looked: now, asked: Vec::new() }
    }
}

impl Engine {
    /// Says whether the flusher of a device is at work, or sleeps until it is woken.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn set_writing(&mut self, device: DeviceId, writing: bool) {
        self.dirty.device(device).writing = writing;
    }

    /// Reclaim met nothing but dirty pages in a group ([`Step::WakeFlushers`](crate::Step::WakeFlushers)): all that is dirty there is to be written. The driver wakes the flushers of
    /// the devices that are returned: those on which the group or those below it have dirty pages. A kernel does not tell groups apart here: it passes [`MemcgId::ROOT`]. Cost: O(groups below).
    pub fn ask_to_flush(&mut self, below: MemcgId) -> Vec<DeviceId> {
        let _ = below;
        Vec::new()
    }

    /// What the flusher of a device should do next. `None`: sleep until somebody wakes it, or until [`Engine::next_flush`].
    ///
    /// Between two pieces of this work it may do work of its own (a sync).
    ///
    /// # Panics
    /// When there is no such device.
    pub fn flusher_work(&mut self, device: DeviceId, now: u64) -> Option<FlushWork> {
        self.dirty.tell_time(now);
        let _ = device;
        None
    }

    /// When the flusher of a device has to look for old pages, if nobody wakes it before (ns). `None` if it need not.
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn next_flush(&self, device: DeviceId) -> Option<u64> {
        let _ = device;
        None
    }

    /// Whether more is dirty than the background limit of some group with dirty pages on a device, or of the whole, allows.
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn over_background(&self, device: DeviceId) -> bool {
        let _ = device;
        false
    }

    /// What a device is estimated to write, in pages a second: the sum over the groups that write to it.
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn write_bandwidth(&self, device: DeviceId) -> u64 {
        let _ = device;
        0
    }
}
