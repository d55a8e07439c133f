//! Adding devices, and finding what a group has on one (`wb.rs`).

use super::pause::MS;
use super::wb::{Device, DeviceId, Wb};
use crate::engine::Engine;
use crate::folio::Flags;
use crate::units::{MemcgId, MemcgSlot, SpaceId};
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// Adds a device that takes writes. It stays.
    pub fn add_device(&mut self, now: u64) -> DeviceId {
        self.dirty.tell_time(now);
        self.dirty.devices.push(Device::new(now));
        DeviceId(self.dirty.devices.len() as u32 - 1)
    }

    /// Sets the device that a space's pages are written to. Call it before any of them is dirty.
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
        for (_, f) in self.folios.iter().filter(|(_, f)| !f.is_anon()) {
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
