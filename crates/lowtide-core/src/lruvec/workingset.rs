//! Workingset detection: what is remembered of an evicted page, and what its return means.
//!
//! When a page is evicted, a *shadow* takes the place that its translation had: 30 bits with the
//! time of the eviction and the page's state. When the page comes back, the shadow shows whether it
//! was gone for so short a time that it would have been a hit in a slightly bigger memory (a
//! *recent* refault), and so whether it deserves a place among the active.
//!
//! The clock differs. Classical lists count evictions and activations ("nonresident age"): the
//! difference between two readings is the refault distance, a lower bound of the page's reuse
//! distance; if it is no more than the size of the lists that the page would have to compete with,
//! the refault is recent. The multi-gen LRU uses the oldest generation's number: recent means
//! evicted at most three generations ago.
//!
//! ```text
//!   29 28        19 18                                        1 0
//!  | 1 | memcg (10) | multi-gen: min_seq (16), refs-1 (2)      |ws|
//!  |   |            | classical: age in steps (18)             |  |
//!  |   |            | tide: time (11), evictions (7)           |m |
//! ```
//!
//! A shadow has the low ten bits of the place of a group: the group that had the page, or with
//! the classical lists the target of the reclaim, which is an ancestor. Among more than 1024 groups
//! two may look alike; then a page that came back to another group than it left is taken for a
//! refault.
//!
//! A shadow lives in the driver's translation entry, in place of the frame number; it costs no
//! memory of its own and is never reclaimed (the kernel's shadow shrinker, §6.3, has nothing to do
//! here). The price is a short clock. Of its 18 bits the classical age spends 5 on range and 13 on
//! precision: it counts in steps of 1/8192 of the memory (single pages below 2^13), and wraps
//! around after 32 memories' worth of evictions and activations. A page that returns after a
//! multiple of that is taken for a recent one with a probability of at most 1/32; precision finer
//! than the noise of published sizes would gain nothing.
//!
//! Source: `docs/kernel/reclaim.md` §6.1, 6.2.

use super::Locked;
use crate::folio::{Flags, tier_of_refs};
use crate::limits::MAX_NR_GENS;
use crate::policy::{Lists, Switches};
use crate::units::{FolioId, LruType, MemcgSlot};

const WORKINGSET: u32 = 1;
const TOKEN_SHIFT: u32 = 1;
const TOKEN_BITS: u32 = 18;
const MEMCG_SHIFT: u32 = TOKEN_SHIFT + TOKEN_BITS;
const MEMCG_BITS: u32 = 10;
const MEMCG_MASK: u16 = (1 << MEMCG_BITS) - 1;
const PRESENT: u32 = 1 << (MEMCG_SHIFT + MEMCG_BITS);
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
const SEQ_MASK: u64 = TOKEN_MASK >> 2;

/// What is remembered of an evicted page: a nonzero number of 30 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shadow(u32);

const _: () = assert!(PRESENT == 1 << (Shadow::BITS - 1));

impl Shadow {
    /// Bits that a shadow needs in a translation entry.
    pub const BITS: u32 = 30;

    fn new(memcg: MemcgSlot, token: u64, workingset: bool) -> Self {
        let group = u32::from(memcg.0 & MEMCG_MASK) << MEMCG_SHIFT;
        Self(PRESENT | group | ((token & TOKEN_MASK) as u32) << TOKEN_SHIFT | u32::from(workingset))
    }

    /// The number to store: nonzero, below `2^30`.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The inverse of [`Shadow::to_bits`]; `None` for zero and for numbers that are no shadow.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & PRESENT != 0 && bits >> Self::BITS == 0 { Some(Self(bits)) } else { None }
    }

    const fn token(self) -> u64 {
        (self.0 >> TOKEN_SHIFT) as u64 & TOKEN_MASK
    }

    /// The low bits of the group's place.
    const fn memcg(self) -> u16 {
        (self.0 >> MEMCG_SHIFT) as u16 & MEMCG_MASK
    }

    const fn workingset(self) -> bool {
        self.0 & WORKINGSET != 0
    }
}

/// A page came back: the meaning of its shadow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sighting {
    /// It was gone for so short a time that it belongs to the workingset.
    pub(crate) recent: bool,
    /// Pages evicted in between: with as much more memory it would have been a hit. With the
    /// multi-gen LRU, an upper bound as fine as a generation.
    pub(crate) distance: u64,
}

