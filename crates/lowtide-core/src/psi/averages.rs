//! Running averages of pressure over 10, 60 and 300 seconds.
//!
//! One sample is taken each period of `2·HZ + 1` ticks: the part of the period that was spent in
//! the state, in whole percent. An average keeps `e` of its old value and takes the rest from the
//! sample, in fixed point with 11 binary digits; it rounds up while it rises, so that a constant
//! pressure is reached. Periods that were missed count as samples of zero, all at once with a power
//! of `e`. Time that does not fit in one period stays for the next sample: nothing is lost, it is
//! only delayed.
//!
//! The decays assume samples every 2 s while the period is a tick longer (`docs/kernel/memcg.md`
//! §17). Source: `docs/kernel/memcg.md` §14.3, 14.4.

use crate::units::NS_PER_SEC;

/// States that are totalled: some, full, throttle.
pub(super) const STATES: usize = 3;

/// 1.0 in fixed point.
const ONE: u64 = 1 << 11;
/// What an average keeps at each sample: windows of 10, 60 and 300 seconds.
const KEEP: [u64; 3] = [1677, 1981, 2034];

/// The averages of all states, and when the next sample is due.
#[derive(Clone, Debug)]
pub(super) struct Averages {
    /// Nanoseconds from one sample to the next.
    pub(super) period: u64,
    last: u64,
    pub(super) next: u64,
    fed: [u64; STATES],
    values: [[u64; 3]; STATES],
}

impl Averages {
    /// Zero averages of a group that begins now.
    pub(super) fn new(hz: u64, now: u64) -> Self {
        let hz = hz.max(1);
        let period = (2 * hz + 1) * (NS_PER_SEC / hz).max(1);
        Self {
            period,
            last: now,
            next: now.saturating_add(period),
            fed: [0; STATES],
            values: [[0; 3]; STATES],
        }
    }

    /// Takes a sample of the totals (nanoseconds since the beginning) at `now`, which is `next` or
    /// later.
    pub(super) fn sample(&mut self, totals: [u64; STATES], now: u64) {
        let missed = (now - self.next) / self.period;
        self.next += (1 + missed) * self.period;
        let period = (now - (self.last + missed * self.period)).max(1);
        self.last = now;
        for ((total, fed), values) in totals.into_iter().zip(&mut self.fed).zip(&mut self.values) {
            let spent = (total - *fed).min(period);
            *fed += spent;
            let percent = spent * 100 / period * ONE;
            for (value, keep) in values.iter_mut().zip(KEEP) {
                if missed > 0 {
                    *value = step(*value, power(keep, missed), 0);
                }
                *value = step(*value, keep, percent);
            }
        }
    }

    /// Goes on from `now` as if everything before had been sampled.
    pub(super) fn skip_to(&mut self, totals: [u64; STATES], now: u64) {
        self.fed = totals;
        self.last = now;
        self.next = now.saturating_add(self.period);
    }

    /// The three averages of a state in hundredths of a percent.
    pub(super) fn hundredths(&self, state: usize) -> [u32; 3] {
        self.values[state].map(|v| ((v / ONE) * 100 + (v % ONE) * 100 / ONE) as u32)
    }
}

fn step(value: u64, keep: u64, percent: u64) -> u64 {
    let round_up = if percent >= value { ONE - 1 } else { 0 };
    (value * keep + percent * (ONE - keep) + round_up) / ONE
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = ONE;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = (result * base + ONE / 2) / ONE;
        }
        base = (base * base + ONE / 2) / ONE;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 1000;

    /// Feeds `samples` periods of `percent`, and gives the three averages.
    fn after(samples: u64, percent: u64) -> [u32; 3] {
        let mut averages = Averages::new(HZ, 0);
        let period = averages.period;
        for k in 1..=samples {
            averages.sample([k * period * percent / 100; STATES], k * period);
        }
        averages.hundredths(0)
    }

    /// `docs/kernel/memcg.md` §14.4.
    #[test]
    fn constant_pressure_rises_as_the_hand_computed_vectors_say() {
        assert_eq!(after(1, 100), [1811, 327, 68]);
        assert_eq!(after(2, 100), [3294, 643, 136]);
        assert_eq!(after(5, 100), [6318, 1532, 337]);
        assert_eq!(after(10, 100), [8644, 2829, 663]);
        assert_eq!(after(15, 100), [9501, 3928, 978]);
        assert_eq!(after(5000, 100), [10_000; 3]);
    }

    /// `docs/kernel/memcg.md` §14.4. The slowest average still lacks a hundredth after a thousand
    /// samples; rounding up brings it there.
    #[test]
    fn steady_forty_percent_settles_at_forty() {
        assert_eq!(after(1000, 40), [4000, 4000, 3999]);
        assert_eq!(after(1010, 40), [4000; 3]);
    }

    #[test]
    fn the_period_is_two_seconds_and_a_tick() {
        assert_eq!(Averages::new(1000, 0).period, 2_001_000_000);
        assert_eq!(Averages::new(250, 0).period, 2_004_000_000);
        assert_eq!(Averages::new(100, 7).next, 7 + 2_010_000_000);
    }

    /// `docs/kernel/memcg.md` §16, 15: one catching up with many periods is many samples of zero,
    /// within rounding.
    #[test]
    fn missed_periods_decay_like_samples_of_zero() {
        for missed in [1, 2, 7, 30, 100] {
            let mut late = Averages::new(HZ, 0);
            let period = late.period;
            for k in 1..=10 {
                late.sample([k * period; STATES], k * period);
            }
            let mut timely = late.clone();
            late.sample([10 * period; STATES], (11 + missed) * period);
            for k in 11..=11 + missed {
                timely.sample([10 * period; STATES], k * period);
            }
            assert_eq!(late.next, timely.next);
            for (a, b) in late.hundredths(0).into_iter().zip(timely.hundredths(0)) {
                assert!(a.abs_diff(b) <= 15, "{missed} missed: {a} and {b}");
            }
        }
    }

    /// `docs/kernel/memcg.md` §14.3: the excess stays for later.
    #[test]
    fn time_that_does_not_fit_in_a_period_counts_in_the_next() {
        let mut averages = Averages::new(HZ, 0);
        let period = averages.period;
        averages.sample([3 * period; STATES], period);
        averages.sample([3 * period; STATES], 2 * period);
        averages.sample([3 * period; STATES], 3 * period);
        let full = after(3, 100);
        assert_eq!(averages.hundredths(0), full);
        averages.sample([3 * period; STATES], 4 * period);
        assert!(averages.hundredths(0)[0] < full[0]);
    }
}
