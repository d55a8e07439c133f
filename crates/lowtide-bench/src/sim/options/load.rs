//! The number of threads of a workload.

use clap::builder::RangedI64ValueParser;

/// A number of threads.
pub fn threads() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=65_536)
}
