//! What every simulation of policies has.

use clap::Args;
use lowtide::Policy;

use super::Results;
use crate::names::{once, policy};
use crate::out;
use crate::sim::error::SimError;

/// Policies, seed and results.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Reclaim policies, one row each, with any switches: mglru-7.1+S10
    #[arg(
        long,
        value_name = "P,P",
        value_delimiter = ',',
        value_parser = policy,
        default_value = "mglru,mglru-7.1,lru"
    )]
    policy: Vec<Policy>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 42, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Where results go.
    #[command(flatten)]
    pub(crate) results: Results,
}

impl Common {
    /// The policies of the rows, each once. Notes those that are named twice.
    ///
    /// # Errors
    /// [`SimError::Results`] for a file that results cannot be written to, before any work is done.
    pub(crate) fn begin(&self) -> Result<Vec<Policy>, SimError> {
        self.results.check()?;
        Ok(once(&self.policy, ToString::to_string, out::note))
    }
}
