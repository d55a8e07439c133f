//! `lowtide bench ycsb-a`, `ycsb-b` and `ycsb-c`: records of 1 KiB.

use clap::{Args, ValueEnum};
use lowtide_workload::Workload;

use super::Compare;
use super::plan::{Common, Comparison};
use crate::content::Content;
use crate::error::BenchError;
use crate::options::{Mappings, Seed, Sizes, Timing, UserFile, YoungFaults, batch, threads};
use crate::play::job::Script;
use crate::play::popularity::Popularity;
use crate::thread_pool::Until;

/// Options of all workloads on records.
#[derive(Debug, Args)]
pub struct Records {
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
}

/// What records are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contents {
    // Bytes that do not compress.
    Random,
    // Documents.
    Json,
    // Lines.
    Text,
}

impl Records {
    /// A comparison with these options, of a budget and an amount of data.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for peers that exclude each other.
    pub fn comparison<S: Script>(
        &self,
        workload: Workload,
        sizes: (u64, u64),
        times: (u32, Until),
    ) -> Result<Comparison<'_, S>, BenchError> {
        Ok(Comparison {
            peers: self.against.rows()?,
            popularity: self.distribution,
            seed: self.seed.seed,
            batch: Some(self.batch),
            young_faults: self.young.young_faults,
            ..Comparison::new(workload, &self.common, sizes, times)
        })
    }
}

/// Options of `ycsb-a` and `ycsb-b`.
#[derive(Debug, Args)]
pub struct YcsbArgs {
    #[command(flatten)]
    sizes: Sizes,
    /// Threads of each system
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 1)]
    threads: u32,
    /// What records are made of: json and text compress
    #[arg(long, value_name = "C", value_enum, default_value = "random")]
    contents: Contents,
    /// A second row for each policy, whose evicted pages never stay compressed
    #[arg(long)]
    no_zcache: bool,
    #[command(flatten)]
    records: Records,
    #[command(flatten)]
    timing: Timing,
}

/// Options of `ycsb-c`, which only reads.
#[derive(Debug, Args)]
pub struct YcsbCArgs {
    #[command(flatten)]
    ycsb: YcsbArgs,
    #[command(flatten)]
    file: UserFile,
}

impl Compare for YcsbArgs {
    fn comparison(&self, workload: Workload) -> Result<Comparison<'_>, BenchError> {
        let times = (self.timing.rounds, self.timing.until());
        let comparison = self.records.comparison(workload, self.sizes.bytes(), times)?;
        let content = match self.contents {
            Contents::Random => Content::Records,
            Contents::Json => Content::Documents,
            Contents::Text => Content::Text,
        };
        Ok(Comparison {
            threads: self.threads,
            content,
            without_zcache: self.no_zcache,
            ..comparison
        })
    }
}

impl Compare for YcsbCArgs {
    fn comparison(&self, workload: Workload) -> Result<Comparison<'_>, BenchError> {
        Ok(Comparison { file: self.file.file.clone(), ..self.ycsb.comparison(workload)? })
    }
}
