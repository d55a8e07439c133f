//! Devices, and what a group has on a device.
//!
//! A device is a thing that takes writes at a rate of its own: to the driver, a disk. Each space of
//! files may be on one. What the spaces of one group have on one device is a *wb*: pages that wait
//! to be written, pages that are being written, and the estimated rates of both. It is created with
//! the first page and belongs to the group; a group that is removed leaves it to its parent.
//!
//! Pages of spaces without a device (anonymous memory, or a driver that sets none) are only counted
//! as dirty.

use super::bandwidth::{DirtyRate, WriteRate};
use super::limits::{DirtyLimits, DirtyTimers};
use super::pause::MS;
use super::proportions::{Fading, Period};
use super::scale::FallingLimit;
use crate::units::{MemcgId, MemcgSlot, SpaceId};
use std::collections::BTreeSet;

/// Pages that may become dirty before some task looks, at least.
pub(super) const FEWEST_UNCHECKED: u64 = 16;

/// Something that takes writes at a rate of its own. Made by
/// [`Engine::add_device`](crate::Engine::add_device).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u32);

/// What a group has on a device, in pages.
#[derive(Debug)]
pub(super) struct Wb {
    pub(super) device: DeviceId,
    /// Dirty, and not being written.
    pub(super) reclaimable: u64,
    pub(super) writeback: u64,
    /// Became dirty, ever.
    pub(super) dirtied: u64,
    /// Were written, ever.
    pub(super) written: u64,
    /// The same, fading.
    pub(super) completions: Fading,
    /// It has more than its share and its domain is at the limit: writers look more often.
    pub(super) exceeded: bool,
    /// Pages that became dirty since one of its writers last looked, and how many may.
    pub(super) unchecked: u64,
    pub(super) check_every: u64,
    pub(super) write_rate: WriteRate,
    pub(super) dirty_rate: DirtyRate,
}

impl Wb {
    pub(super) fn new(device: DeviceId, exact: bool, known: &WriteRate, now: u64) -> Self {
        let mut write_rate = WriteRate::like(known, now);
        if exact {
            write_rate.make_eager();
        }
        Self {
            device,
            reclaimable: 0,
            writeback: 0,
            dirtied: 0,
            written: 0,
            completions: Fading::default(),
            exceeded: false,
            unchecked: 0,
            // With exact figures the first page decides how often its writers look.
            check_every: if exact { 1 } else { u64::MAX },
            write_rate,
            dirty_rate: DirtyRate::new(write_rate.average, now),
        }
    }

    /// Dirty or being written.
    pub(super) const fn unclean(&self) -> u64 {
        self.reclaimable + self.writeback
    }

    /// Takes over what another group has on the same device. Rates stay its own.
    pub(super) fn inherit(&mut self, other: &Self, period: Period) {
        self.reclaimable += other.reclaimable;
        self.writeback += other.writeback;
        self.dirtied += other.dirtied;
        self.written += other.written;
        self.completions.add(other.completions.get(period), period);
        self.dirty_rate.skip(other.dirtied);
        self.write_rate.skip(other.written);
    }
}

/// A device, with what is known of its flusher.
#[derive(Debug)]
pub(super) struct Device {
    /// The flusher is at work.
    pub(super) writing: bool,
    /// Groups that have dirty pages on it.
    pub(super) dirty: BTreeSet<MemcgSlot>,
    /// Dirty pages, not being written.
    pub(super) reclaimable: u64,
    /// Pages being written.
    pub(super) writeback: u64,
    /// Pages whose writes were begun and have not failed, ever.
    pub(super) begun: u64,
    /// Pages written, ever.
    pub(super) written: u64,
    /// The same, fading.
    pub(super) completions: Fading,
    pub(super) write_rate: WriteRate,
    /// When old pages were last looked for (ns).
    pub(super) looked: u64,
    /// Groups for which reclaim requested a flush.
    pub(super) asked: Vec<MemcgId>,
    /// The group that was served last.
    pub(super) served: MemcgSlot,
    /// Background work that was given last, and what had been begun then.
    pub(super) given: Option<(MemcgSlot, u64)>,
    /// Background work that led to nothing since the flusher last slept.
    pub(super) fruitless: Vec<MemcgSlot>,
}

