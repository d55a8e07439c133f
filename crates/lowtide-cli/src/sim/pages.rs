//! `lowtide sim zipf|uniform|loop`: streams of single pages, on the plain machine or on a full one.
//!
//! On the plain machine the speed of the simulation can be measured, in accesses per second of one
//! core. It excludes drawing the pages: they are drawn in batches, and the clock runs only while a
//! batch is played. To keep rows comparable, policies then run one after the other.

use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lowtide::{Policy, Size};
use lowtide_core::MemoryStat;
use lowtide_report::columns;
use lowtide_report::count::Count;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::Row;
use lowtide_report::table::thousands;
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::stream::{Stream, StreamSpace};
use lowtide_sim::{Plain, PlainConfig, PlainCounts, PlayError};
use lowtide_workload::{Access, PageOp, SpaceKind};

use super::full::{self, Play, Rows, Streams};
use super::stream::{Pages, Pattern, share};
use lowtide_bench::sim::clock::Stopwatch;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::jobs;
use lowtide_bench::sim::options::{self, Common, OrPlain, Switch, threads};
use lowtide_bench::sim::show::{self, Head, PLAIN, PlainMachine};

/// The default budget: a quarter of the data.
const MAX_BYTES: u64 = 256 << 20;
/// Accesses drawn at a time: few enough for the processor's L1 cache.
const BATCH: usize = 1024;

const HELP: &str = "\
Without --machine, the plain machine: one CPU, no time, no read-ahead and no fault-around, so that
counters reflect exactly the accesses. With --machine, a full machine: CPUs, locks, a device,
read-ahead and writeback in virtual time.

Examples:
  lowtide sim zipf --accesses 50M --json
  lowtide sim zipf --machine laptop --max 512M --threads 4 --write 10";

/// Options of `sim zipf`, `uniform` and `loop`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Size of the data
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "1G")]
    size: Size,
    /// Memory budget [default: 256M; on a smaller machine all of its memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    max: Option<Size>,
    /// Accesses of all threads together, as in 200k or 50M
    #[arg(
        long,
        value_name = "N",
        visible_alias = "accesses",
        allow_hyphen_values = true,
        default_value = "20M"
    )]
    ops: Count,
    /// Kind of access: mapped (loads and stores) or descriptor (reads and writes)
    #[arg(
        long,
        value_enum,
        value_name = "WAY",
        default_value = "mapped",
        hide_possible_values = true
    )]
    access: Way,
    /// Percentage of accesses that write
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=100),
        default_value_t = 0
    )]
    write: u32,
    /// The machine, if it is not the plain one.
    #[command(flatten)]
    machine: OrPlain,
    /// Threads, on a full machine
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        default_value_t = 1,
        requires = "machine"
    )]
    threads: u32,
    /// Include the simulation's speed: host_seconds, accesses_per_s, bytes_per_page [default: off
    /// with --machine, otherwise on]
    #[arg(
        long,
        value_enum,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        hide_possible_values = true
    )]
    timing: Option<Switch>,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// The kind of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Through a mapping.
    Mapped,
    /// Through the descriptor.
    Descriptor,
}

impl From<Way> for Access {
    fn from(way: Way) -> Self {
        match way {
            Way::Mapped => Self::Mapped,
            Way::Descriptor => Self::Descriptor,
        }
    }
}

impl Options {
    fn timing(&self, default: bool) -> bool {
        self.timing.map_or(default, |timing| timing == Switch::On)
    }
}

/// One run, with all options resolved.
#[derive(Clone, Copy, Debug)]
struct Plan {
    pages: Pages,
    accesses: u64,
    page_bytes: u64,
}

impl Plan {
    fn new(options: &Options, pattern: Pattern, page_bytes: u64) -> Result<Self, SimError> {
        let pages = Pages {
            pattern,
            pages: options::data_pages(options.size, page_bytes)?,
            access: options.access.into(),
            write_percent: options.write.into(),
            seed: options.common.seed,
        };
        Ok(Self { pages, accesses: options.ops.0, page_bytes })
    }

    const fn data_bytes(&self) -> u64 {
        self.pages.pages * self.page_bytes
    }

    fn head(&self, machine: String, max: Option<u64>, threads: u32) -> Head {
        let way = match self.pages.access {
            Access::Mapped => "through a mapping",
            Access::Descriptor => "through the descriptor",
        };
        Head {
            what: format!("{}: {}", self.pages.pattern.name(), self.pages.pattern.about()),
            machine,
            max,
            data: format!(
                "{} in {} pages",
                Size::new(self.data_bytes()),
                thousands(self.pages.pages as f64)
            ),
            run: format!(
                "{threads} thread{}; {} accesses {way}, {} % of them writes",
                if threads == 1 { "" } else { "s" },
                thousands(self.accesses as f64),
                self.pages.write_percent
            ),
        }
    }

    fn row(&self, policy: Policy, machine: &str, max: Option<u64>, threads: u32) -> Row {
        Row {
            workload: self.pages.pattern.name(),
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: machine.to_owned(),
            max_bytes: max,
            data_bytes: Some(self.data_bytes()),
            page_bytes: self.page_bytes,
            threads,
            seed: Some(self.pages.seed),
            ..Row::default()
        }
    }
}

