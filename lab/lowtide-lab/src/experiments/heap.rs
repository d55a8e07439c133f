//! Experiments with programs most of whose memory is heap: `anon-zipf`, `sysbench-ro`,
//! `kernel-build` and `android`.
//!
//! ```text
//!   experiment ──► plays (policy, program) ──► a player ──► rows, verdict
//! ```
//!
//! Each is one file that does not depend on its world; the programs are described in
//! `lowtide_experiments::programs::heap`, for a player on real memory too. The player here is that
//! on a simulated machine (`lowtide_experiments::client::heap`). A machine without swap gets
//! compressed memory of twice its memory: these programs have nowhere to go without.

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use crate::sim::head;
use crate::sim::options::{Common, OnMachine, Timing, floor};
use clap::Args;
use clap::builder::PossibleValuesParser;
use lowtide::{Policy, Size};
use lowtide_bench::sim::clock::Stopwatch;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::{jobs, show};
use lowtide_experiments::client::heap::{HeapResult, play};
use lowtide_experiments::programs::heap::{HeapProgram, PAGE, Work};
use lowtide_experiments::published::{Arm, Criterion};
use lowtide_report::columns::Columns;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::LatencyUs;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::{KernelFigures, Row, RowLatency};
use lowtide_report::verdict::Closing;
use lowtide_sim::spec::{Compressor, MachineSpec, SwapSpec};
use lowtide_sim::{MachineConfig, MachineError};

use crate::sim::compare::judged;

/// Swap, as a multiple of memory, of a machine that has none (`docs/kernel/workloads.md` §2(b)).
const SWAP_TIMES: u64 = 2;

/// An experiment. The value has its own options.
pub(crate) trait Heap: Args + fmt::Debug + Sync {
    const NAME: &str;
    /// One line for listings.
    const ABOUT: &str;
    /// The text below the options in its help.
    const HELP: &str;
    const MACHINE: &str;
    /// The policies, with commas between them.
    const POLICIES: &str;
    /// The table.
    const COLUMNS: Columns;

    /// How many programs each policy plays.
    fn variants(&self) -> usize {
        1
    }

    /// What runs.
    fn program(&self, variant: usize, seed: u64) -> Rc<dyn HeapProgram>;

    /// The machine that it runs on, of a size that fits.
    fn machine(&self, machine: MachineSpec) -> MachineSpec {
        machine
    }

    /// The size of the experiment relative to the published one, if there is one.
    fn scale(&self) -> Option<f64>;

