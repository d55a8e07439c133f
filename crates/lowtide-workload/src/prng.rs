//! The one source of randomness: SplitMix64.
//!
//! The state is a 64-bit counter that advances by an odd constant; each output is a bijective mix
//! of the counter. So the period is exactly 2^64, every seed is good (zero too), and a generator is
//! eight bytes that can be copied to replay from that point. The ground-truth sequences were drawn
//! with exactly this generator, and [`below`](SplitMix64::below) uses exactly their reduction, so
//! one implementation serves all purposes.
//!
//! A workload takes one seed and gives each thread its own generator by [`fork`](SplitMix64::fork).
//! All generators walk the same cycle, from starting points that the mix scatters over 2^64: two
//! streams of 2^40 draws overlap with a probability near 2^-23.
//!
//! This is not a cryptographic generator.

/// The step of the counter: 2^64 divided by the golden ratio, made odd. After `n` outputs the state
/// is `n` steps further.
pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The bijective mix of SplitMix64's output: any change of one input bit changes about half the
/// output.
///
/// Costs two multiplications.
#[inline]
#[must_use]
pub const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A SplitMix64 generator. Copying it copies the position in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose state is `seed`. Every seed is as good as any other.
    #[inline]
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 uniform bits. About one nanosecond.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix64(self.state)
    }

    /// A number in `0..n`: the high half of the 128-bit product of the next output and `n`.
    ///
    /// The bias is at most `n / 2^64`. `below(0)` is 0, and still consumes one output.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// A number in `[0, 1)`, a multiple of 2^-53.
    #[inline]
    pub const fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Whether an event of `percent` in 100 happens. Consumes one output, whatever `percent` is.
    #[inline]
    pub const fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent as u64
    }

    /// A number in `least..=most`. Consumes one output. There must be such a number.
    #[inline]
    pub const fn range(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A number in `least..=most`, each power of two as likely as any other, so that small ones
    /// come often. Consumes two outputs. `least` must not be zero.
    #[inline]
    pub const fn by_magnitude(&mut self, least: u64, most: u64) -> u64 {
        let steps = (most / least).ilog2() as u64;
        let low = least << self.range(0, steps);
        let high = if 2 * low < most { 2 * low } else { most };
        self.range(low, high)
    }

    /// One of several values, all as likely. Consumes one output. There must be a value.
    #[inline]
    pub const fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A generator for sub-stream number `stream`, independent of this one's further outputs.
    ///
    /// Does not advance `self`. Different numbers give different starting states, because both
    /// mixes are bijective.
    #[inline]
    #[must_use]
    pub const fn fork(&self, stream: u64) -> Self {
        Self { state: mix64(mix64(stream.wrapping_add(STEP)) ^ self.state) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The first outputs of seed 0, from the definition in exact integers.
    #[test]
    fn known_outputs() {
        let mut rng = SplitMix64::new(0);
        assert_eq!(
            [rng.next_u64(), rng.next_u64(), rng.next_u64()],
            [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]
        );
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut rng = SplitMix64::new(9);
        let seen: HashSet<u64> = (0..1000).map(|_| rng.below(7)).collect();
        assert_eq!(seen, (0..7).collect());
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn ranges_have_both_ends_and_magnitudes_are_alike() {
        let mut rng = SplitMix64::new(5);
        let seen: HashSet<u64> = (0..1000).map(|_| rng.range(3, 9)).collect();
        assert_eq!(seen, (3..=9).collect());
        let drawn: Vec<u64> = (0..10_000).map(|_| rng.by_magnitude(2, 2000)).collect();
        assert!(drawn.iter().all(|n| (2..=2000).contains(n)));
        let small = drawn.iter().filter(|n| **n < 64).count();
        assert!((4500..6500).contains(&small), "{small} of 10000 below 2^6, of 2^1 to 2^11");
        let seen: HashSet<char> = (0..100).map(|_| rng.one_of(&['a', 'b', 'c'])).collect();
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn unit_is_half_open_and_centred() {
        let mut rng = SplitMix64::new(3);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.unit_f64()).collect();
        assert!(draws.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.005, "mean {mean}");
    }

    #[test]
    fn forks_differ_from_each_other_and_leave_the_parent_alone() {
        let parent = SplitMix64::new(42);
        let mut first_outputs: HashSet<u64> =
            (0..1000).map(|s| parent.fork(s).next_u64()).collect();
        first_outputs.insert(parent.clone().next_u64());
        assert_eq!(first_outputs.len(), 1001);
        assert_eq!(parent.fork(5), SplitMix64::new(42).fork(5));
    }
}
