//! How hits are counted at no cost: one of 1024 hits of a thread is a sample, and stands for all of
//! them.
//!
//! A hit must not write to a line that other threads write, and looking for a counter of its own
//! would be a good part of the cost of a hit. So each thread counts down, in a cell beside what the
//! hit path reads anyway: an instruction, and a branch that is predicted. Only a sample goes to the
//! pager's counter, and it goes there by the slow path of misses, so that the fast path has no call
//! for it.
//!
//! The hits of a thread, of whatever pagers, are cut into blocks of [`SAMPLE`]; in each block one
//! hit, drawn with equal probability, is the sample. So
//!
//! * each hit is a sample with the same probability, whatever came before it: the estimate is exact
//!   in expectation, also for threads that end early, and for programs that use several pagers in
//!   turn;
//! * a thread's hits in all pagers together are estimated with an error below one sample at any
//!   time, and those of a phase in which it uses one pager only, below two.
//!
//! ```text
//!   block        |·······s··········|··s···············|·············s····|
//!   countdown    └──────┘└─────────────┘└─────────────────────────────┘  left: until the sample
//!                         └─────────┘   └──────────────┘    rest: in the block of the last sample
//! ```

use crate::sync::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Hits that a sample stands for.
pub const SAMPLE: u32 = 1024;

/// Hits of one thread up to its next sample.
pub struct Countdown {
    /// The sample is the hit that makes this negative: the sign alone decides, for which a
    /// decrement and a branch are enough.
    left: Cell<i32>,
    /// Hits behind the last sample in its block.
    rest: Cell<i32>,
}

/// The hits that are left of a block that ends just before the first hit: that hit draws the sample
/// of its own block.
const NOT_BEGUN: i32 = -1;

impl Default for Countdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Countdown {
    /// That of a thread without hits.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { left: Cell::new(0), rest: Cell::new(NOT_BEGUN) }
    }

    /// The same; the cells of the model are no constants.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { left: Cell::new(0), rest: Cell::new(NOT_BEGUN) }
    }

    /// Counts a hit of the fast path. False if it may be a sample: it has to take the slow path, to
    /// [`hit`](Countdown::hit).
    #[inline(always)]
    pub fn fast_hit(&self) -> bool {
        let left = self.left.get().wrapping_sub(1);
        self.left.set(left);
        left >= 0
    }

    /// Counts a hit, unless `fast_hit` just has, and returns whether it is the sample of its block.
    #[inline]
    pub fn hit(&self) -> bool {
        if self.left.get() >= 0 {
            self.left.set(self.left.get() - 1);
        }
        self.left.get() < 0 && self.draw()
    }

    /// Draws the sample of the next block. The sample of the first block is drawn at the first hit,
    /// which may be the sample itself.
    #[cold]
    fn draw(&self) -> bool {
        let mut is_sample = self.rest.get() != NOT_BEGUN;
        loop {
            let position = (random() % SAMPLE) as i32;
            let left = self.rest.get() + position;
            self.rest.set(SAMPLE as i32 - 1 - position);
            if left >= 0 {
                self.left.set(left);
                return is_sample;
            }
            is_sample = true;
        }
    }
}

/// An evenly distributed number, from a sequence that all threads share: SplitMix64.
fn random() -> u32 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let mut z = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A hit, by the fast path as far as that goes, or by the other one only.
    fn is_sample(countdown: &Countdown, fast: bool) -> bool {
        !(fast && countdown.fast_hit()) && countdown.hit()
    }

    fn samples(countdown: &Countdown, hits: u32) -> u32 {
        (0..hits).map(|i| u32::from(is_sample(countdown, i % 3 > 0))).sum()
    }

    #[test]
    fn every_block_has_one_sample() {
        let countdown = Countdown::new();
        assert!((0..1000).all(|_| samples(&countdown, SAMPLE) == 1));
    }

    /// 102400 threads with ten hits each have as many samples as 1000 full blocks: ten
    /// deviations are allowed.
    #[test]
    fn threads_that_end_before_a_block_does_are_counted_in_expectation() {
        let all: u32 = (0..102_400).map(|_| samples(&Countdown::new(), 10)).sum();
        assert!((684..=1316).contains(&all), "{all}");
        let alone: u32 = (0..1_024_000).map(|_| samples(&Countdown::new(), 1)).sum();
        assert!((684..=1316).contains(&alone), "{alone}");
    }

    /// Whatever the period in which hits repeat, each place in it has its share; ten deviations are
    /// allowed.
    #[test]
    fn a_pattern_that_repeats_does_not_hide_from_the_samples() {
        for period in [2, 3, 512, 1024] {
            let (countdown, blocks) = (Countdown::new(), 4000);
            let of_first: u32 = (0..blocks * SAMPLE)
                .map(|i| u32::from(is_sample(&countdown, i % 3 > 0) && i % period < period / 2))
                .sum();
            let share = f64::from(period / 2) / f64::from(period);
            let expected = f64::from(blocks) * share;
            let deviation = (expected * (1.0 - share)).sqrt();
            assert!(
                (f64::from(of_first) - expected).abs() < 10.0 * deviation,
                "{period}: {of_first}"
            );
        }
    }
}
