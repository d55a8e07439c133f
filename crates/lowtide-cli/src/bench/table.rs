//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use super::json::amplification;
use super::rounds::{Row, ratio};
use super::tally::{Latency, Slice};

/// A table whose first columns, `text_columns` of them, are text and the others numbers.
pub(crate) fn new(headers: &[&str], text_columns: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(headers);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= text_columns {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The rows of a workload, ratios against the first.
pub(crate) fn of_workload(rows: &[Row]) -> Table {
    let mut table = new(
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

/// A whole number with its thousands set apart.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Microseconds, with as many digits as are known.
fn us(us: f64) -> String {
    if us < 10.0 {
        format!("{us:.2}")
    } else if us < 100.0 {
        format!("{us:.1}")
    } else {
        thousands(us)
    }
}

fn mib(bytes: u64) -> String {
    thousands(bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!(thousands(1_234_567.4), "1 234 567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!([us(0.123), us(12.34), us(1234.5)], ["0.12", "12.3", "1 234"]);
        assert_eq!(mib(3 << 20), "3");
    }
}
