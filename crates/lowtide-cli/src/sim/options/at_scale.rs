//! Options of a published experiment that is simulated at a scale.

use clap::Args;
use lowtide::Size;

use super::{Common, OnMachine, Timing};

/// The machine, the budget and the scale. Each workload sets the defaults of the first two, and
/// may set another scale.
#[derive(Debug, Args)]
pub struct AtScale {
    /// The machine.
    #[command(flatten)]
    pub machine: OnMachine,
    /// Budget; `max` for all of the machine's memory
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub max: Option<Size>,
    /// Size of the experiment relative to the published one
    #[arg(
        long,
        value_name = "F",
        value_parser = scale,
        default_value = "1",
        allow_negative_numbers = true
    )]
    pub scale: f64,
    /// Whether rows include the simulation's speed.
    #[command(flatten)]
    pub timing: Timing,
    /// Policies, seed and results.
    #[command(flatten)]
    pub common: Common,
}

/// A size of an experiment relative to the published one.
///
/// # Errors
/// What to write instead.
pub fn scale(text: &str) -> Result<f64, &'static str> {
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
