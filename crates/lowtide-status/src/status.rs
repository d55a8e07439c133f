//! What a process says of itself.
//!
//! Counters grow from the beginning of the process: a reader takes differences. Sizes are in bytes,
//! times in nanoseconds unless the name says otherwise. Names are an interface: names may be added,
//! and none is renamed or changes its meaning while [`VERSION`] stays. A reader ignores names that
//! it does not know, and takes those that are missing as zero or absent.

use crate::curve::Curve;
use serde::{Deserialize, Serialize};

/// Of the format.
pub const VERSION: u32 = 1;

/// How lowtide came into the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is linked with the library.
    #[default]
    Library,
    /// It was started by `lowtide run`.
    Run,
    /// It imported the Python package.
    Python,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// Version of lowtide.
    pub lowtide: String,
    /// The process.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`): with
    /// `pid` it names a process forever.
    pub start_ticks: u64,
    /// Its name, as in `/proc/PID/comm`.
    pub program: String,
    /// How lowtide came into it.
    pub origin: Origin,
    /// When this was written: nanoseconds since 1970.
    pub written_ns: u64,
    /// Page faults of the process that waited for a read.
    pub major_faults: u64,
    /// Bytes that devices read for the process, for whatever purpose.
    pub device_read_bytes: u64,
    /// Bytes that the process caused to be written to devices.
    pub device_write_bytes: u64,
    /// Its pagers; few processes have more than one.
    pub pagers: Vec<PagerStatus>,
}

/// A pager: a budget, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PagerStatus {
    /// Policy of the engine.
    pub policy: String,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// Bytes of frames that have memory now.
    pub resident_bytes: u64,
    /// Bytes of tables, on top of the budget.
    pub metadata_bytes: u64,
    /// Reads of pages that found them in memory, estimated. Pointers are not counted.
    pub hits: u64,
    /// Reads of pages that waited for the device.
    pub misses: u64,
    /// Transfers from files, and their bytes.
    pub reads: u64,
    /// See `reads`.
    pub read_bytes: u64,
    /// Transfers to files, and their bytes.
    pub writes: u64,
    /// See `writes`.
    pub write_bytes: u64,
    /// Pages that were read ahead, those of them that were used, and those evicted unused.
    pub ahead_pages: u64,
    /// See `ahead_pages`.
    pub ahead_used: u64,
    /// See `ahead_pages`.
    pub ahead_wasted: u64,
    /// Nanoseconds that threads slept because a tenant was over a limit.
    pub throttled_ns: u64,
    /// Pages whose last write failed.
    pub failed_pages: u64,
    /// The tenants: the root first, then by usage.
    pub tenants: Vec<TenantStatus>,
    /// Tenants that have no place here.
    pub tenants_left_out: u64,
}

/// A tenant, with those below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantStatus {
    /// Its path, `/` for the root.
    pub path: String,
    /// Bytes charged to it.
    pub usage_bytes: u64,
    /// The most bytes that were ever charged.
    pub peak_bytes: u64,
    /// Its limits, where it has them; `low` and `min` are 0 where it has none.
    pub max_bytes: Option<u64>,
    /// See `max_bytes`.
    pub high_bytes: Option<u64>,
    /// See `max_bytes`.
    pub low_bytes: u64,
    /// See `max_bytes`.
    pub min_bytes: u64,
    /// Bytes of its pages in swap, as they were before compression.
    pub swap_bytes: u64,
    /// Bytes of it that are pages of files, and those without a file.
    pub file_bytes: u64,
    /// See `file_bytes`.
    pub anon_bytes: u64,
    /// Bytes that wait to be written.
    pub dirty_bytes: u64,
    /// Bytes that are being written.
    pub writeback_bytes: u64,
    /// Pages that came in.
    pub faults: u64,
    /// Pages that came in again after they had been evicted.
    pub refaults: u64,
    /// Pages that were scanned for reclaim.
    pub scanned: u64,
    /// Pages that were evicted.
    pub evicted: u64,
    /// Time in which some thread waited for memory: `total` of `memory.pressure`, and the share of
    /// the last 10 seconds, in percent.
    pub stall_some_ns: u64,
    /// See `stall_some_ns`.
    pub stall_some_avg10: f64,
    /// Time in which all threads waited for memory.
    pub stall_full_ns: u64,
    /// Charges that met `high`, and `max`, and failed for want of room.
    pub high_events: u64,
    /// See `high_events`.
    pub max_events: u64,
    /// See `high_events`.
    pub oom_events: u64,
    /// Generations of a multi-gen LRU, the youngest first; active and inactive of a classical one.
    pub generations: Vec<Generation>,
    /// Some of its files.
    pub files: Vec<String>,
    /// How many misses there would be at other sizes.
    pub curve: Option<Curve>,
}

/// Pages of about one age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Generation {
    /// Nanoseconds since it was opened; 0 where there is no such time.
    pub age_ns: u64,
    /// Bytes of pages without a file.
    pub anon_bytes: u64,
    /// Bytes of pages of files.
    pub file_bytes: u64,
}
