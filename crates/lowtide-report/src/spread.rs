//! A median and its extremes: how results of several rounds are stated.
//!
//! The speed of a machine changes within minutes, so one number says little. A result is the median
//! over rounds, with the smallest and the largest.

use serde::Serialize;

/// A median, with the smallest and the largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value (of an even number, the mean of the two).
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Computes it; ignores values that are not finite.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Self { median, min, max }
    }

    /// `1.23 (1.20..1.31)`, with more digits for values far below one.
    pub fn text(self) -> String {
        format!("{:.*} {}", self.digits(), self.median, self.range())
    }

    /// The extremes alone, as all ranges are written: `(1.20..1.31)`.
    pub fn range(self) -> String {
        let digits = self.digits();
        format!("({:.digits$}..{:.digits$})", self.min, self.max)
    }

    fn digits(self) -> usize {
        if self.max < 0.1 { 4 } else { 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_of_few_values() {
        assert_eq!(Spread::of([]), Spread::default());
        assert_eq!(Spread::of([4.0, f64::NAN, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([0.0012]).text(), "0.0012 (0.0012..0.0012)");
    }
}
