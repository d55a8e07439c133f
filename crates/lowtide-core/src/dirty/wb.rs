//! Devices, and what a group has on a device.
//!
//! A device is whatever takes writes at a rate of its own: a disk, to the driver. Each space of
//! files may be on one. What the spaces of one group have on one device is a *wb*: pages that wait
//! to be written, pages that are being written, and what was learned about the rates of
//! both. It comes into being with the first page and belongs to the group; a group that is removed
//! leaves it to its parent.
//!
//! Memory of spaces without a device (anonymous memory, or a driver that does not care) is counted
//! as dirty and nothing else.

use super::MS;
use super::balance::Throttled;
use super::bandwidth::{DirtyRate, WriteRate};
use super::domain::FallingLimit;
use super::flusher::Device;
use super::limits::{DirtyLimits, DirtyTimers};
use super::proportions::{Fading, Period};
use crate::engine::Engine;
use crate::folio::Flags;
use crate::units::{LruType, MemcgId, MemcgSlot, SpaceId};
use std::collections::{BTreeMap, BTreeSet};

/// Something that takes writes at a rate of its own. Made by [`Engine::add_device`].
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
    fn new(device: DeviceId, exact: bool, known: &WriteRate, now: u64) -> Self {
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
    fn inherit(&mut self, other: &Self, period: Period) {
        self.reclaimable += other.reclaimable;
        self.writeback += other.writeback;
        self.dirtied += other.dirtied;
        self.written += other.written;
        self.completions.add(other.completions.get(period), period);
        self.dirty_rate.skip(other.dirtied);
        self.write_rate.skip(other.written);
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
    pub(super) devices: Vec<Option<Device>>,
    of_space: Vec<Option<DeviceId>>,
    /// Domains of groups see figures as they are, not as they were published.
    pub(super) exact: bool,
    pub(super) timers: DirtyTimers,
    /// Latest time that the engine was told.
    pub(super) now: u64,
    /// Pages written to all devices, fading.
    pub(super) completions: Fading,
    /// Pages that became dirty since some writer last looked, and how many may.
    pub(super) unchecked: u64,
    pub(super) check_every: u64,
    /// Pages that writers who are gone did not answer for.
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
            check_every: super::balance::FEWEST_UNCHECKED,
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
        let device = self.devices.get(id.0 as usize).and_then(Option::as_ref);
        device.unwrap_or_else(|| panic!("there is no device {}", id.0))
    }

    /// # Panics
    /// When there is no such device.
    pub(super) fn device_mut(&mut self, id: DeviceId) -> &mut Device {
        let device = self.devices.get_mut(id.0 as usize).and_then(Option::as_mut);
        device.unwrap_or_else(|| panic!("there is no device {}", id.0))
    }

    /// A space is gone; its number may be used again.
    pub(crate) fn forget_space(&mut self, space: SpaceId) {
        if let Some(of) = self.of_space.get_mut(space.0 as usize) {
            *of = None;
        }
    }
}

impl Engine {
    /// Adds a device that takes writes. Cost: O(devices).
    pub fn add_device(&mut self, now: u64) -> DeviceId {
        self.dirty.tell_time(now);
        let devices = &mut self.dirty.devices;
        let index = devices.iter().position(Option::is_none).unwrap_or_else(|| {
            devices.push(None);
            devices.len() - 1
        });
        devices[index] = Some(Device::new(now));
        DeviceId(index as u32)
    }

    /// Removes a device. Its spaces are on none from now on, and nobody waits for what they have.
    /// Its number may be used again. Cost: O(groups + spaces).
    pub fn remove_device(&mut self, id: DeviceId) {
        let slots: Vec<_> = self.memcgs.subtree(MemcgId::ROOT.slot).collect();
        for slot in slots {
            self.memcgs[slot].dirty.wbs.retain(|wb| wb.device != id);
        }
        for of in self.dirty.of_space.iter_mut().filter(|of| **of == Some(id)) {
            *of = None;
        }
        if let Some(device) = self.dirty.devices.get_mut(id.0 as usize) {
            *device = None;
        }
    }

