//! `lowtide-lab bench replay`: a recorded trace, replayed as fast as possible.
//!
//! | file | concept |
//! |---|---|
//! | this one | options, and the page |
//! | `recording` | a trace in memory, and its player |

pub(crate) mod recording;

use std::path::PathBuf;

use clap::Args;
use lowtide::Size;
use lowtide_bench::compare::plan::{Common, Comparison};
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{Mappings, Operations, rounds};
use lowtide_bench::thread_pool::Until;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_report::values::{PAGE_BYTES, budget, grain, scale};
use lowtide_workload::Workload;
use lowtide_workload::trace::Format;

use super::script::{LabScript, Own};
use recording::Recording;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
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
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        // Each process reads it again to play it, this one too.
        let trace = Recording::read(&self.trace, self.format)?;
        let (page, why) = self.page(trace.page_bytes());
        let data = grain(trace.pages().saturating_mul(page));
        let part = ((data as f64 / self.scale) as u64).max(MIN_BUDGET * page);
        let ops = self.ops.ops.unwrap_or(u64::MAX).min(trace.len());
        let times = (self.rounds, Until::Ops(ops));
        let sizes = (self.max.unwrap_or(part), data);
        let format = self.format.map(|format| format.to_string());
        let comparison: Comparison<'_, LabScript> = Comparison {
            peers: self.against.rows()?,
            writes: trace.writes(),
            // A replayed access has the same effect as in the kernel.
            young_faults: true,
            page: Some((page, why)),
            is_warmed: false,
            own: Own::Replay { trace: self.trace.clone(), format }.of_job(),
            ..Comparison::new(Workload::Replay, &self.common, sizes, times)
        };
        drop(trace);
        comparison.run()
    }

    /// lowtide's base page and the reason for it, of a trace that may say its page.
    fn page(&self, said: Option<u64>) -> (u64, String) {
        let page = self.common.page.or(said).unwrap_or(PAGE_BYTES);
        let why = match said {
            None if self.common.page.is_none() => "the trace does not say; --page may".into(),
            Some(said) if said != page => format!(
                "as --page says; the trace has pages of {}, and each is taken for one",
                Size::new(said)
            ),
            _ => "pages of the trace".into(),
        };
        (page, why)
    }
}
