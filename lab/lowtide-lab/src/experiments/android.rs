//! `android`: cold starts of apps, one after another, on a phone whose memory is short. See
//! `lowtide_experiments::programs::heap` for what it exercises.

use serde::Serialize;
use std::rc::Rc;

use crate::sim::options::{PUBLISHED_POLICIES, floor, scale};
use clap::Args;
use lowtide::Size;
use lowtide_experiments::client::heap::HeapResult;
use lowtide_experiments::programs::heap::{Android as Program, HeapProgram};
use lowtide_experiments::published::{
    ANDROID, Arm, Criterion, MeasuredAndroid, android_verdict, published_heap,
};
use lowtide_report::columns::{Columns, label, number};
use lowtide_report::outcome::LaunchesRow;
use lowtide_report::row::{Row, named};
use lowtide_report::table::mib;
use lowtide_sim::spec::MachineSpec;

use super::heap::{Heap, row_of, thousands_cell};

/// What only the rows of this experiment say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LaunchRow {
    /// Launches of apps.
    pub(crate) launches: Option<LaunchesRow>,
}

#[derive(Debug, Args)]
pub(crate) struct Android {
    /// Sizes relative to the described ones
    #[arg(long, value_name = "F", value_parser = scale, default_value = "0.25",
          allow_negative_numbers = true)]
    scale: f64,
    /// Rounds measured, of 20 launches each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000),
          default_value_t = 10)]
    rounds: u64,
}

impl Android {
    fn android(&self, seed: u64) -> Program {
        Program { rounds: self.rounds, seed, ..Program::published(self.scale) }
    }
}

/// A cell about launches.
fn launch(row: &Row, cell: fn(&LaunchesRow) -> f64) -> String {
    row.own::<LaunchRow>()
        .launches
        .as_ref()
        .map_or_else(String::new, |launches| format!("{:.1}", cell(launches)))
}

/// A counter of a row that has counters.
fn count(row: &Row, name: &str) -> String {
    row.stat.get(name).map_or_else(String::new, |&count| number(Some(count as f64)))
}

impl Heap for Android {
    const NAME: &str = "android";
    const ABOUT: &str = "cold starts of apps beside services, with nine tenths of the memory";
    const HELP: &str = "\
20 apps are started cold, one after another, next to services that keep memory, read map tiles and
write a log; five apps stay in the background. Memory is nine tenths of what all of that uses: the
rest of the machine's is taken by others. A launch ends with its last page. Almost everything is
assumed, as little was published, so only ratios of policies mean something.

Examples:
  lowtide-lab sim android --rounds 30
  lowtide-lab sim android --scale 1 --policy mglru-7.1,mglru-7.1+series";
    const MACHINE: &str = "phone";
    const POLICIES: &str = PUBLISHED_POLICIES;
    const COLUMNS: Columns = Columns::named(
        1,
        &[
            ("policy", label),
            ("launches", |row| number(row.ops.map(|ops| ops as f64))),
            ("mean ms", |row| launch(row, |launches| launches.mean_ms)),
            ("p50", |row| launch(row, |launches| launches.p50_ms)),
            ("p90", |row| launch(row, |launches| launches.p90_ms)),
            ("p95", |row| launch(row, |launches| launches.p95_ms)),
            ("MiB read", |row| {
                row.stat.get("pgpgin").map_or_else(String::new, |&kib| mib(kib << 10))
            }),
            ("file refaults", |row| count(row, "workingset_refault_file")),
            ("heap refaults", |row| count(row, "workingset_refault_anon")),
            ("k swapped out", |row| thousands_cell(row, "pswpout")),
            ("direct", |row| count(row, "pgscan_direct")),
        ],
    );

    fn program(&self, _variant: usize, seed: u64) -> Rc<dyn HeapProgram> {
        Rc::new(self.android(seed))
    }

    /// What services and apps do not have is the system's.
    fn machine(&self, machine: MachineSpec) -> MachineSpec {
        let kernel = machine.memory.saturating_sub(self.android(1).memory());
        MachineSpec { kernel: kernel.max(machine.kernel), ..machine }
    }

    fn scale(&self) -> Option<f64> {
        Some(self.scale)
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let android = self.android(1);
        let data = format!(
            "{} apps, {} of them in the background; {} of heap at a time",
            android.apps,
            android.cached,
            Size::new(android.heap_bytes() >> 20 << 20)
        );
        vec![("budget", format!("{}, of all", floor(android.memory()))), ("data", data)]
    }

    fn row(&self, row: Row, result: &HeapResult) -> Row {
        let at = |percent| result.latency.value_at_quantile(percent) as f64 / 1e6;
        let launches = LaunchesRow {
            mean_ms: result.latency.mean() / 1e6,
            p50_ms: at(0.50),
            p90_ms: at(0.90),
            p95_ms: at(0.95),
        };
        let own = LaunchRow { launches: Some(launches) };
        row.with(own)
    }

    fn published(&self, arm: Arm) -> Vec<Row> {
        let postings = published_heap(ANDROID, arm).into_iter();
        postings
            .map(|(posting, figures)| {
                let of = |name| figures.iter().find(|f| f.0 == name).map(|f| f.1);
                let launches = of("mean").map(|mean_ms| LaunchesRow {
                    mean_ms,
                    p50_ms: of("p50").unwrap_or(f64::NAN),
                    p90_ms: of("p90").unwrap_or(f64::NAN),
                    p95_ms: of("p95").unwrap_or(f64::NAN),
                });
                let counters = figures.iter().filter(|_| launches.is_none());
                Row {
                    source: Some(posting),
                    stat: named(counters.map(|&(name, value)| (name, value as u64))),
                    ..Row::default()
                }
                .with(LaunchRow { launches })
            })
            .collect()
    }

    fn verdict(&self, rows: &[Row]) -> Vec<Criterion> {
        let of = |arm| {
            let row = row_of(rows, arm)?;
            let launches = row.own::<LaunchRow>().launches?;
            Some(MeasuredAndroid {
                mean: launches.mean_ms,
                p95: launches.p95_ms,
                refault_file: row.count("workingset_refault_file") as f64,
                refault_anon: row.count("workingset_refault_anon") as f64,
                read: row.count("pgpgin") as f64,
            })
        };
        let (Some(before), Some(after)) = (of(Arm::Before), of(Arm::After)) else {
            return Vec::new();
        };
        android_verdict(before, after)
    }
}
