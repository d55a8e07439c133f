//! Counts: of one thread, of one slice of a system, of all slices of a row.
//!
//! A *slice* is one turn of one system. It is plain data, because peers send their slices from
//! other processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest recorded latency, in nanoseconds; longer ones count as this (one hour).
const LATENCY_NS_MAX: u64 = 3600 * 1_000_000_000;
/// Latencies are kept to two significant digits, which keeps a histogram near 30 KiB.
const DIGITS: u8 = 2;

/// Latencies in nanoseconds, to one percent.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        // The two constants are valid bounds; invalid ones would fail here in every test.
        Self(
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)
                .expect("constant bounds of the histogram"),
        )
    }
}

impl Latency {
    /// Counts `times` operations that took `took` each.
    #[inline]
    pub fn record(&mut self, took: Duration, times: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record_n(ns, times);
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can be out of range.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok());
    }

    /// The mean in microseconds; 0 when nothing was counted.
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// The latency in microseconds that this share of operations (0 to 1) did not exceed; 0 when
    /// nothing was counted.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The counts, in nanoseconds.
    pub const fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// The counts, as pairs of nanoseconds and operations.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
    }

    /// The inverse of [`Latency::pairs`].
    pub fn from_pairs(pairs: &[(u64, u64)]) -> Self {
        let mut latency = Self::default();
        for &(ns, count) in pairs {
            latency.0.saturating_record_n(ns, count);
        }
        latency
    }
}

/// Counts of one thread in one slice.
#[derive(Debug)]
pub struct Tally {
    /// Latencies of operations.
    pub latency: Latency,
    /// Operations done, including failed ones.
    pub ops: u64,
    /// Contents checked and found correct.
    pub verified: u64,
    /// Operations that failed or found wrong bytes.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// Operations that have no meaning for a file and were skipped.
    pub ignored: u64,
    /// Bytes of records or pages that operations requested.
    pub asked_bytes: u64,
    /// Latencies of reads, apart from other operations, where there are checkpoints.
    pub reads: Option<Reads>,
    /// When the thread began and ended.
    pub span: (Instant, Instant),
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// An empty tally that starts now.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            latency: Latency::default(),
            ops: 0,
            verified: 0,
            errors: 0,
            first_error: None,
            ignored: 0,
            asked_bytes: 0,
            reads: None,
            span: (now, now),
        }
    }

    /// Counts one content: correct, or wrong with a reason.
    #[inline]
    pub fn check<E: std::fmt::Display>(&mut self, result: Result<(), E>) {
        match result {
            Ok(()) => self.verified += 1,
            Err(error) => self.fail(&error),
        }
    }

    /// Counts an operation that failed.
    #[cold]
    pub fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }
}

/// Writeback of dirty pages, as far as a system reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBack {
    /// Write requests to the device.
    pub requests: Option<u64>,
    /// Time that threads slept because a limit was exceeded, all threads together.
    pub throttled: Option<Duration>,
    /// Time that dirty throttling paused writers, all threads together.
    pub dirty_throttled: Option<Duration>,
    /// How often it paused them.
    pub dirty_pauses: Option<u64>,
    /// The longest such sleep since the system began.
    pub longest_pause: Option<Duration>,
    /// How often reclaim woke the flushers.
    pub flusher_wakes: Option<u64>,
    /// Bytes dirty or under writeback after the operations and before the closing flush; of several
    /// slices, the last one's.
    pub dirty_bytes: Option<u64>,
    /// The largest sampled value of those bytes.
    pub dirty_max_bytes: Option<u64>,
    /// Writes that failed because no page could be evicted in time.
    pub oom: Option<u64>,
}

impl WriteBack {
    /// Adds those of the next slice.
    fn add(&mut self, next: Self) {
        fn add<T: std::ops::Add<Output = T> + Default + Copy>(
            sum: &mut Option<T>,
            next: Option<T>,
        ) {
            *sum = sum.map_or(next, |sum| Some(sum + next.unwrap_or_default()));
        }
        add(&mut self.requests, next.requests);
        add(&mut self.throttled, next.throttled);
        add(&mut self.dirty_throttled, next.dirty_throttled);
        add(&mut self.dirty_pauses, next.dirty_pauses);
        add(&mut self.flusher_wakes, next.flusher_wakes);
        add(&mut self.oom, next.oom);
        self.longest_pause = self.longest_pause.max(next.longest_pause);
        self.dirty_bytes = next.dirty_bytes;
        self.dirty_max_bytes = self.dirty_max_bytes.max(next.dirty_max_bytes);
    }
}

/// What of a heap is in swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapLevel {
    /// Bytes of its pages.
    pub orig_bytes: u64,
    /// Bytes of memory that those take which are kept in memory.
    pub memory_bytes: u64,
}

/// Counts of one system in one slice.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Slice {
    /// From the first thread's begin to the end of the closing flush.
    pub seconds: f64,
    /// The part of it that the closing flush took.
    pub flush_seconds: f64,
    /// As in [`Tally`], over all threads.
    pub ops: u64,
    /// As in [`Tally`], over all threads.
    pub verified: u64,
    /// As in [`Tally`], over all threads.
    pub errors: u64,
    /// As in [`Tally`], of any thread.
    pub first_error: Option<String>,
    /// As in [`Tally`], over all threads.
    pub ignored: u64,
    /// As in [`Tally`], over all threads.
    pub asked_bytes: u64,
    /// Latencies, as in [`Latency::pairs`].
    pub latency: Vec<(u64, u64)>,
    /// Processor time of the system, in user and kernel mode.
    pub cpu_seconds: f64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes written to the device.
    pub write_bytes: u64,
    /// Writeback, if it is known.
    pub write_back: WriteBack,
    /// Checkpoints, where there are any.
    pub checkpoints: Option<Checkpoints>,
    /// Counters that moved, by their kernel names.
    pub stat: BTreeMap<String, u64>,
    /// Memory charged to the budget at the end.
    pub current_bytes: u64,
    /// Memory that the system needs in addition to the budget, if it is known.
    pub metadata_bytes: Option<u64>,
    /// Bytes of its file in the page cache when its operations ended, if the budget is kept there
    /// by looking; of several slices the most.
    pub cached_bytes: Option<u64>,
    /// What of its heap is in swap at the end, where there is swap.
    pub swap: Option<SwapLevel>,
}

