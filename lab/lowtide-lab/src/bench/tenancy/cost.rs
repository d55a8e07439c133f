//! `lowtide-lab bench program-cost`: the cost of a program whose answer changes nothing.
//!
//! A tenant above its `high` loads random pages under the kernel's throttle policy, without
//! read-ahead, so that every miss charges and evicts. Files are read through the kernel's page
//! cache unless `--direct` is set: then a miss is as short as possible, and the share of a program
//! as large as possible.
//!
//! Slices of the same number of loads alternate with and without the program, in the same tenant.
//! The order changes from pair to pair, so that a systematic effect on the second slice cancels
//! out. Each pair gives a ratio; the result is their median, with its 95 % confidence interval by
//! order statistics, which makes no assumption about the distribution: on a shared machine, single
//! pairs vary widely. CPU time, which varies less, is also shown.

use crate::experiments::high_thrash::ThrashRow;
use std::path::PathBuf;
use std::time::Instant;

use crate::bench::options::OnePolicy;
use clap::Args;
use lowtide::{HighPolicy, IoEngine, IoMode, OpenOptions, Pager, Size, Tenant, View};
use lowtide_bench::content::{Content, UNIT_BYTES};
use lowtide_bench::datafile::{DataFile, Purpose};
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{Files, Io, Output, Seed, engines, modes, rounds};
use lowtide_bpf::Programs;
use lowtide_host::usage::CpuTime;
use lowtide_report::columns::number;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::progress::Patient;
use lowtide_report::row::{KernelFigures, Row};
use lowtide_report::spread::Spread;
use lowtide_report::table::{self, Table};
use lowtide_report::values::{PAGE, budget, seconds};
use lowtide_workload::SplitMix64;
use serde::Serialize;

use super::host::{apply, check_memory, head, page, tail, whole_windows};
use super::loaders::{fill, load};
use crate::throttle::ThrottlePolicy;

pub(crate) const NAME: &str = "program-cost";
/// One line for listings.
pub(crate) const ABOUT: &str = "loads above high with an eBPF program and without it, in turns";

/// Loads that calibrate the length of a slice.
const TRIAL: u64 = 2_000;
/// The largest slowdown of loads that a program without effect may cause.
const TOLERANCE: f64 = 0.02;

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// The program, an eBPF object file such as examples/bpf/noop.bpf.o; one row for each
    #[arg(long, value_name = "FILE", required = true)]
    bpf: Vec<PathBuf>,
    /// memory.high of the tenant; its file is a third larger
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "64M",
          allow_hyphen_values = true)]
    max: u64,
    /// Measured seconds of each row
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "10",
          allow_negative_numbers = true)]
    seconds: f64,
    /// Pairs of slices, with the program and without it
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 200)]
    rounds: u32,
    #[command(flatten)]
    policy: OnePolicy,
    /// lowtide's base page, 1K or more
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = PAGE,
          allow_hyphen_values = true)]
    page: u64,
    #[command(flatten)]
    seed: Seed,
    /// I/O system calls that lowtide uses; auto prefers io_uring
    #[arg(long, value_parser = engines(), default_value = "auto")]
    io: IoEngine,
    /// Whether lowtide bypasses the kernel's page cache
    #[arg(long, value_parser = modes(), default_value = "buffered")]
    direct: IoMode,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    wall: f64,
    cpu: f64,
    misses: u64,
}

fn slice(view: &View, loads: u64, rng: &mut SplitMix64) -> Result<Slice, BenchError> {
    let units = (view.page_size() / UNIT_BYTES) as u64;
    let (begin, cpu, mut misses) = (Instant::now(), CpuTime::now_self(), 0);
    for _ in 0..loads {
        let place = rng.below(view.page_count() * units);
        let page = place / units;
        misses += u64::from(!view.is_resident(page));
        load(view, page, place % units).map_err(|first| BenchError::Wrong {
            system: NAME.into(),
            errors: 1,
            first,
        })?;
    }
    let wall = begin.elapsed().as_secs_f64();
    interrupt::check(|| "measuring what a program costs".into())?;
    Ok(Slice { wall, cpu: CpuTime::now_self().since(cpu).seconds(), misses })
}

/// A tenant that may have `high`, and its file.
fn thrasher(pager: &Pager, file: &DataFile, high: u64) -> Result<(Tenant, View), BenchError> {
    let tenant = pager.tenant("thrasher").high(Size::new(high)).create()?;
    let view = OpenOptions::new().tenant(&tenant).lock(false).open(pager, file.path())?;
    Ok((tenant, view))
}

