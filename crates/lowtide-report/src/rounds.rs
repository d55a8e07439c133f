//! Results of systems that took turns: one slice for each round, and ratios round by round.

use crate::spread::Spread;
use crate::tally::Slice;

/// The turns of one system, as measured: [`Row`](crate::row::Row) is what is shown of them.
#[derive(Debug)]
pub struct Turns {
    /// The system's name.
    pub system: &'static str,
    /// Its policy, for lowtide.
    pub policy: Option<String>,
    /// Name and policy together.
    pub label: String,
    /// One slice for each round.
    pub slices: Vec<Slice>,
}

impl Turns {
    /// All of its slices, combined.
    pub fn sum(&self) -> Slice {
        Slice::sum(&self.slices)
    }
}

/// The ratio of `turns` to `base` in each round.
pub fn ratio(turns: &Turns, base: &Turns, measure: impl Fn(&Slice) -> f64) -> Spread {
    Spread::of(
        turns.slices.iter().zip(&base.slices).map(|(slice, base)| measure(slice) / measure(base)),
    )
}
