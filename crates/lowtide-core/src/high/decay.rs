//! Sums that halve with time, in integers: the same on every machine and under every spacing of
//! events.
//!
//! A decayed sum is `Σ amount × 2^(−age / half-life)`. Time is cut into ticks of 65.536 µs, and a
//! sum decays by whole ticks only, so that a million additions within a second leave what one of
//! the same amount leaves. The factor of some ticks is a shift for the whole half-lives, and
//! one multiplication for each 8 of the 40 binary digits of the rest, from tables. The tables are
//! products of `2^(−1/2), 2^(−1/4), …`, which integer square roots give at compile time. Nothing
//! here uses floating point: `exp2` is not the same on all machines.

use crate::units::NS_PER_SEC;

/// Nanoseconds of a tick, as a shift.
const TICK_SHIFT: u32 = 16;
/// Binary digits of a sum behind the point.
const FRACTION: u32 = 16;
/// Binary digits of a part of a half-life.
const DIGITS: usize = 40;
/// 1.0 as a factor.
const ONE: u64 = 1 << 63;
/// Natural logarithm of 2, times 10^9.
const LN2_E9: u128 = 693_147_181;

/// `2^(−1/2), 2^(−1/4), …` with 63 binary digits.
const ROOTS: [u64; DIGITS] = {
    let mut roots = [0; DIGITS];
    let mut last = ONE / 2;
    let mut i = 0;
    while i < DIGITS {
        last = ((last as u128) << 63).isqrt() as u64;
        roots[i] = last;
        i += 1;
    }
    roots
};

/// The factor of each value of each 8 digits, from the highest 8 on.
static FACTORS: [[u64; 256]; DIGITS / 8] = {
    let mut factors = [[ONE; 256]; DIGITS / 8];
    let mut i = 0;
    while i < DIGITS {
        let (table, bit) = (i / 8, 7 - i % 8);
        let mut value = 0;
        while value < 256 {
            if value >> bit & 1 == 1 {
                factors[table][value] = times(factors[table][value], ROOTS[i]);
            }
            value += 1;
        }
        i += 1;
    }
    factors
};

const fn times(value: u64, factor: u64) -> u64 {
    ((value as u128 * factor as u128) >> 63) as u64
}

/// The time in which a sum halves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HalfLife {
    ticks: u64,
    /// Natural logarithm of 2 for each half-life in seconds, with 48 binary digits behind the
    /// point.
    per_second: u64,
}

impl HalfLife {
    /// From nanoseconds, rounded to 65.536 µs.
    ///
    /// # Panics
    /// When it is shorter than a millisecond or longer than nine minutes: a mistake in a constant.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        let ticks = (ns + (1 << (TICK_SHIFT - 1))) >> TICK_SHIFT;
        assert!(ticks > 15 && ticks < 1 << 23);
        let half_ns = (ticks << TICK_SHIFT) as u128;
        Self { ticks, per_second: ((LN2_E9 << 48) / half_ns) as u64 }
    }

    /// What is left of a sum after some ticks.
    fn keep(self, value: u64, ticks: u64) -> u64 {
        let (whole, rest) =
            if ticks < self.ticks { (0, ticks) } else { (ticks / self.ticks, ticks % self.ticks) };
        if whole >= 64 || value == 0 {
            return 0;
        }
        let digits = (rest << DIGITS) / self.ticks;
        let mut value = value;
        for (i, factors) in FACTORS.iter().enumerate() {
            let digits = (digits >> (DIGITS - 8 - 8 * i)) & 255;
            if digits != 0 {
                value = times(value, factors[digits as usize]);
            }
        }
        value >> whole
    }
}

/// A decayed sum, at most 2^48. Additions cost a compare and an add within a tick, some tens of
/// nanoseconds after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decayed {
    value: u64,
    tick: u64,
}

impl Decayed {
    /// Adds an amount at a time. Time that goes back counts as no time.
    pub fn add(&mut self, half: HalfLife, now_ns: u64, amount: u64) {
        self.age(half, now_ns);
        self.value = self.value.saturating_add(amount.min(u64::MAX >> FRACTION) << FRACTION);
    }

    /// Takes an amount away, down to 0.
    pub fn take(&mut self, half: HalfLife, now_ns: u64, amount: u64) {
        self.age(half, now_ns);
        self.value = self.value.saturating_sub(amount.min(u64::MAX >> FRACTION) << FRACTION);
    }

    /// Lowers the sum to `most` if it is more.
    pub fn cap(&mut self, half: HalfLife, now_ns: u64, most: u64) {
        self.age(half, now_ns);
        self.value = self.value.min(most.min(u64::MAX >> FRACTION) << FRACTION);
    }

