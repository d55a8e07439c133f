//! What a group and everything below it has: the sums behind `memory.stat`, `memory.events` and the
//! limits in force.
//!
//! Groups count what happens to them alone, because that happens often; a reader adds up the
//! subtree, because that happens seldom. A group that is removed leaves its counts to its parent.
//! Source: `docs/kernel/memcg.md` §12, 13.

use super::counter::Kind;
use crate::engine::Engine;
use crate::stat::{Events, MemcgEvents, MemoryStat};
use crate::units::{LruType, MemcgId};

impl Engine {
    /// One consistent snapshot of a group with everything below it. Cost: O(groups below).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn stat(&self, memcg: MemcgId) -> MemoryStat {
        let lists = self.policy().lists();
        let top = &self.memcgs[memcg];
        let mut sum = MemoryStat {
            page_bytes: self.page_bytes,
            current: top.memory.usage,
            max: top.memory.max,
            limits: top.limits,
            ..MemoryStat::default()
        };
        for slot in self.memcgs.subtree(memcg.slot) {
            let group = &self.memcgs[slot];
            let (inactive_anon, active_anon) = group.lruvec.sizes(lists, LruType::Anon);
            let (inactive_file, active_file) = group.lruvec.sizes(lists, LruType::File);
            sum.anon += group.resident[LruType::Anon as usize] - group.swap_only + group.reserved;
            sum.file += group.resident[LruType::File as usize];
            sum.file_dirty += group.file_dirty;
            sum.file_writeback += group.file_writeback;
            sum.swapcached += group.swapcached;
            sum.inactive_anon += inactive_anon;
            sum.active_anon += active_anon;
            sum.inactive_file += inactive_file;
            sum.active_file += active_file;
            sum.unevictable += group.lruvec.unevictable;
            sum.reserved += group.reserved;
            sum.events.add(&group.events);
        }
        sum
    }

    /// Events of a group alone, without those below it.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn own_events(&self, memcg: MemcgId) -> Events {
        self.memcgs[memcg].events
    }

    /// Limit events of a group alone: `memory.events.local`.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn local_events(&self, memcg: MemcgId) -> MemcgEvents {
        self.memcgs[memcg].local
    }

    /// Largest usage that a group ever had, in pages: `memory.peak`.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn peak(&self, memcg: MemcgId) -> u64 {
        self.memcgs[memcg].memory.watermark
    }

    /// Pages of swap that a group and those below it use.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn swap_usage(&self, memcg: MemcgId) -> u64 {
        self.memcgs[memcg].swap.usage
    }

    /// Effective protection as the last reclaim that came by computed it: `min` and `low`, in
    /// pages.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn effective(&self, memcg: MemcgId) -> (u64, u64) {
        let claims = &self.memcgs[memcg].memory.claims;
        (claims[Kind::Min as usize].effective, claims[Kind::Low as usize].effective)
    }

    /// Whether more than half of what could be reclaimed from a subtree is dirty or under
    /// writeback. Otherwise no nap helps: there is something clean to look for
    /// (`docs/kernel/reclaim.md` §4.4, "gate").
    pub(crate) fn mostly_dirty(&self, memcg: MemcgId) -> bool {
        let lists = self.policy().lists();
        let can_swap = self.swap.free_pages > 0;
        let (mut unclean, mut reclaimable) = (0, 0);
        for slot in self.memcgs.subtree(memcg.slot) {
            let group = &self.memcgs[slot];
            let size = |t| {
                let (inactive, active) = group.lruvec.sizes(lists, t);
                inactive + active
            };
            unclean += group.file_dirty + group.file_writeback;
            reclaimable += size(LruType::File) + group.lruvec.isolated;
            reclaimable += if can_swap { size(LruType::Anon) } else { 0 };
        }
        2 * unclean > reclaimable
    }
}
