//! What an access does to a folio.
//!
//! There are two kinds of access. One *through the descriptor* counts: one, two to three, four,
//! five accesses are the tiers. One *through a mapping* sets a young bit, which is found later: by
//! the aging walk (`update_gen`, promotes to the youngest generation), or by the evictor's
//! reference check (`set_refs`, keeps or activates). Both take two sightings to promote. A hit of
//! the reference check also looks around: the neighbours in the same table are checked at once,
//! because finding one young entry makes others likely and one visit of a table is cheaper than
//! many.
//!
//! Source: `docs/kernel/reclaim.md` §1.2, 1.3, 2.6.

use super::Locked;
use super::generation::slot;
use crate::folio::{Flags, Folio};
use crate::limits::{ENTRIES_PER_LINE, LOOK_AROUND_MAX};
use crate::policy::{Lists, Switches};
use crate::units::{FolioId, TableKey};

/// What the evictor's reference check found, young bits cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct References {
    /// Young translations of the folio. Those of mappings without recency (opened for random or
    /// sequential access in the kernel's sense) do not count.
    pub young: u32,
    /// The folio is file memory mapped with permission to execute.
    pub exec: bool,
}

/// What a driver reports about a folio whose fate is being decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FolioState {
    /// Locked by another thread, for example because it is still being read: leave it alone.
    pub locked: bool,
    /// Some translation leads to it.
    pub mapped: bool,
}

/// What look-around examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The table that the hit is in.
    pub table: TableKey,
    /// Entries examined, empty ones included (at most
    /// [`LOOK_AROUND_MAX`](crate::limits::LOOK_AROUND_MAX)).
    pub entries: u64,
}

/// The driver's answers about translations. Called under the engine's lock: no I/O, no waiting.
pub trait Facts {
    /// The folio's state, for the shrinker.
    fn state(&mut self, id: FolioId, folio: &Folio) -> FolioState;

    /// These folios of one batch are about to be judged, so [`references`](Self::references) will
    /// be called for most of them. A driver that learns of accesses for less where it looks at
    /// many folios together looks here, and not again for each. It changes nothing else.
    fn gather<'a>(&mut self, _folios: impl Iterator<Item = &'a Folio>) {}

    /// Clears the young bits of the folio and returns how many there were.
    fn references(&mut self, id: FolioId, folio: &Folio) -> References;

    /// Examines the entries around the folio's translation: at most 64, within its table, centred
    /// where the table is longer. For each *young* entry other than the folio's own, calls
    /// `visit` with the frame it leads to (any frame of a folio) and clears the young bit if
    /// the answer is true. `None` if there is no window to look at.
    fn look_around(
        &mut self,
        id: FolioId,
        folio: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window>;

    /// Drops the translations of a dirty folio that reclaim met and does not write. A driver whose
    /// translations cost nothing to keep may do nothing.
    fn unmap_dirty(&mut self, _id: FolioId, _folio: &Folio) {}

    /// Reclaim has taken a mapped folio's slots in swap away, because swap is more than half full
    /// or the folio may not be evicted: their contents are void, and they may be given
    /// to another folio from now on. Never called without swap.
    fn slot_given_up(&mut self, _id: FolioId, _folio: &Folio) {}
}

