//! The number of threads of a workload, and its running time.

use clap::builder::{RangedI64ValueParser, RangedU64ValueParser};

/// A number of threads.
pub fn threads() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=65_536)
}

/// Virtual seconds, at most a day.
pub fn seconds() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=86_400)
}
