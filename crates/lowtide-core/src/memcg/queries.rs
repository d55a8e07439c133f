//! What a driver can ask of the tree: where a group belongs, what it may still charge, and the sums
//! behind `memory.stat` and `memory.events`.
//!
//! Groups count what happens to them alone, because that happens often; a reader adds up the
//! subtree, because that happens seldom. A group that is removed leaves its counts to its parent.
//! Source: `docs/kernel/memcg.md` §4.3, 6.2, 11, 12, 13.

use super::counter::Kind;
use super::group::Memcg;
use crate::counters::{AgeClass, Events, MemcgEvents, MemoryStat, Numbers, SwapEvents};
use crate::engine::Engine;
use crate::lruvec::slot;
use crate::policy::Lists;
use crate::units::{LruType, MemcgId};

impl Engine {
    /// Whether a group is another one or below it. False when either is gone. Cost: O(depth).
    #[must_use]
    pub fn is_within(&self, id: MemcgId, top: MemcgId) -> bool {
        self.alive(id) && self.alive(top) && self.memcgs.is_below(id.slot, top.slot)
    }

    /// Pages that may still be charged to a group before it is full itself; its ancestors may have
    /// less.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn margin(&self, id: MemcgId) -> u64 {
        self.memcgs[id].memory.margin()
    }

    /// Events of swap of a group and those below it: `memory.swap.events`. Cost: O(1).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn swap_events(&self, id: MemcgId) -> SwapEvents {
        self.memcgs[id].swap_events
    }

    /// Limit events of a group and those below it: `memory.events`. Cost: O(1).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn limit_events(&self, id: MemcgId) -> MemcgEvents {
        self.memcgs[id].limits
    }

    /// Charges that met the limit of a group so far, tries with a whole batch among them: what the
    /// kernel's log calls `failcnt`.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn failcnt(&self, id: MemcgId) -> u64 {
        self.memcgs[id].memory.failcnt
    }

    /// Counts `oom`: a driver gives up a [patient](crate::Charge::patient) charge, or the lowering
    /// of a limit. Nothing happens when the group is gone.
    pub fn count_oom(&mut self, id: MemcgId) {
        if self.alive(id) {
            self.memcgs.raise(id.slot, |events| &mut events.oom);
        }
    }

    /// Gives what was charged in advance to a group and those below it back to the counters.
    /// Nothing happens when the group is gone.
    pub fn drain_stocks_of(&mut self, id: MemcgId) {
        if self.alive(id) {
            self.drain_stocks(id.slot);
        }
    }

    /// Whether waiting can help a charge that a full group refuses: something below it is resident
    /// and not under hard protection, so what is pinned, dirty or being written now may be
    /// evicted later. Anonymous memory counts where there are slots of swap for it. Cost: O(groups
    /// below).
    #[must_use]
    pub fn may_become_reclaimable(&mut self, full: MemcgId) -> bool {
        let needed = if self.policy().lists() == Lists::MultiGen { self.swap.spared } else { 1 };
        let swap = self.swap.free_pages >= needed && self.alive(full) && {
            self.memcgs.upwards(full.slot).all(|at| self.memcgs[at].swap.margin() > 0)
        };
        self.has_unprotected(full, |group| {
            let [anon, file] = group.resident;
            let goes = swap && group.swap.margin() > 0;
            file + if goes { anon } else { group.swapcached }
        })
    }

    /// Whether a group has a file page, itself or below it, that is not under hard protection.
    /// Cost: O(groups below).
    #[must_use]
    pub fn has_file(&mut self, full: MemcgId) -> bool {
        self.has_unprotected(full, |group| group.resident[LruType::File as usize])
    }

    /// Whether a group has a file page, itself or below it, that is clean and not under hard
    /// protection: evictable now, or as soon as it is neither pinned nor being read. Cost: O(groups
    /// below).
    #[must_use]
    pub fn has_clean(&mut self, full: MemcgId) -> bool {
        self.has_unprotected(full, |group| {
            let unclean = group.file_dirty + group.file_writeback;
            group.resident[LruType::File as usize].saturating_sub(unclean)
        })
    }

    /// Whether `pages` counts any in a group below `full` that is not under hard protection. True
    /// for a group that is gone: its parent pays now.
    fn has_unprotected(&mut self, full: MemcgId, pages: impl Fn(&Memcg) -> u64) -> bool {
        if !self.alive(full) {
            return true;
        }
        let below: Vec<_> = self.memcgs.subtree(full.slot).collect();
        below.into_iter().any(|slot| {
            pages(&self.memcgs[slot]) > 0 && !self.memcgs.protect(full, slot).below_min()
        })
    }

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
            sum.zswap_events.add(&group.zswap_events);
        }
        sum
    }

    /// Pages of a group and those below it by age, the youngest first. With generations the k-th
    /// entry has those of the k-th youngest of each group; otherwise there are two, the active ones
    /// first. Cost: O(groups below).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn ages(&self, memcg: MemcgId) -> Vec<AgeClass> {
        let lists = self.policy().lists();
        if lists != Lists::MultiGen {
            let stat = self.stat(memcg);
            let class = |anon, file| AgeClass { born: None, anon, file };
            let active = class(stat.active_anon, stat.active_file);
            return vec![active, class(stat.inactive_anon, stat.inactive_file)];
        }
        let mut ages = Vec::new();
        let mut largest = 0;
        for at in self.memcgs.subtree(memcg.slot) {
            let gens = &self.memcgs[at].lruvec.gens;
            let pages: u64 = [LruType::Anon, LruType::File].map(|t| gens.pages(t)).iter().sum();
            let oldest = gens.min_seq[0].min(gens.min_seq[1]);
            for (age, seq) in (oldest..=gens.max_seq).rev().enumerate() {
                if ages.len() <= age {
                    ages.push(AgeClass::default());
                }
                let of_type = |t: LruType| gens.nr_pages[slot(seq)][t as usize];
                ages[age].anon += of_type(LruType::Anon);
                ages[age].file += of_type(LruType::File);
                if pages >= largest {
                    ages[age].born = Some(gens.born[slot(seq)]);
                }
            }
            largest = largest.max(pages);
        }
        ages
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
    /// writeback. Otherwise no sleep helps: there is something clean to look for
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

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::{LruType, MemcgId};

    #[test]
    fn waiting_helps_only_where_something_unprotected_is_resident() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        assert!(engine.may_become_reclaimable(MemcgId::ROOT));
        let empty = engine.create_group(MemcgId::ROOT).unwrap();
        assert!(!engine.may_become_reclaimable(empty), "nothing in it can become free");
    }

    #[test]
    fn pages_by_age_add_up_to_those_on_the_lists_whichever_lists_are_kept() {
        for policy in [Policy::MGLRU, Policy::LRU, Policy::TIDE] {
            let mut engine = filled(policy, 64, LruType::File);
            engine.create_group(MemcgId::ROOT).unwrap();
            let (stat, ages) = (engine.stat(MemcgId::ROOT), engine.ages(MemcgId::ROOT));
            let file: u64 = ages.iter().map(|age| age.file).sum();
            assert_eq!(file, stat.inactive_file + stat.active_file, "{policy}: {ages:?}");
            assert!(file > 32 && ages.iter().all(|age| age.anon == 0), "{policy}: {ages:?}");
            // The youngest is where new folios are not.
            let oldest = ages.last().unwrap().file;
            assert!(ages.len() >= 2 && oldest > 0, "{policy}: {ages:?}");
            let has_times = ages.iter().all(|age| age.born.is_some());
            assert_eq!(has_times, policy == Policy::MGLRU);
        }
    }

    #[test]
    fn an_event_of_a_group_that_is_gone_is_counted_nowhere() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let gone = engine.create_group(MemcgId::ROOT).unwrap();
        engine.remove_group(gone).unwrap();
        engine.count_oom(gone);
        let limits = engine.stat(MemcgId::ROOT).limits;
        assert_eq!((limits.high, limits.oom), (0, 0));
        assert!(!engine.is_within(gone, MemcgId::ROOT));
    }
}
