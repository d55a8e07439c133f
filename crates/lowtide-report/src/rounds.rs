//! Results of systems that took turns: one slice for each round, and ratios round by round.

use crate::spread::Spread;
use crate::tally::Slice;

/// The results of one system.
#[derive(Debug)]
pub struct Row {
    /// The system's name.
    pub system: &'static str,
    /// Its policy, for lowtide.
    pub policy: Option<String>,
    /// Name and policy together.
    pub label: String,
    /// One slice for each round.
    pub slices: Vec<Slice>,
}

impl Row {
    /// All of its slices, combined.
    pub fn sum(&self) -> Slice {
        Slice::sum(&self.slices)
    }
}

/// The ratio of `row` to `base` in each round.
pub fn ratio(row: &Row, base: &Row, measure: impl Fn(&Slice) -> f64) -> Spread {
    Spread::of(
        row.slices.iter().zip(&base.slices).map(|(slice, base)| measure(slice) / measure(base)),
    )
}
