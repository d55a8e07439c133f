//! A domain: a set of pages, how much of it is dirty, and how much may be.
//!
//! The root is a domain, and so is each group with the groups below it. In the root, its file pages
//! and its free ones could become dirty. A group could grow as well, up to the nearest of its
//! limits, but only by what other groups would have to give up: their clean pages and the free
//! ones.
//!
//! A threshold is a part of that, and moves with it. The *limit* is the threshold or, for a while
//! after the threshold has fallen, a little more: it follows upwards at once and downwards by a
//! 32nd of the distance every 200 ms, so that the fall of a threshold does not stop writers that
//! could not have known of it.
//!
//! A group's figures may be up to two seconds old ([`Engine::set_exact_dirty`]); with old ones its
//! writers run past the threshold and are stopped too late, as in a kernel.
//!
//! A writer is in these domains: its group's, the root's, and those of ancestors in between that
//! have limits of their own. (Groups of a kernel have none, and it looks at the group and the root
//! only.)
//!
//! **Small groups.** Thresholds are rounded down. Below five pages the default limit is 0 pages,
//! and below ten it is one: a writer waits there until what it wrote is clean, page by page; with
//! nothing dirty no writer waits. So even a group of a single page can be written to, at the speed
//! of the device.
//!
//! Departures: file pages are counted wherever they are, in batches and isolated too (a kernel
//! counts those on lists); a share in bytes is never more than all that could be dirty; the limit
//! falls by a page at least; where nothing was written lately, the share of each device is the
//! whole (not an eighth of what is left), so that a single device that was idle does not begin to
//! write at an eighth of its limit. Source: B3, B6.

use super::limits::{DirtyLimits, DirtyLimitsError, DirtyShare};
use super::scale::{DirtyState, Domain, FallingLimit, Figures, Thresholds};
use crate::engine::Engine;
use crate::units::{MemcgId, MemcgSlot};

impl Engine {
    /// Whether domains of groups see how much is dirty *now*. By default they see what
    /// [`Engine::publish`] last published, up to two seconds old, as a kernel's do; the root,
    /// if it is a machine ([`Engine::set_machine_root`]), always sees what is.
    pub fn set_exact_dirty(&mut self, exact: bool) {
        self.dirty.exact = exact;
    }

    /// Limits the dirty data of a group and of what is below it. The root's settings are also those
    /// of groups without their own, as shares of each group's memory (`limits.rs`).
    ///
    /// # Errors
    /// [`DirtyLimitsError`].
    pub fn set_dirty_limits(
        &mut self,
        id: MemcgId,
        limits: DirtyLimits,
    ) -> Result<(), DirtyLimitsError> {
        limits.check(self.page_bytes)?;
        if !self.alive(id) {
            return Err(DirtyLimitsError::Gone);
        }
        let group = &mut self.memcgs[id].dirty;
        group.limits = Some(limits);
        group.falling = FallingLimit::default();
        Ok(())
    }

