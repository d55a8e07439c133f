//! The options of `lowtide top`.

use std::time::Duration;

use clap::Args;

/// Seconds between two samples: a page is written about once a second, and a day is a mistake.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

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
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| SECONDS.contains(number));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("give seconds from {} to {}", SECONDS.start(), SECONDS.end()))
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
}
