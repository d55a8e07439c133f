//! `lowtide-lab sim scaling`: misses a second on more and more CPUs, with the kernel's lock for
//! each list and with one lock for everything. See `lowtide_experiments::client::scaling`.

use std::time::Duration;

use super::head;
use crate::sim::options::{Common, OnMachine, Output, scale};
use clap::Args;
use lowtide::{Policy, Size};
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::jobs;
use lowtide_experiments::client::scaling::{self, Locking, Scaling, ScalingResult};
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::Report;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::{out, table};
use lowtide_sim::MachineConfig;
use lowtide_sim::spec::MachineSpec;
use serde::Serialize;

/// The name on the command line.
pub(crate) const NAME: &str = "scaling";
/// One line for listings.
pub(crate) const ABOUT: &str = "random reads on 1 to 256 CPUs: where a lock becomes the limit";

const HELP: &str = "\
A thread on each CPU reads pages of a file of four budgets at random, from a ramdisk, so that no
device is the limit. Rows `lruvec` have the kernel's lock for the lists, taken by reclaim; rows
`pool` have one lock, held at each miss for a time that was measured elsewhere: about 1000 ns is
what a miss of lowtide holds its lock (the example lock_hold), 304 ns what the engine takes of that
with a million pages, 150 ns the goal. A lock is the limit from the fewest CPUs on that make 95 % of
the most misses a second of its rows.

Examples:
  lowtide-lab sim scaling
  lowtide-lab sim scaling --cpus 96,256 --hold 1500,800 --policy mglru,tide";

/// The share of the most misses a second from which more CPUs gain nothing.
const MOST: f64 = 0.95;
/// The share of the time that a lock is held at least where it is the reason. What is left between
/// two holders is too short for the batches of others.
const HELD: f64 = 0.5;
/// The budget at full scale.
const BUDGET: u64 = 256 << 20;

/// Options of `sim scaling`.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    mut_arg("machine", |arg| arg.default_value("ramdisk")),
    mut_arg("policy", |arg| arg.default_value("mglru"))
)]
pub(crate) struct Options {
    /// CPUs, and as many threads; a row for each
    #[arg(long, value_name = "N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1024),
          default_value = "1,2,4,8,16,32,64,96,128,256")]
    cpus: Vec<u32>,
    /// Nanoseconds for which a miss holds the one lock
    #[arg(long, value_name = "NS,NS", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=1_000_000),
          default_value = "1000,304,150")]
    hold: Vec<u64>,
    /// Budget relative to 256M
    #[arg(long, value_name = "F", value_parser = scale, default_value = "1",
          allow_negative_numbers = true)]
    scale: f64,
    #[command(flatten)]
    machine: OnMachine,
    #[command(flatten)]
    common: Common,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    policy: Policy,
    locking: Locking,
    cpus: u32,
}

/// Misses a second with a lock and a number of CPUs.
#[derive(Clone, Debug, Serialize)]
struct Row {
    workload: &'static str,
    world: &'static str,
    policy: String,
    machine: String,
    /// `lruvec` or `pool`.
    lock: &'static str,
    /// For how long a miss holds the pool's lock.
    hold_ns: Option<u64>,
    cpus: u32,
    max_bytes: u64,
    misses: u64,
    misses_per_s: f64,
    /// The share of the time in which the lock was held.
    occupancy: f64,
    /// How long a miss waited for the lock.
    waited_ns_per_miss: f64,
    /// Misses a second, relative to the fewest CPUs.
    speed_up: f64,
}

impl Row {
    fn new(plan: &Plan, machine: &MachineSpec, max: u64, result: &ScalingResult) -> Self {
        let (lock, hold_ns) = match plan.locking {
            Locking::Lruvec => ("lruvec", None),
            Locking::Pool(hold) => ("pool", u64::try_from(hold.as_nanos()).ok()),
        };
        Self {
            workload: NAME,
            world: "sim",
            policy: plan.policy.to_string(),
            machine: machine.name.clone(),
            lock,
            hold_ns,
            cpus: plan.cpus,
            max_bytes: max,
            misses: result.misses,
            misses_per_s: result.rate(),
            occupancy: result.occupancy(),
            waited_ns_per_miss: result.waited_ns(),
            speed_up: 1.0,
        }
    }

    /// The lock, in words.
    fn lock(&self) -> String {
        self.hold_ns.map_or_else(|| self.lock.into(), |hold| format!("{}, {hold} ns", self.lock))
    }

    fn is_of(&self, other: &Self) -> bool {
        (&self.policy, self.lock, self.hold_ns) == (&other.policy, other.lock, other.hold_ns)
    }
}

