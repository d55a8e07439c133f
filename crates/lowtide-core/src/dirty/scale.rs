//! The scale of a domain: how much of it is dirty, and its thresholds.
//!
//! Arithmetic only; `domain.rs` reads the figures from the tree. Source:
//! `docs/kernel/fault-and-writeback.md` B3, B6.

use crate::units::MemcgSlot;

/// How much of a domain is dirty, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirtyState {
    /// Waiting to be written.
    pub dirty: u64,
    /// Being written, to files or to swap.
    pub writeback: u64,
}

impl DirtyState {
    /// Both.
    #[must_use]
    pub const fn unclean(self) -> u64 {
        self.dirty + self.writeback
    }
}

/// What a domain has, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) file: u64,
    pub(crate) state: DirtyState,
}

impl Figures {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.file += other.file;
        self.state.dirty += other.state.dirty;
        self.state.writeback += other.state.writeback;
    }
}

/// The scale of a domain, in pages. `background <= freerun <= hard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thresholds {
    /// Memory that could become dirty.
    pub dirtyable: u64,
    /// With more dirty than this, pages under writeback left out, the flusher writes.
    pub background: u64,
    /// Up to this, pages under writeback included, no writer waits.
    pub freerun: u64,
    /// Here every writer waits.
    pub hard: u64,
}

impl Thresholds {
    pub(super) fn new(dirtyable: u64, background: u64, hard: u64) -> Self {
        let hard = hard.min(dirtyable).min(u64::from(u32::MAX));
        let background = if background >= hard { hard / 2 } else { background };
        Self { dirtyable, background, freerun: background.midpoint(hard), hard }
    }
}

/// A domain as a writer sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain {
    pub(super) of: MemcgSlot,
    pub(super) state: DirtyState,
    pub(super) thresholds: Thresholds,
}

impl Domain {
    pub(super) const fn over_background(&self) -> bool {
        self.state.dirty > self.thresholds.background
    }

    /// Pages left up to the threshold.
    pub(super) const fn gap(&self) -> u64 {
        self.thresholds.hard.saturating_sub(self.state.unclean())
    }

    /// The part of the threshold for a wb that wrote `share` of `all` pages lately. While there is
    /// room it is at least some of that, so that a new writer can begin.
    pub(super) fn part(&self, share: u64, all: u64) -> u64 {
        let hard = self.thresholds.hard;
        if all == 0 {
            return hard;
        }
        let part = (u128::from(hard) * u128::from(share) / u128::from(all)) as u64;
        part.max(self.gap() / 8).min(hard)
    }
}

/// A limit that follows its threshold up at once and down slowly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FallingLimit {
    limit: u64,
    /// When it last fell, in ms.
    fell: u64,
}

impl FallingLimit {
    /// Milliseconds between two falls.
    const INTERVAL: u64 = 200;

    pub(super) fn get(&self, domain: &Domain) -> u64 {
        self.limit.max(domain.thresholds.hard)
    }

    pub(super) fn update(&mut self, domain: &Domain, now: u64) {
        let hard = domain.thresholds.hard;
        if hard >= self.limit {
            self.limit = hard;
        } else if now >= self.fell + Self::INTERVAL {
            let down_to = hard.max(domain.state.unclean());
            self.limit -= self.limit.saturating_sub(down_to).div_ceil(32);
            self.fell = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MemcgId;
    use proptest::prelude::*;

    fn domain(dirtyable: u64, background: u64, hard: u64, unclean: u64) -> Domain {
        let state = DirtyState { dirty: unclean, writeback: 0 };
        Domain {
            of: MemcgId::ROOT.slot,
            state,
            thresholds: Thresholds::new(dirtyable, background, hard),
        }
    }

    #[test]
    fn a_new_writer_has_an_eighth_of_the_room() {
        let domain = domain(100_000, 10_000, 20_000, 4_000);
        assert_eq!(domain.part(0, 1000), 2_000);
        assert_eq!(domain.part(500, 1000), 10_000);
        assert_eq!(domain.part(1000, 1000), 20_000);
        assert_eq!(domain.part(0, 0), 20_000, "without recent writes there is nothing to share");
    }

    proptest! {
        /// Invariant 9.
        #[test]
        fn the_scale_is_in_order(
            dirtyable in 0..1_u64 << 40,
            background in 0..1_u64 << 40,
            hard in 0..1_u64 << 40,
        ) {
            let t = Thresholds::new(dirtyable, background, hard);
            prop_assert!(t.background <= t.freerun && t.freerun <= t.hard && t.hard <= dirtyable);
            prop_assert!(t.background < t.hard || t.hard == 0);
        }

        /// Invariant 9.
        #[test]
        fn the_limit_rises_at_once_and_falls_by_a_32nd(
            steps in prop::collection::vec((0..1_u64 << 20, 0..1_u64 << 20, 0..500_u64), 1..100),
        ) {
            let (mut limit, mut now) = (FallingLimit::default(), 0);
            for (hard, unclean, later) in steps {
                now += later;
                let domain = domain(1 << 30, 0, hard, unclean);
                let before = limit.limit;
                limit.update(&domain, now);
                prop_assert!(limit.limit >= hard && limit.get(&domain) == limit.limit);
                prop_assert!(before.saturating_sub(limit.limit) <= before.div_ceil(32));
            }
        }
    }
}