impl Locked<'_> {
    /// Applies the accesses that readers counted since the engine last looked.
    #[inline]
    pub(crate) fn absorb(&mut self, id: FolioId) {
        let accesses = self.accesses.take(id);
        if accesses > 0 {
            self.apply(id, accesses);
        }
    }

    /// Apart from [`absorb`](Self::absorb), which mostly finds none and so is worth inlining.
    #[inline(never)]
    fn apply(&mut self, id: FolioId, accesses: u8) {
        if self.policy.lists() == Lists::Tide {
            self.folios[id].flags.insert(Flags::REFERENCED);
            return;
        }
        for _ in 0..accesses {
            self.folios[id].flags.mark_accessed();
        }
    }

    /// One access through the descriptor.
    ///
    /// Returns whether the folio is to enter the activation batch (classical lists, second access).
    pub(crate) fn mark_accessed(&mut self, id: FolioId) -> bool {
        match self.policy.lists() {
            Lists::Classical => return self.mark_accessed_classical(id),
            Lists::MultiGen => self.folios[id].flags.mark_accessed(),
            Lists::Tide => self.folios[id].flags.insert(Flags::REFERENCED),
        }
        false
    }

    /// A young bit found by the aging walk, or by look-around in a thread that walks.
    pub(super) fn update_gen(&mut self, id: FolioId, exec: bool) {
        self.absorb(id);
        let youngest = slot(self.lv.gens.max_seq);
        let flags = &mut self.folios[id].flags;
        let exec = exec && self.policy.has(Switches::EXEC);
        let first = !flags.intersects(Flags::REFERENCED | Flags::WORKINGSET) && !exec;
        let two_steps = self.policy.has(Switches::TWOSTEP);
        if first && (two_steps || flags.generation().is_none()) {
            flags.mark_accessed();
            return;
        }
        if flags.generation().is_some() {
            flags.clear_refs();
            flags.set(Flags::WORKINGSET, self.policy.has(Switches::STICKY));
            self.set_generation(id, Some(youngest));
        }
    }

    /// A young bit found by the evictor. Returns whether the folio is to be activated rather than
    /// kept.
    pub(crate) fn set_refs(&mut self, id: FolioId, exec: bool) -> bool {
        self.absorb(id);
        let flags = &mut self.folios[id].flags;
        if !flags.intersects(Flags::REFERENCED | Flags::WORKINGSET) {
            if exec && self.policy.has(Switches::EXEC) {
                flags.clear_refs();
                flags.insert(Flags::WORKINGSET);
                return true;
            }
            flags.mark_accessed();
            return false;
        }
        if self.policy.has(Switches::PROMOTION) && flags.refs() <= 1 {
            flags.mark_accessed();
        } else {
            flags.clear_refs();
            flags.insert(Flags::WORKINGSET);
        }
        true
    }

    /// Looks at the neighbours of a folio that the reference check found young.
    ///
    /// `walking`: this thread owns a walk context, so neighbours are promoted as by the aging walk.
    /// Otherwise they are treated as by the reference check, and those to activate are pushed
    /// to `activate`.
    pub(crate) fn look_around<F: Facts>(
        &mut self,
        id: FolioId,
        hit: References,
        walking: bool,
        facts: &mut F,
        activate: &mut Vec<FolioId>,
    ) {
        let folio = self.folios[id];
        let memcg = folio.memcg;
        let mut young = if self.policy.has(Switches::WINDOW) { u64::from(hit.young) } else { 1 };
        // What becomes of a neighbour takes branches that cannot be predicted. So the neighbours
        // wait here until the loads of all their records have begun, which then overlap.
        let mut waiting = [id; WAITING];
        let mut n = 0;
        let mut last = None;
        let window = facts.look_around(id, &folio, &mut |frame| {
            let Some(neighbour) = self.folios.of_frame(frame) else { return false };
            let f = &self.folios[neighbour];
            if f.memcg != memcg || f.flags.generation().is_none() {
                return false;
            }
            young += 1;
            // The entries of one folio are one sighting.
            if last.replace(neighbour) == Some(neighbour) {
                return true;
            }
            waiting[n] = neighbour;
            n += 1;
            if n == WAITING {
                self.neighbours(&folio, hit, walking, &waiting, activate);
                n = 0;
            }
            true
        });
        self.neighbours(&folio, hit, walking, &waiting[..n], activate);
        if let Some(window) = window
            && young * ENTRIES_PER_LINE >= window.entries
        {
            let seq = self.lv.gens.max_seq;
            self.lv.walk.remember(seq, window.table);
        }
    }
}

