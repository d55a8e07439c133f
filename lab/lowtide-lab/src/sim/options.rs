//! Options that only experiments have, beside those of `lowtide sim`.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use lowtide::Size;
use lowtide_bench::sim::error::SimError;
pub(crate) use lowtide_bench::sim::options::{
    Common, Output, Results, Switch, Timing, data_pages, floor, machine_budget, threads,
};
use lowtide_bench::sim::options::{devices, with_device};
use lowtide_sim::spec::MachineSpec;

/// The default rows of an experiment that was published: the three that were measured, and what the
/// kernel does since.
pub(crate) const PUBLISHED_POLICIES: &str = "mglru,mglru-7.1+series,mglru-7.1,lru";

/// The machine of workloads that always need one. Each workload sets its default.
#[derive(Debug, Args)]
pub(crate) struct OnMachine {
    /// Simulated machine: a name (`lowtide list machines`) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    machine: String,
    /// Device in place of the machine's own
    #[arg(long, value_name = "NAME", value_parser = devices(), ignore_case = true)]
    device: Option<String>,
}

impl OnMachine {
    /// Loads its description.
    ///
    /// # Errors
    /// [`SimError::Machine`].
    pub(crate) fn load(&self) -> Result<MachineSpec, SimError> {
        with_device(&self.machine, self.device.as_deref())
    }
}

/// The machine, the budget and the scale. Each workload sets the defaults of the first two, and
/// may set another scale.
#[derive(Debug, Args)]
pub(crate) struct AtScale {
    /// The machine.
    #[command(flatten)]
    pub(crate) machine: OnMachine,
    /// Budget; `max` for all of the machine's memory
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) max: Option<Size>,
    /// Size of the experiment relative to the published one
    #[arg(
        long,
        value_name = "F",
        value_parser = scale,
        default_value = "1",
        allow_negative_numbers = true
    )]
    pub(crate) scale: f64,
    /// Whether rows include the simulation's speed.
    #[command(flatten)]
    pub(crate) timing: Timing,
    /// Policies, seed and results.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A size of an experiment relative to the published one.
///
/// # Errors
/// What to write instead.
pub(crate) fn scale(text: &str) -> Result<f64, &'static str> {
    let scale = text.parse().ok().filter(|scale| (0.001..=100.0).contains(scale));
    scale.ok_or("give a number from 0.001 to 100, such as 0.1")
}

/// The budget in bytes of a group that a workload makes below the machine's root.
///
/// # Errors
/// [`SimError::Usage`] for what is no budget, or more than the machine has.
pub(crate) fn group_budget(max: Size, machine: &MachineSpec) -> Result<u64, SimError> {
    machine_budget(Some(max), machine, None)?.ok_or_else(|| {
        SimError::usage(
            "this workload cannot fill a budget of --max max",
            "give the size of its group, such as --max 128M",
        )
    })
}

/// Virtual seconds, at most a day.
pub(crate) fn seconds() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=86_400)
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
