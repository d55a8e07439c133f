//! `mmap-thrash`: the retry storm, five hundred threads that map, read and unmap a file each in a
//! group with an eighth of the memory that they need. See `lowtide_experiments::client::thrash` for
//! what it exercises, and `docs/design/fault-path.md` for the fault paths.

use crate::experiments::mapping::FaultRow;
use std::time::Duration;

use crate::sim::options::scale;
use clap::Args;
use lowtide::Size;
use lowtide_experiments::programs::mapping::MapThrash;
use lowtide_experiments::published::{MeasuredStorm, published_storm, storm_verdict};
use lowtide_report::columns::{Columns, label, number};
use lowtide_report::outcome::RetriesRow;
use lowtide_report::row::{KernelFigures, Row};
use lowtide_report::verdict::CriterionRow;
use lowtide_sim::spec::FaultPath;

use super::mapping::{Mapping, Program};
use super::simulated::Defaults;
use crate::sim::compare::judged;

#[derive(Debug, Args)]
pub(crate) struct MmapThrash {
    /// Threads, CPUs and memory relative to the published size
    #[arg(long, value_name = "F", value_parser = scale, default_value = "1",
          allow_negative_numbers = true)]
    scale: f64,
    /// As many threads more that compute and sleep, and files opened again each round
    #[arg(long)]
    noise: bool,
}

/// A cell about retries.
fn retries(row: &Row, cell: fn(&RetriesRow) -> Option<f64>) -> String {
    row.own::<FaultRow>()
        .retries
        .as_ref()
        .and_then(cell)
        .map_or_else(String::new, |value| format!("{value:.2}"))
}

/// Milliseconds of a number of microseconds.
fn ms(us: f64) -> f64 {
    us / 1e3
}

impl Mapping for MmapThrash {
    const NAME: &str = "mmap-thrash";
    const ABOUT: &str =
        "threads that map, read and unmap files in too little memory: fault retries";
    const HELP: &str = "\
500 threads of a process have a file of 16M each, all holes. They map it, read a byte of each page
and unmap it, in a group with a memory.high of 1G and a limit of 1.2G. A policy has a row for each
fault path: rounds, locks given up for I/O (drops), and retries that found their page gone (miss).
A window is the time from the end of a fault's I/O to its next look, a lifetime that of a page;
`expected %` is how likely a window is the longer of the two. With the default machine and scale,
published rows are shown too, and a verdict. docs/design/fault-path.md explains the fault paths.

Examples:
  lowtide-lab sim mmap-thrash --policy mglru
  lowtide-lab sim mmap-thrash --fault-path mmap-lock-retry,hold --noise --seconds 3
  lowtide-lab sim mmap-thrash --scale 0.125 --policy mglru,lru";
    // The published kernel is 7.0; which lists it had is not stated.
    const SIMULATED: Defaults = Defaults {
        machine: "x86-256c",
        policies: "mglru,mglru-7.1,lru",
        seconds: "5",
        warm: Duration::from_secs(3),
    };
    const PATHS: &str = "mmap-lock-retry,vma-lock-retry,hold-vma,pin-retry,hold";
    const COLUMNS: Columns = Columns::named(
        2,
        &[
            ("policy", label),
            ("fault path", |row| row.own::<FaultRow>().fault_path.unwrap_or_default().into()),
            ("rounds/s", |row| row.ops_per_s.map_or_else(String::new, |rate| format!("{rate:.2}"))),
            ("miss/drop %", |row| retries(row, |retries| Some(retries.miss_per_drop_pct))),
            ("expected %", |row| retries(row, |retries| retries.expected_pct)),
            ("drops", |row| number(row.kernel.retry_mmap_drop.map(|count| count as f64))),
            ("misses", |row| number(row.kernel.retry_io_miss.map(|count| count as f64))),
            ("drops/round", |row| {
                let ratio = row.kernel.retry_mmap_drop.zip(row.rounds.filter(|&rounds| rounds > 0));
                ratio.map_or_else(String::new, |(drops, rounds)| {
                    format!("{:.1}", drops as f64 / f64::from(rounds))
                })
            }),
            ("window ms p50", |row| retries(row, |r| r.window_us.map(|us| ms(us.p50)))),
            ("p99", |row| retries(row, |r| r.window_us.map(|us| ms(us.p99)))),
            ("lifetime ms least", |row| retries(row, |r| r.shortest_lifetime_us.map(ms))),
            ("p50", |row| retries(row, |r| r.lifetime_us.map(|us| ms(us.p50)))),
            ("p99 of lifetimes", |row| retries(row, |r| r.lifetime_us.map(|us| ms(us.p99)))),
            ("mmap lock ms", |row| retries(row, |r| r.mmap_lock_wait_us.map(ms))),
        ],
    );

