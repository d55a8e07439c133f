//! The machine of a workload, and a device in place of the machine's own.

use clap::Args;
use clap::builder::PossibleValuesParser;
use lowtide_sim::spec::{DeviceSpec, MachineSpec};

use crate::sim::error::SimError;

/// The machine of workloads that always need one. Each workload sets its default.
#[derive(Debug, Args)]
pub struct OnMachine {
    /// Simulated machine: a name (`lowtide list machines`) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    machine: String,
    /// Device in place of the machine's own
    #[arg(long, value_name = "NAME", value_parser = devices(), ignore_case = true)]
    device: Option<String>,
}

/// The machine of workloads that run on the plain one unless a machine is named.
#[derive(Debug, Args)]
pub struct OrPlain {
    /// Full machine: a name (`lowtide list machines`) or a TOML file [default: the plain one]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// Device in place of the machine's own
    #[arg(
        long,
        value_name = "NAME",
        value_parser = devices(),
        ignore_case = true,
        requires = "machine"
    )]
    device: Option<String>,
}

impl OnMachine {
    /// Loads its description.
    ///
    /// # Errors
    /// [`SimError::Machine`].
    pub fn load(&self) -> Result<MachineSpec, SimError> {
        with_device(&self.machine, self.device.as_deref())
    }
}

impl OrPlain {
    /// Loads its description; `None` is the plain machine.
    ///
    /// # Errors
    /// [`SimError::Machine`].
    pub fn load(&self) -> Result<Option<MachineSpec>, SimError> {
        let machine = self.machine.as_deref();
        machine.map(|machine| with_device(machine, self.device.as_deref())).transpose()
    }
}

/// The names of the devices.
fn devices() -> PossibleValuesParser {
    PossibleValuesParser::new(DeviceSpec::names())
}

fn with_device(machine: &str, device: Option<&str>) -> Result<MachineSpec, SimError> {
    let machine = MachineSpec::load(machine)?;
    // The parser knows the names.
    let Some(device) = device.and_then(DeviceSpec::preset) else { return Ok(machine) };
    let machine = machine.on_device(device);
    machine.validate()?;
    Ok(machine)
}
