//! The rows of systems that took turns on real memory.

use super::rounds::{Turns, ratio};
use super::row::{DeviceFigures, KernelFigures, MeasuredFigures, Row, RowLatency};
use super::tally::{Latency, Slice};
use crate::json::LatencyUs;
use crate::spread::Spread;
use crate::table::thousands;
use std::time::Duration;

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
}

impl Row {
    /// The figures of a system that took turns: those of all of its slices together.
    pub fn of_turns(turns: &Turns) -> Self {
        let sum = turns.sum();
        let back = sum.write_back;
        let ms = |time: Option<Duration>| time.map(|time| 1e3 * time.as_secs_f64());
        let row = Self {
            world: "real",
            system: turns.system,
            policy: turns.policy.clone().unwrap_or_default(),
            seconds: Some(sum.seconds),
            rounds: u32::try_from(turns.slices.len()).ok(),
            errors: Some(sum.errors),
            oom: back.oom,
            stat: sum.stat.iter().map(|(name, &count)| (name.clone().into(), count)).collect(),
            measured: MeasuredFigures {
                verified: Some(sum.verified),
                flush_seconds: Some(sum.flush_seconds),
                cpu_seconds: Some(sum.cpu_seconds),
                dirty_bytes: back.dirty_bytes,
                dirty_max_bytes: back.dirty_max_bytes,
                ..MeasuredFigures::default()
            },
            kernel: KernelFigures {
                throttled_ms: ms(back.throttled),
                dirty_throttled_ms: ms(back.dirty_throttled),
                dirty_pauses: back.dirty_pauses,
                flusher_wakes: back.flusher_wakes,
                longest_pause_ms: ms(back.longest_pause),
                ..KernelFigures::default()
            },
            device: DeviceFigures {
                device_write_bytes: Some(sum.write_bytes),
                device_writes: back.requests,
                bytes_per_write: bytes_per_write(&sum),
                ..DeviceFigures::default()
            },
            ..Self::default()
        };
        row.with_ops(sum.ops)
    }

    /// The row of a comparison: what all rows share, what was measured, and its ratio to `base` in
    /// operations per second.
    pub fn compared(common: &Common, turns: &Turns, base: &Turns) -> Self {
        let sum = turns.sum();
        let row = Self::of_turns(turns);
        Self {
            workload: common.workload,
            program: common.workload.starts_with("ycsb").then_some("record store"),
            max_bytes: Some(common.max_bytes),
            data_bytes: Some(common.data_bytes),
            page_bytes: common.page_bytes,
            threads: common.threads,
            seed: Some(common.seed),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&Latency::from_pairs(
                &sum.latency,
            )))),
            measured: MeasuredFigures {
                batch: Some(common.batch),
                stride: common.stride,
                ignored: Some(sum.ignored),
                metadata_bytes: sum.metadata_bytes,
                cached_max_bytes: sum.cached_bytes,
                round_ops_per_s: Some(turns.slices.iter().map(Slice::rate).collect()),
                speed_ratio: Some(ratio(turns, base, Slice::rate)),
                ..row.measured
            },
            device: DeviceFigures {
                slowed: common.slowed.clone(),
                device_read_bytes: Some(sum.read_bytes),
                read_amplification: Some(amplification(&sum)),
                ..row.device
            },
            ..row
        }
    }

    /// This row for reads of rows of `row_bytes`: each operation is one of those.
    pub fn of_rows(self, row_bytes: u64, skew: &'static str) -> Self {
        let (read, ops) = (self.device.device_read_bytes.unwrap_or(0), self.ops.unwrap_or(0));
        Self {
            measured: MeasuredFigures {
                row_bytes: Some(row_bytes),
                skew: Some(skew),
                ..self.measured
            },
            device: DeviceFigures {
                device_bytes_per_row: Some(read as f64 / ops.max(1) as f64),
                ..self.device
            },
            ..self
        }
    }

    /// This row for reads at a depth: `iops` counts device reads, and the ratio is of IOPS.
    pub fn at_depth(self, depth: u32, iops: f64, ratio: Spread) -> Self {
        Self {
            measured: MeasuredFigures {
                depth: Some(depth),
                speed_ratio: Some(ratio),
                ..self.measured
            },
            device: DeviceFigures { iops: Some(iops), ..self.device },
            ..self
        }
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

/// What was checked in all rows together: a line's beginning.
pub fn checked(rows: &[Row], what: &str) -> String {
    let count = |count: fn(&Row) -> Option<u64>| rows.iter().filter_map(count).sum::<u64>();
    let [verified, errors] = [count(|row| row.measured.verified), count(|row| row.errors)]
        .map(|count| thousands(count as f64));
    format!("{verified} {what} verified, {errors} errors")
}
