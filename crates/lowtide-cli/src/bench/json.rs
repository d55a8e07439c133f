//! The rows of a workload in the machine-readable result.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rounds::{Row, Spread, ratio};
use super::tally::{Latency, Slice};
use crate::json::LatencyUs;

impl From<&Latency> for LatencyUs {
    fn from(latency: &Latency) -> Self {
        Self::from(latency.histogram())
    }
}

/// What all rows of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// The workload's name.
    pub(crate) workload: &'static str,
    /// The budget.
    pub(crate) max_bytes: u64,
    /// Bytes of data.
    pub(crate) data_bytes: u64,
    /// Bytes of lowtide's page.
    pub(crate) page_bytes: u64,
    /// Threads.
    pub(crate) threads: u32,
    /// Records or pages per call.
    pub(crate) batch: u32,
    /// Seed of the streams.
    pub(crate) seed: u64,
}

/// A row of a workload.
#[derive(Debug, Serialize)]
pub(crate) struct WorkloadRow {
    workload: &'static str,
    world: &'static str,
    system: &'static str,
    policy: Option<String>,
    max_bytes: u64,
    data_bytes: u64,
    page_bytes: u64,
    threads: u32,
    batch: u32,
    seed: u64,
    seconds: f64,
    flush_seconds: f64,
    ops: u64,
    ops_per_s: f64,
    latency_us: LatencyUs,
    verified: u64,
    errors: u64,
    ignored: u64,
    cpu_seconds: f64,
    device_read_bytes: u64,
    device_write_bytes: u64,
    read_amplification: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_bytes: Option<u64>,
    rounds: usize,
    round_ops_per_s: Vec<f64>,
    ratio: Spread,
    stat: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iops: Option<f64>,
}

impl WorkloadRow {
    /// `row`, with its ratio to `base` in operations per second.
    pub(crate) fn new(common: &Common, row: &Row, base: &Row) -> Self {
        let sum = row.sum();
        Self {
            workload: common.workload,
            world: "real",
            system: row.system,
            policy: row.policy.clone(),
            max_bytes: common.max_bytes,
            data_bytes: common.data_bytes,
            page_bytes: common.page_bytes,
            threads: common.threads,
            batch: common.batch,
            seed: common.seed,
            seconds: sum.seconds,
            flush_seconds: sum.flush_seconds,
            ops: sum.ops,
            ops_per_s: sum.rate(),
            latency_us: LatencyUs::from(&Latency::from_pairs(&sum.latency)),
            verified: sum.verified,
            errors: sum.errors,
            ignored: sum.ignored,
            cpu_seconds: sum.cpu_seconds,
            device_read_bytes: sum.read_bytes,
            device_write_bytes: sum.write_bytes,
            read_amplification: amplification(&sum),
            metadata_bytes: sum.metadata_bytes,
            rounds: row.slices.len(),
            round_ops_per_s: row.slices.iter().map(Slice::rate).collect(),
            ratio: ratio(row, base, Slice::rate),
            stat: sum.stat,
            depth: None,
            iops: None,
        }
    }

    /// The same for reads at a depth: `iops` is what the device did, and the ratio is of that.
    pub(crate) fn at_depth(mut self, depth: u32, iops: f64, ratio: Spread) -> Self {
        self.depth = Some(depth);
        self.iops = Some(iops);
        self.ratio = ratio;
        self
    }
}

/// Bytes read from the device for each byte that operations asked for; 0 when they asked for none.
pub(crate) fn amplification(slice: &Slice) -> f64 {
    if slice.asked_bytes == 0 { 0.0 } else { slice.read_bytes as f64 / slice.asked_bytes as f64 }
}
