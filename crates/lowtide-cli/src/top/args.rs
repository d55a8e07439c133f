//! The options of `lowtide top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Seconds between two samples: a page is written about once a second, and a day is a mistake.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
/// How much faster than it happened a recording may be played.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;

/// The options of `lowtide top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Begin with the tenants of this process
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: Duration,
    /// Print a table once, and end; what happens anyway if the output is not a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Write each sample to this file: JSON lines, compressed if the name ends in .zst
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Show a recording instead of processes that run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "interval"])]
    pub(crate) replay: Option<PathBuf>,
    /// Play the recording this much faster than it happened
    #[arg(long, value_name = "FACTOR", default_value = "1", requires = "replay",
        value_parser = speed)]
    pub(crate) speed: f64,
}

fn within(text: &str, range: &std::ops::RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("give {what} from {} to {}", range.start(), range.end()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    within(text, &SECONDS, "seconds").map(Duration::from_secs_f64)
}

fn speed(text: &str) -> Result<f64, String> {
    within(text, &SPEEDS, "a factor")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        top: TopArgs,
    }

    fn parsed(args: &[&str]) -> Result<TopArgs, clap::error::ErrorKind> {
        let parsed = Alone::try_parse_from([&["top"], args].concat());
        parsed.map(|alone| alone.top).map_err(|error| error.kind())
    }

    #[test]
    fn an_interval_is_a_time_that_can_be_waited_for() {
        assert_eq!(parsed(&[]).unwrap().interval, Duration::from_secs(1));
        assert_eq!(parsed(&["--interval", "0.5"]).unwrap().interval, Duration::from_millis(500));
        for wrong in ["0", "-1", "nan", "inf", "1s", "4000"] {
            assert!(parsed(&["--interval", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_recording_has_a_speed_and_it_is_not_recorded_again() {
        assert_eq!(parsed(&["7", "--replay", "f", "--speed", "10"]).unwrap().speed, 10.0);
        assert!(parsed(&["--speed", "10"]).is_err());
        assert!(parsed(&["--replay", "f", "--record", "g"]).is_err());
        assert!(parsed(&["--replay", "f", "--speed", "0"]).is_err());
    }
}