    /// Lines above the table: a name of up to nine letters, and its text.
    fn describe(&self) -> Vec<(&'static str, String)>;

    /// What a row has besides.
    fn row(&self, row: Row, _result: &HeapResult) -> Row {
        row
    }

    /// The published rows of an arm, beside its row. They need not name policy and machine.
    fn published(&self, _arm: Arm) -> Vec<Row> {
        Vec::new()
    }

    /// Whether what was published is reproduced; nothing where nothing was.
    fn verdict(&self, _rows: &[Row]) -> Vec<Criterion> {
        Vec::new()
    }
}

/// `lowtide-lab sim NAME` of an experiment with heaps.
#[derive(Debug, Args)]
#[command(
    after_help = H::HELP,
    mut_arg("machine", |arg| arg.default_value(H::MACHINE)),
    mut_arg("policy", |arg| arg.default_value(H::POLICIES))
)]
pub(crate) struct SimulatedHeap<H: Heap> {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// The experiment's own.
    #[command(flatten)]
    own: H,
    /// What compresses the pages of swap [default: the machine's, or lzo-rle]
    #[arg(long, value_name = "NAME", value_parser = compressors())]
    compressor: Option<String>,
    /// Whether rows include the simulation's speed.
    #[command(flatten)]
    timing: Timing,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// The names of the compressors.
fn compressors() -> PossibleValuesParser {
    PossibleValuesParser::new(Compressor::ALL.map(Compressor::name))
}

impl<H: Heap> SimulatedHeap<H> {
    /// Simulates each policy with each program and prints the rows.
    pub(crate) fn run(&self) -> Result<(), SimError> {
        let policies = self.common.begin()?;
        let machine = self.machine.load()?;
        if machine.page != PAGE {
            return Err(SimError::usage(
                format!("machine `{}` has pages of {}", machine.name, Size::new(machine.page)),
                format!("these programs are described in pages of {}", Size::new(PAGE)),
            ));
        }
        let published = MachineSpec::preset(H::MACHINE)?.as_ref() == Some(&machine)
            && self.compressor.is_none();
        // The parser knows the names.
        let compressor = self.compressor.as_deref().and_then(|name| name.parse().ok());
        let machine = self.own.machine(with_swap(machine, compressor));
        machine.validate()?;
        let variants = self.own.variants();
        let plays: Vec<(Policy, usize)> =
            (0..variants).flat_map(|v| policies.iter().map(move |&policy| (policy, v))).collect();
        let largest = self.own.program(variants - 1, self.common.seed);
        let parallel = self.parallel(&machine, &*largest)?;
        let swap = machine.swap.as_ref().map_or(0, |swap| swap.size);
        let mut lines = self.own.describe();
        let by = machine.swap.as_ref().map_or("", |swap| swap.compressor.name());
        lines.push(("swap", format!("{} of memory compressed by {by}", floor(swap))));
        let length = match largest.work() {
            Work::Endless { warm, run } => {
                format!("{} s, after {} s that are left out", run.as_secs_f64(), warm.as_secs_f64())
            }
            Work::Queue { pieces, warm } => {
                format!("{} pieces of work, and {warm} before that are left out", pieces - warm)
            }
        };
        let title = format!("{}: {}", H::NAME, H::ABOUT);
        head::experiment(&self.common, &title, &machine, &lines, &length);

        let each = match largest.work() {
            Work::Endless { warm, run } => (warm + run).as_millis() as u64,
            Work::Queue { pieces, .. } => pieces,
        };
        let progress = Patient::new("steps of work", Unit::Steps, each * plays.len() as u64);
        let parallel = if self.timing.is_on() { 1 } else { parallel };
        let results = jobs::run(plays.len(), parallel, progress, |job, done| {
            let (policy, variant) = plays[job];
            self.simulate(&machine, policy, variant, done)
        });
        let (mut rows, mut cut) = (Vec::new(), Cut::default());
        for (&(policy, _), result) in plays.iter().zip(results) {
            let result = result.map_err(|error| {
                SimError::of_machine(policy, error, &format!("simulating {}", H::NAME))
            });
            rows.extend(cut.take(result)?);
        }
        let verdict = judged(None, &self.own.verdict(&rows));
        let rows = if published { self.with_published(rows) } else { rows };
        let closing = Closing { lines: Vec::new(), verdict };
        show::results(&self.common, &machine, &rows, H::COLUMNS, closing, cut)
    }

    /// How many runs the host can do at once.
    fn parallel(
        &self,
        machine: &MachineSpec,
        program: &dyn HeapProgram,
    ) -> Result<usize, SimError> {
        let files: u64 = program.files().iter().sum();
        let heaps = program.heap_bytes() / PAGE;
        // A group with a limit notices no more memory than twice that, and what is compressed.
        let frames = program.max().map_or(machine.pages(), |max| 2 * (max / PAGE + heaps / 2));
        Host::ask().parallel(frames.min(machine.pages()), heaps + files)
    }

