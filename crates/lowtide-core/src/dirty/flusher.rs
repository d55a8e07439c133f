//! What the flusher of a device does next.
//!
//! One flusher writes to a device, for all groups. Between pieces of work it requests the next, and
//! gets, in this order:
//!
//! 1. what reclaim requested: all dirty pages of a group in which it met nothing but dirty pages;
//! 2. *periodic* work, once an interval: all pages that have been dirty for long;
//! 3. *background* work: while more of a domain is dirty than its background limit, pages under
//!    writeback not counted, or while the device has more than its share of that limit; a slice at
//!    a time, so that the limit is checked again.
//!
//! The root's domain comes first, since the pages of all groups count there; groups follow in turn.
//! Background work that led to no write (all of it is being stored to, or has failed and waits) is
//! not returned again before the flusher has slept. Source: B10.

use super::limits::{DirtyLimitsError, DirtyTimers};
use super::pause::MS;
use super::scale::Domain;
use super::wb::DeviceId;
use crate::engine::Engine;
use crate::units::{MemcgId, MemcgSlot};
use std::collections::BTreeSet;

/// Pages that a slice is a multiple of.
const SLICE: u64 = 1024;

/// Why pages are to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushReason {
    /// Reclaim met nothing but dirty pages ([`Engine::ask_to_flush`]).
    Reclaim,
    /// The pages have been dirty for long.
    Periodic,
    /// More is dirty than should be.
    Background,
}

/// A piece of work for the flusher of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushWork {
    /// Why.
    pub reason: FlushReason,
    /// Pages of this group and those below it; `None`: all of the device.
    pub group: Option<MemcgId>,
    /// How many pages at most. Then call [`Engine::flusher_work`] again.
    pub pages: u64,
    /// Only what has been dirty since before this time (ns).
    pub older_than: Option<u64>,
}

