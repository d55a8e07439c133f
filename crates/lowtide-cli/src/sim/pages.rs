//! `lowtide sim zipf|uniform|loop`: streams of single pages, on the plain machine or on a full one.
//!
//! On the plain machine the simulation itself can be measured: accesses per second of one core.
//! Drawing the pages is not part of it: they are drawn in batches, and the clock runs while a batch
//! is played. So that rows are comparable, one policy is played after the other then.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lowtide::{Policy, Size};
use lowtide_core::MemoryStat;
use lowtide_sim::client::stream::{Stream, StreamSpace};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{Plain, PlainConfig, PlainCounts, PlayError};
use lowtide_workload::{Access, PageOp, SpaceKind};

use super::args::{Pattern, SimArgs, Target, Way};
use super::clock::Stopwatch;
use super::error::SimError;
use super::full::{self, Play, Streams};
use super::host::Host;
use super::row::Row;
use super::show::{self, Head, PLAIN, PlainMachine};
use super::stream::{Pages, share};
use super::{columns, jobs, options};
use crate::interrupt::{self, Cut};
use crate::progress::{Patient, Unit};
use crate::table::thousands;

/// The data when nothing is said.
const DATA_BYTES: u64 = 1 << 30;
/// The budget when nothing is said: a quarter of that.
const MAX_BYTES: u64 = 256 << 20;
/// Accesses when nothing is said: about a second for each policy.
const ACCESSES: u64 = 20_000_000;
/// Accesses drawn at a time: few enough to stay in the processor's nearest cache.
const BATCH: usize = 1024;

/// One run, decided.
#[derive(Clone, Copy, Debug)]
struct Plan {
    target: Target,
    pages: Pages,
    accesses: u64,
    page_bytes: u64,
}

impl Plan {
    fn new(args: &SimArgs, pattern: Pattern, page_bytes: u64) -> Result<Self, SimError> {
        let pages = Pages {
            pattern,
            pages: options::data_pages(args, DATA_BYTES, page_bytes)?,
            access: args.access.unwrap_or(Way::Mapped).into(),
            write_percent: args.write.unwrap_or(0).into(),
            seed: args.seed,
        };
        let accesses = args.ops.map_or(ACCESSES, |ops| ops.0);
        Ok(Self { target: Target::Pages(pattern), pages, accesses, page_bytes })
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
            what: format!("{}: {}", self.target.name(), self.target.description()),
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
            workload: self.target.name(),
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
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(args: &SimArgs, pattern: Pattern) -> Result<(), SimError> {
    match options::machine(args)? {
        Some(machine) => on_machine(args, pattern, &machine),
        None => on_plain(args, pattern),
    }
}

fn on_plain(args: &SimArgs, pattern: Pattern) -> Result<(), SimError> {
    let plan = Plan::new(args, pattern, PLAIN.page())?;
    let max = options::plain_budget(args, plan.page_bytes)?.unwrap_or(MAX_BYTES / plan.page_bytes);
    let max_bytes = Some(max * plan.page_bytes);
    let policies = args.policies();
    let timing = options::timing(args, true);
    let parallel = Host::ask().parallel(max, plan.pages.pages)?;
    plan.head(show::plain_machine(), max_bytes, 1).print(args);

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
    show::results(args, &PLAIN, &rows, columns::PLAIN, &[], cut)
}

/// What one policy came to on the plain machine.
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
        interrupt::check(|| format!("simulating {}", plan.target.name()))?;
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

fn on_machine(args: &SimArgs, pattern: Pattern, machine: &MachineSpec) -> Result<(), SimError> {
    let plan = Plan::new(args, pattern, machine.page)?;
    let threads = args.threads.unwrap_or(1);
    let max = options::machine_budget(
        args,
        machine,
        Some(MAX_BYTES.min(machine.pages() * machine.page)),
    )?;
    plan.head(show::machine(machine), max, threads).print(args);
    let play = Play {
        machine,
        max,
        spaces: vec![StreamSpace { kind: SpaceKind::File, pages: plan.pages.pages }],
        data_pages: plan.pages.pages,
        during: format!("simulating {}", plan.target.name()),
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
    let progress =
        Patient::new("accesses", Unit::Steps, plan.accesses * args.policies().len() as u64);
    let row = |policy| plan.row(policy, &machine.name, max, threads);
    let outcome = full::run(args, &play, progress, row, streams)?;
    outcome.show(args, machine, columns::STREAMS, &[])
}