    /// Says which device a space's pages are written to. To be said before anything of it is dirty.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn set_device_of_space(&mut self, space: SpaceId, device: DeviceId) {
        let _exists = self.dirty.device(device);
        let index = space.0 as usize;
        if index >= self.dirty.of_space.len() {
            self.dirty.of_space.resize(index + 1, None);
        }
        self.dirty.of_space[index] = Some(device);
    }

    /// What a group has on a device, from now on if it had nothing.
    #[inline]
    pub(super) fn wb_mut(&mut self, slot: MemcgSlot, device: DeviceId) -> &mut Wb {
        self.wb_and_device(slot, device).0
    }

    /// What a group has on a device, from now on if it had nothing, and the device.
    #[inline]
    pub(super) fn wb_and_device(
        &mut self,
        slot: MemcgSlot,
        id: DeviceId,
    ) -> (&mut Wb, &mut Device) {
        let (now, exact) = (self.dirty.now / MS, self.dirty.exact);
        let device = self.dirty.device_mut(id);
        let wbs = &mut self.memcgs[slot].dirty.wbs;
        let at = wbs.iter().position(|wb| wb.device == id).unwrap_or_else(|| {
            wbs.push(Wb::new(id, exact, &device.write_rate, now));
            wbs.len() - 1
        });
        (&mut wbs[at], device)
    }

    /// Pages that a group and those below it wrote lately, to all devices, as `proportions.rs`
    /// counts.
    pub(super) fn completions(&self, of: MemcgSlot) -> u64 {
        let period = self.dirty.period();
        if of == MemcgId::ROOT.slot {
            return self.dirty.completions.get(period);
        }
        let groups = self.memcgs.subtree(of).map(|slot| &self.memcgs[slot].dirty);
        groups.flat_map(|group| &group.wbs).map(|wb| wb.completions.get(period)).sum()
    }

    /// A group that is removed leaves what it has on devices to its parent. Its spaces are the
    /// parent's already.
    pub(crate) fn reparent_dirty(&mut self, child: MemcgSlot, parent: MemcgSlot) {
        let gone = std::mem::take(&mut self.memcgs[child].dirty);
        let period = self.dirty.period();
        for wb in &gone.wbs {
            self.wb_mut(parent, wb.device).inherit(wb, period);
            let device = self.dirty.device_mut(wb.device);
            device.dirty.remove(&child);
            if wb.reclaimable > 0 {
                device.dirty.insert(parent);
            }
        }
        self.memcgs[parent].dirty.throttled.add(gone.throttled);
    }

    /// Where pages of a space are counted: its device and group. `None` without a device.
    #[inline]
    pub(super) fn place_of(&self, space: SpaceId) -> Option<(DeviceId, MemcgSlot)> {
        let device = self.dirty.device_of(space)?;
        Some((device, self.slot_of_space(space)?))
    }

    /// Recounts what groups have on devices (`docs/kernel/fault-and-writeback.md` D, 8).
    pub(crate) fn validate_devices(&self) -> Result<(), String> {
        let mut recounted: BTreeMap<(MemcgSlot, DeviceId), [u64; 2]> = BTreeMap::new();
        for (_, f) in self.folios.iter().filter(|(_, f)| f.lru_type() == LruType::File) {
            let Some((device, slot)) = self.place_of(f.owner().space) else { continue };
            let [reclaimable, writeback] = recounted.entry((slot, device)).or_default();
            *reclaimable += if f.flags.contains(Flags::DIRTY) { f.pages() } else { 0 };
            *writeback += if f.flags.contains(Flags::WRITEBACK) { f.pages() } else { 0 };
        }
        recounted.retain(|_, counts| *counts != [0; 2]);
        let groups = || self.memcgs.subtree(MemcgId::ROOT.slot);
        let wbs = || {
            groups().flat_map(|slot| self.memcgs[slot].dirty.wbs.iter().map(move |wb| (slot, wb)))
        };
        let kept: BTreeMap<_, _> = wbs()
            .map(|(slot, wb)| ((slot, wb.device), [wb.reclaimable, wb.writeback]))
            .filter(|(_, counts)| *counts != [0; 2])
            .collect();
        if kept != recounted {
            return Err(format!(
                "dirty pages and those under writeback: recounted {recounted:?}, kept {kept:?}"
            ));
        }
        for (id, device) in (0..).map(DeviceId).zip(&self.dirty.devices) {
            let Some(device) = device else { continue };
            let here = || wbs().filter(|(_, wb)| wb.device == id);
            let reclaimable: u64 = here().map(|(_, wb)| wb.reclaimable).sum();
            let writeback: u64 = here().map(|(_, wb)| wb.writeback).sum();
            let dirty: BTreeSet<_> =
                here().filter(|(_, wb)| wb.reclaimable > 0).map(|(slot, _)| slot).collect();
            if (device.reclaimable, device.writeback, &device.dirty)
                != (reclaimable, writeback, &dirty)
            {
                return Err(format!(
                    "device {} has {device:?}, its groups {reclaimable}, {writeback}, {dirty:?}",
                    id.0
                ));
            }
        }
        Ok(())
    }
}