impl Device {
    pub(super) fn new(now: u64) -> Self {
        Self {
            writing: false,
            dirty: BTreeSet::new(),
            reclaimable: 0,
            writeback: 0,
            begun: 0,
            written: 0,
            completions: Fading::default(),
            write_rate: WriteRate::new(now / MS),
            looked: now,
            asked: Vec::new(),
            served: MemcgId::ROOT.slot,
            given: None,
            fruitless: Vec::new(),
        }
    }

    /// Groups with dirty pages, from the one after the last that was served.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = MemcgSlot> {
        let after = (std::ops::Bound::Excluded(self.served), std::ops::Bound::Unbounded);
        self.dirty.range(after).chain(self.dirty.range(..=self.served)).copied()
    }
}

/// Pauses imposed on the writers of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Throttled {
    /// How many.
    pub pauses: u64,
    /// Sum, in nanoseconds.
    pub pause_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
}

impl Throttled {
    pub(super) fn add(&mut self, other: Self) {
        self.pauses += other.pauses;
        self.pause_ns += other.pause_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// The dirty data of one group without those below it.
#[derive(Debug, Default)]
pub(crate) struct GroupDirty {
    pub(super) limits: Option<DirtyLimits>,
    /// The limit of the domain as it falls.
    pub(super) falling: FallingLimit,
    pub(super) wbs: Vec<Wb>,
    pub(super) throttled: Throttled,
}

impl GroupDirty {
    pub(super) fn wb(&self, device: DeviceId) -> Option<&Wb> {
        self.wbs.iter().find(|wb| wb.device == device)
    }
}

/// What concerns all groups: devices, settings, and the time.
#[derive(Debug)]
pub(crate) struct Dirty {
    pub(super) devices: Vec<Device>,
    pub(super) of_space: Vec<Option<DeviceId>>,
    /// Domains of groups see figures as they are, not as they were published.
    pub(super) exact: bool,
    pub(super) timers: DirtyTimers,
    /// Latest time that the driver passed in.
    pub(super) now: u64,
    /// Pages written to all devices, fading.
    pub(super) completions: Fading,
    /// Pages that became dirty since some writer last looked, and how many may.
    pub(super) unchecked: u64,
    pub(super) check_every: u64,
    /// Pages that tasks left behind without accounting for them.
    pub(super) left: u64,
}

impl Default for Dirty {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            of_space: Vec::new(),
            exact: false,
            timers: DirtyTimers::default(),
            now: 0,
            completions: Fading::default(),
            unchecked: 0,
            check_every: FEWEST_UNCHECKED,
            left: 0,
        }
    }
}

impl Dirty {
    #[inline]
    pub(super) fn device_of(&self, space: SpaceId) -> Option<DeviceId> {
        self.of_space.get(space.0 as usize).copied().flatten()
    }

    pub(super) const fn period(&self) -> Period {
        Period::at(self.now)
    }

    pub(super) fn tell_time(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// # Panics
    /// When there is no such device.
    pub(super) fn device(&self, id: DeviceId) -> &Device {
        let device = self.devices.get(id.0 as usize);
        device.unwrap_or_else(|| panic!("there is no device {}", id.0))
    }

    /// # Panics
    /// When there is no such device.
    pub(super) fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        let device = self.devices.get_mut(id.0 as usize);
        device.unwrap_or_else(|| panic!("there is no device {}", id.0))
    }

    /// A space is gone; its number may be used again.
    pub(crate) fn forget_space(&mut self, space: SpaceId) {
        if let Some(of) = self.of_space.get_mut(space.0 as usize) {
            *of = None;
        }
    }
}
