//! The penalty of a proposed patch: the more recent the last refault of the group, the longer the
//! sleep.
//!
//! The patch (December 2025, not merged) stamps the group at every refault with the tick, and adds
//! to the penalty for overage `HZ / ticks since then`, a tenth of a second at most and nothing
//! after a second. It is here for comparison, so it has the patch's faults too: a number without
//! dimension is used as ticks, so that a refault 100 ms ago costs 10 ms at HZ 1000 and 100 ms at HZ
//! 100; ten refaults a second and a hundred thousand look alike; the group is measured, but each
//! task pays.
//!
//! What else the patch does with a penalty (no retry of reclaim, no rule of ten milliseconds) is in
//! `handler.rs`. Source: `docs/kernel/memcg.md` §7.1, 7.3.

use super::overage::ns_to_ticks;

/// Ticks to add to the penalty for overage. `since_refault_ns` is the time since the last refault
/// in the group of the task, `u64::MAX` if there was none, and is rounded down to ticks; `hz` is
/// the number of ticks in a second.
#[must_use]
pub const fn penalty(since_refault_ns: u64, hz: u64) -> u64 {
    if since_refault_ns == u64::MAX {
        return 0;
    }
    let since = match ns_to_ticks(since_refault_ns, hz) {
        0 => 1,
        ticks => ticks,
    };
    if since >= hz {
        return 0;
    }
    let (inverse, cap) = (hz / since, hz / 10);
    if inverse < cap { inverse } else { cap }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::high::overage::ticks_to_ns;

    const MS: u64 = 1_000_000;

    fn penalties_ms(since_ms: u64, hz: u64) -> u64 {
        ticks_to_ns(penalty(since_ms * MS, hz), hz) / MS
    }

    /// `docs/kernel/memcg.md` §7.1.
    #[test]
    fn the_published_values_hold_at_a_thousand_ticks_a_second() {
        let rows = [
            (0, 100),
            (1, 100),
            (10, 100),
            (20, 50),
            (50, 20),
            (100, 10),
            (250, 4),
            (500, 2),
            (999, 1),
            (1000, 0),
        ];
        for (since, expected) in rows {
            assert_eq!(penalty(since * MS, 1000), expected, "{since} ms ago");
        }
    }

    /// `docs/kernel/memcg.md` §7.3: the fault of the units, by hand: 25 / 250 ticks of 4 ms and 10
    /// / 100 ticks of 10 ms.
    #[test]
    fn the_same_recency_costs_more_with_fewer_ticks_a_second() {
        assert_eq!([1000, 250, 100].map(|hz| penalties_ms(100, hz)), [10, 40, 100]);
        assert_eq!([1000, 250, 100].map(|hz| penalty(20 * MS, hz)), [50, 25, 10]);
        assert_eq!([1000, 250, 100].map(|hz| penalty(500 * MS, hz)), [2, 2, 2]);
        assert_eq!([1000, 250, 100].map(|hz| penalty(1000 * MS, hz)), [0, 0, 0]);
    }

    #[test]
    fn a_group_without_refaults_has_no_penalty_and_a_tick_is_the_least_age() {
        assert_eq!(penalty(u64::MAX, 1000), 0);
        assert_eq!(penalty(u64::MAX - 1, 1000), 0);
        assert_eq!(penalty(0, 100), 10, "a tenth of a second, not a division by zero");
        assert_eq!(penalty(0, 0), 0);
    }
}
