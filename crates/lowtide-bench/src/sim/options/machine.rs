//! The machine of a workload, and a device in place of the machine's own.

use clap::Args;
use clap::builder::PossibleValuesParser;
use lowtide_sim::spec::{DeviceSpec, MachineSpec};

use crate::sim::error::SimError;

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
pub fn devices() -> PossibleValuesParser {
    PossibleValuesParser::new(DeviceSpec::names())
}

/// Loads the description of a machine, on another device if one is named.
///
/// # Errors
/// [`SimError::Machine`].
pub fn with_device(machine: &str, device: Option<&str>) -> Result<MachineSpec, SimError> {
    let machine = MachineSpec::load(machine)?;
    // The parser knows the names.
    let Some(device) = device.and_then(DeviceSpec::preset) else { return Ok(machine) };
    let machine = machine.on_device(device);
    machine.validate()?;
    Ok(machine)
}
