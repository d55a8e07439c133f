//! `lowtide-lab sim swarm N`: thousands of small random machines, with every invariant checked and
//! each seed played twice.
//!
//! A failure prints the seed, the invariant, the plan, a minimal plan that fails in the same way,
//! and the command that replays it. The seeds are `--seed S` and those after it.

use std::sync::Mutex;
use std::thread;

use crate::sim::options::{Output, Results};
use clap::Args;
use lowtide_bench::sim::error::SimError;
use lowtide_experiments::swarm::{Bug, Coverage, Plan, SwarmConfig, replay, run as run_seeds};
use lowtide_report::json::Report;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::{interrupt, out};
use serde::Serialize;

use crate::error::LabError;

/// The name on the command line.
pub(crate) const NAME: &str = "swarm";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "test the simulator and the engine: random machines and plans, every invariant checked";

const HELP: &str = "\
Each seed determines a plan with its own machine, policy and budget, which is played twice.
A failure prints the seed, the invariant, a minimal plan, and the command that replays it.

Example: lowtide-lab sim swarm 1000 --seed 1";

/// Options of `sim swarm`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Number of plans: those of --seed and the seeds after it
    #[arg(
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        required_unless_present = "plan"
    )]
    seeds: Option<u64>,
    /// The first seed
    #[arg(
        long,
        value_name = "N",
        default_value_t = 42,
        allow_negative_numbers = true,
        conflicts_with = "plan"
    )]
    seed: u64,
    /// Play one plan, as printed by a failure
    #[arg(long, value_name = "PLAN", conflicts_with = "seeds")]
    plan: Option<Plan>,
    /// Plant a bug in every plan, which the swarm must find
    #[arg(long, value_name = "BUG", conflicts_with = "plan", hide = true)]
    canary: Option<Bug>,
    /// The destination of results.
    #[command(flatten)]
    results: Results,
}

/// The entry in the JSON instead of a machine.
#[derive(Debug, Serialize)]
struct Swarm {
    name: &'static str,
    seeds: u64,
    violations: u64,
}

/// One line about the coverage of the swarm.
#[derive(Debug, Serialize)]
struct Met {
    group: String,
    name: String,
    runs: u64,
    times: u64,
}

/// Runs the seeds, or one plan.
///
/// # Errors
/// [`LabError::Swarm`] for the lowest seed that fails, [`SimError::Interrupted`],
/// [`SimError::Output`], [`SimError::Results`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    options.results.check()?;
    match &options.plan {
        Some(plan) => {
            let coverage = replay(plan).map_err(|failure| LabError::Swarm(failure.to_string()))?;
            show(options, &coverage, 1)
        }
        // Without a plan clap demands a number.
        None => run_all(options, options.seeds.unwrap_or(1)),
    }
}

fn run_all(options: &Options, seeds: u64) -> Result<(), SimError> {
    let Some(end) = options.seed.checked_add(seeds) else {
        return Err(SimError::usage(
            format!("there are fewer than {seeds} seeds from {} on", options.seed),
            "choose a smaller --seed",
        ));
    };
    let config = SwarmConfig {
        seeds: options.seed..end,
        threads: thread::available_parallelism().map_or(1, usize::from),
        bug: options.canary,
    };
    if options.results.output() != Output::Json {
        out::line(format_args!(
            "swarm     seeds {} to {}, each played twice",
            options.seed,
            end - 1
        ));
    }
    let bar = Mutex::new(Patient::new("seeds", Unit::Steps, seeds));
    let progress = |done| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.set(done);
        }
    };
    let result = run_seeds(&config, &progress, interrupt::flag());
    drop(bar);
    let report = result.map_err(|failure| LabError::Swarm(failure.to_string()))?;
    if interrupt::requested() {
        let during = format!("after {} seeds without a violation", report.seeds);
        return Err(interrupt::Interrupted { during }.into());
    }
    show(options, &report.coverage, report.seeds)
}

fn show(options: &Options, coverage: &Coverage, seeds: u64) -> Result<(), SimError> {
    let met = |(group, name, runs, times): (&str, &str, u64, u64)| Met {
        group: group.to_owned(),
        name: name.to_owned(),
        runs,
        times,
    };
    let swarm = Swarm { name: NAME, seeds, violations: 0 };
    let report = Report::new(&swarm, coverage.iter().map(met).collect()).seeded(options.seed);
    if options.results.output() == Output::Json {
        return report.text().and_then(|text| out::all(&text)).map_err(SimError::Output);
    }
    out::line(coverage);
    out::line(format_args!("{seeds} seeds, no violation"));
    if let Output::Both(path) = options.results.output() {
        report.write(Some(path))?;
    }
    Ok(())
}
