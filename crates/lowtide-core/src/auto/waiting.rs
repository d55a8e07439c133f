//! Waiting for pages that a limit had evicted, by the limit that would have kept them.
//!
//! A refault says how many pages were evicted since its own page was (the *distance*). With as many
//! pages more than there were in memory it would have been a hit:
//!
//! ```text
//!   needed = usage when it was evicted + distance
//! ```
//!
//! A shadow has no room for the former. But usage changes little while a limit does not rise, and
//! when one rises [`Evidence`] notes the usage and the number of evictions until then. So pages
//! that only fill the new room, which need no larger limit, are not taken for others. Distances
//! count evictions, so a page that was evicted twice in between counts twice, and `needed` is an
//! upper estimate.
//!
//! Sizes are kept in classes, eight to a doubling. An event costs O(1).

use std::collections::VecDeque;

/// Classes to a doubling, as a power of two.
const FINE: u32 = 3;
/// Sizes of as many binary digits and more are one class.
const DIGITS: u32 = 40;
const CLASSES: usize = ((DIGITS - FINE + 1) << FINE) as usize;
/// Growths that are remembered.
const GROWTHS: usize = 16;
/// A doubling is to avoid this part of the waiting.
const WORTH_PART: u64 = 16;

/// See the module documentation. Sizes are pages, times nanoseconds, of all threads together.
#[derive(Clone, PartialEq, Eq)]
pub struct Waiting {
    stall_ns: [u64; CLASSES],
    refaults: u64,
    cold: u64,
}

/// What a group remembers between two samples.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    waiting: Waiting,
    /// Pages that were evicted so far.
    evictions: u64,
    /// Evictions until a limit rose, and the usage at that time.
    growths: VecDeque<(u64, u64)>,
}

impl Evidence {
    /// Pages were evicted.
    pub const fn evicted(&mut self, pages: u64) {
        self.evictions = self.evictions.saturating_add(pages);
    }

    /// The limit rises.
    pub fn limit_rises(&mut self, usage: u64) {
        if self.growths.len() == GROWTHS {
            self.growths.pop_front();
        }
        self.growths.push_back((self.evictions, usage));
    }

    /// A thread waited for a page that came back, after `distance` evictions, its own included.
    pub fn note(&mut self, usage: u64, distance: u64, stall_ns: u64) {
        let evicted = self.evictions.saturating_sub(distance);
        let since = self.growths.iter().find(|(rose, _)| *rose > evicted);
        let base = since.map_or(usage, |(_, then)| *then);
        self.waiting.note(base.saturating_add(distance), stall_ns);
    }

    /// What was noted since the last call.
    pub fn take(&mut self) -> Waiting {
        std::mem::take(&mut self.waiting)
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self { stall_ns: [0; CLASSES], refaults: 0, cold: 0 }
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stall_ns, refaults) = (self.total_ns(), self.refaults);
        f.debug_struct("Waiting")
            .field("stall_ns", &stall_ns)
            .field("refaults", &refaults)
            .finish_non_exhaustive()
    }
}

impl Waiting {
    /// A thread waited for a page that a limit of `needed` pages would have kept.
    pub fn note(&mut self, needed: u64, stall_ns: u64) {
        let at = &mut self.stall_ns[class(needed)];
        *at = at.saturating_add(stall_ns);
        self.refaults += 1;
    }

    /// Pages were read that had not been evicted before.
    pub fn note_cold(&mut self, pages: u64) {
        self.cold = self.cold.saturating_add(pages);
    }

    /// All of it.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.stall_ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Pages that came back.
    #[must_use]
    pub const fn refaults(&self) -> u64 {
        self.refaults
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (at, ns) in self.stall_ns.iter_mut().zip(other.stall_ns) {
            *at = at.saturating_add(ns);
        }
        self.refaults = self.refaults.saturating_add(other.refaults);
        self.note_cold(other.cold);
    }

    pub(super) fn halve(&mut self) {
        self.stall_ns.iter_mut().for_each(|ns| *ns /= 2);
        self.refaults /= 2;
        self.cold /= 2;
    }

    /// The waiting for all pages that were read, those that came for the first time included: it is
    /// not measured what these took, so they count as the others do.
    fn all_reads_ns(&self) -> u128 {
        let reads = u128::from(self.refaults) + u128::from(self.cold);
        u128::from(self.total_ns()) * reads / u128::from(self.refaults.max(1))
    }

    /// What limits above `limit`, and at most `most`, would have avoided.
    pub(super) fn between_ns(&self, limit: u64, most: u64) -> u64 {
        self.above(limit, most).fold(0, |sum, (_, ns)| sum.saturating_add(ns))
    }

    /// Upper ends of the classes above a limit, with what was waited there.
    fn above(&self, limit: u64, most: u64) -> impl Iterator<Item = (usize, u64)> {
        let last = class(most);
        (class(limit.saturating_add(1))..=last).map(|at| (at, self.stall_ns[at]))
    }

