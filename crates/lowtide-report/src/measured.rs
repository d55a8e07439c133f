//! The rows of a workload in the machine-readable result.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rounds::{Row, ratio};
use super::tally::{Latency, Slice};
use crate::json::LatencyUs;
use crate::spread::Spread;

impl From<&Latency> for LatencyUs {
    fn from(latency: &Latency) -> Self {
        Self::from(latency.histogram())
    }
}

/// The fields that all rows of a run share.
#[derive(Clone, Debug)]
pub struct Common {
    /// The workload's name.
    pub workload: &'static str,
    /// The budget.
    pub max_bytes: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of lowtide's page.
    pub page_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Records or pages per call.
    pub batch: u32,
    /// Seed of the streams.
    pub seed: u64,
    /// Pages from one read of a scan to the next, if not one.
    pub stride: Option<u64>,
    /// The delays of the device, as text.
    pub slowed: Option<String>,
    /// Seconds from checkpoint to checkpoint.
    pub checkpoint_seconds: Option<f64>,
}

/// A row of a workload.
#[derive(Debug, Serialize)]
pub struct WorkloadRow {
    workload: &'static str,
    /// The program of the workload, if `sim` has another program with the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'static str>,
    world: &'static str,
    system: &'static str,
    policy: Option<String>,
    max_bytes: u64,
    data_bytes: u64,
    page_bytes: u64,
    threads: u32,
    batch: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    stride: Option<u64>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    device_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_write: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    throttled_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_throttled_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_pauses: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_pause_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flusher_wakes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oom: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slowed: Option<String>,
    read_amplification: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_max_bytes: Option<u64>,
    rounds: usize,
    round_ops_per_s: Vec<f64>,
    speed_ratio: Spread,
    stat: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_bytes_per_row: Option<f64>,
}

impl WorkloadRow {
    /// `row`, with its ratio to `base` in operations per second.
    pub fn new(common: &Common, row: &Row, base: &Row) -> Self {
        let sum = row.sum();
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        Self {
            workload: common.workload,
            program: common.workload.starts_with("ycsb").then_some("record store"),
            world: "real",
            system: row.system,
            policy: row.policy.clone(),
            max_bytes: common.max_bytes,
            data_bytes: common.data_bytes,
            page_bytes: common.page_bytes,
            threads: common.threads,
            batch: common.batch,
            stride: common.stride,
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
            device_writes: sum.write_back.requests,
            bytes_per_write: bytes_per_write(&sum),
            throttled_ms: ms(sum.write_back.throttled_ns),
            dirty_throttled_ms: ms(sum.write_back.dirty_throttled_ns),
            dirty_pauses: sum.write_back.dirty_pauses,
            longest_pause_ms: ms(sum.write_back.longest_pause_ns),
            flusher_wakes: sum.write_back.flusher_wakes,
            dirty_bytes: sum.write_back.dirty_bytes,
            dirty_max_bytes: sum.write_back.dirty_max_bytes,
            oom: sum.write_back.oom,
            slowed: common.slowed.clone(),
            read_amplification: amplification(&sum),
            metadata_bytes: sum.metadata_bytes,
            cached_max_bytes: sum.cached_bytes,
            rounds: row.slices.len(),
            round_ops_per_s: row.slices.iter().map(Slice::rate).collect(),
            speed_ratio: ratio(row, base, Slice::rate),
            stat: sum.stat,
            depth: None,
            iops: None,
            row_bytes: None,
            skew: None,
            device_bytes_per_row: None,
        }
    }

    /// A row for reads of rows of `row_bytes`: each operation is one of those.
    pub fn of_rows(mut self, row_bytes: u64, skew: &'static str) -> Self {
        self.row_bytes = Some(row_bytes);
        self.skew = Some(skew);
        self.device_bytes_per_row = Some(self.device_read_bytes as f64 / self.ops.max(1) as f64);
        self
    }

    /// A row for reads at a depth: `iops` counts device reads, and the ratio is of IOPS.
    pub fn at_depth(mut self, depth: u32, iops: f64, ratio: Spread) -> Self {
        self.depth = Some(depth);
        self.iops = Some(iops);
        self.speed_ratio = ratio;
        self
    }
}

/// Mean bytes of a write request, if the number of requests is known.
pub fn bytes_per_write(slice: &Slice) -> Option<f64> {
    slice
        .write_back
        .requests
        .filter(|&requests| requests > 0)
        .map(|requests| slice.write_bytes as f64 / requests as f64)
}

/// Bytes read from the device for each requested byte; 0 if no byte was requested.
pub fn amplification(slice: &Slice) -> f64 {
    if slice.asked_bytes == 0 { 0.0 } else { slice.read_bytes as f64 / slice.asked_bytes as f64 }
}
