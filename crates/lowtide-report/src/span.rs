//! Times on the command line: a number and its unit, as in `100ms` or `1.5s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// A time with its unit: `7ns`, `500us`, `2ms`, `1.5s`. Less than a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// The text is not a time.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a time below one day; write a number and ns, us, ms or s, such as 10ms")]
pub struct BadSpan(String);

impl Span {
    /// Nanoseconds: less than a day has few enough for 64 bits.
    pub const fn ns(self) -> u64 {
        self.0.as_nanos() as u64
    }
}

impl FromStr for Span {
    type Err = BadSpan;

    fn from_str(text: &str) -> Result<Self, BadSpan> {
        let bad = || BadSpan(text.to_owned());
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, unit) = text.split_at(end);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return Err(bad()),
        };
        let seconds = number.parse::<f64>().map_err(|_| bad())? * unit;
        if seconds >= 86_400.0 {
            return Err(bad());
        }
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| bad())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        for (text, nanos) in [
            ("7ns", 7),
            ("500us", 500_000),
            ("500µs", 500_000),
            ("2ms", 2_000_000),
            ("1.5s", 1_500_000_000),
            ("0s", 0),
        ] {
            assert_eq!(text.parse::<Span>().unwrap().ns(), nanos, "{text}");
        }
        for text in [
            "", "5", "s", "ms", "-1s", "1 s", "1..2s", "1m", "5h", "1e3s", "100000s", "nans",
            "infs",
        ] {
            assert!(
                text.parse::<Span>().unwrap_err().to_string().contains("such as 10ms"),
                "{text}"
            );
        }
    }
}
