//! The share of a device in a domain: its part of the recent writeout.
//!
//! Each written page is an event. Every three seconds all counts are halved, so a count is a sum of
//! the past with weights 1, 1/2, 1/4, …, and idle devices fade. A count is halved when it is next
//! looked at; all use the same period, which is why the counts of the parts never add up to more
//! than the count of the whole. Source: B6.

/// Length of a period.
const PERIOD_NS: u64 = 3_000_000_000;
/// Periods without an event after which nothing is left.
const FORGOTTEN: u64 = 64;

/// The number of a period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Period(u64);

impl Period {
    pub(super) const fn at(now: u64) -> Self {
        Self(now / PERIOD_NS)
    }
}

/// A count of events that fades.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fading {
    count: u64,
    /// The period up to which `count` has been halved.
    period: Period,
}

impl Fading {
    /// Events happen in a period, or, if a later one has been seen already, in that.
    pub(super) fn add(&mut self, events: u64, period: Period) {
        self.count = self.get(period) + events;
        self.period = self.period.max(period);
    }

    /// The count as of a period.
    pub(super) const fn get(&self, period: Period) -> u64 {
        let missed = period.0.saturating_sub(self.period.0);
        if missed >= FORGOTTEN { 0 } else { self.count >> missed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_idle_part_fades_to_nothing() {
        let mut part = Fading::default();
        part.add(1000, Period(5));
        assert_eq!(
            [5, 6, 7, 14, 15, 68, 69, 1 << 40].map(|p| part.get(Period(p))),
            [1000, 500, 250, 1, 0, 0, 0, 0]
        );
        part.add(u64::MAX >> 1, Period(6));
        assert_eq!(part.get(Period(6 + FORGOTTEN)), 0);
        assert_eq!(Period::at(2_999_999_999), Period(0));
    }

    proptest! {
        /// Invariant 13: parts are never more than the whole.
        #[test]
        fn fractions_add_up_to_at_most_one(
            events in prop::collection::vec((0_usize..4, 0..1000_u64, 0..3_u64), 1..200),
        ) {
            let mut parts = [Fading::default(); 4];
            let (mut whole, mut period) = (Fading::default(), Period(0));
            for (part, count, later) in events {
                period.0 += later;
                parts[part].add(count, period);
                whole.add(count, period);
                let sum: u64 = parts.iter().map(|part| part.get(period)).sum();
                prop_assert!(sum <= whole.get(period), "{sum} of {}", whole.get(period));
            }
        }
    }
}
