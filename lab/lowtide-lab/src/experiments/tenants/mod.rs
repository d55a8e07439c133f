//! `tenants`: servers with large buffers and their browsers, 32 tenants alike, as in the published
//! evaluation of fairness ([`lowtide_experiments::programs::tenants`]).
//!
//! Here is what the experiment is: what tenants have, the options of both worlds, what a row means,
//! and what follows from the rows. Each world performs it with a program of its own.
//!
//! | | `simulated` | `real` |
//! |---|---|---|
//! | a worker | heaps on zram, a browser beside it | two regions on compressed swap |
//! | sizes | a page stands for many | a part of the published ones |
//! | times | as published | the same part, longer on fewer processors |
//!
//! They share no script, so they are two files (`docs/decisions/0009-experiments.md`, what stays
//! two programs). Source: `docs/kernel/workloads.md` §2.

mod real;
mod simulated;

pub(crate) use real::run as measure;
pub(crate) use simulated::run as simulate;

use crate::sim::options as sim;
use clap::{Args, ValueEnum};
use lowtide::Size;
use lowtide_bench::options::{Files, Io, Output, Policies, Seed};
use lowtide_experiments::client::tenants::BUCKETS_S;
use lowtide_experiments::programs::tenants::{Content, Tenants};
use lowtide_report::columns::{self, Column};
use lowtide_report::json::LatencyUs;
use lowtide_report::row::{Bucket, KernelFigures, Row, RowLatency, TenantsRow};
use lowtide_report::values::{budget, part, seconds, size};

/// The name of the workload.
pub(crate) const NAME: &str = "tenants";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "servers with large buffers and their browsers, 32 tenants alike, on compressed memory";
/// Its rows as a table: published ones are below those that they belong to.
const COLUMNS: &[Column] = columns::TENANTS;

/// The machine of the published evaluation, and its processors.
const MACHINE: &str = "xeon-96t";
const CPUS: f64 = 96.0;
/// Swap, as a multiple of memory, if a simulated machine has none: 256 GiB of zram on 128 GiB
/// (`docs/kernel/workloads.md` §2(b)).
const SWAP_TIMES: u64 = 2;
/// The part of the heaps that was in memory there, in percent: the budget on real memory.
const RESIDENT_PERCENT: u64 = 47;
/// Default scale of a simulation, so that three policies take a few minutes. The 600 virtual
/// seconds have the same reason; the published runs took about 3,600.
const SCALE: &str = "0.0625";
/// Warm-up on real memory, as a fraction of the measured time. A simulation leaves nothing out.
const WARM: f64 = 0.3;

/// What heaps hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Held {
    Zeros,
    Objects,
}

/// What tenants have beside the published heaps.
#[derive(Debug, Args)]
pub(crate) struct Having {
    /// Size at full scale of a file for each tenant, all of which each request of its servers loads
    /// [default: none, as published]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    file: Option<u64>,
    /// What heaps hold: zeros (as published, they take no memory in swap), or objects
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "zeros",
        hide_possible_values = true
    )]
    content: Held,
    /// swap.high of each tenant at full scale: with more of it in swap, its threads are slowed down
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    swap_high: Option<u64>,
}

impl Having {
    /// Whether tenants have no more than the published ones.
    pub(crate) const fn is_published(&self) -> bool {
        self.file.is_none() && matches!(self.content, Held::Zeros) && self.swap_high.is_none()
    }

    /// The tenants at a scale.
    pub(crate) fn tenants(&self, scale: f64, seed: u64) -> Tenants {
        let tenants = Tenants::published(scale, seed);
        let tenants = tenants.with(scale, self.file.unwrap_or(0), self.swap_high);
        let content = match self.content {
            Held::Zeros => Content::Zeros,
            Held::Objects => Content::Objects,
        };
        Tenants { content, ..tenants }
    }
}

/// What tenants have, in words.
pub(crate) fn describe(tenants: &Tenants) -> String {
    let size = |bytes| Size::new(bytes).to_string();
    let what = match tenants.content {
        Content::Zeros => "zeros",
        Content::Objects => "objects",
    };
    let mut text = format!(
        "{} workers of {} tenants, each with {} chunks of {}, of {what}",
        tenants.all_workers(),
        tenants.tenants,
        tenants.chunks,
        size(tenants.chunk),
    );
    if tenants.file > 0 {
        text += &format!(", a tenant with a file of {}", size(tenants.file));
    }
    if let Some(high) = tenants.swap_high {
        text += &format!(", swap.high {}", size(high));
    }
    text
}

