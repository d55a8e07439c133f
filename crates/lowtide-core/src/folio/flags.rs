//! The flag word of a folio, and what is derived from it (`docs/kernel/reclaim.md` §1.1).
//!
//! ```text
//! 31..24 23 22 21   20   19   18   17 16  15..13
//! |used |queue|swp|rot |lazy|cull| refs | gen+1 |
//!                 batch
//! 12  11  10   9    8   7   6   5   4   3   2   1   0
//! |act|add|swc|anon|ml |rcl|wb |dty|ws |ref|act|lru|head|
//! batch
//! ```
//!
//! * *gen* holds the ring slot of the folio's generation plus one; 0 means that it is on no
//!   generation list. Slot = sequence number mod 4.
//! * *refs* holds the accesses through a descriptor beyond the first, and means nothing while
//!   *referenced* is clear.
//! * *active* is an instruction on an isolated folio ("put me among the young"); insertion consumes
//!   it, so it is never set on a generation list. On the classical lists it names the list.
//! * *queue* and *used* are `tide`'s (`lruvec/tide.rs`): the queue that the folio is on or was
//!   isolated from, and the upper half of the time of its last known use; *refs* is its count.
//! * *workingset* is the last tier: accessed five times, promoted through mappings, or refaulted
//!   from such a state. It is sticky until eviction.

use crate::limits::{GENS, MAX_NR_TIERS};

bitflags::bitflags! {
    /// The state of one folio.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags: u32 {
        /// First frame of a folio that exists (charged, and owned by a page of a space).
        const HEAD       = 1 << 0;
        /// On some LRU list. Clearing it is the act of isolation.
        const LRU        = 1 << 1;
        /// To be placed among the young (multi-gen), or on the active list (classical).
        const ACTIVE     = 1 << 2;
        /// Accessed once; gate for the refs field.
        const REFERENCED = 1 << 3;
        /// Part of the workingset: the last tier.
        const WORKINGSET = 1 << 4;
        /// Newer than its backing store.
        const DIRTY      = 1 << 5;
        /// Being written to its backing store.
        const WRITEBACK  = 1 << 6;
        /// Reclaim met it dirty or under writeback: to the eviction end as soon as the write ends.
        const RECLAIM    = 1 << 7;
        /// May not be evicted. It leaves its list when a scan or a put-back meets it.
        const MLOCKED    = 1 << 8;
        /// Anonymous memory.
        const ANON       = 1 << 9;
        /// In the swap cache: has a slot in swap for each of its pages.
        const SWAPCACHE  = 1 << 10;
        /// Waits in a per-CPU add batch; on no list yet.
        const ADD_BATCH  = 1 << 11;
        /// Waits in a per-CPU activation batch (still on its list).
        const ACT_BATCH  = 1 << 12;
        /// Unevictable and taken off the lists for it.
        const CULLED     = 1 << 18;
        /// Anonymous memory that its program has freed lazily (`swap.rs`).
        const LAZYFREE   = 1 << 19;
        /// Waits in a per-CPU rotation batch (still on its list).
        const ROT_BATCH  = 1 << 20;
        /// Nowhere but in the swap cache: no translation leads to it.
        const SWAPPED    = 1 << 21;
        /// A frame of a large folio other than its first: without HEAD, and with no other flag.
        const TAIL       = Self::LRU.bits();
        /// Waits in some batch.
        const BATCHED    = Self::ADD_BATCH.bits() | Self::ACT_BATCH.bits() | Self::ROT_BATCH.bits();
    }
}

const GEN_SHIFT: u32 = 13;
const GEN_MASK: u32 = 0b111 << GEN_SHIFT;
const REFS_SHIFT: u32 = 16;
const REFS_MASK: u32 = 0b11 << REFS_SHIFT;
const QUEUE_SHIFT: u32 = 22;
const QUEUE_MASK: u32 = 0b11 << QUEUE_SHIFT;
const USED_SHIFT: u32 = 24;
const USED_MASK: u32 = 0xff << USED_SHIFT;

const _: () = assert!(GENS < 1 << 3, "a generation slot plus one fits its field");

/// The tier of a folio that was accessed `refs` times (0..=4) and is not in the workingset:
/// `ceil(log2(refs))`, with 0 and 1 both giving tier 0.
#[inline]
#[must_use]
pub(crate) const fn tier_of_refs(refs: u8) -> usize {
    match refs {
        0 | 1 => 0,
        2 => 1,
        _ => 2,
    }
}

impl Flags {
    /// Ring slot of the folio's generation, or `None` while it is on no generation list.
    #[inline]
    #[must_use]
    pub const fn generation(self) -> Option<usize> {
        match (self.bits() & GEN_MASK) >> GEN_SHIFT {
            0 => None,
            n => Some(n as usize - 1),
        }
    }