/// Neighbours that wait to be treated: as many as there are in a window.
const WAITING: usize = LOOK_AROUND_MAX as usize;

impl Locked<'_> {
    /// Treats young neighbours of a folio.
    fn neighbours(
        &mut self,
        folio: &Folio,
        hit: References,
        walking: bool,
        neighbours: &[FolioId],
        activate: &mut Vec<FolioId>,
    ) {
        self.accesses.look_at(neighbours.iter().copied());
        for &neighbour in neighbours {
            // Neighbours are in the same mapping, so what holds for the hit holds for those of its
            // type.
            let exec = hit.exec && self.folios[neighbour].lru_type() == folio.lru_type();
            if walking {
                self.update_gen(neighbour, exec);
            } else if self.set_refs(neighbour, exec)
                && self.folios[neighbour].flags.generation() != Some(slot(self.lv.gens.max_seq))
            {
                activate.push(neighbour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::{LruType, MemcgId};

    const F: FolioId = FolioId(0);

    /// What the sightings of a folio lead to: activation, and membership of the workingset.
    fn sightings(policy: Policy, exec: bool) -> Vec<(bool, bool)> {
        let mut engine = filled(policy, 1, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        (0..3)
            .map(|_| (lru.set_refs(F, exec), lru.folios[F].flags.contains(Flags::WORKINGSET)))
            .collect()
    }

    /// `docs/kernel/reclaim.md` §1.3b and §9, 45: in 7.1 the second sighting reaches the
    /// workingset, since 7.2 the third.
    #[test]
    fn the_evictor_promotes_at_the_second_sighting() {
        assert_eq!(
            sightings(Policy::MGLRU_7_1, false),
            [(false, false), (true, true), (true, true)]
        );
        assert_eq!(sightings(Policy::MGLRU, false), [(false, false), (true, false), (true, true)]);
    }

    #[test]
    fn executable_memory_is_promoted_at_first_sight_since_7_3() {
        assert_eq!(sightings(Policy::MGLRU_7_1, true)[0], (false, false));
        assert_eq!(sightings(Policy::MGLRU, true)[0], (true, true));
    }

    /// `docs/kernel/reclaim.md` §1.3a and §9, 7, 53: the walk moves a folio at the second sighting,
    /// to the youngest generation, and for good into the last tier.
    #[test]
    fn the_walk_promotes_in_two_steps() {
        for policy in [Policy::MGLRU_7_1, Policy::MGLRU] {
            let mut engine = filled(policy, 1, LruType::File);
            let mut lru = engine.locked(MemcgId::ROOT);
            let oldest = lru.folios[F].flags.generation();
            lru.update_gen(F, false);
            assert_eq!((lru.folios[F].flags.generation(), lru.folios[F].flags.refs()), (oldest, 1));
            lru.update_gen(F, false);
            let flags = lru.folios[F].flags;
            assert_eq!((flags.generation(), flags.refs(), flags.tier()), (Some(slot(3)), 0, 3));
        }
    }

    /// Appendix A: in 6.12 at the first, and without membership of the workingset, which a move
    /// even ended; an isolated folio was marked.
    #[test]
    fn the_walk_of_6_12_promotes_at_the_first_sighting() {
        let mut engine = filled(Policy::MGLRU_6_12, 1, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        lru.folios[F].flags.insert(Flags::WORKINGSET);
        lru.update_gen(F, false);
        let flags = lru.folios[F].flags;
        assert_eq!((flags.generation(), flags.refs(), flags.tier()), (Some(slot(3)), 0, 0));
        let mut isolated = Vec::new();
        for seq in 3..6 {
            assert_eq!(lru.inc_max_seq(seq, 0), Some(true));
        }
        lru.scan(LruType::File, 3, 64, true, &mut isolated);
        assert_eq!(isolated, [F]);
        lru.update_gen(F, false);
        assert_eq!((lru.folios[F].flags.generation(), lru.folios[F].flags.refs()), (None, 1));
    }
}
