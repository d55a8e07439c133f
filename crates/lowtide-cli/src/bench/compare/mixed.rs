//! `lowtide bench mixed`: `ycsb-b` with checkpoints at intervals.

use std::time::Duration;

use clap::Args;
use lowtide_workload::Workload;

use super::plan::Comparison;
use super::ycsb::OnRecords;
use crate::bench::error::BenchError;
use crate::bench::options::values::{interval, seconds};
use crate::bench::options::{Operations, rounds};
use crate::bench::thread_pool::Until;

/// Checkpoint intervals per round: one checkpoint, and half an interval in which it can end.
const CHECKPOINTS_A_ROUND: f64 = 1.5;

/// Options of `mixed`.
#[derive(Debug, Args)]
pub(crate) struct MixedArgs {
    /// Interval at which all data is made durable while operations continue
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    checkpoint: Duration,
    #[command(flatten)]
    records: OnRecords,
    /// Measured seconds of each system, over all rounds [default: 1.5 checkpoints a round]
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "ops",
          allow_negative_numbers = true)]
    seconds: Option<f64>,
    #[command(flatten)]
    ops: Operations,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 3)]
    rounds: u32,
}

impl MixedArgs {
    /// Runs it.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub(crate) fn run(&self) -> Result<(), BenchError> {
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
        let checkpoint = Some(self.checkpoint);
        let times = (self.rounds, until);
        Comparison { checkpoint, ..self.records.comparison(Workload::Mixed, times)? }.run()
    }
}
