//! `lowtide bench replay`: a recorded trace, replayed as fast as possible.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_report::values::{PAGE_BYTES, budget, grain, scale};
use lowtide_workload::Workload;
use lowtide_workload::trace::Format;

use super::plan::{Common, Comparison};
use crate::bench::error::BenchError;
use crate::bench::options::{Mappings, Operations, rounds};
use crate::bench::play::replay::Recording;
use crate::bench::thread_pool::Until;

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The trace
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Its format: csv, compact, oracle-general, object-csv, msr, lackey or filemap
    /// [default: detected]
    #[arg(long, value_name = "NAME")]
    format: Option<Format>,
    /// Memory budget of each system [default: data / scale]
    #[arg(long, value_name = "SIZE", value_parser = budget, allow_hyphen_values = true)]
    max: Option<u64>,
    /// Size of the data as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          conflicts_with = "max", allow_negative_numbers = true)]
    scale: f64,
    #[command(flatten)]
    ops: Operations,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    against: Mappings,
    #[command(flatten)]
    common: Common,
}

impl ReplayArgs {
    /// Runs it.
    pub fn run(&self) -> Result<(), BenchError> {
        let trace = Arc::new(Recording::read(&self.trace, self.format)?);
        let page = self.common.page.or_else(|| trace.page_bytes()).unwrap_or(PAGE_BYTES);
        let data = grain(trace.pages().saturating_mul(page));
        let part = ((data as f64 / self.scale) as u64).max(MIN_BUDGET * page);
        let ops = self.ops.ops.unwrap_or(u64::MAX).min(trace.len());
        let times = (self.rounds, Until::Ops(ops));
        let sizes = (self.max.unwrap_or(part), data);
        let comparison = Comparison {
            peers: self.against.rows()?,
            writes: trace.writes(),
            // A replayed access has the same effect as in the kernel.
            young_faults: true,
            trace: Some((self.trace.clone(), self.format.map(|f| f.to_string()), trace)),
            ..Comparison::new(Workload::Replay, &self.common, sizes, times)
        };
        comparison.run()
    }
}
