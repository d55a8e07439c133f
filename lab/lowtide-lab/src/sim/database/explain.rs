//! Where each byte read came from, by policy.
//!
//! ```text
//!   the device's reads = requested and missing        for the first time, or again
//!                      + read ahead                   used later, evicted unused, or still there
//!                      + anything else                of other files
//! ```
//!
//! *Still there* is a change: pages read ahead and not used yet at the end, less those at the
//! beginning of the measurement. So the lines add up to the device's reads, and it can be negative.

use lowtide_report::reading::DatabasePart;
use lowtide_report::reading::DatabaseRow;
use lowtide_report::row::Row;
use lowtide_report::table;

/// The sources, in the order in which they are printed.
const SOURCES: [&str; 6] = [
    "requested, read first",
    "requested, read again",
    "read ahead, used",
    "read ahead, evicted unused",
    "read ahead, still there",
    "other",
];

/// The table, for the rows of a database.
pub(crate) fn lines(rows: &[Row]) -> Vec<String> {
    let columns: Vec<(&str, [f64; 6])> = rows
        .iter()
        .filter_map(|row| {
            Some((row.policy.as_str(), sources(row, row.own::<DatabasePart>().database.as_ref()?)?))
        })
        .collect();
    let headers: Vec<&str> = ["KiB/op (% of the reads)"]
        .into_iter()
        .chain(columns.iter().map(|(name, _)| *name))
        .collect();
    if columns.is_empty() {
        return Vec::new();
    }
    let mut table = table::new(&headers, 1);
    for (number, source) in SOURCES.iter().enumerate() {
        let cells = columns.iter().map(|(_, kib)| cell(kib[number], kib.iter().sum()));
        table.add_row([(*source).to_owned()].into_iter().chain(cells));
    }
    let sums = columns.iter().map(|(_, kib)| format!("{:.2} (100.0 %)", kib.iter().sum::<f64>()));
    table.add_row(["all".to_owned()].into_iter().chain(sums));
    vec!["\nwhere each byte read came from".into(), table.to_string()]
}

/// KiB an operation from each of the [`SOURCES`]; their sum is what the device read.
fn sources(row: &Row, reads: &DatabaseRow) -> Option<[f64; 6]> {
    let ops = row.ops.filter(|&ops| ops > 0)?;
    let kib = |pages: f64| pages * row.page_bytes as f64 / 1024.0 / ops as f64;
    let of = |pages: u64| kib(pages as f64);
    let (used, unused) = (reads.readahead_used_pages, reads.readahead_unused_pages);
    Some([
        of(reads.missing_pages - reads.missing_again_pages),
        of(reads.missing_again_pages),
        of(used),
        of(unused),
        kib(reads.readahead_pages as f64 - used as f64 - unused as f64),
        reads.read_kib_per_op - of(reads.missing_pages + reads.readahead_pages),
    ])
}

fn cell(kib: f64, of: f64) -> String {
    // A sum of rounded parts is not exactly zero, and "-0.00" is no number of KiB.
    let kib = if kib.abs() < 0.005 { 0.0 } else { kib };
    let percent = if of > 0.0 { 100.0 * kib / of } else { 0.0 };
    format!("{kib:.2} ({percent:.1} %)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_add_up_to_what_the_device_read() {
        let reads = DatabaseRow {
            read_kib_per_op: 10.0,
            missing_pages: 120,
            missing_again_pages: 20,
            readahead_pages: 100,
            readahead_used_pages: 90,
            readahead_unused_pages: 30,
            ..DatabaseRow::default()
        };
        let row = Row { ops: Some(100), page_bytes: 4096, ..Row::default() };
        let sources = sources(&row, &reads).unwrap();
        assert!((sources.iter().sum::<f64>() - 10.0).abs() < 1e-9, "{sources:?}");
        let expected = [4.0, 0.8, 3.6, 1.2, -0.8, 1.2];
        for (source, expected) in sources.iter().zip(expected) {
            assert!((source - expected).abs() < 1e-9, "{sources:?}");
        }
        let row = {
            let own = DatabasePart { database: Some(reads) };
            Row { policy: "lru".into(), ..row }.with(own)
        };
        let text = lines(&[row]).concat();
        assert!(text.contains("3.60 (36.0 %)") && text.contains("10.00 (100.0 %)"), "{text}");
        assert!(lines(&[Row::default()]).is_empty());
    }
}