const BENCH_HELP: &str = "\
64 workers with large buffers share the budget, in 32 tenants. Sizes and times are a part of the
published ones; compare fairness and how requests divide into fast and slow, not their number.

Examples:
  lowtide-lab bench tenants --policy mglru,lru
  lowtide-lab bench tenants --file 128M --content objects --swap-high 4G";

#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct BenchOptions {
    /// Part of the published size: 1/1024 of it is 256 MiB of heaps
    #[arg(long, value_name = "F", value_parser = part, default_value = "0.0009765625",
          allow_negative_numbers = true)]
    scale: f64,
    /// Memory budget of all tenants together [default: 47 % of the heaps]
    #[arg(long, value_name = "SIZE", value_parser = budget, allow_hyphen_values = true)]
    max: Option<u64>,
    /// Measured seconds of each row
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "6",
          allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    having: Having,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    io: Io,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    output: Output,
}

const MAX_HELP: &str = "Budget [default: all of the machine's memory]";
const SIM_HELP: &str = "\
64 workers with large buffers run on a machine with zram, without a group limit. Below full size a
page stands for many: memory shrinks, what a page costs grows, numbers and times stay. So the rows
stand beside the published figures at any --scale, on xeon-96t with all of its memory, for the
published heaps. A worker is bound to a node; nodes share the lock of swap slots and nothing else.

Examples:
  lowtide-lab sim tenants --seconds 120 --policy mglru-7.1,mglru-7.1+series
  lowtide-lab sim tenants --nodes 2 --policy mglru-7.1,lru
  lowtide-lab sim tenants --file 128M --content objects --swap-high 4G --policy mglru,lru";

/// Options of `sim tenants`.
#[derive(Debug, Args)]
#[command(
    after_help = SIM_HELP,
    mut_arg("machine", |arg| arg.default_value(MACHINE)),
    mut_arg("max", |arg| arg.help(MAX_HELP)),
    mut_arg("policy", |arg| arg.default_value(sim::PUBLISHED_POLICIES)),
    mut_arg("scale", |arg| arg.default_value(SCALE))
)]
pub(crate) struct SimOptions {
    /// Virtual seconds measured
    #[arg(long, value_name = "N", value_parser = sim::seconds(), default_value_t = 600)]
    seconds: u64,
    /// Nodes of memory and processors that the machine and the workers are divided into; each has
    /// its own lists of each tenant
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2),
          default_value_t = 1)]
    nodes: u32,
    /// The contents of tenants.
    #[command(flatten)]
    having: Having,
    /// The machine, the budget, the scale and the results.
    #[command(flatten)]
    at_scale: sim::AtScale,
}

/// What rows of both worlds say of the tenants: sizes, and how long requests took.
fn row_of(tenants: &Tenants, scale: f64, latency: LatencyUs, buckets: &[u64]) -> Row {
    Row {
        workload: NAME,
        program: Some("heaps on swap"),
        system: "lowtide",
        data_bytes: Some(tenants.bytes()),
        threads: tenants.all_workers(),
        seed: Some(tenants.seed),
        scale: Some(scale),
        latency_us: Some(RowLatency::Whole(latency)),
        kernel: KernelFigures { swap_high_bytes: tenants.swap_high, ..KernelFigures::default() },
        ..Row::default()
    }
    .with(TenantsRow {
        latency_buckets: Some(Bucket::all(&BUCKETS_S, buckets)),
        ..TenantsRow::default()
    })
}

/// What follows from the first row on real memory.
fn conclusions(first: &Row) -> [String; 2] {
    let workers = first.own::<TenantsRow>().workers.unwrap_or_default();
    let (least, mean) = (workers.least.unwrap_or(0.0), workers.mean.unwrap_or(0.0));
    [
        format!(
            "{}: the worker that did least did {:.2} of the mean",
            first.policy,
            if mean > 0.0 { least / mean } else { 0.0 }
        ),
        "published rows are of 96 threads, with a browser for each worker, and of zram, which is \
         not in the budget: compare fairness, not counts"
            .into(),
    ]
}