/// Evictions as a clock for refault distances with the multi-gen LRU, whose shadows name a
/// generation. It records how many pages had been evicted when that generation became the oldest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EvictionClock {
    evicted: u64,
    /// By type and number of the generation.
    began: [[u64; Self::GENERATIONS]; 2],
}

impl EvictionClock {
    /// Generations that are remembered; older ones count as the oldest of them.
    const GENERATIONS: usize = 8;

    fn tick(&mut self, pages: u64) {
        self.evicted += pages;
    }

    pub(super) fn oldest_is(&mut self, t: LruType, seq: u64) {
        self.began[t as usize][seq as usize % Self::GENERATIONS] = self.evicted;
    }

    /// Evictions since a generation, `behind` the present oldest one `seq`, became the oldest.
    fn since(&self, t: LruType, seq: u64, behind: u64) -> u64 {
        let behind = behind.min(Self::GENERATIONS as u64 - 1).min(seq);
        self.evicted - self.began[t as usize][(seq - behind) as usize % Self::GENERATIONS]
    }
}

/// The classical clock wraps around after 2^5 times the memory.
const CLOCK_MEMORIES_LOG2: u32 = 5;

/// Pages per step of the classical clock, as a power of two, in a memory of that many base pages.
fn bucket_order(frames: u32) -> u32 {
    (u32::BITS - (frames - 1).leading_zeros() + CLOCK_MEMORIES_LOG2).saturating_sub(TOKEN_BITS)
}

/// Evictions and activations between two readings of the classical clock, in pages.
///
/// The folio's own eviction is one of them, so it is never 0, however coarse the clock is: as long
/// as no page is active, no refault is recent.
const fn classical_distance(now: u64, then: u64, order: u32) -> u64 {
    let pages = (now.wrapping_sub(then) & TOKEN_MASK) << order;
    if pages == 0 { 1 } else { pages }
}

