//! `lowtide bench scan`: the whole file from start to end, repeated.

use clap::Args;
use lowtide_workload::Workload;

use super::Compare;
use super::on_pages::OnPages;
use super::plan::Comparison;
use crate::error::BenchError;
use crate::options::{Mappings, Sizes, batch};

#[derive(Debug, Args)]
pub struct ScanArgs {
    #[command(flatten)]
    sizes: Sizes,
    /// Pages per call; 1 reads through a guard [default: 128 KiB]
    #[arg(long, value_name = "N", value_parser = batch())]
    batch: Option<u32>,
    /// Pages from one read to the next, so that neighbours are not read together
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    stride: u64,
    #[command(flatten)]
    against: Mappings,
    #[command(flatten)]
    pages: OnPages,
}

impl Compare for ScanArgs {
    fn comparison(&self, workload: Workload) -> Result<Comparison<'_>, BenchError> {
        Ok(Comparison {
            peers: self.against.rows()?,
            batch: self.batch,
            stride: self.stride,
            ..self.pages.comparison(workload, self.sizes.bytes())
        })
    }
}
