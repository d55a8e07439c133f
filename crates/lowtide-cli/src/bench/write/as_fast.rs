//! `lowtide bench fill`: a file written as fast as possible, beside `dd`.

use clap::Args;
use clap::builder::ArgPredicate::IsPresent;
use lowtide_host::probe::Probe;

use super::run::{Common, Writing};
use super::systems::FillPeer;
use crate::bench::compare::refuse_slowed;
use crate::bench::error::BenchError;
use crate::bench::options::values::{budget, scale};
use crate::bench::options::{Slowdown, chosen, rounds};
use crate::out;

/// The name.
pub(crate) const NAME: &str = "fill";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "a file of four budgets written from start to end and made durable, beside dd";

/// Options of `fill`.
#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    /// Memory budget of each system
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the file as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          allow_negative_numbers = true)]
    scale: f64,
    /// Files that each system writes, in turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 3)]
    rounds: u32,
    /// Systems to compare with; pwrite and mmap need a memory cgroup
    #[arg(long, value_name = "PEER,PEER", value_enum, value_delimiter = ',',
          default_value = "dd,pwrite,mmap",
          default_value_ifs = [("device_delay", IsPresent, "none"),
                               ("device_bandwidth", IsPresent, "none")])]
    against: Vec<FillPeer>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    slowdown: Slowdown,
}

impl FillArgs {
    /// Runs it.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let peers = chosen(&self.against, FillPeer::None)?;
        let slowness = self.slowdown.slowness();
        if !slowness.is_none() {
            refuse_slowed(&peers)?;
            out::note("no peers: delays apply only to lowtide's own requests");
        }
        let writing = Writing {
            name: NAME,
            about: ABOUT,
            max_bytes: self.max,
            scale: self.scale,
            rounds: self.rounds,
            peers,
            slowness,
            common: &self.common,
        };
        writing.run(&Probe::ask())
    }
}