impl Slice {
    /// The tallies of all threads together.
    pub fn of(tallies: &[Tally]) -> Self {
        let mut slice = Self::default();
        let mut latency = Latency::default();
        for tally in tallies {
            slice.ops += tally.ops;
            slice.verified += tally.verified;
            slice.errors += tally.errors;
            slice.ignored += tally.ignored;
            slice.asked_bytes += tally.asked_bytes;
            if slice.first_error.is_none() {
                slice.first_error.clone_from(&tally.first_error);
            }
            latency.add(&tally.latency);
        }
        let begin = tallies.iter().map(|tally| tally.span.0).min();
        let end = tallies.iter().map(|tally| tally.span.1).max();
        if let (Some(begin), Some(end)) = (begin, end) {
            slice.seconds = end.saturating_duration_since(begin).as_secs_f64();
        }
        slice.latency = latency.pairs();
        slice
    }

    /// Adds the time of the closing flush.
    pub fn add_flush(&mut self, took: Duration) {
        self.flush_seconds = took.as_secs_f64();
        self.seconds += self.flush_seconds;
    }

    /// Operations per second; 0 for an empty slice.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 }
    }

    /// All slices of a row together. Levels (`current_bytes`, `metadata_bytes`) are those of the
    /// last.
    pub fn sum(slices: &[Self]) -> Self {
        let mut sum = Self::default();
        let mut latency = Latency::default();
        for slice in slices {
            sum.seconds += slice.seconds;
            sum.flush_seconds += slice.flush_seconds;
            sum.cached_bytes = sum.cached_bytes.max(slice.cached_bytes);
            sum.ops += slice.ops;
            sum.verified += slice.verified;
            sum.errors += slice.errors;
            sum.ignored += slice.ignored;
            sum.asked_bytes += slice.asked_bytes;
            sum.cpu_seconds += slice.cpu_seconds;
            sum.read_bytes += slice.read_bytes;
            sum.write_bytes += slice.write_bytes;
            sum.write_back.add(slice.write_back);
            if let Some(checkpoints) = &slice.checkpoints {
                sum.checkpoints.get_or_insert_default().add(checkpoints);
            }
            sum.current_bytes = slice.current_bytes;
            sum.metadata_bytes = slice.metadata_bytes;
            sum.swap = slice.swap;
            if sum.first_error.is_none() {
                sum.first_error.clone_from(&slice.first_error);
            }
            for (name, count) in &slice.stat {
                *sum.stat.entry(name.clone()).or_default() += count;
            }
            latency.add(&Latency::from_pairs(&slice.latency));
        }
        sum.latency = latency.pairs();
        sum
    }
}

/// The checkpoints of a slice, and the reads during and outside them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Checkpoints {
    /// Duration of each, in seconds.
    pub seconds: Vec<f64>,
    /// Latencies of reads during a checkpoint, as in [`Latency::pairs`].
    pub during: Vec<(u64, u64)>,
    /// Latencies of the other reads.
    pub outside: Vec<(u64, u64)>,
}

impl Checkpoints {
    /// Adds those of another slice.
    pub fn add(&mut self, other: &Self) {
        self.seconds.extend(&other.seconds);
        self.during.extend(&other.during);
        self.outside.extend(&other.outside);
    }
}

/// Latencies of one thread's reads.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// During a checkpoint.
    pub during: Latency,
    /// Otherwise.
    pub outside: Latency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_survive_the_way_through_pairs() {
        let mut latency = Latency::default();
        for us in 1..=1000 {
            latency.record(Duration::from_micros(us), 3);
        }
        let copy = Latency::from_pairs(&latency.pairs());
        for quantile in [0.5, 0.99, 0.999] {
            let want = quantile * 1000.0;
            assert!(
                (copy.quantile_us(quantile) - want).abs() < 0.02 * want,
                "{}",
                copy.quantile_us(quantile)
            );
        }
        assert!((copy.mean_us() - 500.5).abs() < 10.0);
        assert!(Latency::default().mean_us().abs() < f64::EPSILON);
    }

    #[test]
    fn sums_add_counts_and_keep_the_first_error_and_the_last_level() {
        let slice = |ops, error: Option<&str>, current_bytes| Slice {
            seconds: 2.0,
            ops,
            first_error: error.map(str::to_owned),
            stat: BTreeMap::from([("pgfault".to_owned(), ops)]),
            latency: vec![(1000, ops)],
            current_bytes,
            ..Slice::default()
        };
        let sum =
            Slice::sum(&[slice(10, None, 1), slice(30, Some("a"), 2), slice(20, Some("b"), 3)]);
        assert_eq!((sum.ops, sum.current_bytes, sum.stat["pgfault"]), (60, 3, 60));
        assert_eq!(sum.first_error.as_deref(), Some("a"));
        assert!((sum.rate() - 10.0).abs() < 1e-9);
        assert_eq!(sum.latency.iter().map(|pair| pair.1).sum::<u64>(), 60);
    }
}
