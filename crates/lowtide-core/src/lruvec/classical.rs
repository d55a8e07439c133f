//! The classical lists: active and inactive, for each type.
//!
//! New folios enter at the head of the inactive list and leave at its tail, unless a second access
//! moves them to the active list. The active list gives folios back when the inactive one is low,
//! or when refaults show that the workingset changes.
//!
//! The sizes that reclaim sees are a *published* copy, up to two seconds old
//! (`docs/kernel/reclaim.md` §5.6). This matters: with exact counters nearly every invocation
//! would find "the workingset changes" and deactivate. The driver's timer calls
//! [`Engine::publish`](crate::Engine::publish); list lengths used as scan counts are exact.
//!
//! Source: `docs/kernel/reclaim.md` §5.1, 5.4, 5.6.

use super::{Locked, Published};
use crate::folio::{Flags, FolioTable, ListHead};
use crate::policy::Lists;
use crate::units::{FolioId, LruType};

/// The four lists of one lruvec, by type and activity.
#[derive(Debug)]
pub(crate) struct ClassicalLists {
    lists: [[ListHead; 2]; 2],
    size: [[u64; 2]; 2],
    /// Published workingset activations at the end of the last invocation.
    pub(super) activations_seen: [u64; 2],
}

impl ClassicalLists {
    pub(super) fn new(folios: &mut FolioTable) -> Self {
        Self {
            lists: std::array::from_fn(|_| std::array::from_fn(|_| folios.new_list())),
            size: Default::default(),
            activations_seen: [0; 2],
        }
    }

    pub(super) fn inactive_active(&self, t: LruType) -> (u64, u64) {
        (self.size[t as usize][0], self.size[t as usize][1])
    }

    pub(crate) fn list(&self, t: LruType, active: bool) -> ListHead {
        self.lists[t as usize][usize::from(active)]
    }

    pub(crate) fn size(&self, t: LruType, active: bool) -> u64 {
        self.size[t as usize][usize::from(active)]
    }
}

/// Whether no further access through the descriptor changes anything.
const fn is_settled(flags: Flags) -> bool {
    flags.contains(Flags::ACTIVE.union(Flags::REFERENCED))
}