    fn program(&self, warm: Duration, run: Duration, seed: u64) -> Program {
        let published = MapThrash::published(self.scale);
        // Less memory is full sooner.
        let warm = warm.mul_f64(self.scale.min(1.0));
        Program::Thrash(MapThrash { noise: self.noise, warm, run, seed, ..published })
    }

    fn scale(&self) -> f64 {
        self.scale
    }

    fn describe(&self, program: &Program) -> Vec<(&'static str, String)> {
        let Program::Thrash(thrash) = program else { return Vec::new() };
        let limits = format!("{}, high {}", Size::new(thrash.max), Size::new(thrash.high));
        let noise = if thrash.noise { ", and as many that make noise" } else { "" };
        let data = format!(
            "{} threads with {} each, all holes{noise}",
            thrash.threads,
            Size::new(thrash.file)
        );
        vec![("budget", limits), ("data", data)]
    }

    fn rows(&self, rows: Vec<Row>, published: bool) -> Vec<Row> {
        let published = published && self.scale == 1.0;
        // Published rows stand below the last row of their fault path.
        let last = rows.last().map(|row| row.policy.clone());
        let mut all = Vec::new();
        for row in rows {
            let path = row.own::<FaultRow>().fault_path.and_then(|name| name.parse().ok());
            let beside = published && Some(&row.policy) == last.as_ref();
            let runs = path.filter(|_| beside).map(|path: FaultPath| {
                published_storm(path, self.noise).into_iter().map(|run| {
                    Row {
                        workload: Self::NAME,
                        world: "real",
                        system: "published",
                        source: Some("patch"),
                        policy: "not stated".into(),
                        machine: row.machine.clone(),
                        max_bytes: row.max_bytes,
                        page_bytes: row.page_bytes,
                        threads: row.threads,
                        rounds: run.rounds.map(|rounds| rounds as u32),
                        ops_per_s: run.rounds_per_s,
                        kernel: KernelFigures {
                            high_bytes: row.kernel.high_bytes,
                            retry_mmap_drop: Some(run.drops as u64),
                            retry_io_miss: Some(run.misses as u64),
                            ..KernelFigures::default()
                        },
                        ..Row::default()
                    }
                    .with(FaultRow {
                        fault_path: row.own::<FaultRow>().fault_path,
                        retries: Some(RetriesRow {
                            miss_per_drop_pct: run.miss_per_drop_pct,
                            ..RetriesRow::default()
                        }),
                    })
                })
            });
            let runs: Vec<Row> = runs.into_iter().flatten().collect();
            all.push(row);
            all.extend(runs);
        }
        all
    }

    fn verdict(&self, rows: &[Row]) -> Vec<CriterionRow> {
        let mut policies: Vec<&str> = Vec::new();
        for row in rows.iter().filter(|row| row.world == "sim") {
            if !policies.contains(&row.policy.as_str()) {
                policies.push(&row.policy);
            }
        }
        let mut verdict = Vec::new();
        for policy in policies {
            let of = |path: FaultPath| {
                let row = rows.iter().find(|row| {
                    row.world == "sim"
                        && row.policy == policy
                        && row.own::<FaultRow>().fault_path == Some(path.name())
                })?;
                Some(MeasuredStorm {
                    rounds_per_s: row.ops_per_s?,
                    miss_per_drop_pct: row.own::<FaultRow>().retries.as_ref()?.miss_per_drop_pct,
                })
            };
            let [base, series, hold] =
                [FaultPath::MmapLockRetry, FaultPath::VmaLockRetry, FaultPath::Hold].map(of);
            verdict.extend(judged(Some(policy), &storm_verdict(base, series, hold)));
        }
        verdict
    }
}
