//! Estimators: what a device writes in a second, and the rate at which a writer may make pages
//! dirty so that both balance.
//!
//! The write bandwidth is a weighted mean of measurements over about four seconds, and a second,
//! slower mean that follows it only where the trend is confirmed: the speed of a device varies a
//! lot, and rates should not.
//!
//! The *balanced* rate follows from one equation. All writers ran at a common rate and together
//! made pages dirty at some speed. Had they run at the rate times bandwidth over that speed, it
//! would have been exactly what the device writes. With N equal writers the fixed point is an Nth
//! of the bandwidth, without a count of the writers. The rate in force moves towards it in small
//! steps, and only where all evidence agrees. Times are in milliseconds, rates in pages a second.
//! Source: B7.
//!
//! Every estimate begins with a guess of 100 MB/s. A kernel needs seconds to learn that a device is
//! ten times as fast. Where figures are exact (`set_exact_dirty`), the first measurements are
//! believed at once if they are higher, and the rate follows: a small budget cannot spare seconds.

use super::pause::HZ;

/// Milliseconds between two estimates, at least.
pub(super) const INTERVAL: u64 = 200;
/// Milliseconds that the mean looks back: three seconds, rounded up to a power of two.
const BACK: u64 = (3 * HZ).next_power_of_two();
/// The initial guess: 100 MB/s in pages of 4 KiB.
const INITIAL: u64 = 25_600;
/// First measurements that an eager estimate believes.
const EAGER: u32 = 5;
/// A device that wrote nothing for this long was idle, not slow.
const IDLE: u64 = HZ;

/// What something writes in a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRate {
    bandwidth: u64,
    /// The slower mean, which all callers use. At least 1.
    pub(super) average: u64,
    since: u64,
    written: u64,
    /// Measurements still to come that are believed at once if they are higher.
    eager: u32,
}

impl WriteRate {
    /// An estimate before any measurement.
    pub(super) const fn new(now: u64) -> Self {
        Self { bandwidth: INITIAL, average: INITIAL, since: now, written: 0, eager: 0 }
    }

    /// Believes its first few measurements at once if they are higher than the guess that it begins
    /// with.
    pub(super) const fn make_eager(&mut self) {
        self.eager = EAGER;
    }

    /// Begins like another: a new wb of a device that is known.
    pub(super) const fn like(other: &Self, now: u64) -> Self {
        Self { since: now, written: 0, ..*other }
    }

    /// Takes a new estimate if the last one is old enough. `written`: pages ever; `busy`: something
    /// is being written. Returns whether the average has made a leap.
    pub(super) fn update(&mut self, now: u64, written: u64, busy: bool) -> bool {
        let elapsed = now.saturating_sub(self.since);
        if elapsed < INTERVAL {
            return false;
        }
        let pages = written.saturating_sub(self.written);
        (self.since, self.written) = (now, written);
        if pages == 0 && !busy && elapsed > IDLE {
            return false;
        }
        let old = self.bandwidth;
        let measured = pages * HZ / elapsed;
        let leap = self.eager > 0 && measured > self.average;
        self.eager = self.eager.saturating_sub(u32::from(pages > 0));
        if elapsed > BACK || leap {
            self.bandwidth = measured;
            self.average = measured.max(1);
            return leap;
        }
        self.bandwidth = (pages * HZ + old * (BACK - elapsed)) / BACK;
        if self.average > old && old >= self.bandwidth {
            self.average -= (self.average - old) >> 3;
        } else if self.average < old && old <= self.bandwidth {
            self.average += (old - self.average) >> 3;
        }
        self.average = self.average.max(1);
        false
    }

    /// Leaves out pages that were written elsewhere.
    pub(super) const fn skip(&mut self, written: u64) {
        self.written += written;
    }

    /// Nothing was being written until now: the measurement starts here.
    pub(super) const fn restart(&mut self, now: u64, written: u64) {
        if now.saturating_sub(self.since) > IDLE {
            (self.since, self.written) = (now, written);
        }
    }
}

/// The rate for one writer, at the setpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirtyRate {
    /// In force. At least 1.
    pub(super) ratelimit: u64,
    balanced: u64,
    since: u64,
    dirtied: u64,
}

/// What a new rate is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Factor of the position, in 1/1024.
    pub(super) ratio: u64,
    /// The domain has less than its setpoint.
    pub(super) below_setpoint: bool,
    /// Average write bandwidth.
    pub(super) bandwidth: u64,
    /// Pages that became dirty, ever.
    pub(super) dirtied: u64,
}

impl DirtyRate {
    pub(super) const fn new(bandwidth: u64, now: u64) -> Self {
        Self { ratelimit: bandwidth, balanced: bandwidth, since: now, dirtied: 0 }
    }

