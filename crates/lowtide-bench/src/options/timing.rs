//! The length of a measurement.

use clap::Args;
use clap::builder::RangedI64ValueParser;
use lowtide_report::values::seconds;

use crate::thread_pool::Until;

/// Seconds or operations, divided into rounds.
#[derive(Clone, Copy, Debug, Args)]
pub struct Timing {
    /// Measured seconds of each system, over all rounds
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "5",
          conflicts_with = "ops", allow_negative_numbers = true)]
    pub seconds: f64,
    #[command(flatten)]
    pub ops: Operations,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 5)]
    pub rounds: u32,
}

impl Timing {
    /// The total length of all rounds of a system.
    pub fn until(&self) -> Until {
        self.ops.until().unwrap_or(Until::Seconds(self.seconds))
    }
}

/// Operations instead of a time.
#[derive(Clone, Copy, Debug, Args)]
pub struct Operations {
    /// Measured operations of each system, instead of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          allow_negative_numbers = true)]
    pub ops: Option<u64>,
}

impl Operations {
    /// The total length of all rounds of a system, if it was given in operations.
    pub fn until(self) -> Option<Until> {
        self.ops.map(Until::Ops)
    }
}

/// A number of rounds.
pub fn rounds() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=10_000)
}

/// Records or pages per call.
pub fn batch() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1 << 16)
}

/// A number of threads.
pub fn threads() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=4096)
}
