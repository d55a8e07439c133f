//! The counter of a group: usage, limits, and the protection that it claims.
//!
//! A counter *publishes* to its parent how much of its protection it uses, min(usage,
//! setting). The parent keeps the sum over its children, so effective protection costs O(1) a level
//! to compute, however many children there are. What is published changes with every charge;
//! `MemcgTree` carries the difference up. Source: `docs/kernel/memcg.md` §1.

/// No limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Which kind of protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Kind {
    /// Hard: never reclaimed for another group.
    Min = 0,
    /// Best effort: reclaimed for another group only if there is nothing unprotected.
    Low = 1,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Min, Self::Low];
}

/// Protection of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    /// As it was set.
    pub(crate) setting: u64,
    /// What this counter last published to its parent.
    pub(crate) published: u64,
    /// Sum of what the children published to this counter.
    pub(crate) children: u64,
    /// Effective, as last computed: never trusted without computing it again.
    pub(crate) effective: u64,
}

/// One group's counter, in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    /// Charged here and below, stocks included.
    pub(crate) usage: u64,
    pub(crate) max: u64,
    pub(crate) high: u64,
    /// Largest usage ever.
    pub(crate) watermark: u64,
    /// Charges that met the limit here.
    pub(crate) failcnt: u64,
    /// By [`Kind`].
    pub(crate) claims: [Claim; 2],
    /// What usage may be at most: `max`, or what it was when `max` was set to less. Forced charges
    /// raise it.
    pub(crate) ceiling: u64,
}

impl Counter {
    pub(crate) fn new(max: u64) -> Self {
        Self {
            usage: 0,
            max,
            high: UNLIMITED,
            watermark: 0,
            failcnt: 0,
            claims: Default::default(),
            ceiling: max,
        }
    }

    /// Pages that may still be charged.
    pub(crate) const fn margin(&self) -> u64 {
        self.max.saturating_sub(self.usage)
    }

    /// Whether `high` is breached: at equality it is not.
    pub(crate) const fn over_high(&self) -> bool {
        self.usage > self.high
    }

    /// Sets the limit. Usage may be above it from now on, but then it can only fall until it is
    /// below.
    pub(crate) fn set_max(&mut self, pages: u64) {
        self.max = pages;
        self.ceiling = pages.max(self.usage);
    }

    pub(super) fn add(&mut self, pages: u64) {
        self.usage += pages;
        self.watermark = self.watermark.max(self.usage);
    }

    /// # Panics
    /// When more is given back than was taken.
    pub(super) fn sub(&mut self, pages: u64) {
        assert!(self.usage >= pages, "{pages} pages are given back of {} charged", self.usage);
        self.usage -= pages;
    }

    /// Publishes protection again. Returns by how much the parent's sum of each kind has to grow.
    pub(super) fn publish(&mut self) -> [i64; 2] {
        Kind::ALL.map(|kind| {
            let claim = &mut self.claims[kind as usize];
            let now = claim.setting.min(self.usage);
            let grown = now as i64 - claim.published as i64;
            claim.published = now;
            grown
        })
    }
}
