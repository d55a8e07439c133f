//! `lowtide bench random-read`: uniform reads of single pages.

use clap::Args;
use lowtide_workload::Workload;

use super::Compare;
use super::on_pages::OnPages;
use super::plan::Comparison;
use crate::error::BenchError;
use crate::options::{Mappings, Sizes, batch};

#[derive(Debug, Args)]
pub struct RandomReadArgs {
    #[command(flatten)]
    sizes: Sizes,
    /// Pages per call: 1 reads through a guard, more through get_many
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = batch())]
    batch: u32,
    #[command(flatten)]
    against: Mappings,
    #[command(flatten)]
    pages: OnPages,
}

impl Compare for RandomReadArgs {
    fn comparison(&self, workload: Workload) -> Result<Comparison<'_>, BenchError> {
        Ok(Comparison {
            peers: self.against.rows()?,
            batch: Some(self.batch),
            ..self.pages.comparison(workload, self.sizes.bytes())
        })
    }
}