    fn simulate(
        &self,
        machine: &MachineSpec,
        policy: Policy,
        variant: usize,
        done: &AtomicU64,
    ) -> Result<Row, MachineError> {
        let began = Stopwatch::start();
        let seed = self.common.seed;
        let program = self.own.program(variant, seed);
        let config = MachineConfig { spec: machine.clone(), policy, max: None, seed };
        let result = play(&config, Rc::clone(&program), done, interrupt::flag())?;
        let spins = result.ended.lruvec_lock.since(&result.began.lruvec_lock);
        let slots = result.ended.swap_lock.since(&result.began.swap_lock);
        let row = Row {
            workload: H::NAME,
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: machine.name.clone(),
            max_bytes: program.max(),
            data_bytes: Some(program.heap_bytes()),
            page_bytes: machine.page,
            threads: program.workers(),
            seed: Some(seed),
            scale: self.own.scale().filter(|&scale| scale != 1.0),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&result.latency))),
            kernel: KernelFigures {
                lruvec_lock_ms: Some(spins.waited_ns as f64 / 1e6),
                swap_lock_ms: Some(slots.waited_ns as f64 / 1e6),
                user_s: Some(result.user_ns as f64 / 1e9),
                system_s: Some(result.system_ns() as f64 / 1e9),
                zram_bytes: Some(result.ended.zram_bytes),
                ..KernelFigures::default()
            },
            ..Row::default()
        };
        let row = row.on_machine(Some(&result.began), &result.ended, result.ops);
        let row = self.own.row(row, &result);
        let pages = program.heap_bytes() / PAGE;
        Ok(match self.timing.is_on() {
            true => row.timed(began.elapsed(), result.ended.bytes, pages),
            false => row,
        })
    }

    /// The rows, each with the published ones of its arm below it.
    fn with_published(&self, rows: Vec<Row>) -> Vec<Row> {
        let mut all = Vec::new();
        for row in rows {
            let postings = arm(&row).map(|arm| self.own.published(arm)).unwrap_or_default();
            let beside = |posting: Row| Row {
                workload: H::NAME,
                world: "real",
                system: "published",
                policy: row.policy.clone(),
                machine: row.machine.clone(),
                max_bytes: row.max_bytes.filter(|_| row.scale.is_none()),
                page_bytes: row.page_bytes,
                threads: if row.scale.is_none() { row.threads } else { 0 },
                ..posting
            };
            let postings: Vec<Row> = postings.into_iter().map(beside).collect();
            all.push(row);
            all.extend(postings);
        }
        all
    }
}

/// A machine with swap: its own, or compressed memory; by another compressor if one is given.
fn with_swap(machine: MachineSpec, compressor: Option<Compressor>) -> MachineSpec {
    let swap = machine.swap.clone().unwrap_or_else(|| SwapSpec::zram(SWAP_TIMES * machine.memory));
    let swap = compressor.map_or(swap.clone(), |compressor| swap.with(compressor));
    MachineSpec { swap: Some(swap), ..machine }
}

/// A machine with a part of its CPUs, so that there are as many threads for each.
pub(crate) fn with_part_of_cpus(machine: MachineSpec, scale: f64) -> MachineSpec {
    let cpus = (f64::from(machine.cpus) * scale).round().clamp(1.0, 4096.0) as u32;
    MachineSpec { cpus, ..machine }
}

/// The arm that a row of a simulation stands for.
pub(crate) fn arm(row: &Row) -> Option<Arm> {
    row.policy.parse().ok().and_then(Arm::of).filter(|_| row.world == "sim")
}

/// The simulated row of an arm.
pub(crate) fn row_of(rows: &[Row], wanted: Arm) -> Option<&Row> {
    rows.iter().find(|row| arm(row) == Some(wanted))
}

/// Pages of a counter for each operation.
pub(crate) fn each(row: &Row, name: &str) -> Option<f64> {
    let ops = row.ops.filter(|&ops| ops > 0)?;
    (row.world == "sim").then(|| row.count(name) as f64 / ops as f64)
}

/// The same as a cell.
pub(crate) fn each_cell(row: &Row, name: &str) -> String {
    each(row, name).map_or_else(String::new, |pages| format!("{pages:.2}"))
}

/// Seconds as a cell.
pub(crate) fn seconds_cell(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!("{seconds:.2}"))
}

/// A counter in thousands, of a simulated row.
pub(crate) fn thousands_cell(row: &Row, name: &str) -> String {
    let count = row.stat.get(name).copied();
    count.map_or_else(String::new, |count| format!("{:.1}", count as f64 / 1e3))
}
