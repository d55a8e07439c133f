//! `lowtide bench scan`: the whole file from start to end, repeated. With `--op` it is a
//! different measurement: cold reads in order, by each API (`in_order.rs`).

use clap::builder::ArgPredicate::IsPresent;
use clap::{Args, ValueEnum};
use lowtide_report::values::{budget, scale, scaled, size};
use lowtide_workload::Workload;

use super::on_pages::OnPages;
use super::plan::Comparison;
use crate::bench::error::BenchError;
use crate::bench::options::{Mappings, batch};

/// Options of `scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// APIs to read a file in order: measure cold reads under the first policy, one row each,
    /// beside pread and fio
    #[arg(long, value_name = "OP,OP", value_enum, value_delimiter = ',',
          conflicts_with_all =
              ["against", "batch", "record", "ops", "threads", "device_delay", "device_bandwidth",
               "explain"])]
    pub op: Vec<ScanOp>,
    /// Bytes per request, one group of rows each; with --op
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',', value_parser = size,
          default_value = "64K,1M", requires = "op")]
    pub io_size: Vec<u64>,
    /// Memory budget of each system [default: 256M; 64M with --op]
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          default_value_if("op", IsPresent, "64M"), hide_default_value = true,
          allow_hyphen_values = true)]
    pub max: u64,
    /// Size of the data as a multiple of the budget [default: 4; 8 with --op]
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          default_value_if("op", IsPresent, "8"), hide_default_value = true,
          allow_negative_numbers = true)]
    pub scale: f64,
    /// Pages per call; 1 reads through a guard [default: 128 KiB]
    #[arg(long, value_name = "N", value_parser = batch())]
    batch: Option<u32>,
    /// Pages from one read to the next, so that neighbours are not read together
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "op",
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    stride: u64,
    #[command(flatten)]
    against: Mappings,
    #[command(flatten)]
    pub pages: OnPages,
}

/// An API to read a file in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ScanOp {
    // Page by page, by guards.
    Read,
    // Copies of ranges.
    ReadAt,
    // Lists of neighbouring pages.
    GetMany,
}

impl ScanArgs {
    /// Runs the measurement without `--op`.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub fn run(&self) -> Result<(), BenchError> {
        let sizes = (self.max, scaled(self.max, self.scale));
        let comparison = Comparison {
            peers: self.against.rows()?,
            batch: self.batch,
            stride: self.stride,
            ..self.pages.comparison(Workload::Scan, sizes)
        };
        comparison.run()
    }
}