/// Simulates the pattern under every policy and prints the rows.
pub(crate) fn run(options: &Options, pattern: Pattern) -> Result<(), SimError> {
    let policies = options.common.begin()?;
    match options.machine.load()? {
        Some(machine) => on_machine(options, &policies, pattern, &machine),
        None => on_plain(options, &policies, pattern),
    }
}

fn on_plain(options: &Options, policies: &[Policy], pattern: Pattern) -> Result<(), SimError> {
    let plan = Plan::new(options, pattern, PLAIN.page())?;
    let max =
        options::plain_budget(options.max, plan.page_bytes)?.unwrap_or(MAX_BYTES / plan.page_bytes);
    let max_bytes = Some(max * plan.page_bytes);
    let timing = options.timing(true);
    let parallel = Host::ask().parallel(max, plan.pages.pages)?;
    plan.head(show::plain_machine(), max_bytes, 1).print(&options.common);

    let progress = Patient::new("accesses", Unit::Steps, plan.accesses * policies.len() as u64);
    let parallel = if timing { 1 } else { parallel };
    let results = jobs::run(policies.len(), parallel, progress, |number, done| {
        play(&plan, policies[number], max, done)
    });
    let mut rows = Vec::with_capacity(policies.len());
    let mut cut = Cut::default();
    for (&policy, played) in policies.iter().zip(results) {
        let Some(played) = cut.take(played)? else { continue };
        let row = plan
            .row(policy, PlainMachine::NAME, max_bytes, 1)
            .on_plain(&played.counts, &played.memory);
        rows.push(if timing {
            row.timed(played.took, played.bytes, plan.pages.pages)
        } else {
            row
        });
    }
    show::results(&options.common, &PLAIN, &rows, columns::PLAIN, Vec::new(), cut)
}

/// The result of one policy on the plain machine.
#[derive(Clone, Copy, Debug)]
struct Played {
    counts: PlainCounts,
    memory: MemoryStat,
    took: Duration,
    bytes: usize,
}

fn play(plan: &Plan, policy: Policy, max: u64, done: &AtomicU64) -> Result<Played, SimError> {
    let config = PlainConfig { page_bytes: plan.page_bytes, ..PlainConfig::new(policy, max) };
    let mut machine = Plain::new(&config)?;
    let space = machine.add_space(SpaceKind::File, plan.pages.pages);
    let mut stream = plan.pages.stream(0, 1)?;
    let mut batch: Vec<PageOp> = Vec::with_capacity(BATCH);
    let mut left = plan.accesses;
    let mut took = Duration::ZERO;
    while left > 0 {
        interrupt::check(|| format!("simulating {}", plan.pages.pattern.name()))?;
        batch.clear();
        batch.extend(stream.by_ref().take(BATCH.min(usize::try_from(left).unwrap_or(BATCH))));
        let began = Stopwatch::start();
        for op in &batch {
            machine.access(op.kind, space, op.page).map_err(|error| failed(policy, error))?;
        }
        took += began.elapsed();
        left -= batch.len() as u64;
        done.fetch_add(batch.len() as u64, Relaxed);
    }
    Ok(Played { counts: machine.counts(), memory: machine.stat(), took, bytes: machine.bytes() })
}

fn failed(policy: Policy, error: PlayError) -> SimError {
    match error {
        error @ PlayError::OutOfMemory { .. } => {
            SimError::OutOfMemory { policy: policy.to_string(), what: error.to_string() }
        }
        error => SimError::Play(error),
    }
}

fn on_machine(
    options: &Options,
    policies: &[Policy],
    pattern: Pattern,
    machine: &MachineSpec,
) -> Result<(), SimError> {
    let plan = Plan::new(options, pattern, machine.page)?;
    let threads = options.threads;
    let max = options::machine_budget(
        options.max,
        machine,
        Some(MAX_BYTES.min(machine.pages() * machine.page)),
    )?;
    plan.head(show::machine(machine), max, threads).print(&options.common);
    let play = Play {
        machine,
        max,
        spaces: vec![StreamSpace { kind: SpaceKind::File, pages: plan.pages.pages }],
        data_pages: plan.pages.pages,
        during: format!("simulating {}", plan.pages.pattern.name()),
    };
    let streams = || {
        let streams: Result<_, SimError> = (0..threads)
            .map(|thread| {
                let count = share(plan.accesses, thread, threads);
                let stream = plan.pages.stream(thread, threads)?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                Ok(Box::new(stream.take(count).map(Ok)) as Stream)
            })
            .collect();
        Ok(Streams { streams: streams?, failed: Rc::default() })
    };
    let progress = Patient::new("accesses", Unit::Steps, plan.accesses * policies.len() as u64);
    let row = |policy| plan.row(policy, &machine.name, max, threads);
    let rows = Rows { policies, timing: options.timing(false), seed: options.common.seed };
    let outcome = full::run(&rows, &play, progress, row, streams)?;
    outcome.show(&options.common, machine, columns::STREAMS, &[])
}