    #[inline]
    pub(crate) const fn set_generation(&mut self, slot: Option<usize>) {
        let field = match slot {
            None => 0,
            Some(slot) => slot as u32 + 1,
        };
        *self = Self::from_bits_retain(self.bits() & !GEN_MASK | field << GEN_SHIFT);
    }

    #[inline]
    pub(crate) const fn refs_field(self) -> u32 {
        (self.bits() & REFS_MASK) >> REFS_SHIFT
    }

    #[inline]
    pub(crate) const fn set_refs_field(&mut self, refs: u32) {
        *self = Self::from_bits_retain(self.bits() & !REFS_MASK | refs << REFS_SHIFT);
    }

    #[inline]
    pub(crate) const fn queue_field(self) -> u32 {
        (self.bits() & QUEUE_MASK) >> QUEUE_SHIFT
    }

    #[inline]
    pub(crate) const fn set_queue_field(&mut self, queue: u32) {
        *self = Self::from_bits_retain(self.bits() & !QUEUE_MASK | queue << QUEUE_SHIFT);
    }

    #[inline]
    pub(super) const fn used_field(self) -> u8 {
        (self.bits() >> USED_SHIFT) as u8
    }

    #[inline]
    pub(super) const fn set_used_field(&mut self, used: u8) {
        *self = Self::from_bits_retain(self.bits() & !USED_MASK | (used as u32) << USED_SHIFT);
    }

    /// Accesses through the descriptor that are remembered: 0..=4.
    #[inline]
    #[must_use]
    pub const fn refs(self) -> u8 {
        if self.contains(Self::REFERENCED) { self.refs_field() as u8 + 1 } else { 0 }
    }

    /// Tier 0..=3; 3 exactly for the workingset.
    #[inline]
    #[must_use]
    pub const fn tier(self) -> usize {
        if self.contains(Self::WORKINGSET) { MAX_NR_TIERS - 1 } else { tier_of_refs(self.refs()) }
    }

    /// Nothing more to count: the evictor moves such a folio one generation up.
    #[inline]
    #[must_use]
    pub const fn saturated(self) -> bool {
        self.refs() == 4 && self.contains(Self::WORKINGSET)
    }

    /// Forgets the counted accesses, but not the workingset.
    #[inline]
    pub(crate) fn clear_refs(&mut self) {
        self.remove(Self::REFERENCED);
        self.set_refs_field(0);
    }

    /// One access through the descriptor, multi-gen rules (`docs/kernel/reclaim.md` §1.2).
    #[inline]
    pub(crate) fn mark_accessed(&mut self) {
        if self.contains(Self::MLOCKED) {
            return;
        }
        if !self.contains(Self::REFERENCED) {
            self.set_refs_field(0);
            self.insert(Self::REFERENCED);
        } else if self.refs_field() < 3 {
            self.set_refs_field(self.refs_field() + 1);
        } else {
            self.insert(Self::WORKINGSET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `docs/kernel/reclaim.md` §1.2.
    #[test]
    fn accesses_climb_the_tiers_and_stop_at_the_fifth() {
        let mut f = Flags::HEAD;
        let seen: Vec<_> = (0..6)
            .map(|_| {
                f.mark_accessed();
                (f.refs(), f.tier())
            })
            .collect();
        assert_eq!(seen, [(1, 0), (2, 1), (3, 2), (4, 2), (4, 3), (4, 3)]);
        assert!(f.saturated());
        f.clear_refs();
        assert_eq!((f.refs(), f.tier()), (0, 3), "the workingset is sticky");
    }

    #[test]
    fn the_refs_field_means_nothing_while_referenced_is_clear() {
        let mut f = Flags::HEAD;
        f.set_refs_field(2);
        assert_eq!(f.refs(), 0);
        f.mark_accessed();
        assert_eq!(f.refs(), 1, "the first access starts from zero");
    }

    #[test]
    fn each_field_is_apart_from_all_others() {
        let mut f = Flags::all();
        f.set_refs_field(3);
        f.set_queue_field(2);
        f.set_used_field(0xa5);
        f.set_generation(Some(3));
        assert_eq!((f.generation(), f.refs_field()), (Some(3), 3));
        f.set_generation(None);
        assert_eq!((f.generation(), f.refs_field()), (None, 3));
        f.set_used_field(0x5a);
        f.set_queue_field(1);
        assert_eq!((f.queue_field(), f.used_field(), f.refs_field()), (1, 0x5a, 3));
        assert!(f.contains(Flags::all()));
    }
}
