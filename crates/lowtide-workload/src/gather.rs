//! Random rows of one file: what a program reads that looks up vectors, embeddings or table rows.
//!
//! A row has a fixed size, and row `n` begins `n` sizes into the file. All rows may be alike, or a
//! few may be hot: then [`HOT_PERCENT`] % of the reads are of [`HOT_ROWS_PERCENT`] % of the rows.
//! Where the hot rows lie decides what a cache of pages can keep. Scattered over the file, as ids
//! in order of their creation are, each shares its page with cold rows, and a page larger than a
//! row holds mostly those. Together, at the start of the file, they fill their pages.

use crate::distribution::DistributionError;
use crate::prng::SplitMix64;
use crate::zipf::Bijection;

/// Reads of hot rows, in percent, where some are hot.
pub const HOT_PERCENT: u32 = 90;
/// Hot rows, in percent of all rows.
pub const HOT_ROWS_PERCENT: u64 = 5;

/// Random reads over the rows of one file.
#[derive(Clone, Debug)]
pub struct Gather {
    rows: u64,
    hot: Hot,
    seed: u64,
}

/// The hot rows.
#[derive(Clone, Debug)]
enum Hot {
    None,
    Together,
    Scattered(Bijection),
}

impl Gather {
    /// Reads over `rows` rows that are all alike.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `rows` is 0.
    pub const fn new(rows: u64, seed: u64) -> Result<Self, DistributionError> {
        if rows == 0 {
            return Err(DistributionError::NoItems);
        }
        Ok(Self { rows, hot: Hot::None, seed })
    }

    /// The same with hot rows, scattered over the file; the seed decides which they are.
    #[must_use]
    pub fn with_hot_rows(self) -> Self {
        Self { hot: Hot::Scattered(Bijection::new(self.rows, self.seed)), ..self }
    }

    /// The same with hot rows at the start of the file.
    #[must_use]
    pub fn with_hot_start(self) -> Self {
        Self { hot: Hot::Together, ..self }
    }

    /// The number of rows.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The endless stream of thread number `thread` of `threads`; it depends on seed and thread
    /// alone.
    ///
    /// # Panics
    /// When `thread` is not below `threads`.
    #[must_use]
    pub fn stream(&self, thread: u32, threads: u32) -> GatherStream {
        assert!(thread < threads, "thread {thread} of {threads} threads");
        let hot_rows = (self.rows * HOT_ROWS_PERCENT / 100).max(1);
        let rng = SplitMix64::new(self.seed).fork(u64::from(thread));
        GatherStream { rows: self.rows, hot_rows, hot: self.hot.clone(), rng }
    }
}

/// The endless reads of one thread: numbers of rows.
#[derive(Clone, Debug)]
pub struct GatherStream {
    rows: u64,
    hot_rows: u64,
    hot: Hot,
    rng: SplitMix64,
}

impl Iterator for GatherStream {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if matches!(self.hot, Hot::None) {
            return Some(self.rng.below(self.rows));
        }
        let cold_rows = self.rows - self.hot_rows;
        let rank = if self.rng.percent(HOT_PERCENT) || cold_rows == 0 {
            self.rng.below(self.hot_rows)
        } else {
            self.hot_rows + self.rng.below(cold_rows)
        };
        Some(match &self.hot {
            Hot::Scattered(place) => place.apply(rank),
            Hot::None | Hot::Together => rank,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn all_rows_are_read_and_nothing_else() {
        for gather in [
            Gather::new(50, 1).unwrap(),
            Gather::new(50, 1).unwrap().with_hot_rows(),
            Gather::new(50, 1).unwrap().with_hot_start(),
        ] {
            let found: HashSet<u64> = gather.stream(0, 1).take(20_000).collect();
            assert_eq!(found, (0..50).collect());
        }
    }

    #[test]
    fn nine_of_ten_reads_are_of_a_twentieth_of_the_rows() {
        let counts = |gather: Gather| {
            let mut counts = HashMap::<u64, u32>::new();
            gather.stream(0, 1).take(100_000).for_each(|row| *counts.entry(row).or_default() += 1);
            let mut rows: Vec<(u32, u64)> = counts.iter().map(|(row, n)| (*n, *row)).collect();
            rows.sort_unstable_by(|a, b| b.cmp(a));
            let hot: Vec<u64> = rows.iter().take(50).map(|&(_, row)| row).collect();
            let reads: u32 = rows.iter().take(50).map(|&(n, _)| n).sum();
            (hot, f64::from(reads) / 100_000.0)
        };
        let all = || Gather::new(1000, 7).unwrap();
        let (scattered, share) = counts(all().with_hot_rows());
        assert!((share - 0.9).abs() < 0.01, "{share}");
        assert!(scattered.iter().filter(|&&row| row < 50).count() < 15, "{scattered:?}");
        let (mut together, share) = counts(all().with_hot_start());
        assert!((share - 0.9).abs() < 0.01, "{share}");
        together.sort_unstable();
        assert_eq!(together, (0..50).collect::<Vec<_>>());
        assert!(counts(all()).1 < 0.1, "all are alike");
    }

    #[test]
    fn threads_have_streams_of_their_own_and_the_same_hot_rows() {
        let gather = Gather::new(1 << 30, 1).unwrap().with_hot_rows();
        let rows = |thread| gather.stream(thread, 8).take(100).collect::<Vec<_>>();
        assert_eq!(rows(2), rows(2));
        assert_ne!(rows(2), rows(3));
        let few = Gather::new(20, 1).unwrap().with_hot_rows();
        let hottest = |thread| {
            let mut counts = [0; 20];
            few.stream(thread, 8).take(1000).for_each(|row| counts[row as usize] += 1);
            (0..20).max_by_key(|&row| counts[row]).unwrap()
        };
        assert_eq!(hottest(0), hottest(5));
    }

    #[test]
    fn the_smallest_files_have_a_hot_row() {
        assert!(matches!(Gather::new(0, 1), Err(DistributionError::NoItems)));
        for rows in [1, 2] {
            let found: HashSet<u64> =
                Gather::new(rows, 1).unwrap().with_hot_rows().stream(0, 1).take(1000).collect();
            assert_eq!(found, (0..rows).collect());
        }
    }
}