    /// Takes a new estimate if the last one is old enough.
    pub(super) fn update(&mut self, now: u64, seen: Evidence) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed < INTERVAL {
            return;
        }
        let dirty_rate = seen.dirtied.saturating_sub(self.dirtied) * HZ / elapsed;
        (self.since, self.dirtied) = (now, seen.dirtied);
        let task_rate = task_rate(self.ratelimit, seen.ratio) + 1;
        let balanced =
            u128::from(task_rate) * u128::from(seen.bandwidth) / u128::from(dirty_rate | 1);
        let balanced = balanced.min(u128::from(seen.bandwidth)) as u64;
        let rate = self.ratelimit;
        let step = if seen.below_setpoint {
            self.balanced.min(balanced).min(task_rate).saturating_sub(rate)
        } else {
            rate.saturating_sub(self.balanced.max(balanced).max(task_rate))
        };
        // Small errors do not count, and no error is corrected at once.
        let shift = u32::try_from(rate / (2 * step + 1)).unwrap_or(u32::MAX);
        let step = step.checked_shr(shift).unwrap_or(0).div_ceil(8);
        self.ratelimit =
            if rate < balanced { rate + step } else { rate.saturating_sub(step).max(1) };
        self.balanced = balanced;
    }

    /// The device turned out to be faster than estimated.
    pub(super) fn leap(&mut self, bandwidth: u64) {
        self.ratelimit = self.ratelimit.max(bandwidth);
        self.balanced = self.ratelimit;
    }

    /// Leaves out pages that became dirty elsewhere.
    pub(super) const fn skip(&mut self, dirtied: u64) {
        self.dirtied += dirtied;
    }
}

/// The rate of a task, given the factor of the position.
pub(super) fn task_rate(ratelimit: u64, ratio: u64) -> u64 {
    ((u128::from(ratelimit) * u128::from(ratio)) >> 10) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirty::position::ONE;

    #[test]
    fn the_bandwidth_follows_in_seconds_and_not_at_once() {
        let mut rate = WriteRate::new(0);
        let mut written = 0;
        let mut at = |ms: u64, pages_per_s: u64| {
            written += pages_per_s / 5;
            rate.update(ms, written, true);
            rate.average
        };
        let averages: Vec<_> = (1..=150).map(|n| at(n * 200, 5_000)).collect();
        assert!(averages[0] >= 25_000, "one slow moment is nothing: {averages:?}");
        assert!(averages[149].abs_diff(5_000) < 500, "{averages:?}");
        assert!(averages.is_sorted_by(|a, b| a >= b), "no overshoot");
    }

    #[test]
    fn a_fast_device_is_known_at_once_to_the_eager() {
        for eager in [true, false] {
            let mut rate = WriteRate::new(0);
            if eager {
                rate.make_eager();
            }
            assert_eq!(rate.update(200, 50_000, true), eager);
            assert_eq!(rate.average == 250_000, eager, "{}", rate.average);
            assert!(
                !rate.update(400, 51_000, true) && rate.average >= INITIAL,
                "slowness is not believed at once"
            );
        }
    }

    #[test]
    fn idleness_is_not_slowness() {
        let mut rate = WriteRate::new(0);
        rate.update(60_000, 0, false);
        assert_eq!(rate.average, INITIAL);
        rate.restart(3_600_000, 0);
        rate.update(3_600_200, 5_120, true);
        assert_eq!(rate.bandwidth, INITIAL, "measured from the restart on");
        rate.update(3_600_200 + BACK + 1, 5_120 + 41, true);
        assert_eq!(rate.average, 10, "a long time with something in flight: that is its speed");
        rate.update(3_700_000, 5_161, true);
        assert_eq!(rate.average, 1, "never 0");
    }

    /// N equal writers at the setpoint, each at an Nth: nothing moves. With fewer pages dirty and a
    /// wrong rate it does, the right way.
    #[test]
    fn the_rate_of_n_equal_writers_is_an_nth() {
        let bandwidth = 25_600;
        for writers in [1, 4, 100] {
            for start in [bandwidth / writers, bandwidth / writers / 4] {
                let (mut rate, mut dirtied) = (DirtyRate::new(start, 0), 0);
                for n in 1..=400 {
                    let behind = rate.ratelimit * writers < bandwidth * 9 / 10;
                    let ratio = if behind { ONE * 3 / 2 } else { ONE };
                    dirtied += writers * task_rate(rate.ratelimit, ratio) / 5;
                    let seen = Evidence { ratio, below_setpoint: behind, bandwidth, dirtied };
                    rate.update(n * 200, seen);
                }
                let sum = rate.ratelimit * writers;
                assert!(
                    sum.abs_diff(bandwidth) <= bandwidth / 8,
                    "{writers} writers from {start}: {sum}"
                );
            }
        }
    }

    #[test]
    fn extreme_figures_do_no_harm() {
        let mut rate = DirtyRate::new(1, 0);
        for (n, dirtied) in [0, u64::MAX / HZ, u64::MAX / HZ].into_iter().enumerate() {
            let seen =
                Evidence { ratio: 16 * ONE, below_setpoint: n == 0, bandwidth: 1 << 40, dirtied };
            rate.update((n as u64 + 1) * 1000, seen);
            assert!(rate.ratelimit >= 1);
        }
    }
}
