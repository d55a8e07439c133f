//! `lowtide bench mixed`: `ycsb-b` with checkpoints at intervals.

use std::time::Duration;

use clap::Args;
use lowtide_workload::Workload;

use super::plan::{Common, Comparison};
use crate::bench::error::BenchError;
use crate::bench::options::values::{budget, interval, scale, scaled, seconds};
use crate::bench::options::{
    Mappings, Operations, Seed, Slowdown, YoungFaults, batch, rounds, threads,
};
use crate::bench::play::popularity::Popularity;
use crate::bench::thread_pool::Until;

/// Checkpoint intervals per round: one checkpoint, and half an interval in which it can end.
const CHECKPOINTS_A_ROUND: f64 = 1.5;

/// Options of `mixed`.
#[derive(Debug, Args)]
pub(crate) struct MixedArgs {
    /// Interval at which all data is made durable while operations continue
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    checkpoint: Duration,
    /// Memory budget of each system
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the data as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          allow_negative_numbers = true)]
    scale: f64,
    /// Measured seconds of each system, over all rounds [default: 1.5 checkpoints a round]
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "ops",
          allow_negative_numbers = true)]
    seconds: Option<f64>,
    #[command(flatten)]
    ops: Operations,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 3)]
    rounds: u32,
    /// Threads of each system
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 1)]
    threads: u32,
    /// Records per call: 1 reads through a guard, more through get_many
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = batch())]
    batch: u32,
    /// Popularity of records: ycsb is YCSB's own chooser, which is flatter than zipf
    #[arg(long, value_name = "D", value_enum, default_value = "zipf")]
    distribution: Popularity,
    #[command(flatten)]
    against: Mappings,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    young: YoungFaults,
    #[command(flatten)]
    slowdown: Slowdown,
}

impl MixedArgs {
    /// Runs it.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let sizes = (self.max, scaled(self.max, self.scale));
        let every = self.checkpoint.as_secs_f64();
        let usual = CHECKPOINTS_A_ROUND * every * f64::from(self.rounds);
        let seconds = Until::Seconds(self.seconds.unwrap_or(usual));
        let until = self.ops.until().unwrap_or(seconds);
        if let Until::Seconds(seconds) = until
            && seconds / f64::from(self.rounds) <= every
        {
            return Err(BenchError::usage(
                format!(
                    "rounds of {:.2} s end before the first checkpoint, after {:?}",
                    seconds / f64::from(self.rounds),
                    self.checkpoint
                ),
                "raise --seconds, lower --rounds, or make checkpoints more frequent with \
                 --checkpoint",
            ));
        }
        let comparison = Comparison {
            peers: self.against.rows()?,
            popularity: self.distribution,
            checkpoint: Some(self.checkpoint),
            threads: self.threads,
            seed: self.seed.seed,
            batch: Some(self.batch),
            young_faults: self.young.young_faults,
            slowness: self.slowdown.slowness(),
            ..Comparison::new(Workload::Mixed, &self.common, sizes, (self.rounds, until))
        };
        comparison.run()
    }
}
