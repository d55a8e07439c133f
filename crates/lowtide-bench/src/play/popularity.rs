//! The popularity of records.

use clap::ValueEnum;
use lowtide_workload::Distribution;
use serde::{Deserialize, Serialize};

/// Popularity of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Popularity {
    // Zipf over the records, exponent 0.99, scattered.
    Zipf,
    // YCSB's own chooser: 10^10 ranks hashed into the records, which is flatter.
    Ycsb,
    Uniform,
}

impl From<Popularity> for Distribution {
    fn from(popularity: Popularity) -> Self {
        match popularity {
            Popularity::Zipf => Self::default(),
            Popularity::Ycsb => Self::YcsbScrambled,
            Popularity::Uniform => Self::Uniform,
        }
    }
}
