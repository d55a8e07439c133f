//! Three jobs that real kernels performed, in a group with swap: what they counted is in
//! `docs/design/fidelity.md`.
//!
//! | file | job |
//! |---|---|
//! | `churn` | processes that start, fill a heap and exit, and share a program's text |
//! | `pool` | threads that read a heap of twelve budgets, a small part of it often |
//! | `cold` | apps that are started one after another, beside a service |
//!
//! Sizes, popularity and draws are those of the jobs, so counters can be compared: nothing here is
//! made up. Where a thread of a job keeps its generator from one operation to the next, a piece of
//! work begins with that generator as the pieces before it left it.

mod churn;
mod cold;
mod pool;

pub use churn::Churn;
pub use cold::Cold;
pub use pool::Pool;

use std::sync::Arc;

use lowtide_workload::prng::{STEP, SplitMix64};
use lowtide_workload::zipf::{ZipfTable, permutation};

/// Exponent of every popularity in these jobs.
const EXPONENT: f64 = 0.9;

/// Pages of which some are drawn more often than others, in no order of address.
#[derive(Clone, Debug)]
struct Popular {
    table: Arc<ZipfTable>,
    page_of_rank: Arc<[u32]>,
}

impl Popular {
    /// The first `ranks` of `pages` pages, in the order of the region's permutation.
    fn new(seed: u64, region: u64, pages: u32, ranks: u32) -> Self {
        let state = seed.wrapping_add((region + 1) << 32);
        Self {
            table: Arc::new(ZipfTable::new(ranks, EXPONENT)),
            page_of_rank: permutation(pages, SplitMix64::new(state)).into(),
        }
    }

    fn draw(&self, rng: &mut SplitMix64) -> u64 {
        self.page(self.table.draw(rng) as u64)
    }

    /// The page of a place in the permutation.
    fn page(&self, rank: u64) -> u64 {
        self.page_of_rank[rank as usize].into()
    }
}

/// Regions by which permutations are drawn.
const FILE: u64 = 0;
const ANON: u64 = 1;

/// State that the numbered process, or unit of work, draws from.
const fn numbered(seed: u64, number: u64) -> SplitMix64 {
    SplitMix64::new(seed + 1_000_003 * (number + 1))
}

/// State that a thread which began with `seed` draws from after that many draws.
const fn continued(seed: u64, draws: u64) -> SplitMix64 {
    SplitMix64::new(seed.wrapping_add(STEP.wrapping_mul(draws)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::heap::{HeapProgram, Step};

    #[test]
    fn a_piece_goes_on_where_the_one_before_it_ended() {
        let mut rng = SplitMix64::new(7);
        for _ in 0..5 {
            rng.next_u64();
        }
        assert_eq!(continued(7, 5), rng);
    }

    #[test]
    fn pieces_touch_pages_that_there_are() {
        let jobs: [Box<dyn HeapProgram>; 3] =
            [Box::new(Churn::new(31)), Box::new(Pool::new(32)), Box::new(Cold::new(34))];
        for job in jobs {
            let (regions, workers) = (job.regions(), u64::from(job.workers()));
            let pieces = 0..if workers == 1 { 48 } else { 40 };
            let steps = pieces.flat_map(|n| job.piece(n, (n % workers) as u32));
            let mut touches = 0;
            for step in steps {
                if let Step::Touch { region, first, pages, .. } = step {
                    assert!(first + pages <= regions[region as usize].pages, "{job:?}: {step:?}");
                    touches += 1;
                }
            }
            assert!(touches >= 160, "{job:?}: {touches}");
        }
    }
}