    /// The limits in force for the dirty data of a group: its own, or the root's.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn dirty_limits(&self, id: MemcgId) -> DirtyLimits {
        let root = &self.memcgs[MemcgId::ROOT].dirty;
        self.memcgs[id].dirty.limits.or(root.limits).unwrap_or_default()
    }

    /// How much of a group and of what is below it is dirty: exactly, whatever writers see. Cost:
    /// O(groups below).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn dirty_state(&self, id: MemcgId) -> DirtyState {
        assert!(self.alive(id), "group {} has been removed", id.number());
        self.figures_now(id.slot).state
    }

    /// How much of a group and of what is below it may be dirty at the moment, as writers see it. A
    /// limit that has just fallen is higher for a while. Cost: O(groups below).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn dirty_thresholds(&self, id: MemcgId) -> Thresholds {
        assert!(self.alive(id), "group {} has been removed", id.number());
        self.domain(id.slot).thresholds
    }

    /// The domains that a writer of a group is in, the group's own first and the root's last.
    pub(super) fn domains(&self, of: MemcgSlot) -> impl Iterator<Item = Domain> {
        let counts = move |slot: &MemcgSlot| {
            let group = &self.memcgs[*slot];
            *slot == of || group.parent.is_none() || group.dirty.limits.is_some()
        };
        self.memcgs.upwards(of).filter(counts).map(|slot| self.domain(slot))
    }

    /// Whether writers see a domain as it is.
    pub(super) fn sees_exactly(&self, of: MemcgSlot) -> bool {
        self.dirty.exact || (of == MemcgId::ROOT.slot && self.memcg_lru.is_some())
    }

    pub(super) fn domain(&self, of: MemcgSlot) -> Domain {
        let all = self.figures(MemcgId::ROOT.slot);
        let root = &self.memcgs[MemcgId::ROOT].memory;
        let free = root.max.min(root.high).saturating_sub(root.usage);
        let all_dirtyable = all.file + free + 1;
        let root_limits = self.dirty_limits(MemcgId::ROOT);
        let pages = |bytes: u64| bytes.div_ceil(self.page_bytes);
        if of == MemcgId::ROOT.slot {
            let share = |share| match share {
                DirtyShare::Percent(percent) => part_of(all_dirtyable, percent_of_4096(percent)),
                DirtyShare::Bytes(bytes) => pages(bytes),
            };
            let thresholds = Thresholds::new(
                all_dirtyable,
                share(root_limits.background),
                share(root_limits.hard),
            );
            return Domain { of, state: all.state, thresholds };
        }
        let figures = self.figures(of);
        let headroom = self.headroom(of);
        let clean = figures.file.saturating_sub(figures.state.dirty);
        let other_clean = all_dirtyable.saturating_sub(all.state.dirty).saturating_sub(clean);
        let dirtyable = figures.file + headroom.min(other_clean);
        let own = self.memcgs[of].dirty.limits;
        let share = |share| match share {
            DirtyShare::Percent(percent) => part_of(dirtyable, percent_of_4096(percent)),
            DirtyShare::Bytes(bytes) if own.is_some() => pages(bytes),
            // The same part of the group's memory as it is of the root's, in 4096ths.
            DirtyShare::Bytes(bytes) => part_of(
                dirtyable,
                (pages(bytes).saturating_mul(4096)).div_ceil(all_dirtyable).min(4096),
            ),
        };
        let limits = own.unwrap_or(root_limits);
        let thresholds = Thresholds::new(dirtyable, share(limits.background), share(limits.hard));
        Domain { of, state: figures.state, thresholds }
    }

    /// By how much a group may grow before it or an ancestor is full. The root's memory is no limit
    /// here: others can give it up.
    fn headroom(&self, of: MemcgSlot) -> u64 {
        let levels =
            self.memcgs.upwards(of).map(|slot| &self.memcgs[slot]).filter(|g| g.parent.is_some());
        let room = levels.map(|g| g.memory.max.min(g.memory.high).saturating_sub(g.memory.usage));
        room.min().unwrap_or(u64::MAX)
    }

    fn figures(&self, of: MemcgSlot) -> Figures {
        if self.sees_exactly(of) { self.figures_now(of) } else { *self.levels.published_dirty(of) }
    }

    fn figures_now(&self, of: MemcgSlot) -> Figures {
        if of == MemcgId::ROOT.slot {
            let totals = &self.totals;
            let state = DirtyState { dirty: totals.file_dirty, writeback: totals.writeback };
            return Figures { file: totals.file, state };
        }
        let mut sum = Figures::default();
        self.memcgs.subtree(of).for_each(|slot| sum.add(&self.memcgs[slot].figures()));
        sum
    }
}

const fn percent_of_4096(percent: u32) -> u64 {
    percent as u64 * 4096 / 100
}

/// `parts` 4096ths of some pages.
fn part_of(pages: u64, parts: u64) -> u64 {
    (u128::from(pages) * u128::from(parts) / 4096) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_rounded_as_in_a_kernel() {
        assert_eq!((percent_of_4096(20), percent_of_4096(10)), (819, 409));
        assert_eq!(part_of(32_768, 819), 6552);
    }
}
