//! Parts of a row: how a run came out besides its rates. Kills, runs of several seeds, checkpoints,
//! sleeps of reclaim, retries of faults, launches of apps.

use lowtide_core::Events;
use serde::Serialize;

use crate::json::LatencyUs;
use crate::known::known;
use crate::spread::Spread;

/// What rows about rounds of several seeds say.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MixRow {
    /// Mean seconds of a completed round.
    pub round_seconds: Option<f64>,
    /// The same of a published row, in the posting's words.
    pub rounds_published: Option<&'static str>,
    /// Runs of several seeds, and how many of them a kill ended.
    pub seeds: Option<SeedsRow>,
}

known!(SeedsRow, RetriesRow);

/// An out-of-memory kill.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KillRow {
    /// Virtual seconds since the start of the run.
    pub seconds: f64,
    /// The kind of the failed charge: `heap`, `file`, or `writer`.
    pub faulted: &'static str,
    /// Virtual milliseconds for which the charge had been retried.
    pub tried_ms: f64,
    /// Bytes of the file that were cached and clean.
    pub clean_file_bytes: u64,
}

/// Runs of several seeds.
#[derive(Clone, Debug, Serialize)]
#[serde(remote = "Self")]
pub struct SeedsRow {
    /// The first seed.
    pub first: u64,
    /// Finished runs.
    pub runs: u32,
    /// Rounds of a run that is not killed.
    pub rounds: u32,
    /// Runs that ended in a kill.
    pub kills: u32,
    /// The probability of a kill, in percent: its 95 % confidence interval (Wilson's).
    pub kills_ci95_pct: [f64; 2],
    /// Completed rounds at the kill.
    pub kill_rounds: Option<Spread>,
    /// Clean file pages at the kill, in bytes.
    pub kill_clean_file_bytes: Option<Spread>,
}

/// Checkpoints of a run, and what reads noticed of them.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointsRow {
    /// Seconds between the starts of checkpoints.
    pub every_s: f64,
    /// Number of completed checkpoints.
    pub count: usize,
    /// Their durations in seconds.
    pub seconds: Spread,
    /// Reads during a checkpoint.
    pub reads_during: u64,
    /// Reads outside checkpoints.
    pub reads_outside: u64,
    /// Latency of reads during a checkpoint, in virtual microseconds.
    pub during_us: LatencyUs,
    /// Latency of the other reads, in virtual microseconds.
    pub outside_us: LatencyUs,
}

/// Sleeps of reclaim.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Naps {
    /// All dirty pages were already under writeback.
    pub congested: u64,
    /// The background reclaimer found pages still under writeback.
    pub writeback: u64,
    /// Other reclaimers had isolated too many folios.
    pub isolated: u64,
}

impl Naps {
    /// Those of a group.
    pub const fn of(events: &Events) -> Self {
        Self {
            congested: events.nr_throttled_congested,
            writeback: events.nr_throttled_writeback,
            isolated: events.nr_throttled_isolated,
        }
    }
}

/// Retries of faults, and what they depend on.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(remote = "Self")]
pub struct RetriesRow {
    /// Retries that found their page gone, in percent of the locks that were given up.
    pub miss_per_drop_pct: f64,
    /// How likely a window is longer than a lifetime, both drawn on their own, in percent.
    pub expected_pct: Option<f64>,
    /// From the end of a fault's I/O to its next look, in virtual microseconds.
    pub window_us: Option<LatencyUs>,
    /// From the insertion of a page until it was evicted.
    pub lifetime_us: Option<LatencyUs>,
    /// The shortest of these.
    pub shortest_lifetime_us: Option<f64>,
    /// Mean wait for the mmap lock.
    pub mmap_lock_wait_us: Option<f64>,
}

/// Launches of apps, in virtual milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LaunchesRow {
    /// The mean.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 90th percentile.
    pub p90_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
}
