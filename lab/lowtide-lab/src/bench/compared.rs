//! The workloads of `lowtide bench`, with what only the laboratory asks of them: an artificially
//! slow device, and a recording of the accesses.

use std::path::PathBuf;

use clap::Args;
use lowtide_bench::compare::Compare;
use lowtide_bench::compare::plan::{Comparison, Encore};
use lowtide_bench::error::BenchError;
use lowtide_bench::play::job::Operations;
use lowtide_workload::Workload;

use super::record::Recorder;
use super::slow::Slowdown;

/// The options of a workload of `lowtide bench`, and the laboratory's.
#[derive(Debug, Args)]
#[command(mut_arg("against", Slowdown::without_peers))]
pub(crate) struct Compared<A: Args> {
    #[command(flatten)]
    workload: A,
    #[command(flatten)]
    slowdown: Slowdown,
    /// Record an extra, unmeasured turn of the first lowtide row in FILE (.csv or .lt, optionally
    /// followed by .gz or .zst)
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl<A: Args + Compare> Compared<A> {
    /// Runs it.
    pub(crate) fn run(&self, workload: Workload) -> Result<(), BenchError> {
        let recorder = self.record.as_deref().map(Recorder::new).transpose()?;
        let comparison = Comparison {
            device: self.slowdown.slowness().of_comparison(),
            encore: recorder.map(|recorder| Box::new(recorder) as Box<dyn Encore<Operations>>),
            ..self.workload.comparison(workload)?
        };
        comparison.run()
    }
}
