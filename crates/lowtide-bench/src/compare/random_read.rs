//! `lowtide bench random-read`: uniform reads of single pages.

use clap::Args;
use lowtide_report::values::{budget, scale, scaled};
use lowtide_workload::Workload;

use super::Compare;
use super::on_pages::OnPages;
use super::plan::Comparison;
use crate::error::BenchError;
use crate::options::{Mappings, batch};

#[derive(Debug, Args)]
pub struct RandomReadArgs {
    /// Memory budget of each system
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the data as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          allow_negative_numbers = true)]
    scale: f64,
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
        let sizes = (self.max, scaled(self.max, self.scale));
        Ok(Comparison {
            peers: self.against.rows()?,
            batch: Some(self.batch),
            ..self.pages.comparison(workload, sizes)
        })
    }
}
