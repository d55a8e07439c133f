//! The LRU stack of a file or a group, by intervals, and the histogram of its reuse distances.
//!
//! The stack has no pages: only how many were last accessed in each interval. Distances go into
//! buckets, sixteen for each doubling, so a size is known to within 4.4 %.
//!
//! There are two histograms: one of all accesses so far, and one in which an access counts half
//! after [`HALF_LIFE_NS`]. The weights of the second one grow, instead of all buckets shrinking.

use super::Spread;
use super::curve::{Point, ReuseCurve};
use std::collections::BTreeMap;

/// Buckets for each doubling of the distance.
const PER_OCTAVE: f64 = 16.0;
/// After this time an access counts half.
const HALF_LIFE_NS: f64 = 120e9;
/// See [`Stack::settle`].
const FAR_PART: f64 = 16.0;
/// What the last interval counts in the mean of pages that are accessed in one.
const AT_ONCE_PART: f64 = 8.0;
/// Above this scale, the weights begin again at 1.
const SCALE_MAX: f64 = 1e12;

/// An access to a page of the sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// The interval of the access before.
    pub(super) last: Option<u32>,
    /// Pages that the page stands for.
    pub(super) weight: f64,
    /// It had to read.
    pub(super) missed: bool,
}

/// Sums over accesses: of all so far, and of the last minutes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: f64,
    recent: f64,
}

impl Sums {
    fn add(&mut self, weight: f64, scale: f64) {
        self.all += weight;
        self.recent += weight * scale;
    }
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// Weights of pages by the interval of their last access.
    counts: BTreeMap<u32, f64>,
    pending: Vec<Again>,
    histogram: BTreeMap<u16, Sums>,
    cold: Sums,
    missed: Sums,
    /// Pages accessed in one interval, lately.
    at_once: f64,
    /// Weight of an access now, in `recent`.
    scale: f64,
    since: Option<u64>,
    now_ns: u64,
    seconds: f64,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            pending: Vec::new(),
            histogram: BTreeMap::new(),
            cold: Sums::default(),
            missed: Sums::default(),
            at_once: 0.0,
            scale: 1.0,
            since: None,
            now_ns: 0,
            seconds: 0.0,
        }
    }
}

fn bucket(distance: f64) -> u16 {
    (PER_OCTAVE * (distance + 1.0).log2()) as u16
}

/// The smallest number of pages at which all accesses in a bucket hit.
fn pages(bucket: u16) -> u64 {
    (f64::from(bucket + 1) / PER_OCTAVE).exp2().ceil() as u64 - 1
}

impl Stack {
    /// Changes how many pages were last accessed in an interval.
    pub(super) fn count(&mut self, last: u32, by: f64) {
        let count = self.counts.entry(last).or_default();
        *count += by;
        if *count < 0.5 {
            self.counts.remove(&last);
        }
    }

    /// An access in the interval that is about to end.
    pub(super) fn push(&mut self, again: Again) {
        self.pending.push(again);
    }

    /// Ends an interval. Returns the interval before which an access is *far*: a part of
    /// [`FAR_PART`] of all pages, or more, was accessed since.
    pub(super) fn settle(&mut self, interval: u32, now_ns: u64) -> u32 {
        if self.pending.is_empty() {
            return 0;
        }
        self.pass_time(now_ns);
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_unstable_by_key(|again| std::cmp::Reverse(again.last));
        let all: f64 = pending.iter().map(|again| again.weight).sum();
        self.at_once += (all - self.at_once) / AT_ONCE_PART;
        // Of those that were accessed now, the ones that came before: not yet seen in this order.
        let (mut older, mut newer) = (all, 0.0);
        let mut stack = self.counts.iter().rev().peekable();
        let (mut found, mut far) = (Vec::new(), 0);
        let near = self.counts.values().sum::<f64>() / FAR_PART;
        for same in pending.chunk_by(|a, b| a.last == b.last) {
            let now: f64 = same.iter().map(|again| again.weight).sum();
            older -= now;
            let Some(last) = same[0].last else {
                for again in same {
                    self.cold.add(again.weight, self.scale);
                }
                continue;
            };
            while let Some((_, weight)) = stack.next_if(|(at, _)| **at > last) {
                newer += weight;
            }
            let then = self.counts.get(&last).copied().unwrap_or_default();
            let own = now / same.len() as f64;
            let distance = newer + older / 2.0 + (then - own) / 2.0 + (now - own) / 4.0;
            if far == 0 && distance >= near {
                far = last + 1;
            }
            let sums = self.histogram.entry(bucket(distance)).or_default();
            sums.add(now, self.scale);
            found.push((last, now));
        }
        for again in pending.iter().filter(|again| again.missed) {
            self.missed.add(again.weight, self.scale);
        }
        for (last, weight) in found {
            self.count(last, -weight);
        }
        *self.counts.entry(interval).or_default() += all;
        pending.clear();
        self.pending = pending;
        far
    }

    /// Pages accessed in this interval or a later one.
    pub(super) fn since(&self, interval: u32) -> u64 {
        self.counts.range(interval..).map(|(_, weight)| weight).sum::<f64>() as u64
    }

    fn pass_time(&mut self, now_ns: u64) {
        let since = *self.since.get_or_insert(now_ns);
        self.seconds = now_ns.saturating_sub(since) as f64 / 1e9;
        let passed = now_ns.saturating_sub(self.now_ns) as f64;
        if self.now_ns > 0 {
            self.scale *= (passed / HALF_LIFE_NS).exp2();
        }
        self.now_ns = now_ns;
        if self.scale > SCALE_MAX {
            let by = 1.0 / self.scale;
            let sums = self.histogram.values_mut().chain([&mut self.cold, &mut self.missed]);
            sums.for_each(|sums| sums.recent *= by);
            self.scale = 1.0;
        }
    }

    /// The curve of all accesses so far.
    pub(super) fn curve(&self, spread: Spread) -> Option<ReuseCurve> {
        let again: Sums = self.histogram.values().fold(Sums::default(), |sum, at| Sums {
            all: sum.all + at.all,
            recent: sum.recent + at.recent,
        });
        let accesses = again.all + self.cold.all;
        if accesses < 0.5 {
            return None;
        }
        let points = |of: fn(&Sums) -> f64, unit: f64| {
            let mut left = self.histogram.values().map(of).sum::<f64>() * unit;
            let cold = of(&self.cold) * unit;
            let mut points = vec![Point { pages: 0, misses: left + cold }];
            for (&at, sums) in &self.histogram {
                left -= of(sums) * unit;
                points.push(Point { pages: pages(at), misses: left.max(0.0) + cold });
            }
            points
        };
        Some(ReuseCurve {
            seconds: self.seconds,
            accesses,
            cold: self.cold.all,
            missed: self.missed.all,
            samples: spread.samples,
            error: spread.far,
            error_of_ratio: spread.share,
            points: points(|sums| sums.all, 1.0),
            recent: points(|sums| sums.recent, 1.0 / self.scale),
            at_once: self.at_once as u64,
            footprint: self.counts.values().sum::<f64>() as u64,
        })
    }
}
