//! Times on the command line: a number and its unit, as in `100ms` or `1.5s`.

use std::str::FromStr;

use thiserror::Error;

/// A time of at most [`Delay::MOST_S`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delay {
    /// Nanoseconds.
    pub(crate) ns: u64,
}

/// Text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no time up to {max} s; write a number and ns, us, ms or s, as in 100ms or 5s", max = Delay::MOST_S)]
pub(crate) struct DelayError(String);

impl Delay {
    /// Seconds at most: whoever waits longer takes a device for dead.
    const MOST_S: u64 = 100;
}

impl FromStr for Delay {
    type Err = DelayError;

    fn from_str(text: &str) -> Result<Self, DelayError> {
        let error = || DelayError(text.to_owned());
        let unit = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
        let times = match &text[unit..] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(error()),
        };
        let ns = text[..unit].parse::<f64>().map_err(|_| error())? * times;
        if !(0.0..=Self::MOST_S as f64 * 1e9).contains(&ns) {
            return Err(error());
        }
        Ok(Self { ns: ns.round() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        let ns = |text: &str| text.parse::<Delay>().map(|delay| delay.ns).ok();
        assert_eq!(ns("1s"), Some(1_000_000_000));
        assert_eq!(
            (ns("1.5ms"), ns("20us"), ns("7ns"), ns("0s")),
            (Some(1_500_000), Some(20_000), Some(7), Some(0))
        );
        for bad in ["", "5", "s", "-1s", "1m", "1 s", "101s", "nans", "infs", "1e300s"] {
            assert_eq!(ns(bad), None, "{bad}");
        }
        assert!("5".parse::<Delay>().unwrap_err().to_string().contains("100ms"));
    }
}
