//! The table of a workload.

use lowtide::instruments::MissTimes;
use std::time::Duration;

use super::measured::{amplification, bytes_per_write};
use super::rounds::{Turns, ratio};
use super::tally::{Latency, Slice};
use crate::table::{self, Table, mib, thousands, us};

/// The rows of a workload, with ratios to the first.
pub fn of_workload(rows: &[Turns]) -> Table {
    let mut table = table::new(
        &[
            "system", "ops/s", "mean µs", "p50", "p99", "p99.9", "refaults", "MiB read", "written",
            "read amp", "cpu s", "ratio",
        ],
        1,
    );
    for row in rows {
        let sum = row.sum();
        let latency = Latency::from_pairs(&sum.latency);
        table.add_row(vec![
            row.label.clone(),
            thousands(sum.rate()),
            us(latency.mean_us()),
            us(latency.quantile_us(0.5)),
            us(latency.quantile_us(0.99)),
            us(latency.quantile_us(0.999)),
            thousands(refaults(&sum) as f64),
            mib(sum.read_bytes),
            mib(sum.write_bytes),
            format!("{:.2}", amplification(&sum)),
            format!("{:.2}", sum.cpu_seconds),
            ratio(row, &rows[0], Slice::rate).text(),
        ]);
    }
    table
}

/// Reads of rows in batches, with ratios to the first.
pub fn of_rows(rows: &[Turns]) -> Table {
    let mut table = table::new(
        &[
            "system",
            "rows/s",
            "device B/row",
            "a batch: p50 µs",
            "p99",
            "refaults",
            "MiB read",
            "cpu s",
            "ratio",
        ],
        1,
    );
    for row in rows {
        let sum = row.sum();
        let latency = Latency::from_pairs(&sum.latency);
        table.add_row(vec![
            row.label.clone(),
            thousands(sum.rate()),
            thousands(sum.read_bytes as f64 / sum.ops.max(1) as f64),
            us(latency.quantile_us(0.5)),
            us(latency.quantile_us(0.99)),
            thousands(refaults(&sum) as f64),
            mib(sum.read_bytes),
            format!("{:.2}", sum.cpu_seconds),
            ratio(row, &rows[0], Slice::rate).text(),
        ]);
    }
    table
}

/// Writeback of dirty pages: a row for each system that reports it.
pub fn of_write_back(rows: &[Turns]) -> Table {
    let mut table = table::new(
        &[
            "write-back",
            "writes",
            "KiB each",
            "dirty MiB at the end",
            "flush s",
            "slept ms",
            "longest",
            "woken by reclaim",
            "rotated",
            "immediate",
        ],
        1,
    );
    for row in rows {
        let sum = row.sum();
        if sum.write_back.requests.is_none() {
            continue;
        }
        let stat = |name: &str| {
            sum.stat.get(name).map_or_else(String::new, |&count| thousands(count as f64))
        };
        table.add_row(vec![
            row.label.clone(),
            sum.write_back.requests.map_or_else(String::new, |writes| thousands(writes as f64)),
            kib_per_write(&sum),
            sum.write_back.dirty_bytes.map_or_else(String::new, mib),
            format!("{:.2}", sum.flush_seconds),
            slept_ms(&sum),
            longest_ms(&sum),
            sum.write_back.flusher_wakes.map_or_else(String::new, |wakes| thousands(wakes as f64)),
            stat("pgrotated"),
            stat("nr_vmscan_immediate_reclaim"),
        ]);
    }
    table
}

/// Where the time of misses went: a row for each view of lowtide's, in nanoseconds for each miss.
pub fn of_misses(rows: &[(String, MissTimes)]) -> Table {
    let mut table = table::new(
        &[
            "misses",
            "k pages",
            "allocate ns",
            "read ns",
            "publish ns",
            "locks",
            "waited ns",
            "held ns",
            "engine ns",
        ],
        1,
    );
    for (label, times) in rows {
        let [each, single] = [times.misses, times.single]
            .map(|count| move |sum: u64| sum as f64 / count.max(1) as f64);
        table.add_row(vec![
            label.clone(),
            thousands(times.misses as f64 / 1e3),
            thousands(single(times.allocate_ns)),
            thousands(single(times.read_ns)),
            thousands(single(times.publish_ns)),
            format!("{:.2}", each(times.lock.acquired)),
            thousands(each(times.lock.waited_ns)),
            thousands(each(times.lock.held_ns)),
            thousands(each(times.engine_ns)),
        ]);
    }
    table
}

/// Mean KiB of a write request.
pub fn kib_per_write(slice: &Slice) -> String {
    bytes_per_write(slice).map_or_else(String::new, |bytes| format!("{:.1}", bytes / 1024.0))
}

/// Milliseconds that dirty throttling paused writers.
pub fn slept_ms(slice: &Slice) -> String {
    slice.write_back.dirty_throttled.map_or_else(String::new, milliseconds)
}

/// Milliseconds of the longest such sleep.
pub fn longest_ms(slice: &Slice) -> String {
    slice.write_back.longest_pause.map_or_else(String::new, milliseconds)
}

fn milliseconds(time: Duration) -> String {
    thousands(1e3 * time.as_secs_f64())
}

fn refaults(slice: &Slice) -> u64 {
    let count = |name: &str| slice.stat.get(name).copied().unwrap_or(0);
    count("workingset_refault_file") + count("workingset_refault_anon")
}
