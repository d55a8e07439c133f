//! The machine of workloads that always need one, and the scale of an experiment.

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

/// The scale of a published experiment. A workload may set another default.
#[derive(Debug, Args)]
pub(crate) struct Scale {
    /// Size of the experiment relative to the published one
    #[arg(
        long,
        value_name = "F",
        value_parser = scale,
        default_value = "1",
        allow_negative_numbers = true
    )]
    pub(crate) scale: f64,
}

fn scale(text: &str) -> Result<f64, &'static str> {
    let scale = text.parse().ok().filter(|scale| (0.001..=100.0).contains(scale));
    scale.ok_or("give a number from 0.001 to 100, such as 0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_a_number_within_bounds() {
        assert_eq!((scale("0.001"), scale("100"), scale("1")), (Ok(0.001), Ok(100.0), Ok(1.0)));
        for text in ["0", "-1", "1e3", "nan", "inf", "", "half"] {
            assert!(scale(text).unwrap_err().contains("0.001"), "{text}");
        }
    }
}
