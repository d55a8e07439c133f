//! In which manner the pages of a map come in, for a host that chooses between both ways.
//!
//! What is read in order in blocks, one here and one there, as the parts of a model are, is not
//! *in order*: a mirror reads ahead from the second page of a block on, in the thread that answers
//! the fault, and a mapping of the kernel is watched by a thread that comes when most of the block
//! is read. Only where the blocks are as long as the longest windows is it the other way round.

use crate::ahead::readahead::budget_of;
use crate::pool::Pool;
use crate::space::Space;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The longest run of pages that is a block.
const BLOCK: u64 = 512;
/// The same, as a part of a small budget, where no window is long.
const BLOCK_PART: u64 = 64;

/// Pages that came in so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// When they were touched, away from others that did, or with those of a block.
    pub alone: u64,
    /// In long runs: they were read ahead, mostly, since others had been touched in order.
    pub in_order: u64,
}

/// The same, as it is counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    alone: AtomicU64,
    in_order: AtomicU64,
}

impl Counted {
    pub(crate) fn alone(&self, pages: u64) {
        self.alone.fetch_add(pages, Relaxed);
    }

    /// Pages of a file came in one behind the other.
    pub(crate) fn run(&self, pages: &Range<u64>, pool: &Pool, space: &Space) {
        let (count, len) = (pages.end - pages.start, space.table.pages());
        // Most runs are one page, and a budget is behind a lock.
        let is_long = count > 1 && is_long(pages, len, budget_of(pool, space));
        let counter = if is_long { &self.in_order } else { &self.alone };
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn now(&self) -> Manner {
        Manner { alone: self.alone.load(Relaxed), in_order: self.in_order.load(Relaxed) }
    }
}

/// Whether pages are more than a block, or the last ones of a file of `len` pages.
fn is_long(pages: &Range<u64>, len: u64, budget: u64) -> bool {
    pages.end - pages.start > BLOCK.min(budget / BLOCK_PART) || pages.end == len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_in_order_and_blocks_are_not() {
        let are = |pages: Range<u64>, budget| is_long(&pages, 100_000, budget);
        assert!(!are(0..512, 1 << 16) && are(9000..9513, 1 << 16) && are(99_999..100_000, 1 << 16));
        assert!(!are(0..32, 2048) && are(100..133, 2048));
    }
}
