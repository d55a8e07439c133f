//! The machine of workloads that always need one.

use clap::Args;
use lowtide_sim::spec::MachineSpec;

use crate::sim::error::SimError;

/// The machine. Each workload sets its default.
#[derive(Debug, Args)]
pub(crate) struct OnMachine {
    /// Simulated machine: a name (`lowtide list machines`) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    machine: String,
}

impl OnMachine {
    /// Loads its description.
    ///
    /// # Errors
    /// [`SimError::Machine`].
    pub(crate) fn load(&self) -> Result<MachineSpec, SimError> {
        Ok(MachineSpec::load(&self.machine)?)
    }
}
