//! Which evicted pages are stored or tried, and when it is decided again how many may be.
//!
//! A page that came back once is *offered* when it is evicted. Where pages are compressed each one
//! is wanted. Where none is, one of a few hundred is tried, for its size and for what that costs:
//! then and when a decision is due the answer may change. Pages of barren regions are not wanted.
//!
//! A decision is due after a fifth of a second in which an eighth of the budget was offered: that
//! is its evidence. One after a pause says nothing, since processors that were idle then were not
//! idle because of reads.

use super::barren::Barren;
use crate::units::Owner;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Time between two decisions, in nanoseconds.
const PERIOD: u64 = 200_000_000;
/// And pages that were offered, as a part of the budget.
const EVIDENCE: u64 = 8;
/// A longer time without such pages is a pause.
const PAUSE: u64 = 500_000_000;
/// While nothing is compressed, one page of this many is tried. More of them before it is known
/// what the pages of a file have in common.
const TRIED: u64 = 512;
const TRIED_FIRST: u64 = 16;
/// Of this many stores, loads and offers one is timed.
pub const TIMED: u64 = 16;

/// See the module documentation. Offers are counted by one thread at a time, and apart from what
/// every miss reads.
#[derive(Debug)]
#[repr(align(128))]
pub struct Intake {
    offered: AtomicU64,
    /// When, roughly.
    active: AtomicU64,
    /// There was a pause.
    paused: AtomicBool,
    /// When it was decided.
    decided: AtomicU64,
    /// From this number of offers on it is decided again.
    look_at: AtomicU64,
    barren: Barren,
}

impl Intake {
    /// One that begins at a time in nanoseconds, for pages of 2^`page_shift` bytes. It takes 16 KiB
    /// from the first page on that does not compress.
    #[must_use]
    pub fn new(page_shift: u32, now: u64) -> Self {
        Self {
            offered: AtomicU64::new(0),
            active: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            decided: AtomicU64::new(now),
            look_at: AtomicU64::new(0),
            barren: Barren::new(page_shift),
        }
    }

    /// Pages that were offered so far.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.offered.load(Relaxed)
    }

    /// Whether what is done now is timed, and its page one of those whose size is counted.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.offered().is_multiple_of(TIMED)
    }

    /// A page that came back once is evicted. Returns how many were offered before, and whether it
    /// is wanted. `is_closed`: nothing is stored now. `collects`: samples of its file are wanted.
    pub fn offer(
        &self,
        owner: Owner,
        is_closed: bool,
        collects: bool,
        now: impl FnOnce() -> u64,
    ) -> (u64, bool) {
        let offered = self.offered();
        self.offered.store(offered + 1, Relaxed);
        if offered.is_multiple_of(TIMED) {
            let (before, now) = (self.active.load(Relaxed), now());
            self.active.store(now, Relaxed);
            if now.saturating_sub(before) > PAUSE {
                self.paused.store(true, Relaxed);
            }
        }
        let tried = if collects { TRIED_FIRST } else { TRIED };
        let is_turn = !is_closed || offered.is_multiple_of(tried);
        (offered, is_turn && !self.barren.skips(owner))
    }

    /// A page that was wanted has become smaller, or not.
    pub fn note(&self, owner: Owner, smaller: bool) {
        self.barren.note(owner, smaller);
    }

    /// Nanoseconds since the last decision, if the next one is due: the thread that asks makes it.
    pub fn is_due(&self, now: u64) -> Option<u64> {
        let before = self.decided.load(Relaxed);
        let passed = now.saturating_sub(before);
        let is_due = passed >= PERIOD && self.offered() >= self.look_at.load(Relaxed);
        let is_mine = || self.decided.compare_exchange(before, now, Relaxed, Relaxed).is_ok();
        (is_due && is_mine()).then_some(passed)
    }

    /// The evidence for the decision after this one begins, with a budget in pages. Returns whether
    /// there was any for this one.
    pub fn begin(&self, budget: u64) -> bool {
        self.look_at.store(self.offered() + budget / EVIDENCE, Relaxed);
        !self.paused.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SpaceId;

    const SECOND: u64 = 1_000_000_000;

    fn offer(intake: &Intake, pages: u64, is_closed: bool, now: u64) -> usize {
        let owner = |page| Owner { space: SpaceId(0), page };
        (0..pages).filter(|&page| intake.offer(owner(page), is_closed, false, || now).1).count()
    }

    #[test]
    fn a_decision_takes_time_and_evidence_and_no_pause() {
        let intake = Intake::new(12, SECOND);
        offer(&intake, 16, true, SECOND);
        assert_eq!(intake.is_due(SECOND + 100), None, "too soon");
        assert_eq!(intake.is_due(2 * SECOND), Some(SECOND));
        assert!(!intake.begin(800), "the time before the first page is a pause");
        offer(&intake, 99, true, 2 * SECOND);
        assert_eq!(intake.is_due(3 * SECOND), None, "too few pages");
        offer(&intake, 16, true, 2 * SECOND);
        assert_eq!(intake.is_due(3 * SECOND), Some(SECOND));
        assert!(!intake.begin(800), "a pause");
    }

    #[test]
    fn few_pages_are_tried_where_nothing_is_stored() {
        let intake = Intake::new(12, 0);
        assert_eq!(offer(&intake, 1024, true, 0), 2);
        assert_eq!(offer(&intake, 1024, false, 0), 1024);
    }
}
