//! A row of a tenancy benchmark, as it stands in the JSON. Names are those of `lowtide sim` for the
//! same workload; what does not apply is left out.

use std::collections::BTreeMap;

use lowtide::{Pager, Size, Stat};
use lowtide_sim::statistics;
use serde::Serialize;

use crate::bench::rounds::Spread;
use crate::json::LatencyUs;
use crate::sim::row::{Bucket, Workers};
use crate::table::{mib, thousands, us};

/// See the module documentation.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct TenancyRow {
    /// The workload's name.
    pub(super) workload: &'static str,
    /// Always `real`: published rows were measured, too.
    pub(super) world: &'static str,
    /// `lowtide` or `published`.
    pub(super) system: &'static str,
    /// Which posting a published row is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<&'static str>,
    /// The policy of reclaim.
    pub(super) policy: String,
    /// The budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_bytes: Option<u64>,
    /// Bytes of data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data_bytes: Option<u64>,
    /// Bytes of a page.
    pub(super) page_bytes: u64,
    /// Threads of the workload.
    pub(super) threads: u32,
    /// Seed of the streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<u64>,
    /// The size as a part of the published experiment's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scale: Option<f64>,
    /// What threads pay for being over `high`; `bpf:NAME` for a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) high_policy: Option<String>,
    /// `high` of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) high_bytes: Option<u64>,
    /// Whether a miss brings in the window around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) readahead: Option<bool>,
    /// Seconds measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    /// Operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ops: Option<u64>,
    /// Operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ops_per_s: Option<f64>,
    /// How long operations took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_us: Option<LatencyUs>,
    /// Contents checked and found right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verified: Option<u64>,
    /// Operations that failed or found wrong bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) errors: Option<u64>,
    /// Accesses to pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) accesses: Option<u64>,
    /// Accesses to pages that were missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) misses: Option<u64>,
    /// The share of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) miss_ratio: Option<f64>,
    /// Jain's index of fairness between workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jain: Option<f64>,
    /// What each worker did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workers: Option<Workers>,
    /// Operations by the seconds that they took, divided by what a second of the published run is
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_buckets: Option<Vec<Bucket>>,
    /// Charges that failed, each of which would have been an out-of-memory kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oom: Option<u64>,
    /// Rounds that were finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rounds: Option<u32>,
    /// Seconds of a finished round, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_seconds: Option<f64>,
    /// Reads that lowtide itself asked for, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) own_reads_per_s: Option<f64>,
    /// KiB that lowtide itself read, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) own_read_kib_per_s: Option<f64>,
    /// How long threads slept for being over a limit, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) throttled_ms: Option<f64>,
    /// Of the time of an operation to that without a program, round by round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<Spread>,
    /// The 95 % confidence interval of its median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_ci95: Option<[f64; 2]>,
    /// The same of processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_ratio: Option<Spread>,
    /// The 95 % confidence interval of its median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_ratio_ci95: Option<[f64; 2]>,
    /// How often programs ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) program_runs: Option<u64>,
    /// Counters under the kernel's names, in its units.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) stat: BTreeMap<String, u64>,
}

impl TenancyRow {
    /// A row of lowtide's.
    pub(super) fn lowtide(
        workload: &'static str,
        pager: &Pager,
        policy: &str,
        threads: u32,
        seed: u64,
    ) -> Self {
        Self {
            workload,
            world: "real",
            system: "lowtide",
            policy: policy.to_owned(),
            page_bytes: pager.page_size() as u64,
            threads,
            seed: Some(seed),
            ..Self::default()
        }
    }

    /// This row with what a pager counted in `seconds` between two readings.
    pub(super) fn counted(self, before: &Stat, after: &Stat, seconds: f64) -> Self {
        let io = |count: fn(&Stat) -> u64| count(after).saturating_sub(count(before));
        let read = io(|stat| stat.io.read_bytes);
        let events = after.memory.events.since(&before.memory.events);
        let mut stat: BTreeMap<String, u64> =
            events.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        stat.insert("pgpgin".into(), read >> 10);
        stat.insert("pgpgout".into(), io(|stat| stat.io.write_bytes) >> 10);
        Self {
            seconds: Some(seconds),
            own_reads_per_s: Some(io(|stat| stat.io.reads) as f64 / seconds),
            own_read_kib_per_s: Some(read as f64 / 1024.0 / seconds),
            throttled_ms: Some(io(|stat| stat.io.throttled_ns) as f64 / 1e6),
            stat,
            ..self
        }
    }

    /// This row with so many accesses, all of which were verified, or the run would have failed.
    pub(super) fn loads(self, accesses: u64, misses: u64) -> Self {
        let miss_ratio = if accesses == 0 { 0.0 } else { misses as f64 / accesses as f64 };
        Self {
            accesses: Some(accesses),
            misses: Some(misses),
            miss_ratio: Some(miss_ratio),
            verified: Some(accesses),
            errors: Some(0),
            ..self
        }
    }

    /// This row with the work of equal workers.
    pub(super) fn spread(self, requests: Vec<u64>) -> Self {
        let spread = statistics::Spread::of(&requests);
        Self { jain: Some(spread.jain), workers: Some(Workers::of(&spread, requests)), ..self }
    }

    /// A counter; 0 if the row has none of that name.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.stat.get(name).copied().unwrap_or(0)
    }
}

/// A column: what stands above it, and its cell for a row.
pub(super) type Column = (&'static str, fn(&TenancyRow) -> String);

/// A table with these columns.
pub(super) fn table(columns: &[Column], rows: &[TenancyRow]) -> crate::table::Table {
    let headers: Vec<&str> = columns.iter().map(|(header, _)| *header).collect();
    let mut table = crate::table::new(&headers, 1);
    for row in rows {
        table.add_row(columns.iter().map(|(_, cell)| cell(row)));
    }
    table
}

/// A whole number, if there is one.
pub(super) fn number(number: Option<f64>) -> String {
    number.map_or_else(String::new, thousands)
}

/// A number with one digit behind the point, if there is one.
pub(super) fn tenths(number: Option<f64>) -> String {
    number.map_or_else(String::new, |number| format!("{number:.1}"))
}

/// Microseconds, if they are known.
pub(super) fn micros(number: Option<f64>) -> String {
    number.map_or_else(String::new, us)
}

/// Mebibytes, if they are known.
pub(super) fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, mib)
}

/// A size for a line above a table.
pub(super) fn size(bytes: u64) -> Size {
    Size::new(bytes)
}
