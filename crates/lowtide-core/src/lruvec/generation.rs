//! Generations: where folios enter, and how the window of generations slides.
//!
//! ```text
//!   min_seq                                   max_seq
//!     |  oldest   ...            ...   youngest |
//!     v                                         v
//!   [slot s%4] [slot (s+1)%4] [..] [slot (s+3)%4]      at least 2, at most 4 generations a type
//!     ^ scans take from here      ^^^^^^^^^^^^^ the two youngest are never evicted
//! ```
//!
//! Aging opens generation `max_seq + 1`, eviction empties generation `min_seq`; only this window
//! couples the two. `max_seq` is common to both types, `min_seq` is per type. A generation is a
//! list and a size. The *size* follows the folio's generation field at once, the *list* only when
//! the evictor or a forced advance meets the folio, so for promoted folios list and field may
//! disagree. When they disagree, the field is authoritative.
//!
//! Under one lock, sizes are exact at all times (the kernel's may lag and go negative).
//!
//! A type that may not be evicted is *pinned*: when it fills the ring, its oldest list becomes its
//! youngest as it is, promoted folios included. Once the type may be evicted again, a generation
//! may therefore be retired, its list being empty, although folios on younger lists still name it.
//! Such *strays* count as inactive; the evictor or a new generation in that slot, whichever comes
//! first, takes them in. Source: `docs/kernel/reclaim.md` §2.1, 2.3, 2.4, 2.5, 2.7.

use super::Locked;
use crate::folio::{Flags, FolioTable, ListHead};
use crate::limits::{GENS, MAX_LRU_BATCH, MAX_NR_GENS, MIN_NR_GENS};
use crate::policy::Switches;
use crate::units::{FolioId, LruType};

/// Ring slot of a generation.
#[inline]
pub(crate) const fn slot(seq: u64) -> usize {
    (seq % MAX_NR_GENS) as usize
}

/// The ring of generations of one lruvec.
#[derive(Debug)]
pub(crate) struct Generations {
    pub(crate) max_seq: u64,
    pub(crate) min_seq: [u64; 2],
    /// Driver time at which each slot was opened.
    pub(crate) born: [u64; GENS],
    pub(crate) lists: [[ListHead; 2]; GENS],
    pub(crate) nr_pages: [[u64; 2]; GENS],
    /// The type has filled the ring while it was pinned: it may have strays.
    pub(crate) wrapped: [bool; 2],
}

impl Generations {
    pub(crate) fn new(folios: &mut FolioTable) -> Self {
        Self {
            max_seq: MAX_NR_GENS - 1,
            min_seq: [0; 2],
            born: [0; GENS],
            lists: std::array::from_fn(|_| std::array::from_fn(|_| folios.new_list())),
            nr_pages: [[0; 2]; GENS],
            wrapped: [false; 2],
        }
    }

    /// Generations that a type has: 2..=4.
    #[inline]
    pub(crate) const fn count(&self, t: LruType) -> u64 {
        self.max_seq - self.min_seq[t as usize] + 1
    }

    /// Ring slots of a type's generations, oldest first.
    pub(crate) fn window(&self, t: LruType) -> impl Iterator<Item = usize> + use<> {
        (self.min_seq[t as usize]..=self.max_seq).map(slot)
    }

    /// Whether a folio that names a ring slot is a stray.
    #[inline]
    pub(crate) fn is_stray(&self, t: LruType, named: usize) -> bool {
        self.wrapped[t as usize] && !self.window(t).any(|slot| slot == named)
    }

    /// Pages of a type in all of its generations, the protected young ones and strays included.
    pub(crate) fn pages(&self, t: LruType) -> u64 {
        self.nr_pages.iter().map(|of| of[t as usize]).sum()
    }

    /// Whether a slot is that of one of the two youngest generations.
    pub(super) fn is_young(&self, at: usize) -> bool {
        at == slot(self.max_seq) || at == slot(self.max_seq - 1)
    }

    pub(super) fn inactive_active(&self, t: LruType) -> (u64, u64) {
        let young = self.max_seq - 1;
        let size = |seq| self.nr_pages[slot(seq)][t as usize];
        let active = size(young) + size(self.max_seq);
        (self.pages(t) - active, active)
    }

    fn recount(&mut self, t: LruType, pages: u64, from: Option<usize>, to: Option<usize>) {
        if let Some(slot) = from {
            self.nr_pages[slot][t as usize] -= pages;
        }
        if let Some(slot) = to {
            self.nr_pages[slot][t as usize] += pages;
        }
    }
}

/// Swap-backed memory that was never in swap.
fn new_anon(flags: Flags) -> bool {
    flags.contains(Flags::ANON) && !flags.intersects(Flags::SWAPCACHE | Flags::LAZYFREE)
}