    /// The limit to grow to: the smallest within `most` that leaves no more than `allowed_ns`, or,
    /// if none does, the one that is worth most. `None` if growing does not pay: to be worth its
    /// memory, a doubling has to avoid a sixteenth of all waiting for the device, and one growth
    /// together no more than a half.
    pub(super) fn worth(&self, limit: u64, most: u64, allowed_ns: u64) -> Option<u64> {
        let (total, from) = (self.all_reads_ns(), class(limit));
        let left = self.between_ns(limit, most);
        let (mut avoided, mut best) = (0_u64, None);
        for (at, ns) in self.above(limit, most) {
            avoided = avoided.saturating_add(ns);
            if ns == 0 {
                continue;
            }
            // A growth is by a class at the least.
            let steps = at.saturating_sub(from) as u64 + 1;
            let price = total * u128::from(steps) / u128::from(WORTH_PART << FINE);
            let Some(net) = u128::from(avoided).checked_sub(price.min(total / 2)) else { continue };
            let size = upper_end(at).min(most);
            if left.saturating_sub(avoided) <= allowed_ns {
                return Some(size);
            }
            if best.is_none_or(|(_, most)| net > most) {
                best = Some((size, net));
            }
        }
        best.map(|(size, _)| size)
    }
}

const fn class(pages: u64) -> usize {
    let digits = u64::BITS - pages.leading_zeros();
    if digits > DIGITS {
        CLASSES - 1
    } else if digits <= FINE {
        pages as usize
    } else {
        let shift = digits - FINE - 1;
        // The leading digit is dropped.
        (((shift + 1) << FINE) + (pages >> shift) as u32 - (1 << FINE)) as usize
    }
}

/// The largest size of a class.
const fn upper_end(class: usize) -> u64 {
    let (octave, part) = (class as u32 >> FINE, class as u64 & ((1 << FINE) - 1));
    if octave == 0 { part } else { (((1 << FINE) + part + 1) << (octave - 1)) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn growth_is_to_the_smallest_size_that_leaves_what_is_allowed() {
        let mut seen = Waiting::default();
        seen.note(150, 90);
        seen.note(400, 10);
        assert_eq!(seen.worth(100, 1000, 10), Some(159), "the class of 150 ends there");
        assert_eq!(seen.worth(100, 1000, 9), Some(415));
        assert_eq!(seen.worth(100, 155, 9), Some(155), "never above the bound");
        assert_eq!(seen.worth(500, 1000, 0), None, "a larger limit would avoid nothing");
    }

    #[test]
    fn growth_that_avoids_too_little_of_the_waiting_is_not_made() {
        let mut seen = Waiting::default();
        // A doubling that avoids a twentieth of the waiting; the rest is out of reach.
        seen.note(200, 5);
        seen.note(1_000_000, 95);
        assert_eq!(seen.worth(100, 1000, 0), None);
        seen.note(200, 5);
        assert_eq!(seen.worth(100, 1000, 0), Some(207));
        // The same, if most of what is read is read for the first time.
        seen.note_cold(30);
        assert_eq!(seen.worth(100, 1000, 0), None);
    }

    #[test]
    fn what_avoids_half_of_the_waiting_is_worth_any_memory_within_the_bounds() {
        let mut seen = Waiting::default();
        seen.note(1 << 30, 60);
        seen.note(1 << 35, 40);
        assert!(seen.worth(10, 1 << 31, 0).is_some_and(|size| size >= 1 << 30));
        seen.note(1 << 35, 40);
        assert_eq!(seen.worth(10, 1 << 31, 0), None);
    }

    #[test]
    fn pages_that_fill_the_room_of_a_growth_need_no_larger_limit() {
        let mut evidence = Evidence::default();
        // A hundred pages were in memory when a page was evicted, and fifty more before the limit
        // rose; the room fills before it comes back.
        evidence.evicted(1000);
        evidence.limit_rises(100);
        evidence.note(190, 50, 7);
        let waiting = evidence.take();
        assert_eq!((waiting.between_ns(99, 160), waiting.between_ns(160, 10_000)), (7, 0));
        // A page that was evicted later.
        evidence.evicted(40);
        evidence.note(200, 30, 9);
        assert_eq!(evidence.take().between_ns(220, 240), 9);
    }

    proptest! {
        #[test]
        fn classes_are_in_order_and_end_where_the_next_begins(pages in 0_u64..1 << 39) {
            let at = class(pages);
            prop_assert!(pages <= upper_end(at));
            prop_assert!(at == 0 || pages > upper_end(at - 1));
            prop_assert_eq!(class(upper_end(at)), at);
            prop_assert!(upper_end(at) <= pages + pages / 8);
        }
    }
}
