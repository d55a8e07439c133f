//! What the thread reads, phase by phase.

use std::time::Duration;

use lowtide_workload::zipf::Zipfian;
use lowtide_workload::{DistributionError, SplitMix64};

/// YCSB's exponent.
const THETA: f64 = 0.99;
/// An odd number, so that neighbours in rank are no neighbours in the file.
const SPREAD: u64 = 0x9e37_79b9;

/// Which load is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Load {
    // Zipf over a small part, over a large one, nothing, the small part again
    Phases,
    // The whole file in order, again and again
    Scan,
    // A part in order, a quarter larger than the small one
    Loop,
}

/// The sizes of a load, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) small: u64,
    pub(crate) large: u64,
    /// Of the file.
    pub(crate) whole: u64,
}

/// What is done in a phase.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Zipf(Zipfian, u64),
    InOrder(u64),
    Nothing,
}

/// A phase: its name, what it does, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) pattern: Pattern,
    pub(crate) time: Duration,
}

impl Load {
    /// The bytes of the file that it needs.
    pub(crate) const fn bytes(self, sizes: Sizes) -> u64 {
        match self {
            Self::Phases => sizes.large,
            Self::Scan => sizes.whole,
            Self::Loop => sizes.small + sizes.small / 4,
        }
    }

    /// Its phases, each of which takes as long.
    pub(crate) fn phases(
        self,
        sizes: Sizes,
        page_bytes: u64,
        time: Duration,
    ) -> Result<Vec<Phase>, DistributionError> {
        let pages = self.bytes(sizes) / page_bytes;
        let zipf = |bytes: u64| -> Result<Pattern, DistributionError> {
            let pages = bytes / page_bytes;
            Ok(Pattern::Zipf(Zipfian::new(pages, THETA)?, pages))
        };
        let phase = |name, pattern| Phase { name, pattern, time };
        Ok(match self {
            Self::Phases => vec![
                phase("small", zipf(sizes.small)?),
                phase("large", zipf(sizes.large)?),
                phase("idle", Pattern::Nothing),
                phase("small again", zipf(sizes.small)?),
            ],
            Self::Scan => vec![phase("scan", Pattern::InOrder(pages))],
            Self::Loop => vec![phase("loop", Pattern::InOrder(pages))],
        })
    }
}

impl Pattern {
    /// The next page, after `count` others; `None` if nothing is read.
    pub(crate) fn next(&self, rng: &mut SplitMix64, count: u64) -> Option<u64> {
        match self {
            Self::Zipf(ranks, pages) => Some(ranks.draw(rng).wrapping_mul(SPREAD) % pages),
            Self::InOrder(pages) => Some(count % pages),
            Self::Nothing => None,
        }
    }
}
