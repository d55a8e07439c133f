//! What a device keeps when the power goes.
//!
//! ```text
//!   its write began ──► ended: in the device's cache ──► a flush that began later ended: durable
//!          └───── power goes: perhaps ─────┘                        └── power goes: certainly
//! ```
//!
//! For each page the medium has a *durable* version, and there are newer ones that the device was
//! given: by writes that are in flight, that have ended, or that failed, which may have reached the
//! medium all the same. When the power goes, any one of these may be there, and each page decides
//! for itself: writes are torn, dropped and reordered. A page itself is whole.
//!
//! Versions of a page only grow, and it is written by one command at a time.
//!
//! The disk of `lowtide-proof` (`disk/undo.rs`) is another model, of a file in a file system: torn
//! sectors of bytes, lengths, holes, and syncs whose failure loses data for good. Here a page is a
//! version number, flushes overlap, and a later flush makes up for a failed one.

use std::collections::{BTreeMap, VecDeque};

use lowtide_sim::memory::ObjectId;
use lowtide_workload::SplitMix64;

type Page = (ObjectId, u64);

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Medium {
    durable: BTreeMap<Page, u64>,
    /// Versions newer than the durable one that the device was given, in order.
    newer: BTreeMap<Page, Vec<u64>>,
    /// Writes that have ended and are not durable, in the order in which they ended.
    cache: VecDeque<(Page, u64)>,
    /// Writes that were in the cache and have become durable.
    flushed: u64,
    /// For each flush in flight, the writes that had ended when it began.
    flushes: BTreeMap<u64, u64>,
}

/// How a power cut treats versions that are not durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Survival {
    /// Nothing of them is there.
    DropsAll,
    /// The newest of each page is there.
    KeepsAll,
    /// Each page for itself.
    Random,
}

impl Survival {
    /// Half of all cuts are random.
    pub(super) fn draw(rng: &mut SplitMix64) -> Self {
        match rng.below(4) {
            0 => Self::DropsAll,
            1 => Self::KeepsAll,
            _ => Self::Random,
        }
    }
}

impl Medium {
    /// The version of a page that is there for certain; 0 is what a new file holds.
    pub(super) fn durable(&self, object: ObjectId, page: u64) -> u64 {
        self.durable.get(&(object, page)).copied().unwrap_or(0)
    }

    /// A write of a page began.
    pub(super) fn began(&mut self, object: ObjectId, page: u64, version: u64) {
        let newer = self.newer.entry((object, page)).or_default();
        // A write that failed is done again with the same version.
        if newer.last() != Some(&version) {
            newer.push(version);
        }
    }

    /// It ended well.
    pub(super) fn ended(&mut self, object: ObjectId, page: u64, version: u64) {
        self.cache.push_back(((object, page), version));
    }

    /// A flush began: what has ended is to be durable.
    pub(super) fn flush_began(&mut self, number: u64) {
        self.flushes.insert(number, self.flushed + self.cache.len() as u64);
    }

    /// It ended; `kept`: well.
    pub(super) fn flush_ended(&mut self, number: u64, kept: bool) {
        let before = self.flushes.remove(&number).unwrap_or(0);
        while kept && self.flushed < before {
            let Some((page, version)) = self.cache.pop_front() else { break };
            self.flushed += 1;
            self.durable.insert(page, version);
            if let Some(newer) = self.newer.get_mut(&page) {
                newer.retain(|&newer| newer > version);
                if newer.is_empty() {
                    self.newer.remove(&page);
                }
            }
        }
    }

    /// Whether the device was given anything that is not durable.
    pub(super) fn is_behind(&self) -> bool {
        !self.newer.is_empty()
    }

    /// The version of a page that is there after the power went, and whether it is the newest that
    /// could be.
    pub(super) fn survivor(
        &self,
        object: ObjectId,
        page: u64,
        survival: Survival,
        rng: &mut SplitMix64,
    ) -> (u64, Option<bool>) {
        let durable = self.durable(object, page);
        let Some(newer) = self.newer.get(&(object, page)) else { return (durable, None) };
        let some = match survival {
            Survival::DropsAll => 0,
            Survival::KeepsAll => newer.len(),
            Survival::Random => rng.below(newer.len() as u64 + 1) as usize,
        };
        let version = some.checked_sub(1).map_or(durable, |last| newer[last]);
        (version, Some(some == newer.len()))
    }

    /// The device has power again and holds these versions.
    pub(super) fn restart(&mut self, holds: impl Iterator<Item = (ObjectId, u64, u64)>) {
        let durable = holds.map(|(object, page, version)| ((object, page), version)).collect();
        *self = Self { durable, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId(0);

    fn survivors(medium: &Medium, page: u64) -> Vec<u64> {
        let mut rng = SplitMix64::new(1);
        let mut seen: Vec<u64> =
            (0..100).map(|_| medium.survivor(FILE, page, Survival::Random, &mut rng).0).collect();
        seen.sort_unstable();
        seen.dedup();
        let ends = [Survival::DropsAll, Survival::KeepsAll]
            .map(|survival| medium.survivor(FILE, page, survival, &mut rng).0);
        assert_eq!(ends, [seen[0], seen[seen.len() - 1]]);
        seen
    }

    #[test]
    fn a_flush_keeps_what_had_ended_when_it_began() {
        let mut medium = Medium::default();
        for page in 0..3 {
            medium.began(FILE, page, 10 + page);
        }
        medium.ended(FILE, 0, 10);
        medium.flush_began(1);
        medium.ended(FILE, 1, 11);
        assert_eq!(
            [0, 1, 2].map(|p| survivors(&medium, p)),
            [vec![0, 10], vec![0, 11], vec![0, 12]]
        );
        medium.flush_ended(1, true);
        assert_eq!([0, 1, 2].map(|p| survivors(&medium, p)), [vec![10], vec![0, 11], vec![0, 12]]);
    }

    #[test]
    fn a_flush_that_fails_keeps_nothing_and_the_next_keeps_all() {
        let mut medium = Medium::default();
        medium.began(FILE, 0, 5);
        medium.ended(FILE, 0, 5);
        medium.flush_began(1);
        medium.flush_ended(1, false);
        assert_eq!((medium.durable(FILE, 0), survivors(&medium, 0)), (0, vec![0, 5]));
        medium.flush_began(2);
        medium.flush_ended(2, true);
        assert_eq!((medium.durable(FILE, 0), medium.is_behind()), (5, false));
    }

    #[test]
    fn flushes_that_overlap_keep_what_each_promises() {
        let mut medium = Medium::default();
        medium.began(FILE, 0, 5);
        medium.ended(FILE, 0, 5);
        medium.flush_began(1);
        medium.began(FILE, 0, 6);
        medium.ended(FILE, 0, 6);
        medium.flush_began(2);
        medium.flush_ended(2, true);
        assert_eq!(medium.durable(FILE, 0), 6);
        medium.flush_ended(1, true);
        assert_eq!((medium.durable(FILE, 0), survivors(&medium, 0)), (6, vec![6]));
    }

    #[test]
    fn a_write_that_failed_may_be_there_until_a_later_one_is_durable() {
        let mut medium = Medium::default();
        medium.began(FILE, 0, 5);
        medium.began(FILE, 0, 7);
        medium.ended(FILE, 0, 7);
        assert_eq!(survivors(&medium, 0), [0, 5, 7]);
        medium.restart([(FILE, 0, 5)].into_iter());
        assert_eq!(survivors(&medium, 0), [5]);
    }
}
