//! The table of a workload.

use comfy_table::Table;

use super::json::amplification;
use super::rounds::{Row, ratio};
use super::tally::{Latency, Slice};
use crate::table::{self, mib, thousands, us};

/// The rows of a workload, ratios against the first.
pub(crate) fn of_workload(rows: &[Row]) -> Table {
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

fn refaults(slice: &Slice) -> u64 {
    let count = |name: &str| slice.stat.get(name).copied().unwrap_or(0);
    count("workingset_refault_file") + count("workingset_refault_anon")
}
