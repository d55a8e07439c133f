//! Options of every simulation that compares policies.

use clap::Args;
use lowtide::Policy;
use lowtide_report::names::{once, policy};
use lowtide_report::out;

use super::Results;
use crate::sim::error::SimError;

/// Policies, seed and results.
#[derive(Debug, Args)]
pub struct Common {
    /// Reclaim policies, one row each; switches may follow, as in mglru-7.1+S10
    #[arg(
        long,
        value_name = "P,P",
        value_delimiter = ',',
        value_parser = policy,
        default_value = "mglru,mglru-7.1,lru"
    )]
    policy: Vec<Policy>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 42, allow_negative_numbers = true)]
    pub seed: u64,
    /// The destination of results.
    #[command(flatten)]
    pub results: Results,
}

impl Common {
    /// The policies of the rows, each once. Notes each policy that is named twice.
    ///
    /// # Errors
    /// [`SimError::Results`] for a file that cannot be written, before any work starts.
    pub fn begin(&self) -> Result<Vec<Policy>, SimError> {
        self.results.check()?;
        Ok(once(&self.policy, ToString::to_string, out::note))
    }
}