impl Locked<'_> {
    /// Puts a folio on the list that its flags name: at the head, or at the tail of the inactive
    /// list.
    pub(crate) fn add_to_classical(&mut self, id: FolioId, tail: bool) {
        let f = &mut self.folios[id];
        if tail {
            f.flags.remove(Flags::ACTIVE);
        }
        f.flags.insert(Flags::LRU);
        let (active, t, pages) = (f.flags.contains(Flags::ACTIVE), f.lru_type(), f.pages());
        self.accesses.settle(id, is_settled(f.flags));
        self.lv.classical.size[t as usize][usize::from(active)] += pages;
        let list = self.lv.classical.list(t, active);
        if tail {
            self.folios.push_old(list, id);
        } else {
            self.folios.push_young(list, id);
        }
    }

    /// Counts a folio's pages out of the list that its flags name.
    #[inline]
    pub(super) fn leave_classical(&mut self, id: FolioId) {
        let f = &self.folios[id];
        let active = usize::from(f.flags.contains(Flags::ACTIVE));
        self.lv.classical.size[f.lru_type() as usize][active] -= f.pages();
    }

    fn settle_accesses(&mut self, id: FolioId) {
        self.accesses.settle(id, is_settled(self.folios[id].flags));
    }

    /// One access through the descriptor (`docs/kernel/reclaim.md` §1.2). Returns whether to enter
    /// the activation batch.
    pub(super) fn mark_accessed_classical(&mut self, id: FolioId) -> bool {
        let pages = self.folios[id].pages();
        let flags = &mut self.folios[id].flags;
        if flags.contains(Flags::MLOCKED) {
            return false;
        }
        if !flags.contains(Flags::REFERENCED) {
            flags.insert(Flags::REFERENCED);
            self.settle_accesses(id);
            return false;
        }
        if flags.contains(Flags::ACTIVE) {
            self.settle_accesses(id);
            return false;
        }
        // The age moves and the mark goes at once; the move to the active list waits for the batch.
        flags.remove(Flags::REFERENCED);
        let waits = flags.contains(Flags::ADD_BATCH);
        if waits {
            flags.insert(Flags::ACTIVE);
        }
        self.levels.age(self.slot, pages);
        !waits && self.folios[id].flags.contains(Flags::LRU)
    }

    /// An isolated folio goes back to the head of its list. One put back active moves the
    /// nonresident age (`docs/kernel/reclaim.md` §5.4).
    pub(crate) fn put_back_classical(&mut self, id: FolioId) {
        let (flags, pages) = (self.folios[id].flags, self.folios[id].pages());
        self.lv.isolated -= pages;
        if flags.contains(Flags::ACTIVE) && !flags.contains(Flags::MLOCKED) {
            self.levels.age(self.slot, pages);
        }
        self.add(id, false);
    }

    /// Takes folios of up to `pages` pages (the last may exceed that) from the tail of a list;
    /// appends them to `out`, oldest first. Returns their pages.
    pub(crate) fn isolate_classical(
        &mut self,
        t: LruType,
        active: bool,
        pages: u64,
        out: &mut Vec<FolioId>,
    ) -> u64 {
        let list = self.lv.classical.list(t, active);
        let mut taken = 0;
        self.folios.fetch_oldest(list, pages as usize, |_| 0);
        while taken < pages {
            let Some(id) = self.folios.oldest(list) else { break };
            self.take_off_list(id);
            taken += self.folios[id].pages();
            out.push(id);
        }
        self.lv.isolated += taken;
        taken
    }

    /// Whether the inactive list of a type should grow (`docs/kernel/reclaim.md` §5.1), by
    /// published sizes.
    pub(crate) fn inactive_is_low(&self, t: LruType, page_bytes: u64) -> bool {
        let p = self.levels.published(self.slot);
        let gib = ((p.inactive(t) + p.active(t)) * page_bytes) >> 30;
        let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
        p.inactive(t) * ratio < p.active(t)
    }

    /// Whether published refaults say that the workingset of a type changed since the last
    /// invocation.
    pub(crate) fn workingset_changes(&self, t: LruType) -> bool {
        self.levels.published(self.slot).activations[t as usize]
            != self.lv.classical.activations_seen[t as usize]
    }

    /// Closes an invocation: the published activations have now been acted upon.
    pub(crate) fn snapshot_activations(&mut self) {
        self.lv.classical.activations_seen = self.levels.published(self.slot).activations;
    }

    /// The exact counts of this group alone, of the kind that classical reclaim reads.
    pub(crate) fn to_publish(&self) -> Published {
        Published {
            size: match self.policy.lists() {
                Lists::MultiGen => [[0; 2]; 2],
                lists => LruType::ALL.map(|t| self.lv.sizes(lists, t).into()),
            },
            activations: LruType::ALL.map(|t| self.events.activations(t)),
            rotated: self.lv.cost.rotated,
            io: self.lv.cost.io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::MemcgId;

    /// `docs/kernel/reclaim.md` §9, 38: strict, by published sizes, with the integer root of ten
    /// times the gibibytes.
    #[test]
    fn the_inactive_list_is_low_by_a_ratio_that_grows_with_memory() {
        const MIB: u64 = 1 << 20;
        let mut engine = filled(Policy::LRU, 0, LruType::File);
        let lru = engine.locked(MemcgId::ROOT);
        let mut low = |inactive: u64, active: u64, page_bytes| {
            lru.levels.published_mut(lru.slot).size[LruType::File as usize] = [inactive, active];
            lru.inactive_is_low(LruType::File, page_bytes)
        };
        assert!(!low(100, 100, 4096) && low(100, 101, 4096), "below a gibibyte the ratio is 1");
        assert!(!low(300, 900, MIB) && low(300, 901, MIB), "at 1 GiB it is 3");
        assert!(!low(1000, 10_000, MIB) && low(1000, 10_001, MIB), "at 10 GiB it is 10");
    }

    #[test]
    fn the_workingset_changes_once_for_each_publication_that_brought_refaults() {
        let mut engine = filled(Policy::LRU, 0, LruType::File);
        let lru = engine.locked(MemcgId::ROOT);
        *lru.events.activate(LruType::File) += 5;
        assert!(!lru.workingset_changes(LruType::File), "nothing is published yet");
        engine.publish();
        let mut lru = engine.locked(MemcgId::ROOT);
        assert!(lru.workingset_changes(LruType::File));
        *lru.events.activate(LruType::File) += 5;
        lru.snapshot_activations();
        assert!(
            !lru.workingset_changes(LruType::File),
            "one invocation acted upon what was published"
        );
    }
}
