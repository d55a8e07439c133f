//! The tables of simulations, as lists of columns. The simulation's speed is shown if it is known.

use super::outcome::SeedsRow;
use super::reading::DatabaseRow;
use super::row::{Ratio, Row, RowLatency, TenantsRow, Workers};
use crate::outcome::MixRow;
use crate::reading::DatabasePart;
use crate::spread::Spread;
use crate::table::{self, Table, mib, thousands, us};

/// A column: its header, and its cell for a row.
pub type Column = (&'static str, fn(&Row) -> String);

/// The columns of a table.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// The number of first columns that name a row. Each part of a wide table repeats them.
    names: usize,
    /// The columns, in groups that tables share.
    groups: [&'static [Column]; 3],
}

impl Columns {
    /// Columns of which the first `names` name a row.
    pub const fn named(names: usize, all: &'static [Column]) -> Self {
        Self { names, groups: [all, &[], &[]] }
    }

    /// A policy, and two groups of columns.
    const fn of_policy(first: &'static [Column], second: &'static [Column]) -> Self {
        Self { names: 1, groups: [&[("policy", label)], first, second] }
    }
}

impl From<&'static [Column]> for Columns {
    fn from(all: &'static [Column]) -> Self {
        Self::named(1, all)
    }
}

/// The published database: published rows are below the rows that they belong to.
pub const DATABASE: Columns = Columns::of_policy(SERVICE, READING);

/// The database of the real kernels, whose times mean little.
pub const WT: Columns = Columns::of_policy(READING, SERVICE);

/// A database, as its clients and the device see it.
const SERVICE: &[Column] = &[
    ("ops/s", |row| number(row.ops_per_s)),
    ("mean µs", |row| row.latency_us.map_or_else(String::new, |latency| us(latency.mean()))),
    ("p99", p99),
    ("KiB read", |row| thousands(row.count("pgpgin") as f64)),
    ("KiB written", |row| thousands(row.count("pgpgout") as f64)),
    ("file refaults", refaults),
    ("device %", |row| number(row.device.device_util_pct)),
    ("ratio: ops/s", |row| ratio(row, |ratio| ratio.ops_per_s)),
    ("read", |row| ratio(row, |ratio| ratio.pgpgin)),
    ("refaults", |row| ratio(row, |ratio| ratio.workingset_refault_file)),
];

/// What a database requested, and what was read for it.
const READING: &[Column] = &[
    ("KiB/op", |row| {
        let published = row.ops.map(|ops| row.count("pgpgin") as f64 / ops as f64);
        let read =
            row.own::<DatabasePart>().database.map(|reads| reads.read_kib_per_op).or(published);
        read.map_or_else(String::new, |kib| format!("{kib:.2}"))
    }),
    ("asked", |row| reading(row, |reads, _| format!("{:.2}", reads.asked_kib_per_op))),
    ("missing", |row| reading(row, |reads, kib| kib(reads.missing_pages))),
    ("ahead", |row| reading(row, |reads, kib| kib(reads.readahead_pages))),
    ("used", |row| reading(row, |reads, kib| kib(reads.readahead_used_pages))),
    ("unused", |row| reading(row, |reads, kib| kib(reads.readahead_unused_pages))),
    ("marked hits", |row| reading(row, |reads, _| whole(reads.marked_hits))),
    ("window", |row| reading(row, |reads, _| thousands(reads.mean_window_pages))),
    ("dirty %", |row| reading(row, |reads, _| format!("{:.1}", reads.dirty_share_pct))),
    ("wakes", |row| row.kernel.flusher_wakes.map_or_else(String::new, whole)),
];

/// Tenants: published rows are below the rows that they belong to.
pub const TENANTS: &[Column] = &[
    ("policy", label),
    ("requests", |row| number(row.ops.map(|ops| ops as f64))),
    ("a worker", |row| worker(row, |workers| workers.mean)),
    ("± 95 %", |row| worker(row, |workers| workers.ci95.map(|[low, high]| (high - low) / 2.0))),
    ("stdev", |row| worker(row, |workers| workers.stdev)),
    ("least", |row| worker(row, |workers| workers.least)),
    ("Jain", |row| {
        row.own::<TenantsRow>().jain.map_or_else(String::new, |jain| format!("{jain:.4}"))
    }),
    ("% < 1 s", |row| share(row, 0)),
    ("1-2", |row| share(row, 1)),
    ("2-4", |row| share(row, 2)),
    ("4-8", |row| share(row, 4)),
    ("8-16", |row| share(row, 8)),
    ("k swapped in", |row| match row.count("pswpin") {
        0 => String::new(),
        pages => thousands(pages as f64 / 1e3),
    }),
    ("ratio: ops/s", |row| ratio(row, |ratio| ratio.ops_per_s)),
];

