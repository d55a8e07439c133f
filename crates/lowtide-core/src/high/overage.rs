//! The kernel's penalty for being above `memory.high`: how far over, and how long to sleep for it.
//!
//! The *overage* of a level is what it uses above `high`, as a fraction of `high` with 20 binary
//! digits. The worst level decides, for memory and for swap separately. The delay grows with the
//! square of the overage and with the pages `N` that the task itself charged since it was last
//! handled: about `r² × N` seconds for an overage `r`. A task that charges four times as much waits
//! four times as long, one that charges nothing does not wait.
//!
//! The order of the roundings is part of the policy (the shift first, then times `N`, then divided
//! by 64): other orders give other ticks at small values. The kernel computes in 64 bits and wraps
//! beyond an overage of about 128 times `high`; here the result saturates, which the clamp of two
//! seconds hides in all but contrived cases.
//!
//! Source: `docs/kernel/memcg.md` §6.3, 17.

use crate::units::NS_PER_SEC;

/// Binary digits of an overage.
const PRECISION: u32 = 20;
/// The second shift: `2^40 / 2^34` cancels the batch of 64 pages.
const SCALING: u32 = 14;
/// Pages of a charge batch.
const CHARGE_BATCH: u64 = 64;

/// How far a level is over, in units of `high / 2^20`. 0 when usage is at most `high`. Both in
/// pages.
#[must_use]
pub const fn overage(usage: u64, high: u64) -> u64 {
    if usage <= high {
        return 0;
    }
    let divisor = if high == 0 { 1 } else { high };
    saturate((((usage - high) as u128) << PRECISION) / divisor as u128)
}

/// Ticks to sleep for an overage, before any clamp. `pages` is what the task charged since it was
/// last handled, `hz` the ticks in a second.
///
/// With `hz` of a thousand million the result is in nanoseconds.
#[must_use]
pub const fn delay(overage: u64, pages: u64, hz: u64) -> u64 {
    let squared = overage as u128 * overage as u128;
    let base = squared.saturating_mul(hz as u128) >> PRECISION >> SCALING;
    saturate(base.saturating_mul(pages as u128) / CHARGE_BATCH as u128)
}

/// The kernel's penalty: ticks for the worst memory overage plus ticks for the worst swap overage,
/// two seconds at most.
#[must_use]
pub const fn penalty(memory: u64, swap: u64, pages: u64, hz: u64) -> u64 {
    let sum = delay(memory, pages, hz).saturating_add(delay(swap, pages, hz));
    let clamp = clamp_ticks(hz);
    if sum < clamp { sum } else { clamp }
}

/// Longest sleep of one handling, in ticks: two seconds.
#[must_use]
pub const fn clamp_ticks(hz: u64) -> u64 {
    hz.saturating_mul(2)
}

/// Ticks as nanoseconds, rounded down. `hz` of 0 counts as 1.
#[must_use]
pub const fn ticks_to_ns(ticks: u64, hz: u64) -> u64 {
    let hz = if hz == 0 { 1 } else { hz };
    saturate(ticks as u128 * NS_PER_SEC as u128 / hz as u128)
}

/// Whole ticks in some nanoseconds.
#[must_use]
pub const fn ns_to_ticks(ns: u64, hz: u64) -> u64 {
    saturate(ns as u128 * hz as u128 / NS_PER_SEC as u128)
}

const fn saturate(value: u128) -> u64 {
    if value > u64::MAX as u128 { u64::MAX } else { value as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 100 MiB of 4 KiB pages.
    const HIGH: u64 = 25_600;

    fn ticks(percent: u64, pages: u64, hz: u64) -> u64 {
        penalty(overage(HIGH * percent / 100, HIGH), 0, pages, hz)
    }

    /// `docs/kernel/memcg.md` §6.3, the table.
    #[test]
    fn the_published_table_holds_to_the_tick() {
        let table = [
            (100, [0, 0, 0]),
            (101, [0, 1, 6]),
            (102, [2, 6, 25]),
            (103, [5, 14, 57]),
            (105, [15, 39, 159]),
            (110, [63, 159, 639]),
            (115, [143, 359, 1439]),
            (117, [184, 462, 1849]),
            (118, [200, 500, 2000]),
            (400, [200, 500, 2000]),
        ];
        for (percent, expected) in table {
            let got = [100, 250, 1000].map(|hz| ticks(percent, 64, hz));
            assert_eq!(got, expected, "usage at {percent} %");
        }
    }

    /// `docs/kernel/memcg.md` §6.3: the row at 110 % by pages charged, before the clamp.
    #[test]
    fn the_delay_is_proportional_to_what_the_task_charged() {
        let over = overage(HIGH * 110 / 100, HIGH);
        let rows = [(1, 9), (8, 79), (16, 159), (32, 319), (64, 639), (128, 1278), (512, 5112)];
        for (pages, expected) in rows {
            assert_eq!(delay(over, pages, 1000), expected, "{pages} pages");
        }
    }

    /// `docs/kernel/memcg.md` §6.3: the kernel's product wraps to 7,858,176 here.
    #[test]
    fn an_absurd_overage_saturates_instead_of_wrapping() {
        assert_eq!(delay(overage(130, 0), 64, 1000), 1_081_600_000);
        assert_eq!(delay(overage(u64::MAX, 0), u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(penalty(overage(u64::MAX, 0), overage(u64::MAX, 1), u64::MAX, 1000), 2000);
    }

    /// `docs/kernel/memcg.md` §17.
    #[test]
    fn high_is_breached_only_above_it_and_the_clamp_is_on_the_sum() {
        assert_eq!(overage(HIGH, HIGH), 0);
        assert_eq!(overage(u64::MAX, u64::MAX), 0, "no limit is never exceeded");
        let over = overage(HIGH * 115 / 100, HIGH);
        assert_eq!(penalty(over, 0, 64, 1000), 1439);
        assert_eq!(penalty(over, over, 64, 1000), 2000, "not 2878");
    }

    #[test]
    fn ticks_convert_to_nanoseconds_and_back() {
        assert_eq!(ticks_to_ns(639, 1000), 639_000_000);
        assert_eq!(ticks_to_ns(1, 300), 3_333_333);
        assert_eq!(ns_to_ticks(999_999_999, 250), 249);
        assert_eq!(ticks_to_ns(u64::MAX, 0), u64::MAX);
    }

    proptest! {
        /// `docs/kernel/memcg.md` §16, invariant 9.
        #[test]
        fn the_penalty_grows_with_usage_and_pages_and_falls_with_high(
            usage in 0u64..1 << 40,
            more in 0u64..1 << 40,
            high in 0u64..1 << 40,
            pages in 0u64..100_000,
            hz in 1u64..2000,
        ) {
            let at = |usage, high, pages| penalty(overage(usage, high), 0, pages, hz);
            prop_assert!(at(usage, high, pages) <= at(usage + more, high, pages));
            prop_assert!(at(usage, high, pages) >= at(usage, high + more, pages));
            prop_assert!(at(usage, high, pages) <= at(usage, high, pages + more % 1000));
            prop_assert!(usage > high || at(usage, high, pages) == 0);
            prop_assert!(at(usage, high, pages) <= 2 * hz);
        }
    }
}