/// Plays all rows, and shows them.
///
/// # Errors
/// [`SimError::Machine`], [`SimError::Results`], [`SimError::Output`], [`SimError::Budget`]; an
/// interruption.
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let policies = options.common.begin()?;
    let machine = options.machine.load()?;
    let max = (BUDGET as f64 * options.scale) as u64 / machine.page * machine.page;
    let mut cpus = options.cpus.clone();
    cpus.sort_unstable();
    cpus.dedup();
    let pools = options.hold.iter().map(|&hold| Locking::Pool(Duration::from_nanos(hold)));
    let locks: Vec<Locking> = [Locking::Lruvec].into_iter().chain(pools).collect();
    let of = |policy, locking| cpus.iter().map(move |&cpus| Plan { policy, locking, cpus });
    let plans: Vec<Plan> = policies
        .iter()
        .flat_map(|&policy| locks.iter().flat_map(move |&locking| of(policy, locking)))
        .collect();
    let data = format!("a file of {}, read a page at a time, at random", Size::new(4 * max));
    let lines = [("budget", Size::new(max).to_string()), ("data", data)];
    head::experiment(
        &options.common,
        &format!("{NAME}: {ABOUT}"),
        &machine,
        &lines,
        "a thread on each CPU; the CPUs are those of the rows",
    );
    let parallel = Host::ask().parallel(max / machine.page, 4 * max / machine.page)?;
    let progress = Patient::new("simulating", Unit::Steps, plans.len() as u64);
    let results = jobs::run(plans.len(), parallel, progress, |number, done| {
        let Plan { policy, locking, cpus } = plans[number];
        let config =
            MachineConfig { spec: machine.clone(), policy, max: None, seed: options.common.seed };
        let scaling = Scaling { cpus, locking, max, seed: options.common.seed };
        let result = scaling::run(&config, &scaling, interrupt::flag());
        done.store(1, std::sync::atomic::Ordering::Relaxed);
        result
    });
    let (mut rows, mut cut) = (Vec::<Row>::new(), Cut::default());
    for (plan, result) in plans.iter().zip(results) {
        let result = result
            .map_err(|error| SimError::of_machine(plan.policy, error, "simulating the reads"));
        let Some(result) = cut.take(result)? else { continue };
        let mut row = Row::new(plan, &machine, max, &result);
        let first = rows.iter().find(|first| first.is_of(&row));
        row.speed_up = first.map_or(1.0, |first| row.misses_per_s / first.misses_per_s);
        rows.push(row);
    }
    cut.refuse_nothing(rows.is_empty())?;
    show(options, &machine, rows, cut)
}

fn show(
    options: &Options,
    machine: &MachineSpec,
    rows: Vec<Row>,
    cut: Cut,
) -> Result<(), SimError> {
    let (shown, verdicts) = (table(&rows), verdicts(&rows));
    let report = Report::new(machine, rows).seeded(options.common.seed).cut_short(cut.is_cut());
    if options.common.results.output() == Output::Json {
        report.text().and_then(|text| out::all(&text)).map_err(SimError::Output)?;
        return cut.verdict();
    }
    out::line(shown);
    verdicts.iter().for_each(out::line);
    if let Output::Both(path) = options.common.results.output() {
        report.write(Some(path))?;
    }
    cut.verdict()
}

fn table(rows: &[Row]) -> table::Table {
    let headers =
        ["policy", "lock", "CPUs", "misses/s", "speed-up", "lock held %", "waited ns/miss"];
    let mut table = table::new(&headers, 2);
    for row in rows {
        table.add_row([
            row.policy.clone(),
            row.lock(),
            row.cpus.to_string(),
            format!("{:.0}", row.misses_per_s),
            format!("{:.1}", row.speed_up),
            format!("{:.1}", 100.0 * row.occupancy),
            format!("{:.0}", row.waited_ns_per_miss),
        ]);
    }
    table
}

/// For each lock, from which number of CPUs on it is the limit.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        if rows[..at].iter().any(|before| before.is_of(row)) {
            continue;
        }
        let own = || rows.iter().filter(|other| other.is_of(row));
        let most = own().map(|row| row.misses_per_s).fold(0.0, f64::max);
        let limit = own().find(|row| row.misses_per_s >= MOST * most && row.occupancy > HELD);
        let limit = limit.map_or_else(
            || "not the limit at any of these numbers of CPUs".to_owned(),
            |row| format!("the limit from {} CPUs on", row.cpus),
        );
        lines.push(format!(
            "verdict   {}, {}: {limit}; at most {:.2} M misses/s",
            row.policy,
            row.lock(),
            most / 1e6
        ));
    }
    lines
}