/// Reclaim has met the folio, which waits to be written, or for the end of that.
pub(crate) fn waits_for_write(flags: Flags) -> bool {
    flags.contains(Flags::RECLAIM) && flags.intersects(Flags::DIRTY | Flags::WRITEBACK)
}

impl Locked<'_> {
    /// Sets the generation field of a folio and moves its pages between the sizes. Links stay.
    #[inline]
    pub(super) fn set_generation(&mut self, id: FolioId, to: Option<usize>) {
        let f = &mut self.folios[id];
        let (t, pages, from) = (f.lru_type(), f.pages(), f.flags.generation());
        f.flags.set_generation(to);
        self.lv.gens.recount(t, pages, from, to);
    }

    /// The placement rule (`docs/kernel/reclaim.md` §2.3): how many generations from the young end,
    /// 1 the youngest.
    fn depth(&self, t: LruType, flags: Flags, tail: bool) -> u64 {
        let workingset = u64::from(flags.contains(Flags::WORKINGSET));
        if !self.policy.has(Switches::ENTRY) {
            return self.depth_in_6_12(t, flags, tail);
        }
        if flags.contains(Flags::ACTIVE) {
            2 - workingset
        } else if tail {
            4
        } else if new_anon(flags) || waits_for_write(flags) {
            2
        } else if self.policy.has(Switches::PLACEMENT) {
            4 - u64::from(flags.intersects(Flags::WORKINGSET | Flags::REFERENCED))
        } else {
            4 - workingset
        }
    }

    /// The rule of Linux 6.12: by what a folio is at the young end, by age at the other.
    fn depth_in_6_12(&self, t: LruType, flags: Flags, tail: bool) -> u64 {
        if flags.contains(Flags::ACTIVE) {
            1
        } else if new_anon(flags) || waits_for_write(flags) {
            2
        } else if tail || self.lv.gens.count(t) < MAX_NR_GENS {
            4
        } else {
            3
        }
    }

    /// The generation that a folio would be placed in now.
    pub(crate) fn placement(&self, id: FolioId, tail: bool) -> u64 {
        let f = &self.folios[id];
        let gens = &self.lv.gens;
        (gens.max_seq + 1)
            .saturating_sub(self.depth(f.lru_type(), f.flags, tail))
            .max(gens.min_seq[f.lru_type() as usize])
    }

    /// Puts an isolated or new folio into its generation; consumes *active*.
    pub(crate) fn add_to_generation(&mut self, id: FolioId, tail: bool) {
        self.absorb(id);
        let seq = self.placement(id, tail);
        let t = self.folios[id].lru_type();
        self.folios[id].flags.remove(Flags::ACTIVE);
        self.folios[id].flags.insert(Flags::LRU);
        self.set_generation(id, Some(slot(seq)));
        let list = self.lv.gens.lists[slot(seq)][t as usize];
        if tail {
            self.folios.push_old(list, id);
        } else {
            self.folios.push_young(list, id);
        }
    }

    /// Takes a folio in that comes from the list of another lruvec, where it was `depth`
    /// generations from the young end (0: in the youngest).
    pub(crate) fn adopt(&mut self, id: FolioId, depth: u64) {
        let t = self.folios[id].lru_type();
        let gens = &self.lv.gens;
        let seq = gens.max_seq.saturating_sub(depth).max(gens.min_seq[t as usize]);
        self.folios[id].flags.insert(Flags::LRU);
        self.set_generation(id, Some(slot(seq)));
        let list = self.lv.gens.lists[slot(seq)][t as usize];
        self.folios.push_young(list, id);
    }

    /// Step before a new folio enters the add batch (`docs/kernel/reclaim.md` §2.3,
    /// "pre-insertion").
    pub(crate) fn before_insertion(&mut self, id: FolioId, in_lru_fault: bool) {
        if !in_lru_fault {
            return;
        }
        let flags = &mut self.folios[id].flags;
        if !self.policy.has(Switches::PLACEMENT) || flags.contains(Flags::WORKINGSET) {
            flags.insert(Flags::ACTIVE);
        } else if !flags.contains(Flags::REFERENCED) {
            flags.mark_accessed();
        }
    }

    /// Moves a folio of the oldest generation one up, forgetting its accesses; one that was
    /// promoted earlier keeps its generation. Returns the ring slot it is in. Links stay.
    pub(super) fn inc_gen(&mut self, id: FolioId, t: LruType) -> usize {
        let min = self.lv.gens.min_seq[t as usize];
        let now = self.folios[id].flags.generation().expect("a folio on a list has a generation");
        if now != slot(min) {
            return now;
        }
        self.folios[id].flags.clear_refs();
        if !self.policy.has(Switches::STICKY) {
            self.folios[id].flags.remove(Flags::WORKINGSET);
        }
        self.set_generation(id, Some(slot(min + 1)));
        slot(min + 1)
    }

    /// Retires empty oldest generations ("voluntary flush", `docs/kernel/reclaim.md` §2.7). Returns
    /// whether any was.
    pub(crate) fn retire_empty(&mut self) -> bool {
        let types = self.evictable_types();
        let max = self.lv.gens.max_seq;
        let mut candidate = self.lv.gens.min_seq;
        for &t in types {
            let c = &mut candidate[t as usize];
            while *c + MIN_NR_GENS <= max
                && self.folios.is_empty(self.lv.gens.lists[slot(*c)][t as usize])
            {
                *c += 1;
            }
        }
        if candidate == self.lv.gens.min_seq {
            return false;
        }
        if types.len() == 2 {
            // Keep the types within one generation of each other.
            let bound = max.saturating_sub(MIN_NR_GENS);
            for t in LruType::ALL {
                if candidate[t as usize] > bound && candidate[t.other() as usize] < bound {
                    candidate[t as usize] = bound;
                }
            }
        }
        let mut any = false;
        for &t in types {
            if candidate[t as usize] > self.lv.gens.min_seq[t as usize] {
                self.lv.tiers[t as usize].carry_over();
                for seq in self.lv.gens.min_seq[t as usize] + 1..=candidate[t as usize] {
                    self.lv.clock.oldest_is(t, seq);
                }
                self.lv.gens.min_seq[t as usize] = candidate[t as usize];
                any = true;
            }
        }
        any
    }

    /// Frees a slot of the ring for a type that fills it, at most [`MAX_LRU_BATCH`] folios at a
    /// time. Returns whether it is done.
    fn advance_min_seq(&mut self, t: LruType) -> bool {
        let min = self.lv.gens.min_seq[t as usize];
        if self.evictable_types().contains(&t) {
            let list = self.lv.gens.lists[slot(min)][t as usize];
            let mut quota = MAX_LRU_BATCH;
            while let Some(id) = self.folios.oldest(list) {
                if quota == 0 {
                    return false;
                }
                quota -= 1;
                self.absorb(id);
                let (flags, pages) = (self.folios[id].flags, self.folios[id].pages());
                // Folios that were promoted since are met here too; they stay where they are and
                // count as tier 3.
                let to = self.inc_gen(id, t);
                if !flags.saturated() {
                    self.lv.tiers[t as usize].protect(flags.tier(), pages);
                    self.events.protected += pages;
                }
                self.folios.unlink(id);
                self.folios.push_old(self.lv.gens.lists[to][t as usize], id);
            }
        } else {
            // A type that may not be evicted is not moved: its oldest folios now alias the youngest
            // slot.
            self.lv.gens.wrapped[t as usize] = true;
        }
        self.lv.tiers[t as usize].carry_over();
        self.lv.gens.min_seq[t as usize] += 1;
        self.lv.clock.oldest_is(t, self.lv.gens.min_seq[t as usize]);
        true
    }

    /// Opens generation `seq + 1`. `None`: the quota of one lock hold is used up, call again.
    pub(super) fn inc_max_seq(&mut self, seq: u64, now: u64) -> Option<bool> {
        if self.lv.gens.max_seq != seq {
            return Some(false);
        }
        for t in LruType::ALL {
            if self.lv.gens.count(t) == MAX_NR_GENS && !self.advance_min_seq(t) {
                return None;
            }
        }
        let gens = &mut self.lv.gens;
        gens.max_seq += 1;
        gens.born[slot(gens.max_seq)] = now;
        self.events.aging += 1;
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::MemcgId;

    /// I11: the oldest generation of 5000 folios moves up in two acquisitions of the lock.
    #[test]
    fn a_forced_advance_moves_at_most_4096_folios_at_a_time() {
        let mut engine = filled(Policy::MGLRU_7_1, 5000, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        assert_eq!(lru.inc_max_seq(3, 7), None);
        assert_eq!(lru.lv.gens.nr_pages[slot(1)][LruType::File as usize], 4096);
        assert_eq!(lru.inc_max_seq(3, 7), Some(true));
        assert_eq!((lru.lv.gens.max_seq, lru.lv.gens.min_seq), (4, [1, 1]));
        assert_eq!(lru.lv.gens.born[slot(4)], 7);
        assert_eq!(lru.inc_max_seq(3, 8), Some(false), "the generation after 3 is open already");
        assert_eq!(lru.events.protected, 5000, "what a forced advance moves counts as protected");
    }

    /// Without swap, anonymous folios are not moved: their oldest generation now shares its slot
    /// with the youngest.
    #[test]
    fn a_pinned_type_moves_nothing_and_aliases_the_youngest_slot() {
        let mut engine = filled(Policy::MGLRU_7_1, 62, LruType::Anon);
        let mut lru = engine.locked(MemcgId::ROOT);
        let before = lru.lv.gens.nr_pages;
        for seq in 3..7 {
            assert_eq!(lru.inc_max_seq(seq, 0), Some(true));
        }
        assert_eq!(lru.lv.gens.nr_pages, before);
        assert_eq!(lru.lv.gens.count(LruType::Anon), MAX_NR_GENS);
        engine.validate().unwrap();
    }

    /// A folio that was promoted before its type was pinned, and whose generation was retired
    /// after, is found all the same.
    #[test]
    fn a_stray_is_counted_and_scanned() {
        let anon = LruType::Anon as usize;
        let mut engine = filled(Policy::MGLRU_7_1, 3, LruType::Anon);
        let mut lru = engine.locked(MemcgId::ROOT);
        assert!([3, 4].iter().all(|&seq| lru.inc_max_seq(seq, 0) == Some(true)));
        lru.update_gen(FolioId(0), false);
        lru.update_gen(FolioId(0), false);
        assert_eq!(lru.folios[FolioId(0)].flags.generation(), Some(slot(5)));
        assert!([5, 6].iter().all(|&seq| lru.inc_max_seq(seq, 0) == Some(true)));
        // There is swap from now on. Generation 5 has an empty list: its only folio is on that of
        // the other two.
        lru.swap.free_pages = 1000;
        assert!(lru.retire_empty());
        assert_eq!((lru.lv.gens.max_seq, lru.lv.gens.min_seq[anon]), (7, 6));
        assert!(lru.lv.gens.is_stray(LruType::Anon, slot(5)));
        assert_eq!(lru.lv.gens.inactive_active(LruType::Anon), (1, 2));
        assert_eq!(lru.evictable_size(), 3);
        assert_eq!(lru.inc_max_seq(7, 0), Some(true));
        let mut isolated = Vec::new();
        assert_eq!(lru.scan(LruType::Anon, 3, 64, true, &mut isolated).isolated, 3);
        assert_eq!(lru.lv.gens.pages(LruType::Anon), 0);
    }

    /// Forced moves go to the tail of the next generation, and keep their order there.
    #[test]
    fn forced_moves_go_to_the_tail_and_sorted_ones_to_the_head() {
        let mut engine = filled(Policy::MGLRU_7_1, 3, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        let middle = lru.lv.gens.lists[slot(1)][LruType::File as usize];
        // Folio 2 reaches the middle generation by being sorted there, the others by force.
        lru.folios[FolioId(2)].flags.insert(Flags::WORKINGSET);
        let to = lru.inc_gen(FolioId(2), LruType::File);
        lru.folios.unlink(FolioId(2));
        lru.folios.push_young(lru.lv.gens.lists[to][LruType::File as usize], FolioId(2));
        assert_eq!(lru.inc_max_seq(3, 0), Some(true));
        assert_eq!(lru.folios.walk(middle), [1, 0, 2].map(FolioId), "from the tail on");
    }

    #[test]
    fn empty_generations_are_retired_but_two_always_remain() {
        let mut engine = filled(Policy::MGLRU, 0, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        assert!(lru.retire_empty());
        assert_eq!((lru.lv.gens.count(LruType::File), lru.lv.gens.min_seq), (2, [0, 2]));
        assert!(!lru.retire_empty(), "nothing left to retire");
    }

    /// With swap both types may be evicted, and neither runs ahead of the other by more than a
    /// generation.
    #[test]
    fn retiring_keeps_the_types_within_one_generation() {
        let mut engine = filled(Policy::MGLRU, 31, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        lru.swap.free_pages = 1000;
        assert!(
            lru.retire_empty(),
            "anonymous memory is empty, file memory is all in the oldest generation"
        );
        assert_eq!(lru.lv.gens.min_seq, [1, 0]);
    }

    /// Appendix A: the table of 6.12, by how far from the young end.
    #[test]
    fn placement_in_6_12() {
        let mut engine = filled(Policy::MGLRU_6_12, 1, LruType::File);
        let lru = engine.locked(MemcgId::ROOT);
        let dirty = Flags::RECLAIM | Flags::DIRTY;
        for (flags, tail, four, three) in [
            (Flags::ACTIVE, false, 1, 1),
            (Flags::ANON, false, 2, 2),
            (dirty, false, 2, 2),
            (Flags::WORKINGSET, false, 3, 4),
            (Flags::empty(), true, 4, 4),
        ] {
            assert_eq!(lru.depth(LruType::File, flags, tail), four, "{flags:?}");
            lru.lv.gens.min_seq[LruType::File as usize] = 1;
            assert_eq!(lru.depth(LruType::File, flags, tail), three, "{flags:?}");
            lru.lv.gens.min_seq[LruType::File as usize] = 0;
        }
    }
}