/// Operation streams on the plain machine.
pub const PLAIN: Columns = Columns::of_policy(MISSES, &[]);

/// Operation streams on a full machine.
pub const STREAMS: Columns = Columns::of_policy(MISSES, TIMES);

/// What a policy has missed, and what that cost it.
const MISSES: &[Column] = &[
    ("accesses", |row| number(row.accesses.map(|count| count as f64))),
    ("misses", |row| number(row.misses.map(|count| count as f64))),
    ("miss %", |row| row.miss_ratio.map_or_else(String::new, |r| format!("{:.2}", 100.0 * r))),
    ("file refaults", refaults),
    ("pgscan", |row| whole(row.count("pgscan"))),
    ("pgsteal", |row| whole(row.count("pgsteal"))),
];

/// What a machine needed for it.
const TIMES: &[Column] = &[
    ("seconds", |row| row.seconds.map_or_else(String::new, |seconds| format!("{seconds:.3}"))),
    ("ops/s", |row| number(row.ops_per_s)),
    ("mean µs", |row| row.latency_us.map_or_else(String::new, |latency| us(latency.mean()))),
    ("p99", p99),
    ("MiB read", |row| mib(row.count("pgpgin") << 10)),
    ("written", |row| mib(row.count("pgpgout") << 10)),
];

/// Readers beside threads that allocate: published rows are below the rows that they belong to.
pub const MIX: &[Column] = &[
    ("policy", label),
    ("rounds", |row| {
        row.rounds.map_or_else(
            || row.own::<MixRow>().rounds_published.unwrap_or_default().into(),
            |rounds| rounds.to_string(),
        )
    }),
    ("seconds", |row| row.seconds.map_or_else(String::new, |seconds| format!("{seconds:.1}"))),
    ("anon MiB", |row| counted(row, "anon", mib)),
    ("file MiB", |row| counted(row, "file", mib)),
    ("failcnt", |row| counted(row, "failcnt", whole)),
    ("pgscan", |row| counted(row, "pgscan", whole)),
    ("pgsteal", |row| counted(row, "pgsteal", whole)),
    ("pgactivate", |row| counted(row, "pgactivate", whole)),
    ("file refaults", |row| counted(row, "workingset_refault_file", whole)),
    ("pgfault", |row| counted(row, "pgfault", whole)),
];

/// Readers beside threads that allocate, over several seeds.
pub const MIX_SEEDS: &[Column] = &[
    ("policy", label),
    ("runs", |row| of_seeds(row, |seeds| Some(seeds.runs.to_string()))),
    ("kills", |row| of_seeds(row, |seeds| Some(seeds.kills.to_string()))),
    ("kills %", |row| {
        of_seeds(row, |seeds| {
            Some(format!("{:.1}", 100.0 * f64::from(seeds.kills) / f64::from(seeds.runs)))
        })
    }),
    ("± 95 % of kills", |row| {
        of_seeds(row, |seeds| {
            let [low, high] = seeds.kills_ci95_pct;
            Some(format!("{low:.1}..{high:.1}"))
        })
    }),
    ("rounds at the kill", |row| {
        of_seeds(row, |seeds| {
            let Spread { median, min, max } = seeds.kill_rounds?;
            Some(format!("{median} ({min}..{max})"))
        })
    }),
    ("clean MiB then", |row| {
        of_seeds(row, |seeds| Some(mib(seeds.kill_clean_file_bytes?.median as u64)))
    }),
];

fn of_seeds(row: &Row, cell: fn(&SeedsRow) -> Option<String>) -> String {
    row.own::<MixRow>().seeds.as_ref().and_then(cell).unwrap_or_default()
}

/// The simulation's speed.
const TIMING: &[Column] = &[
    ("cpu s", |row| {
        row.measured.host_seconds.map_or_else(String::new, |seconds| format!("{seconds:.2}"))
    }),
    ("M accesses/s", |row| {
        row.measured.accesses_per_s.map_or_else(String::new, |rate| format!("{:.2}", rate / 1e6))
    }),
    ("B/page", |row| {
        row.measured.bytes_per_page.map_or_else(String::new, |bytes| format!("{bytes:.1}"))
    }),
];

