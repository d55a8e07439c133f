//! Which types of memory may be evicted, and which one first (`docs/kernel/reclaim.md` §2.2, 2.9).

use super::Locked;
use super::generation::slot;
use super::tier::{cheaper_type, limit_beside};
use crate::limits::{MAX_NR_TIERS, MAX_SWAPPINESS, SWAPPINESS_ANON_ONLY};
use crate::policy::Switches;
use crate::units::LruType;

impl Locked<'_> {
    /// The swappiness in force: 0 (file only) to 200, or 201 (anonymous only).
    pub(crate) fn effective_swappiness(&self) -> u32 {
        let s = self.lv.swappiness;
        if self.policy.has(Switches::ANONONLY) && s == SWAPPINESS_ANON_ONLY {
            return s;
        }
        if self.swap.free_pages < self.swap.spared || self.lv.swap_refused { 0 } else { s }
    }

    /// The types that the multi-gen LRU may evict.
    pub(crate) fn evictable_types(&self) -> &'static [LruType] {
        match self.effective_swappiness() {
            0 => &[LruType::File],
            SWAPPINESS_ANON_ONLY => &[LruType::Anon],
            _ => &LruType::ALL,
        }
    }

    /// The type to evict from first.
    pub(crate) fn type_to_scan(&self) -> LruType {
        match self.effective_swappiness() {
            0 | 1 => LruType::File,
            s if s >= MAX_SWAPPINESS => LruType::Anon,
            s if self.policy.has(Switches::ALLTIERS) => {
                cheaper_type(&self.lv.tiers, s, MAX_NR_TIERS)
            }
            s => {
                let [anon, file] = self.lv.gens.min_seq;
                if anon < file { LruType::Anon } else { cheaper_type(&self.lv.tiers, s, 1) }
            }
        }
    }

    /// The highest tier of a type that is *not* protected. `chosen`: refaults chose the type, not
    /// the lack of anything to scan in the other.
    pub(crate) fn tier_limit(&self, t: LruType, chosen: bool) -> usize {
        let s = self.effective_swappiness();
        if chosen && (2..MAX_SWAPPINESS).contains(&s) && !self.policy.has(Switches::ALLTIERS) {
            return limit_beside(&self.lv.tiers, t, s);
        }
        self.lv.tiers[t as usize].limit()
    }

    /// Oldest generation of any type that may be evicted.
    pub(crate) fn evictable_min_seq(&self) -> u64 {
        let mins = self.evictable_types().iter().map(|&t| self.lv.gens.min_seq[t as usize]);
        mins.min().expect("at least one type is evictable")
    }

    /// Pages of a generation, of all types that may be evicted.
    pub(crate) fn pages_of(&self, seq: u64) -> u64 {
        let of = &self.lv.gens.nr_pages[slot(seq)];
        self.evictable_types().iter().map(|&t| of[t as usize]).sum()
    }

    /// Pages of all types that may be evicted, protected young generations included.
    pub(crate) fn evictable_size(&self) -> u64 {
        self.evictable_types().iter().map(|&t| self.lv.gens.pages(t)).sum()
    }

    /// Whether anonymous memory can go anywhere.
    pub(crate) fn can_swap(&self) -> bool {
        self.swap.free_pages > 0 && !self.lv.swap_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::MemcgId;

    /// `docs/kernel/reclaim.md` §9, 33: generations need 64 pages of swap, the classical lists one.
    #[test]
    fn a_little_swap_is_enough_for_the_classical_lists_only() {
        let mut engine = filled(Policy::MGLRU, 1, LruType::Anon);
        let lru = engine.locked(MemcgId::ROOT);
        lru.swap.free_pages = 63;
        assert!(lru.can_swap());
        assert_eq!((lru.effective_swappiness(), lru.evictable_types()), (0, &[LruType::File][..]));
        lru.swap.free_pages = 64;
        assert_eq!((lru.effective_swappiness(), lru.evictable_types().len()), (60, 2));
    }

    /// `docs/kernel/reclaim.md` §9, 31.
    #[test]
    fn anon_only_is_not_downgraded_since_7_3() {
        for (policy, types) in
            [(Policy::MGLRU, [LruType::Anon]), (Policy::MGLRU_7_1, [LruType::File])]
        {
            let mut engine = filled(policy, 1, LruType::File);
            engine.set_swappiness(MemcgId::ROOT, SWAPPINESS_ANON_ONLY);
            assert_eq!(engine.locked(MemcgId::ROOT).evictable_types(), types);
        }
    }
}
