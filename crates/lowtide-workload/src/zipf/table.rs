//! The exact Zipf draw: a cumulative table of integers and a binary search.
//!
//! Weight of rank `k` (from 0) is `floor(2^32 * (k + 1)^-s)`; a draw picks a number below the sum
//! of all weights and finds the rank whose interval holds it. Apart from one `powf` per rank while
//! the table is built, everything is integer arithmetic, so two implementations agree bit for bit.
//! That is what the ground-truth sequences need; for large item counts [`Zipfian`](super::Zipfian)
//! needs no table.
//!
//! Ranks become pages through a seeded [`permutation`], so that popular pages are not neighbours.

use crate::prng::SplitMix64;

/// Cumulative weights of a Zipf distribution over a fixed number of ranks.
///
/// Takes 8 bytes per rank; a draw costs one binary search.
#[derive(Clone, Debug)]
pub struct ZipfTable {
    cumulative: Vec<u64>,
}

impl ZipfTable {
    /// The table for `ranks` ranks with the given exponent.
    ///
    /// Weights below 2^-32 of the first rank's round to zero and are never drawn. Costs one `powf`
    /// per rank.
    #[must_use]
    pub fn new(ranks: u32, exponent: f64) -> Self {
        let mut sum = 0_u64;
        let cumulative = (0..ranks)
            .map(|rank| {
                let weight = 4_294_967_296.0 * (f64::from(rank) + 1.0).powf(-exponent);
                // A float cast truncates, which is floor here because weights are not negative.
                sum = sum.saturating_add(weight as u64);
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.cumulative.len()
    }

    /// Draws a rank, 0 being the most popular. Consumes one output of `rng`.
    ///
    /// An empty table gives 0.
    #[inline]
    #[must_use]
    pub fn draw(&self, rng: &mut SplitMix64) -> usize {
        let total = self.cumulative.last().copied().unwrap_or(0);
        let r = rng.below(total);
        self.cumulative.partition_point(|&cumulative| cumulative <= r)
    }
}

/// A permutation of `0..n` by Fisher and Yates' shuffle from the last element down, drawn from
/// `rng`.
///
/// Takes 4 bytes per element.
#[must_use]
pub fn permutation(n: u32, mut rng: SplitMix64) -> Vec<u32> {
    let mut items: Vec<u32> = (0..n).collect();
    for i in (1..items.len()).rev() {
        let j = rng.below(i as u64 + 1) as usize;
        items.swap(i, j);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_the_exponent() {
        let table = ZipfTable::new(3, 1.0);
        let two32 = 1_u64 << 32;
        assert_eq!(table.cumulative, [two32, two32 + two32 / 2, two32 + two32 / 2 + two32 / 3]);
    }

    #[test]
    fn every_rank_is_drawn_about_as_often_as_its_weight() {
        let table = ZipfTable::new(10, 0.99);
        let mut rng = SplitMix64::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[table.draw(&mut rng)] += 1;
        }
        let total: f64 = (1..=10).map(|k| f64::from(k).powf(-0.99)).sum();
        for (rank, &count) in counts.iter().enumerate() {
            let expected = 100_000.0 * (rank as f64 + 1.0).powf(-0.99) / total;
            assert!((f64::from(count) - expected).abs() < 0.1 * expected, "rank {rank}: {count}");
        }
    }

    #[test]
    fn a_permutation_holds_every_element_once() {
        let mut shuffled = permutation(1000, SplitMix64::new(5));
        assert_ne!(shuffled, (0..1000).collect::<Vec<_>>());
        shuffled.sort_unstable();
        assert_eq!(shuffled, (0..1000).collect::<Vec<_>>());
        assert!(permutation(0, SplitMix64::new(5)).is_empty());
    }
}
