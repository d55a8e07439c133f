//! `lowtide bench dd-oom`: a writer on a device whose writes take a second each
//! (`docs/kernel/fault-and-writeback.md` B12). Soon all memory is dirty or under writeback, and
//! reclaim passes find nothing to free for a long time.

use clap::Args;
use clap::builder::ArgPredicate::IsPresent;
use lowtide::Size;
use lowtide_host::probe::Probe;

use super::run::{Common, Writing};
use crate::bench::error::BenchError;
use crate::bench::options::rounds;
use crate::bench::options::values::{budget, scale};
use crate::bench::slow::{For, Slowness, bandwidth};
use crate::span::Span;

/// The name.
pub(crate) const NAME: &str = "dd-oom";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "fill of one and a half budgets where each write takes a second: no write may fail";

/// Options of `dd-oom`.
#[derive(Debug, Args)]
pub(crate) struct DdOomArgs {
    /// Memory budget of each row
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "128M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the file as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "1.5",
          allow_negative_numbers = true)]
    scale: f64,
    /// Files that each row writes, in turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 1)]
    rounds: u32,
    #[command(flatten)]
    common: Common,
    /// Delay each request, in parallel
    #[arg(
        long,
        value_name = "K=TIME",
        value_delimiter = ',',
        default_value = "write=1s",
        default_value_if("device_bandwidth", IsPresent, None)
    )]
    device_delay: Vec<For<Span>>,
    /// Limit reads or writes to bytes per second, as in write=50M, instead of delays
    #[arg(long, value_name = "K=SIZE", value_delimiter = ',', value_parser = bandwidth)]
    device_bandwidth: Vec<For<Size>>,
}

impl DdOomArgs {
    /// Runs it.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let writing = Writing {
            name: NAME,
            about: ABOUT,
            max_bytes: self.max,
            scale: self.scale,
            rounds: self.rounds,
            peers: Vec::new(),
            slowness: Slowness::new(self.device_delay.clone(), self.device_bandwidth.clone()),
            common: &self.common,
        };
        writing.run(&Probe::ask())
    }
}
