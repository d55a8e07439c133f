//! Refault feedback: which type to evict, and which tiers to protect.
//!
//! A folio's *tier* is the logarithm of its accesses through the descriptor. For each tier of a
//! type we count the pages that were evicted from it, those that were protected instead, and the
//! evicted ones that came back. The share that came back, compared between two tiers (or two types)
//! with a gain on each side, is the error signal of a controller with a proportional term (the
//! running counts) and an integral one (their exponential average, carried over whenever the oldest
//! generation is retired). If a higher tier refaults no more than tier 0 does, its folios are no
//! better than those and are evicted; otherwise they are moved one generation up.
//!
//! Source: `docs/kernel/reclaim.md` §2.9. History depth is 1.

use crate::limits::{MAX_NR_TIERS, MAX_SWAPPINESS, MIN_LRU_BATCH, MIN_REFAULTS};
use crate::units::LruType;

#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    avg_refaulted: u64,
    avg_total: u64,
    protected: u64,
    evicted: u64,
    refaulted: u64,
}

/// The controller's counts for one type, in pages.
#[derive(Debug, Default)]
pub(crate) struct TierControl {
    tiers: [Tier; MAX_NR_TIERS],
}

/// A position of the controller: what came back, of how much, and what that is worth.
#[derive(Clone, Copy, Debug)]
struct Position {
    refaulted: u64,
    total: u64,
    gain: u64,
}

impl TierControl {
    pub(super) fn protect(&mut self, tier: usize, pages: u64) {
        self.tiers[tier].protected += pages;
    }

    pub(super) fn evict(&mut self, tier: usize, pages: u64) {
        self.tiers[tier].evicted += pages;
    }

    pub(super) fn refault(&mut self, tier: usize, pages: u64) {
        self.tiers[tier].refaulted += pages;
    }

    /// Folds the current counts into the averages; called whenever the oldest generation is
    /// retired.
    pub(super) fn carry_over(&mut self) {
        for t in &mut self.tiers {
            *t = Tier {
                avg_refaulted: (t.avg_refaulted + t.refaulted) / 2,
                avg_total: (t.avg_total + t.protected + t.evicted) / 2,
                ..Tier::default()
            };
        }
    }

    fn position(&self, tiers: std::ops::Range<usize>, gain: u64) -> Position {
        self.tiers[tiers].iter().fold(Position { refaulted: 0, total: 0, gain }, |p, t| Position {
            refaulted: p.refaulted + t.avg_refaulted + t.refaulted,
            total: p.total + t.avg_total + t.protected + t.evicted,
            gain,
        })
    }

    /// The highest tier that is *not* protected.
    pub(crate) fn limit(&self) -> usize {
        let set_point = self.position(0..1, 2);
        (1..MAX_NR_TIERS)
            .find(|&t| !no_worse(set_point, self.position(t..t + 1, 3)))
            .map_or(MAX_NR_TIERS - 1, |t| t - 1)
    }
}

/// Whether `pv` refaults no more than `sp`, so that it is at least as cheap to evict.
fn no_worse(sp: Position, pv: Position) -> bool {
    pv.refaulted < MIN_REFAULTS
        || u128::from(pv.refaulted) * u128::from((sp.total + MIN_LRU_BATCH) * sp.gain)
            <= u128::from(sp.refaulted + 1) * u128::from(pv.total * pv.gain)
}

/// The highest tier of a type that is *not* protected in comparison with tier 0 of the other type,
/// as Linux 6.12 compared them.
pub(super) fn limit_beside(tiers: &[TierControl; 2], t: LruType, swappiness: u32) -> usize {
    let gain = |of: LruType| match of {
        LruType::Anon => u64::from(swappiness),
        LruType::File => u64::from(MAX_SWAPPINESS - swappiness),
    };
    let set_point = tiers[t.other() as usize].position(0..1, gain(t.other()));
    (1..MAX_NR_TIERS)
        .find(|&n| !no_worse(set_point, tiers[t as usize].position(n..n + 1, gain(t))))
        .map_or(MAX_NR_TIERS - 1, |n| n - 1)
}

/// The type that is cheaper to evict from, by the refaults of its first `count` tiers: `tiers` of
/// each type, weighed with a swappiness strictly between 1 and [`MAX_SWAPPINESS`].
pub(super) fn cheaper_type(tiers: &[TierControl; 2], swappiness: u32, count: usize) -> LruType {
    let all = |t: LruType, gain: u32| tiers[t as usize].position(0..count, u64::from(gain));
    let file_gain = MAX_SWAPPINESS - swappiness;
    if no_worse(all(LruType::Anon, swappiness), all(LruType::File, file_gain)) {
        LruType::File
    } else {
        LruType::Anon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tiers_are_evictable_until_one_refaults() {
        let mut c = TierControl::default();
        assert_eq!(c.limit(), 3);
        c.evict(0, 1000);
        c.evict(1, 1000);
        c.refault(1, MIN_REFAULTS - 1);
        assert_eq!(c.limit(), 3, "fewer than 64 refaults do not count");
        c.refault(1, 500);
        assert_eq!(c.limit(), 0, "tier 1 came back and tier 0 did not");
        c.refault(0, 1000);
        assert_eq!(c.limit(), 3, "now tier 1 is no better than tier 0");
    }

    #[test]
    fn carry_over_halves_and_forgets() {
        let mut c = TierControl::default();
        c.evict(2, 100);
        c.protect(2, 51);
        c.refault(2, 31);
        c.carry_over();
        let p = c.position(2..3, 1);
        assert_eq!((p.refaulted, p.total), (15, 75));
        c.carry_over();
        assert_eq!(c.position(2..3, 1).total, 37);
    }

    /// Appendix A: in 6.12 tier 0 alone chose the type, and the other type's tier 0 the limit.
    #[test]
    fn in_6_12_only_tier_0_was_compared_between_types() {
        let mut tiers = [TierControl::default(), TierControl::default()];
        for t in &mut tiers {
            t.evict(0, 1000);
            t.evict(2, 1000);
        }
        tiers[LruType::File as usize].refault(2, 900);
        assert_eq!(cheaper_type(&tiers, 100, MAX_NR_TIERS), LruType::Anon);
        assert_eq!(cheaper_type(&tiers, 100, 1), LruType::File, "its tier 0 never came back");
        assert_eq!(limit_beside(&tiers, LruType::File, 100), 1, "its tier 2 did");
        tiers[LruType::File as usize].refault(0, 900);
        assert_eq!(tiers[LruType::File as usize].limit(), 3, "no worse than its own tier 0");
        assert_eq!(limit_beside(&tiers, LruType::File, 100), 1, "but than the other's");
    }
}
