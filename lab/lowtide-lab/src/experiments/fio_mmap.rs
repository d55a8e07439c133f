//! `fio-mmap`: sixteen jobs of fio's mmap engine, each of which reads blocks of a file of its own,
//! in a group with a quarter or a fifth of the memory for them. See
//! `lowtide_experiments::client::fio`.

use crate::experiments::SharingRow;
use crate::experiments::mapping::FaultRow;
use std::time::Duration;

use crate::sim::options::{PUBLISHED_POLICIES, Switch, scale};
use clap::{Args, ValueEnum};
use lowtide::Size;
use lowtide_experiments::programs::mapping::{FioMmap, FioOrder};
use lowtide_experiments::published::{Arm, MeasuredFio, fio_verdict, published_fio};
use lowtide_report::columns::{Columns, label, number, refaults};
use lowtide_report::row::Row;
use lowtide_report::verdict::CriterionRow;

use super::mapping::{Mapping, Program};
use super::simulated::Defaults;
use crate::sim::compare::judged;

/// Which blocks jobs want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// A few often: fio's zipf:1.2, in 12G
    Zipf,
    /// All alike, in 10G
    Uniform,
}

impl From<Distribution> for FioOrder {
    fn from(distribution: Distribution) -> Self {
        match distribution {
            Distribution::Zipf => Self::Zipf,
            Distribution::Uniform => Self::Uniform,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct FioMapped {
    /// Sizes relative to the published ones
    #[arg(long, value_name = "F", value_parser = scale, default_value = "1",
          allow_negative_numbers = true)]
    scale: f64,
    /// Popularity of the blocks: zipf (fio's zipf:1.2, in 12G) or uniform (in 10G)
    #[arg(long, value_name = "D", value_enum, default_value = "zipf", hide_possible_values = true)]
    distribution: Distribution,
    /// fio's fadvise_hint: whether mappings are advised to be random
    #[arg(
        long,
        value_enum,
        value_name = "on|off",
        default_value = "on",
        hide_possible_values = true
    )]
    hint: Switch,
}

impl FioMapped {
    fn is_zipf(&self) -> bool {
        self.distribution == Distribution::Zipf
    }

    /// The cell with the bandwidth of a number of reads per second, in MB of 10^6 bytes.
    pub(crate) fn megabytes(row: &Row) -> String {
        let bytes = row.ops_per_s.map(|reads| reads * FioMmap::BLOCK as f64);
        bytes.map_or_else(String::new, |bytes| format!("{:.2}", bytes / 1e6))
    }
}

impl Mapping for FioMapped {
    const NAME: &str = "fio-mmap";
    const ABOUT: &str = "jobs that read blocks of mapped files at random, on a ramdisk";
    const HELP: &str = "\
16 jobs of fio's mmap engine read blocks of a file of 3G each, in a group of 12G (zipf) or 10G
(uniform). As in fio, mappings are advised to be random, so accesses do not count; --hint off leaves
that out. With the default machine, scale and hint, published rows are shown too, and a verdict.

Examples:
  lowtide-lab sim fio-mmap --distribution uniform
  lowtide-lab sim fio-mmap --scale 0.0625 --hint off --policy mglru,lru";
    const SIMULATED: Defaults = Defaults {
        machine: "ramdisk",
        policies: PUBLISHED_POLICIES,
        seconds: "5",
        warm: Duration::from_secs(15),
    };
    const PATHS: &str = "mmap-lock-retry";
    const COLUMNS: Columns = Columns::named(
        1,
        &[
            ("policy", label),
            ("fault path", |row| row.own::<FaultRow>().fault_path.unwrap_or_default().into()),
            ("MB/s", Self::megabytes),
            ("reads/s", |row| number(row.ops_per_s)),
            ("hit %", |row| {
                row.own::<SharingRow>()
                    .hit_ratio
                    .map_or_else(String::new, |ratio| format!("{:.2}", 100.0 * ratio))
            }),
            ("file refaults", refaults),
            ("drops", |row| number(row.kernel.retry_mmap_drop.map(|count| count as f64))),
            ("misses", |row| number(row.kernel.retry_io_miss.map(|count| count as f64))),
        ],
    );

    fn program(&self, warm: Duration, run: Duration, seed: u64) -> Program {
        let order = self.distribution.into();
        let hint = self.hint == Switch::On;
        // Less memory is full sooner.
        let warm = warm.mul_f64(self.scale.min(1.0));
        Program::Fio(FioMmap { hint, warm, run, seed, ..FioMmap::published(order, self.scale) })
    }

    /// The number of jobs does not change, so neither do the CPUs.
    fn scale(&self) -> f64 {
        1.0
    }

    fn describe(&self, program: &Program) -> Vec<(&'static str, String)> {
        let Program::Fio(fio) = program else { return Vec::new() };
        let order = if self.is_zipf() { "zipf:1.2" } else { "uniform" };
        let hint = if fio.hint { "advised to be random" } else { "without advice" };
        let data = format!("{} jobs with {} each, {order}, {hint}", fio.jobs, Size::new(fio.file));
        vec![("budget", Size::new(fio.max).to_string()), ("data", data)]
    }

    fn rows(&self, rows: Vec<Row>, published: bool) -> Vec<Row> {
        let published = published && self.scale == 1.0 && self.hint == Switch::On;
        let mut all = Vec::new();
        for row in rows {
            let arm = row.policy.parse().ok().and_then(Arm::of).filter(|_| published);
            let postings = arm.map(|arm| published_fio(self.is_zipf(), arm)).unwrap_or_default();
            let beside: Vec<Row> = postings
                .into_iter()
                .map(|(posting, megabytes)| Row {
                    workload: Self::NAME,
                    world: "real",
                    system: "published",
                    source: Some(posting),
                    policy: row.policy.clone(),
                    machine: row.machine.clone(),
                    max_bytes: row.max_bytes,
                    page_bytes: row.page_bytes,
                    threads: row.threads,
                    ops_per_s: Some(megabytes * 1e6 / FioMmap::BLOCK as f64),
                    ..Row::default()
                })
                .collect();
            all.push(row);
            all.extend(beside);
        }
        all
    }

    fn verdict(&self, rows: &[Row]) -> Vec<CriterionRow> {
        if self.hint == Switch::Off {
            return Vec::new();
        }
        let of = |wanted: Arm| {
            let row = rows.iter().find(|row| {
                row.world == "sim" && row.policy.parse().ok().and_then(Arm::of) == Some(wanted)
            })?;
            Some(MeasuredFio {
                reads_per_s: row.ops_per_s?,
                hit_ratio: row.own::<SharingRow>().hit_ratio?,
            })
        };
        let order = if self.is_zipf() { FioOrder::Zipf } else { FioOrder::Uniform };
        let Ok(hits) = FioMmap::published(order, self.scale).steady_hits() else {
            return Vec::new();
        };
        let [before, after, lru] = [Arm::Before, Arm::After, Arm::Classical].map(of);
        judged(None, &fio_verdict(self.is_zipf(), hits, before, after, lru))
    }
}