/// Write-back on a real machine, of all rounds together.
const WRITE_BACK: &[Column] = &[
    ("speed ratio", |row| row.measured.speed_ratio.map_or_else(String::new, Spread::text)),
    ("longest", |row| number(row.kernel.longest_pause_ms)),
    ("flush s", |row| row.measured.flush_seconds.map_or_else(String::new, |s| format!("{s:.2}"))),
    ("oom", |row| number(row.oom.map(|oom| oom as f64))),
    ("dirty MiB max", |row| row.measured.dirty_max_bytes.map_or_else(String::new, mib)),
    ("writes", |row| number(row.device.device_writes.map(|writes| writes as f64))),
    ("KiB each", |row| {
        row.device
            .bytes_per_write
            .map_or_else(String::new, |bytes| format!("{:.1}", bytes / 1024.0))
    }),
    ("cpu s", |row| row.measured.cpu_seconds.map_or_else(String::new, |s| format!("{s:.2}"))),
];

/// A table with these columns, except those that no row fills and that name no row.
pub fn table(columns: impl Into<Columns>, rows: &[Row]) -> Table {
    let Columns { names, groups } = columns.into();
    let all = groups.concat();
    let timed = rows.iter().any(|row| row.measured.host_seconds.is_some());
    let flushed = rows.iter().any(|row| row.measured.flush_seconds.is_some());
    let more = [if timed { TIMING } else { &[] }, if flushed { WRITE_BACK } else { &[] }];
    let fills = |(_, cell): &&Column| rows.iter().any(|row| !cell(row).is_empty());
    let (first, rest) = all.split_at(names);
    let rest = rest.iter().chain(more.into_iter().flatten()).filter(fills);
    let columns: Vec<Column> = first.iter().chain(rest).copied().collect();
    let headers: Vec<&str> = columns.iter().map(|(header, _)| *header).collect();
    let mut table = table::new(&headers, names);
    for row in rows {
        table.add_row(columns.iter().map(|(_, cell)| cell(row)));
    }
    table
}

/// The policy, the other program or the posting, and whether the row ended in a kill.
pub fn label(row: &Row) -> String {
    match (row.source, row.oom) {
        (Some(posting), _) => format!("  published {posting}"),
        _ if row.policy.is_empty() => row.system.into(),
        (None, Some(1..)) => format!("{} (out of memory)", row.policy),
        (None, _) => row.policy.clone(),
    }
}

/// Loads for each MiB that the device read.
pub fn loads_per_mib(row: &Row) -> String {
    let ratio =
        row.ops_per_s.zip(row.device.device_read_kib_per_s).map(|(ops, kib)| ops / (kib / 1024.0));
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}"))
}

/// Milliseconds per second that threads slept.
pub fn slept(row: &Row) -> String {
    let rate = row.kernel.throttled_ms.zip(row.seconds).map(|(ms, seconds)| ms / seconds);
    number(rate)
}

/// A counter, if the row has it.
pub fn counted(row: &Row, name: &str, text: fn(u64) -> String) -> String {
    row.stat.get(name).copied().map_or_else(String::new, text)
}

/// A whole number.
pub fn whole(count: u64) -> String {
    thousands(count as f64)
}

/// A cell about the reads of a database, with pages as KiB an operation.
fn reading(row: &Row, cell: fn(&DatabaseRow, &dyn Fn(u64) -> String) -> String) -> String {
    let Some((reads, ops)) = row.own::<DatabasePart>().database.zip(row.ops) else {
        return String::new();
    };
    let kib =
        |pages: u64| format!("{:.2}", (pages * row.page_bytes) as f64 / 1024.0 / ops.max(1) as f64);
    cell(&reads, &kib)
}

/// Refaulted pages of files.
pub fn refaults(row: &Row) -> String {
    thousands(row.count("workingset_refault_file") as f64)
}

/// The 99th percentile of the latency.
pub fn p99(row: &Row) -> String {
    row.latency_us.and_then(RowLatency::p99).map_or_else(String::new, us)
}

fn worker(row: &Row, of: fn(&Workers) -> Option<f64>) -> String {
    row.own::<TenantsRow>()
        .workers
        .as_ref()
        .and_then(of)
        .map_or_else(String::new, |number| format!("{number:.1}"))
}

fn share(row: &Row, from_s: u64) -> String {
    row.bucket_share(from_s).map_or_else(String::new, |share| format!("{:.1}", 100.0 * share))
}

/// A whole number, if there is one.
pub fn number(number: Option<f64>) -> String {
    number.map_or_else(String::new, thousands)
}

fn ratio(row: &Row, of: fn(&Ratio) -> f64) -> String {
    row.ratio.as_ref().map_or_else(String::new, |ratio| format!("{:.3}", of(ratio)))
}