/// Slices without (`.0`) and with the program.
type Pair = (Slice, Slice);

fn pairs(
    tenant: &Tenant,
    view: &View,
    throttle: &ThrottlePolicy,
    loads: u64,
    count: u32,
    rng: &mut SplitMix64,
) -> Result<(Vec<Pair>, u64), BenchError> {
    let (mut pairs, mut runs) = (Vec::new(), 0);
    for number in 0..count {
        let mut with = |rng: &mut SplitMix64| -> Result<Slice, BenchError> {
            let programs = apply(throttle, tenant)?;
            let slice = slice(view, loads, rng)?;
            runs += programs.as_ref().map_or(0, runs_of);
            Ok(slice)
        };
        let without = |rng: &mut SplitMix64| -> Result<Slice, BenchError> {
            tenant.set_hooks(None)?;
            slice(view, loads, rng)
        };
        pairs.push(if number % 2 == 0 {
            let first = without(rng)?;
            (first, with(rng)?)
        } else {
            let first = with(rng)?;
            (without(rng)?, first)
        });
    }
    Ok((pairs, runs))
}

fn runs_of(programs: &Programs) -> u64 {
    programs.status().iter().map(|hook| hook.runs).sum()
}

/// What a program was measured with, and what it cost.
struct Cost<'a> {
    throttle: &'a ThrottlePolicy,
    pairs: &'a [Pair],
    /// Loads of a slice.
    loads: u64,
    /// Runs of the program.
    runs: u64,
}

impl Cost<'_> {
    /// Ratios of a slice with the program to the one without it.
    fn ratios(&self, of: fn(&Slice) -> f64) -> impl Iterator<Item = f64> {
        self.pairs.iter().map(move |(without, with)| of(with) / of(without))
    }

    fn misses(&self) -> u64 {
        self.pairs.iter().map(|(without, with)| without.misses + with.misses).sum()
    }

    /// Loads with the program, and those without it are as many.
    fn ops(&self) -> u64 {
        self.loads * self.pairs.len() as u64
    }

    /// The row, on top of what it has already.
    fn row(&self, row: Row) -> CostRow {
        let with: f64 = self.pairs.iter().map(|(_, with)| with.wall).sum();
        CostRow {
            row: {
                let own = ThrashRow {
                    high_policy: Some(self.throttle.name()),
                    readahead: Some(false),
                    program_runs: Some(self.runs),
                    ..row.own()
                };
                Row {
                    rounds: Some(self.pairs.len() as u32),
                    ops: Some(self.ops()),
                    ops_per_s: Some(self.ops() as f64 / with),
                    ..row
                }
                .with(own)
            },
            time_ratio: Spread::of(self.ratios(|slice| slice.wall)),
            time_ratio_ci95: median_ci95(self.ratios(|slice| slice.wall)),
            cpu_ratio: Spread::of(self.ratios(|slice| slice.cpu)),
            cpu_ratio_ci95: median_ci95(self.ratios(|slice| slice.cpu)),
        }
    }
}

/// A row, with ratios of the time of an operation to that without the program, pair by pair.
#[derive(Debug, Serialize)]
struct CostRow {
    #[serde(flatten)]
    row: Row,
    time_ratio: Spread,
    /// The 95 % confidence interval of its median.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ratio_ci95: Option<[f64; 2]>,
    /// The same of CPU time.
    cpu_ratio: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ratio_ci95: Option<[f64; 2]>,
}

impl CostRow {
    /// The conclusion, in words.
    fn sentence(&self) -> String {
        let percent = |ratio: Spread| 100.0 * (ratio.median - 1.0);
        format!(
            "{}: {:+.2} % of the time of a load, {:+.2} % of its processor time (a program \
             without an opinion: at most {:.0} %)",
            self.row.own::<ThrashRow>().high_policy.as_deref().unwrap_or_default(),
            percent(self.time_ratio),
            percent(self.cpu_ratio),
            100.0 * TOLERANCE
        )
    }