    /// The sum at a time, rounded down.
    #[must_use]
    pub fn at(&self, half: HalfLife, now_ns: u64) -> u64 {
        let ticks = (now_ns >> TICK_SHIFT).saturating_sub(self.tick);
        let value = if ticks == 0 { self.value } else { half.keep(self.value, ticks) };
        value >> FRACTION
    }

    /// The sum as an amount per second: what would have to be added each second to keep it.
    #[must_use]
    pub fn per_second(&self, half: HalfLife, now_ns: u64) -> u64 {
        ((u128::from(self.at(half, now_ns)) * u128::from(half.per_second)) >> 48) as u64
    }

    /// The sum that an amount per second keeps: the inverse of [`Decayed::per_second`], not rounded
    /// down below it.
    #[must_use]
    pub(super) const fn kept_by(half: HalfLife, per_second: u64) -> u64 {
        let half_ns = (half.ticks << TICK_SHIFT) as u128;
        let sum = (per_second as u128 * half_ns).div_ceil(LN2_E9);
        if sum > (u64::MAX >> FRACTION) as u128 { u64::MAX >> FRACTION } else { sum as u64 }
    }

    fn age(&mut self, half: HalfLife, now_ns: u64) {
        let tick = now_ns >> TICK_SHIFT;
        if tick > self.tick {
            self.value = half.keep(self.value, tick - self.tick);
            self.tick = tick;
        }
    }
}

const _: () = assert!(NS_PER_SEC == 1_000_000_000, "LN2_E9 is in this unit");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HALF: HalfLife = HalfLife::from_ns(10 * NS_PER_SEC);

    #[test]
    fn the_roots_are_those_of_a_half() {
        let value = |i: usize| ROOTS[i] as f64 / ONE as f64;
        assert!((value(0) - 0.5f64.sqrt()).abs() < 1e-15);
        assert!((value(7) - 0.5f64.powf(1.0 / 256.0)).abs() < 1e-15);
        assert!(ROOTS.windows(2).all(|w| w[0] < w[1]) && ROOTS[DIGITS - 1] < ONE);
    }

    #[test]
    fn a_sum_halves_in_a_half_life_and_is_gone_after_sixty_four() {
        let mut sum = Decayed::default();
        sum.add(HALF, 0, 1_000_000_000);
        for (halves, expected) in [(0, 1_000_000_000), (1, 500_000_000), (3, 125_000_000)] {
            let at = sum.at(HALF, halves * (HALF.ticks << TICK_SHIFT));
            assert!(at.abs_diff(expected) <= 1, "{at} after {halves}");
        }
        assert_eq!(sum.at(HALF, 700 * NS_PER_SEC), 0);
    }

    #[test]
    fn a_steady_stream_is_read_back_as_its_rate() {
        let mut sum = Decayed::default();
        for second in 0..20_000u64 {
            sum.add(HALF, second * 10_000_000, 1_000_000);
        }
        let rate = sum.per_second(HALF, 200 * NS_PER_SEC);
        assert!(rate.abs_diff(100_000_000) < 200_000, "{rate} of 100,000,000 ns a second");
        let kept = Decayed::kept_by(HALF, 100_000_000);
        assert!(kept.abs_diff(sum.at(HALF, 200 * NS_PER_SEC)) < kept / 500);
    }

    #[test]
    fn sums_saturate_and_time_that_goes_back_is_no_time() {
        let mut sum = Decayed::default();
        sum.add(HALF, NS_PER_SEC, u64::MAX);
        sum.add(HALF, 0, u64::MAX);
        assert_eq!(sum.at(HALF, 0), u64::MAX >> FRACTION);
        sum.take(HALF, NS_PER_SEC, u64::MAX);
        assert_eq!(sum.at(HALF, NS_PER_SEC), 0);
    }

    proptest! {
        /// "Exact under any event spacing": looking in between, at any times, changes at most the
        /// last digits.
        #[test]
        fn looking_in_between_does_not_change_what_is_left(
            mut times in prop::collection::vec(0u64..100 * NS_PER_SEC, 0..300),
        ) {
            times.sort_unstable();
            let mut once = Decayed::default();
            once.add(HALF, 0, 1 << 40);
            let mut often = once;
            for &t in &times {
                often.add(HALF, t, 0);
            }
            let (a, b) = (once.at(HALF, 100 * NS_PER_SEC), often.at(HALF, 100 * NS_PER_SEC));
            prop_assert!(a.abs_diff(b) <= 2, "{a} {b}");
            let exact = (2f64.powi(40)) * 0.5f64.powf(100e9 / (HALF.ticks << TICK_SHIFT) as f64);
            prop_assert!((a as f64 - exact).abs() < 1e-3 * exact, "{a} {exact}");
        }
    }
}
