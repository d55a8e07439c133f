//! Options of workloads on pages, `random-read` and `scan`. Sizes come first in the help of each,
//! and the number of pages per call and the peers have other defaults: they are in its file.

use clap::Args;
use lowtide_workload::Workload;

use super::plan::{Common, Comparison};
use crate::options::{Seed, Timing, UserFile, YoungFaults, threads};

/// Options of all workloads on pages.
#[derive(Debug, Args)]
pub struct OnPages {
    #[command(flatten)]
    timing: Timing,
    /// Threads of each system
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 1)]
    threads: u32,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    young: YoungFaults,
    #[command(flatten)]
    file: UserFile,
}

impl OnPages {
    /// A comparison with these options: `sizes` are the budget and the data in bytes.
    pub fn comparison(&self, workload: Workload, sizes: (u64, u64)) -> Comparison<'_> {
        let times = (self.timing.rounds, self.timing.until());
        Comparison {
            threads: self.threads,
            seed: self.seed.seed,
            young_faults: self.young.young_faults,
            file: self.file.file.clone(),
            ..Comparison::new(workload, &self.common, sizes, times)
        }
    }
}
