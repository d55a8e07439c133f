//! The map from values to positions on an axis, and ticks at round numbers.
//!
//! Round numbers depend on the unit: 1, 2 or 5 times a power of ten for percent; powers of two for
//! bytes, and 1, 2 or 5 times a power of ten of a binary unit on a linear axis of bytes.

use super::bytes::Bytes;

/// Largest number of labelled ticks of an axis.
const LABELS_MAX: usize = 9;

/// The unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, labelled in binary units.
    Bytes,
    /// Percent.
    Percent,
}

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    /// Empty for a small mark.
    pub(super) label: String,
}

/// The range of an axis, and whether it is linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    min: f64,
    max: f64,
    log: bool,
    unit: Unit,
}

impl Scale {
    /// A linear scale. An empty or invalid range becomes `min..min + 1`.
    #[must_use]
    pub fn linear(min: f64, max: f64, unit: Unit) -> Self {
        let min = if min.is_finite() { min } else { 0.0 };
        let max = if max.is_finite() && max > min { max } else { min + 1.0 };
        Self { min, max, log: false, unit }
    }

    /// A logarithmic scale. A range that is not positive becomes linear.
    #[must_use]
    pub fn log(min: f64, max: f64, unit: Unit) -> Self {
        let log = min > 0.0 && max.is_finite() && max > min;
        Self { log, ..Self::linear(min, max, unit) }
    }

    /// The same with its end moved up to a tick.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        let step = self.step();
        if self.log { self } else { Self { max: (self.max / step - 1e-9).ceil() * step, ..self } }
    }

    /// Whether the scale is logarithmic.
    #[must_use]
    pub const fn is_log(&self) -> bool {
        self.log
    }

    /// The position of a value, from 0 at the beginning to 1 at the end; values outside are
    /// clamped.
    pub(super) fn place(&self, value: f64) -> f64 {
        let (value, min, max) = match self.log {
            true => (value.max(self.min).log2(), self.min.log2(), self.max.log2()),
            false => (value, self.min, self.max),
        };
        ((value - min) / (max - min)).clamp(0.0, 1.0)
    }

    /// The marks, in order.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        if self.log { self.powers() } else { self.steps() }
    }

    /// The distance between the labels of a linear axis.
    fn step(&self) -> f64 {
        let span = self.max - self.min;
        let base = match self.unit {
            Unit::Percent => 1.0,
            // The largest binary unit that the range reaches.
            Unit::Bytes => 1024_f64.powi((self.max.max(1.0).log2() / 10.0).floor() as i32),
        };
        let decade = 10_f64.powf((span / base / LABELS_MAX as f64).log10().floor());
        let fits = |factor: &f64| span / (factor * decade * base) <= LABELS_MAX as f64 - 1.0;
        [1.0, 2.0, 5.0, 10.0].into_iter().find(fits).unwrap_or(20.0) * decade * base
    }

    fn steps(&self) -> Vec<Tick> {
        let step = self.step();
        let (first, last) =
            ((self.min / step - 1e-9).ceil() as i64, (self.max / step + 1e-9).floor() as i64);
        (first..=last)
            .map(|i| i as f64 * step)
            .map(|value| Tick { value, label: self.label(value, step) })
            .collect()
    }

    /// Powers of two, of which every n-th has a label.
    fn powers(&self) -> Vec<Tick> {
        let (first, last) =
            ((self.min.log2() - 1e-9).ceil() as i32, (self.max.log2() + 1e-9).floor() as i32);
        // A unit is ten powers, so with these distances the units themselves are among the labels.
        let few = |every: &i32| (last - first) / every < LABELS_MAX as i32;
        let every = [1, 2, 5, 10, 20, 50].into_iter().find(few).unwrap_or(100);
        let tick = |exponent: i32| {
            let value = 2_f64.powi(exponent);
            let label = if exponent.rem_euclid(every) == 0 {
                self.label(value, value)
            } else {
                String::new()
            };
            Tick { value, label }
        };
        (first..=last).map(tick).collect()
    }

    fn label(&self, value: f64, step: f64) -> String {
        match self.unit {
            _ if value == 0.0 => "0".to_owned(),
            Unit::Bytes => Bytes(value as u64).to_string(),
            Unit::Percent => {
                let decimals = (-step.log10()).ceil().clamp(0.0, 9.0) as usize;
                format!("{value:.decimals$} %")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn percent_ticks_are_round_and_few() {
        let scale = Scale::linear(0.0, 83.0, Unit::Percent).rounded_up();
        assert_eq!(labels(scale), ["0", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        assert_eq!(
            labels(Scale::linear(0.0, 0.7, Unit::Percent).rounded_up())[..2],
            ["0", "0.1 %"]
        );
    }

    #[test]
    fn byte_ticks_are_powers_of_two_or_round_in_their_unit() {
        let mib = 1024.0 * 1024.0;
        assert_eq!(
            labels(Scale::linear(0.0, 100.0 * mib, Unit::Bytes)),
            ["0", "20 MiB", "40 MiB", "60 MiB", "80 MiB", "100 MiB"]
        );
        assert_eq!(
            labels(Scale::log(3.0 * mib, 40.0 * mib, Unit::Bytes)),
            ["4 MiB", "8 MiB", "16 MiB", "32 MiB"]
        );
        let wide = labels(Scale::log(4096.0, 64.0 * 1024.0 * mib, Unit::Bytes));
        assert!(
            (5..=LABELS_MAX).contains(&wide.len()) && wide.contains(&"1 MiB".to_owned()),
            "{wide:?}"
        );
    }

    #[test]
    fn places_follow_the_kind_of_scale() {
        let log = Scale::log(1.0, 16.0, Unit::Bytes);
        assert_eq!(
            [1.0, 4.0, 16.0, 99.0, 0.0].map(|value| log.place(value)),
            [0.0, 0.5, 1.0, 1.0, 0.0]
        );
        let linear = Scale::linear(0.0, 16.0, Unit::Bytes);
        assert_eq!(linear.place(4.0), 0.25);
    }

    #[test]
    fn impossible_ranges_are_still_scales() {
        for (min, max) in [(0.0, 0.0), (f64::INFINITY, 0.0), (5.0, 5.0), (0.0, f64::NAN)] {
            for scale in [Scale::linear(min, max, Unit::Percent), Scale::log(min, max, Unit::Bytes)]
            {
                assert!(scale.place(5.0).is_finite());
                assert!(scale.rounded_up().ticks().len() < 100);
            }
        }
    }
}