impl Locked<'_> {
    /// A folio leaves memory: returns what is to be remembered, and counts the eviction.
    /// `target` is the target of the reclaim.
    pub(crate) fn workingset_eviction(&mut self, id: FolioId, target: MemcgSlot) -> Shadow {
        self.absorb(id);
        let f = &self.folios[id];
        let (flags, pages, t) = (f.flags, f.pages(), f.lru_type());
        let mut of = self.slot;
        let token = match self.policy.lists() {
            Lists::MultiGen => {
                self.lv.tiers[t as usize].evict(flags.tier(), pages);
                self.lv.clock.tick(pages);
                let min = self.lv.gens.min_seq[t as usize];
                (min & SEQ_MASK) << 2 | u64::from(flags.refs().saturating_sub(1))
            }
            Lists::Classical => {
                // Measured where the shortage is: a sibling's growth may have driven it out.
                of = target;
                let age = self.levels.nonresident_age(target);
                self.levels.age(target, pages);
                age >> bucket_order(self.folios.frames())
            }
            Lists::Tide => {
                let (token, main) = self.leave_for_shadow(id);
                return Shadow::new(of, token, main);
            }
        };
        Shadow::new(of, token, flags.contains(Flags::WORKINGSET))
    }

    /// A folio comes in over a shadow: counts the refault and marks the folio by how recent it is.
    /// `None` if it is not a refault of this group.
    pub(crate) fn workingset_refault(
        &mut self,
        id: FolioId,
        shadow: Shadow,
        in_lru_fault: bool,
    ) -> Option<Sighting> {
        match self.policy.lists() {
            Lists::MultiGen => self.refault_multi_gen(id, shadow, in_lru_fault),
            Lists::Classical => self.refault_classical(id, shadow),
            Lists::Tide => self.refault_tide(id, shadow),
        }
    }

    fn refault_multi_gen(
        &mut self,
        id: FolioId,
        shadow: Shadow,
        in_lru_fault: bool,
    ) -> Option<Sighting> {
        let f = &self.folios[id];
        let (pages, t) = (f.pages(), f.lru_type());
        if shadow.memcg() != f.memcg.0 & MEMCG_MASK {
            return None;
        }
        *self.events.refault(t) += pages;
        let age = (self.lv.gens.max_seq & SEQ_MASK).wrapping_sub(shadow.token() >> 2) & SEQ_MASK;
        let oldest = self.lv.gens.min_seq[t as usize];
        let behind = (oldest & SEQ_MASK).wrapping_sub(shadow.token() >> 2) & SEQ_MASK;
        let distance = self.lv.clock.since(t, oldest, behind);
        let long = self.policy.has(Switches::RECENCY);
        if if long { age >= MAX_NR_GENS } else { behind != 0 } {
            return Some(Sighting { recent: false, distance });
        }
        let refs = (shadow.token() & 3) as u8 + 1;
        let workingset = shadow.workingset();
        let tier = if workingset { crate::limits::MAX_NR_TIERS - 1 } else { tier_of_refs(refs) };
        self.lv.tiers[t as usize].refault(tier, pages);
        if !long || in_lru_fault && (workingset || !self.policy.has(Switches::ACTIVATE)) {
            *self.events.activate(t) += pages;
        }
        let flags = &mut self.folios[id].flags;
        if workingset || !long && (in_lru_fault || refs >= 4) {
            flags.insert(Flags::WORKINGSET);
            *self.events.restore(t) += pages;
        } else {
            flags.set_refs_field(u32::from(refs) - 1);
        }
        Some(Sighting { recent: true, distance })
    }

    fn refault_classical(&mut self, id: FolioId, shadow: Shadow) -> Option<Sighting> {
        let f = &self.folios[id];
        let (pages, t) = (f.pages(), f.lru_type());
        *self.events.refault(t) += pages;
        let from = self.levels.named(self.slot, shadow.memcg(), MEMCG_MASK)?;
        let order = bucket_order(self.folios.frames());
        let now = self.levels.nonresident_age(from) >> order;
        let distance = classical_distance(now, shadow.token(), order);
        if distance > self.refault_competitors(from, t) {
            return Some(Sighting { recent: false, distance });
        }
        self.folios[id].flags.insert(Flags::ACTIVE);
        self.levels.age(self.slot, pages);
        *self.events.activate(t) += pages;
        if shadow.workingset() {
            self.folios[id].flags.insert(Flags::WORKINGSET);
            *self.events.restore(t) += pages;
            self.cost_of_refault(t, pages);
        }
        Some(Sighting { recent: true, distance })
    }

    fn refault_tide(&mut self, id: FolioId, shadow: Shadow) -> Option<Sighting> {
        let f = &self.folios[id];
        let (pages, t) = (f.pages(), f.lru_type());
        if shadow.memcg() != f.memcg.0 & MEMCG_MASK {
            return None;
        }
        *self.events.refault(t) += pages;
        let (recent, distance) = self.come_back(id, shadow.token(), shadow.workingset());
        if recent {
            self.cost_of_refault(t, pages);
        }
        Some(Sighting { recent, distance })
    }

    /// Pages that a returning page competes with, as last published (`docs/kernel/reclaim.md` §6.1
    /// step 3).
    fn refault_competitors(&self, from: MemcgSlot, t: LruType) -> u64 {
        let p = self.levels.published(from);
        let mut size = p.active(LruType::File);
        if t == LruType::Anon {
            size += p.inactive(LruType::File);
        }
        if self.can_swap() {
            size += p.active(LruType::Anon);
            if t == LruType::File {
                size += p.inactive(LruType::Anon);
            }
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_fits_thirty_bits_and_comes_back_whole() {
        let s = Shadow::new(MemcgSlot(1023), TOKEN_MASK, true);
        assert!(s.to_bits() < 1 << Shadow::BITS);
        let back = Shadow::from_bits(s.to_bits()).unwrap();
        assert_eq!((back.memcg(), back.token(), back.workingset()), (1023, TOKEN_MASK, true));
        assert_eq!(Shadow::from_bits(0), None);
        assert!(Shadow::new(MemcgSlot(0), 0, false).to_bits() != 0);
    }

    /// `docs/kernel/reclaim.md` §6.1, step 4.
    #[test]
    fn the_folios_own_eviction_makes_the_distance_at_least_one() {
        for order in [0, 1, 9] {
            assert_eq!(classical_distance(7, 7, order), 1);
            assert_eq!(classical_distance(8, 7, order), 1 << order);
            assert_eq!(classical_distance(0, TOKEN_MASK, order), 1 << order, "it wraps around");
        }
    }

    #[test]
    fn the_classical_clock_is_fine_enough_and_wraps_late() {
        assert_eq!(
            (bucket_order(1), bucket_order(1 << 13), bucket_order((1 << 13) + 1)),
            (0, 0, 1)
        );
        for log2 in [13, 18, 24, 31] {
            let (frames, step) = (1_u64 << log2, 1_u64 << bucket_order(1 << log2));
            assert!(step <= frames >> 13, "a step of {step} pages is coarse for {frames}");
            assert!(
                step << TOKEN_BITS >= frames << CLOCK_MEMORIES_LOG2,
                "{frames} wrap after {step} steps"
            );
        }
    }
}
