//! How much more memory would be enough: the answer to "just raise the limit".
//!
//! A refault says how many pages were evicted between the page's own eviction and its return: with
//! as many pages more it would have been a hit. The stalls of refaults are summed by that distance,
//! in buckets of powers of two; the advice is usage plus the smallest distance that covers nine
//! tenths of the stall. Stall is weighed, not the number of refaults: a thousand reads for which no
//! thread waited are no reason for more memory.
//!
//! All sums are halved every five minutes, so that a phase that is over does not count forever. An
//! event costs O(1).
//!
//! It is an upper estimate: the distance counts evictions, so a page that was evicted twice in
//! between counts twice, and a bucket stands for its upper end (but never more than the longest
//! distance seen). Random access over little more than fits exaggerates most. Source:
//! `docs/kernel/memcg.md` §8.8.

/// Nanoseconds after which what was seen counts half.
const HALVING_NS: u64 = 300_000_000_000;
/// Bucket `b` has the distances with `b` binary digits.
const BUCKETS: usize = 65;

/// Stall by refault distance, for one group.
#[derive(Clone, Debug)]
pub struct MissingMemory {
    stall: [u64; BUCKETS],
    total: u64,
    longest: u64,
    halvings: u64,
}

impl Default for MissingMemory {
    fn default() -> Self {
        Self { stall: [0; BUCKETS], total: 0, longest: 0, halvings: 0 }
    }
}

impl MissingMemory {
    /// A task waited `stall_ns` for a page that had been gone for `distance` evictions (pages).
    pub fn note(&mut self, distance: u64, stall_ns: u64, now_ns: u64) {
        self.age(now_ns);
        // At a sum of five centuries adding stops, so that nothing wraps.
        let stall = stall_ns.min(u64::MAX - self.total);
        self.stall[bucket(distance)] += stall;
        self.total += stall;
        if stall > 0 {
            self.longest = self.longest.max(distance);
        }
    }

    /// The memory, in pages, that would have avoided nine tenths of the stall of a group that uses
    /// `usage` pages; `usage` if there was none.
    #[must_use]
    pub fn suggest(&mut self, usage: u64, now_ns: u64) -> u64 {
        self.age(now_ns);
        let enough = self.total - self.total / 10;
        if self.total == 0 {
            return usage;
        }
        let mut covered = 0;
        for (b, stall) in self.stall.iter().enumerate() {
            covered += stall;
            if covered >= enough {
                return usage.saturating_add(upper_end(b).min(self.longest));
            }
        }
        usage.saturating_add(self.longest)
    }

    /// The stall that is remembered, in nanoseconds: the weight of the advice.
    #[must_use]
    pub fn stall(&mut self, now_ns: u64) -> u64 {
        self.age(now_ns);
        self.total
    }

    fn age(&mut self, now_ns: u64) {
        let halvings = now_ns / HALVING_NS;
        let by = halvings.saturating_sub(self.halvings);
        if by == 0 {
            return;
        }
        self.halvings = halvings;
        for stall in &mut self.stall {
            *stall = stall.checked_shr(u32::try_from(by).unwrap_or(u32::MAX)).unwrap_or(0);
        }
        self.total = self.stall.iter().sum();
        let last = self.stall.iter().rposition(|&stall| stall > 0);
        self.longest = last.map_or(0, |b| upper_end(b).min(self.longest));
    }
}

const fn bucket(distance: u64) -> usize {
    (u64::BITS - distance.leading_zeros()) as usize
}

/// The longest distance of a bucket.
const fn upper_end(bucket: usize) -> u64 {
    if bucket == 0 { 0 } else { u64::MAX >> (u64::BITS as usize - bucket) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn nine_tenths_of_the_stall_decide_not_of_the_refaults() {
        let mut missing = MissingMemory::default();
        for _ in 0..1000 {
            missing.note(100, MS / 1000, 0);
        }
        for _ in 0..9 {
            missing.note(3000, 10 * MS, 0);
        }
        missing.note(1 << 30, 9 * MS, 0);
        assert_eq!(missing.suggest(50_000, 0), 50_000 + 4095, "90 of 100 ms are within 4095 pages");
        missing.note(1 << 30, 3 * MS, 0);
        assert_eq!(missing.suggest(50_000, 0), 50_000 + (1 << 30), "not any more");
    }

    #[test]
    fn nothing_is_suggested_beyond_the_longest_distance_or_without_a_stall() {
        let mut missing = MissingMemory::default();
        assert_eq!(missing.suggest(777, 0), 777);
        missing.note(5_000_000, 0, 0);
        assert_eq!(missing.suggest(777, 0), 777, "no thread waited");
        missing.note(2049, MS, 0);
        assert_eq!(missing.suggest(777, 0), 777 + 2049, "rather than 4095");
        missing.note(0, 100 * MS, 0);
        assert_eq!(missing.suggest(777, 0), 777);
    }

    /// `docs/kernel/memcg.md` §8.8.
    #[test]
    fn an_old_phase_is_outweighed_and_then_forgotten() {
        let mut missing = MissingMemory::default();
        missing.note(1 << 20, 1000 * MS, 0);
        let later = 3 * HALVING_NS;
        assert_eq!(missing.stall(later), 125 * MS);
        missing.note(1000, 1200 * MS, later);
        assert_eq!(missing.suggest(0, later), 1023);
        assert_eq!(missing.stall(1000 * HALVING_NS), 0);
        assert_eq!(missing.suggest(5, 1000 * HALVING_NS), 5);
        missing.note(40, MS, 1000 * HALVING_NS);
        assert_eq!(
            missing.suggest(0, 1000 * HALVING_NS),
            40,
            "the old longest distance is forgotten too"
        );
    }

    #[test]
    fn sums_that_are_full_stay_full() {
        let mut missing = MissingMemory::default();
        missing.note(u64::MAX, u64::MAX, 0);
        missing.note(1, u64::MAX, 0);
        assert_eq!((missing.total, missing.suggest(1, 0)), (u64::MAX, u64::MAX));
    }

    proptest! {
        /// Against sorting all distances.
        #[test]
        fn the_advice_covers_nine_tenths_and_no_bucket_less_does(
            events in prop::collection::vec((0u64..1 << 24, 1u64..1 << 30), 1..100),
        ) {
            let mut missing = MissingMemory::default();
            for &(distance, stall) in &events {
                missing.note(distance, stall, 0);
            }
            let within = |d: u64| events.iter().filter(|e| e.0 <= d).map(|e| e.1).sum::<u64>();
            let total = within(u64::MAX);
            let advice = missing.suggest(0, 0);
            prop_assert!(within(advice) >= total - total / 10);
            let less = upper_end(bucket(advice)) / 2;
            prop_assert!(advice == 0 || within(less) < total - total / 10);
        }
    }
}