impl Engine {
    /// Reports whether the flusher of a device is at work, or sleeps until it is woken.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn set_writing(&mut self, device: DeviceId, writing: bool) {
        let device = self.dirty.device_mut(device);
        device.writing = writing;
        if !writing {
            device.given = None;
            device.fruitless.clear();
        }
    }

    /// Reclaim met nothing but dirty pages in a group
    /// ([`Step::WakeFlushers`](crate::Step::WakeFlushers)): all dirty pages there are to be
    /// written. Returns the devices whose flushers the driver has to wake: those on which the group
    /// or those below it have dirty pages. A kernel does not distinguish groups here: it passes
    /// [`MemcgId::ROOT`]. Cost: O(groups with dirty pages).
    pub fn ask_to_flush(&mut self, below: MemcgId) -> Vec<DeviceId> {
        if !self.alive(below) {
            return Vec::new();
        }
        let has_dirty =
            |dirty: &BTreeSet<_>| dirty.iter().any(|&at| self.memcgs.is_below(at, below.slot));
        let devices = (0..).map(DeviceId).zip(&self.dirty.devices);
        let asked: Vec<_> =
            devices.filter(|(_, device)| has_dirty(&device.dirty)).map(|(id, _)| id).collect();
        for &id in &asked {
            let device = self.dirty.device_mut(id);
            if below == MemcgId::ROOT {
                device.asked.clear();
            }
            if !device.asked.contains(&MemcgId::ROOT) && !device.asked.contains(&below) {
                device.asked.push(below);
            }
        }
        asked
    }

    /// What the flusher of a device should do next. `None`: it sleeps until it is woken, or until
    /// [`Engine::next_flush`].
    ///
    /// Between two pieces of this work it may do work of its own (a sync). Cost: O(groups with
    /// dirty pages on the device, and what is below them).
    ///
    /// # Panics
    /// When there is no such device.
    pub fn flusher_work(&mut self, device: DeviceId, now: u64) -> Option<FlushWork> {
        self.dirty.tell_time(now);
        let dev = self.dirty.device_mut(device);
        dev.write_rate.update(now / MS, dev.written, dev.writeback > 0);
        if dev.given.is_some_and(|(_, begun)| begun == dev.begun) {
            let (group, _) = dev.given.take().expect("it is some");
            dev.fruitless.push(group);
        }
        self.asked_work(device).or_else(|| self.periodic_work(device, now)).or_else(|| {
            let domain = self.background_domain(device)?;
            let work = self.slice(device, &domain);
            let dev = self.dirty.device_mut(device);
            dev.given = Some((domain.of, dev.begun));
            Some(work)
        })
    }

    /// When the flusher of a device has to look for old pages, if it is not woken before (ns).
    /// `None`: never.
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn next_flush(&self, device: DeviceId) -> Option<u64> {
        let interval = self.dirty.timers.interval_ns;
        (interval > 0).then(|| self.dirty.device(device).looked.saturating_add(interval))
    }

    /// Whether the root, or a group with dirty pages on a device, has more dirty than its
    /// background limit, or the device has more than its share of one. Cost: as
    /// [`Engine::flusher_work`].
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn over_background(&self, device: DeviceId) -> bool {
        self.domains_over_background(device).next().is_some()
    }

    /// What a device is estimated to write, in pages a second.
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn write_bandwidth(&self, device: DeviceId) -> u64 {
        self.dirty.device(device).write_rate.average
    }

    /// Sets when old dirty data is written.
    ///
    /// # Errors
    /// [`DirtyLimitsError::TooOften`].
    pub fn set_dirty_timers(&mut self, timers: DirtyTimers) -> Result<(), DirtyLimitsError> {
        timers.check()?;
        self.dirty.timers = timers;
        Ok(())
    }

    /// When old dirty data is written.
    #[must_use]
    pub const fn dirty_timers(&self) -> DirtyTimers {
        self.dirty.timers
    }

    fn asked_work(&mut self, device: DeviceId) -> Option<FlushWork> {
        while let Some(group) = self.dirty.device_mut(device).asked.pop() {
            let pages = if self.alive(group) { self.dirty_on(device, group.slot) } else { 0 };
            if pages > 0 {
                let group = (group != MemcgId::ROOT).then_some(group);
                return Some(FlushWork {
                    reason: FlushReason::Reclaim,
                    group,
                    pages,
                    older_than: None,
                });
            }
        }
        None
    }

    fn periodic_work(&mut self, device: DeviceId, now: u64) -> Option<FlushWork> {
        let due = self.next_flush(device).is_some_and(|at| now >= at);
        let old = now.checked_sub(self.dirty.timers.expire_ns);
        let device = self.dirty.device_mut(device);
        if due {
            device.looked = now;
        }
        let pages = device.reclaimable;
        (due && old.is_some() && pages > 0).then_some(FlushWork {
            reason: FlushReason::Periodic,
            group: None,
            pages,
            older_than: old,
        })
    }

    fn background_domain(&mut self, device: DeviceId) -> Option<Domain> {
        let fruitless = &self.dirty.device(device).fruitless;
        if fruitless.contains(&MemcgId::ROOT.slot) {
            // That was everything.
            return None;
        }
        let (from, domain) = self
            .domains_over_background(device)
            .find(|(_, domain)| !fruitless.contains(&domain.of))?;
        if let Some(from) = from {
            self.dirty.device_mut(device).served = from;
        }
        Some(domain)
    }

    /// Domains above their background limits: the root's, or those of groups with dirty pages on
    /// the device, each with the group through which it was found.
    fn domains_over_background(
        &self,
        device: DeviceId,
    ) -> impl Iterator<Item = (Option<MemcgSlot>, Domain)> {
        let dev = self.dirty.device(device);
        let period = self.dirty.period();
        let root = self.domain(MemcgId::ROOT.slot);
        let share = (dev.completions.get(period), self.completions(root.of));
        let root =
            (dev.reclaimable > 0 && over(&root, dev.reclaimable, share)).then_some((None, root));
        let groups =
            dev.in_turn().filter(|&slot| slot != MemcgId::ROOT.slot).flat_map(move |slot| {
                let wb = self.memcgs[slot].dirty.wb(device).expect("it has dirty pages there");
                let domains = self.domains(slot).filter(|domain| domain.of != MemcgId::ROOT.slot);
                let above = domains.filter(move |domain| {
                    let share = (wb.completions.get(period), self.completions(domain.of));
                    over(domain, wb.reclaimable, share)
                });
                above.map(move |domain| (Some(slot), domain))
            });
        root.into_iter().chain(groups)
    }

    /// A piece of background work: what the device writes in half a second, or an eighth of what
    /// may be dirty in the *root*. A group that is small beside that is written as a whole before
    /// its limit is looked at again.
    fn slice(&self, device: DeviceId, domain: &Domain) -> FlushWork {
        let bandwidth = self.dirty.device(device).write_rate.average;
        let all = self.domain(MemcgId::ROOT.slot).thresholds.hard;
        let pages = (bandwidth / 2).min(all / 8) + SLICE;
        FlushWork {
            reason: FlushReason::Background,
            group: (domain.of != MemcgId::ROOT.slot).then(|| self.memcgs.id(domain.of)),
            pages: pages / SLICE * SLICE,
            older_than: None,
        }
    }

    /// Dirty pages that a group and those below it have on a device.
    fn dirty_on(&self, device: DeviceId, below: MemcgSlot) -> u64 {
        let dev = self.dirty.device(device);
        if below == MemcgId::ROOT.slot {
            return dev.reclaimable;
        }
        let groups = dev.dirty.iter().filter(|&&at| self.memcgs.is_below(at, below));
        groups.filter_map(|&at| self.memcgs[at].dirty.wb(device)).map(|wb| wb.reclaimable).sum()
    }
}

/// Whether a domain is above its background limit, or a wb (or device) that holds `share` of the
/// writeout of `all` has more reclaimable pages than its share of the background limit.
fn over(domain: &Domain, reclaimable: u64, (share, all): (u64, u64)) -> bool {
    let thresholds = domain.thresholds;
    let part = u128::from(domain.part(share, all)) * u128::from(thresholds.background);
    domain.over_background() || u128::from(reclaimable) * u128::from(thresholds.hard) > part
}