    fn cells(&self) -> [String; 7] {
        let count = |count: Option<u64>| number(count.map(|count| count as f64));
        [
            self.row.own::<ThrashRow>().high_policy.unwrap_or_default(),
            count(self.row.ops),
            count(self.row.misses),
            count(self.row.own::<ThrashRow>().program_runs),
            number(self.row.ops_per_s),
            text(self.time_ratio, self.time_ratio_ci95),
            text(self.cpu_ratio, self.cpu_ratio_ci95),
        ]
    }
}

const HEADERS: [&str; 7] = [
    "program",
    "loads",
    "misses",
    "runs of it",
    "loads/s with it",
    "time with / without",
    "processor time",
];

fn table(rows: &[CostRow]) -> Table {
    let mut table = table::new(&HEADERS, 1);
    rows.iter().for_each(|row| table.add_row(row.cells()));
    table
}

fn text(spread: Spread, ci95: Option<[f64; 2]>) -> String {
    let [low, high] = ci95.unwrap_or([spread.min, spread.max]);
    format!("{:.4} ({low:.4}..{high:.4})", spread.median)
}

/// The 95 % confidence interval of the median, with ranks from the binomial distribution of fair
/// coin throws. The extremes of fewer than six values.
fn median_ci95(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    let low = ((n as f64 - 1.96 * (n as f64).sqrt()) / 2.0).floor().max(0.0) as usize;
    Some([*values.get(low)?, *values.get(n - 1 - low)?])
}

/// Measures every program.
pub(crate) fn run(args: &CostArgs) -> Result<(), BenchError> {
    let programs = ThrottlePolicy::programs(&args.bpf)?;
    let (high, seconds, count) = (args.max, args.seconds, args.rounds);
    let (policy, seed) = (args.policy.policy, args.seed.seed);
    let data = whole_windows(high / 3 * 4, args.page);
    let max = check_memory(data + data / 8 + (16 << 20))?.bytes();
    let io = Io { io: args.io, direct: args.direct, read_timeout: None };
    let pager = io.pager(policy, max, args.page, |builder| builder)?;
    let data_dir = args.files.data_dir()?;
    let file = data_dir.prepare(Content::Blocks, data, 1, Purpose::Lasting)?.remove(0);
    let lines = [
        (
            "tenant",
            format!(
                "high {}, throttle policy overage; a file of {}, loaded at random",
                Size::new(high),
                Size::new(data)
            ),
        ),
        (
            "run",
            format!(
                "{seconds:.1} s for each program, in {count} pairs of slices with and without it; \
                 seed {}",
                seed
            ),
        ),
    ];
    let machine = head((NAME, ABOUT), &pager, &file, &lines)?;

    let (tenant, view) = thrasher(&pager, &file, high)?;
    tenant.set_high_policy(HighPolicy::Overage)?;
    fill(&view, data)?;
    let mut rng = SplitMix64::new(seed);
    let trial = slice(&view, TRIAL, &mut rng)?;
    let each = seconds / f64::from(2 * count);
    let loads = ((each / trial.wall * TRIAL as f64) as u64).max(TRIAL);
    let mut progress = Patient::steps(programs.len() as u64);
    let mut rows = Vec::new();
    let mut cut = Cut::default();
    for throttle in &programs {
        progress.say(throttle.name());
        let before = pager.stat();
        let begin = Instant::now();
        let measured = pairs(&tenant, &view, throttle, loads, count, &mut rng);
        let Some((pairs, runs)) = cut.take(measured)? else { break };
        let took = begin.elapsed().as_secs_f64();
        tenant.set_hooks(None)?;
        let cost = Cost { throttle, pairs: &pairs, loads, runs };
        let row = Row::real(NAME, &pager, policy, 1, seed).on_pager(
            &before,
            &pager.stat(),
            took,
            (2 * cost.ops(), cost.misses()),
        );
        rows.push(cost.row(Row {
            data_bytes: Some(data),
            kernel: KernelFigures { high_bytes: Some(high), ..row.kernel },
            ..row
        }));
        progress.add(1);
    }
    drop(progress);
    let closing: Vec<String> = rows.iter().map(CostRow::sentence).collect();
    tail(&args.output, &machine, &table(&rows), rows, closing, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_comes_from_its_neighbours_in_rank() {
        assert_eq!(median_ci95((1..=100).map(f64::from)), Some([41.0, 60.0]));
        assert_eq!(median_ci95([3.0, 1.0, 2.0]), Some([1.0, 3.0]), "too few");
        assert_eq!(median_ci95([f64::NAN]), None);
    }
}
