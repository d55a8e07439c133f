//! The last minutes of a process or a tenant, for the lines that show how it came here.

use std::collections::VecDeque;

use super::measures::Measures;

/// Pages that are remembered: five minutes, at one a second.
pub(crate) const POINTS: usize = 300;

/// One page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    pub(crate) written_ns: u64,
    pub(crate) used: u64,
    pub(crate) faults: f64,
    pub(crate) stall: f64,
}

/// The last pages, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail(VecDeque<Moment>);

impl Trail {
    /// Adds a page, and drops the oldest if there are too many.
    pub(crate) fn add(&mut self, written_ns: u64, measures: &Measures) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.push_back(Moment {
            written_ns,
            used: measures.used,
            faults: measures.faults.unwrap_or(0.0),
            stall: measures.stall.unwrap_or(0.0),
        });
    }

    /// The last `most` pages, the oldest first.
    pub(crate) fn last(&self, most: usize) -> impl Iterator<Item = &Moment> {
        self.0.iter().skip(self.0.len().saturating_sub(most))
    }

    /// Seconds that the last `most` pages cover.
    pub(crate) fn seconds(&self, most: usize) -> f64 {
        let first = self.last(most).next().map_or(0, |moment| moment.written_ns);
        let last = self.0.back().map_or(0, |moment| moment.written_ns);
        last.saturating_sub(first) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_keeps_the_last_pages_and_knows_their_time() {
        let mut trail = Trail::default();
        assert_eq!(trail.seconds(10), 0.0);
        for second in 0..POINTS as u64 + 5 {
            trail.add(second * 1_000_000_000, &Measures { used: second, ..Measures::default() });
        }
        assert_eq!(trail.last(usize::MAX).count(), POINTS);
        assert_eq!(trail.last(usize::MAX).next().map(|moment| moment.used), Some(5));
        assert_eq!(trail.last(3).map(|moment| moment.used).collect::<Vec<_>>(), [302, 303, 304]);
        assert_eq!(trail.seconds(3), 2.0);
    }
}
