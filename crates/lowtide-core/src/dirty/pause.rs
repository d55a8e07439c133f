//! From a rate to sleeps: how long a sleep may be, how long it should at least be, and after how
//! many pages it comes.
//!
//! Sleeps should be long enough to be cheap and short enough to be smooth. With many writers each
//! may sleep longer, since the others keep the device busy; with little to write no sleep may be
//! longer than the device takes to write it, or the device would run dry. Times are in ticks of a
//! millisecond. Source: B8.

/// Nanoseconds of a tick of the formulas.
pub(super) const MS: u64 = 1_000_000;
/// Ticks in a second.
pub(super) const HZ: u64 = 1000;
/// No sleep is longer.
pub(super) const LONGEST: u64 = HZ / 5;
/// Pages after which a sleep should come, at least.
const FEW_PAGES: u64 = 32;
/// `HZ / 8 + 1` and `HZ`, rounded up to powers of two.
const EIGHTH: u64 = (HZ / 8 + 1).next_power_of_two();
const SECOND: u64 = HZ.next_power_of_two();

/// The longest sleep that leaves a device enough to write.
pub(super) fn max_pause(wb_unclean: u64, bandwidth: u64) -> u64 {
    (1 + wb_unclean / (1 + bandwidth / EIGHTH)).min(LONGEST)
}

/// What to aim at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aim {
    /// Shorter sleeps are left for later.
    pub(super) min_pause: u64,
    /// Pages before the next look.
    pub(super) pages: u64,
}

/// What to aim at for a task that may make `task_rate` pages dirty in a second, on a wb where the
/// rate is `ratelimit` at the setpoint.
pub(super) fn aim(max_pause: u64, bandwidth: u64, ratelimit: u64, task_rate: u64) -> Aim {
    let concurrency = bandwidth.max(1).ilog2().saturating_sub(ratelimit.max(1).ilog2());
    let mut pause = (HZ / 100 * (1 + u64::from(concurrency))).min(1 + max_pause / 2);
    let mut pages = ratelimit * pause / SECOND;
    if pages < FEW_PAGES {
        pause = max_pause;
        pages = ratelimit * pause / SECOND;
        if pages > FEW_PAGES {
            pages = FEW_PAGES;
            pause = HZ * FEW_PAGES / ratelimit;
        }
    }
    if HZ * pages / (task_rate + 1) > max_pause {
        pause = max_pause;
        pages = task_rate * pause / SECOND;
    }
    Aim { min_pause: if pages >= FEW_PAGES { 1 + pause / 2 } else { pause }, pages }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fast_writer_sleeps_ten_milliseconds_at_a_time() {
        let max = max_pause(17_500, 25_600);
        assert_eq!(max, 1 + 17_500 / 201);
        let aim = aim(max, 25_600, 25_600, 25_600);
        assert_eq!(aim, Aim { min_pause: 6, pages: 250 });
    }

    #[test]
    fn one_of_many_writers_sleeps_longer() {
        let max = max_pause(1 << 20, 25_600);
        assert_eq!(max, LONGEST);
        // 2^14 / 2^10: four more steps of 10 ms, in which 1600 pages a second are 78.
        assert_eq!(aim(max, 25_600, 1_600, 1_600), Aim { min_pause: 26, pages: 78 });
    }

    #[test]
    fn a_slow_task_looks_after_few_pages() {
        let aim = aim(LONGEST, 100, 100, 10);
        assert_eq!(aim, Aim { min_pause: LONGEST, pages: 1 });
    }

    proptest! {
        /// Invariant 12, as far as it is decided here.
        #[test]
        fn no_pause_is_above_the_bound(
            (unclean, bandwidth) in (0..1_u64 << 40, 1..1_u64 << 24),
            (ratelimit, task_rate) in (1..1_u64 << 24, 0..1_u64 << 28),
        ) {
            let max = max_pause(unclean, bandwidth);
            prop_assert!((1..=LONGEST).contains(&max));
            let aim = aim(max, bandwidth, ratelimit, task_rate);
            prop_assert!(aim.min_pause <= 1 + max, "{aim:?} of {max}");
        }
    }
}
