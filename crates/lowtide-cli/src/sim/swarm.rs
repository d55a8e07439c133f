//! `--swarm N`: small random machines by the thousand, every invariant checked, each seed played
//! twice.
//!
//! A failure prints the seed, the invariant, the plan, a plan made as small as possible that fails
//! in the same way, and the command that replays it. The seeds are `--seed S` and those after it.

use std::sync::Mutex;
use std::thread;

use lowtide_sim::swarm::{Coverage, Plan, SwarmConfig, replay, run as run_seeds};
use serde::Serialize;

use super::args::{Output, SimArgs};
use super::error::SimError;
use crate::json::Report;
use crate::progress::{Patient, Unit};
use crate::{interrupt, out};

/// What stands in the JSON in place of a machine.
#[derive(Debug, Serialize)]
struct Swarm {
    name: &'static str,
    seeds: u64,
    violations: u64,
}

/// A line of what the swarm has been through.
#[derive(Debug, Serialize)]
struct Met {
    group: String,
    name: String,
    runs: u64,
    times: u64,
}

/// Runs the seeds.
///
/// # Errors
/// [`SimError::Swarm`] for the lowest seed that fails, [`SimError::Interrupted`],
/// [`SimError::Output`].
pub(super) fn run(args: &SimArgs, seeds: u64) -> Result<(), SimError> {
    let Some(end) = args.seed.checked_add(seeds) else {
        return Err(SimError::usage(
            format!("there are no {seeds} seeds from {} on", args.seed),
            "choose a smaller --seed",
        ));
    };
    let config = SwarmConfig {
        seeds: args.seed..end,
        threads: thread::available_parallelism().map_or(1, usize::from),
        bug: args.swarm_canary,
    };
    if args.output() != Output::Json {
        out::line(format_args!("swarm     seeds {} to {}, each played twice", args.seed, end - 1));
    }
    let bar = Mutex::new(Patient::new("seeds", Unit::Steps, seeds));
    let progress = |done| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.set(done);
        }
    };
    let result = run_seeds(&config, &progress, interrupt::flag());
    drop(bar);
    let report = result.map_err(|failure| SimError::Swarm(failure.to_string()))?;
    if interrupt::requested() {
        let during = format!("after {} seeds without a violation", report.seeds);
        return Err(interrupt::Interrupted { during }.into());
    }
    show(args, &report.coverage, report.seeds)
}

/// Replays one plan.
///
/// # Errors
/// As [`run`].
pub(super) fn replay_plan(args: &SimArgs, plan: &Plan) -> Result<(), SimError> {
    let coverage = replay(plan).map_err(|failure| SimError::Swarm(failure.to_string()))?;
    show(args, &coverage, 1)
}

fn show(args: &SimArgs, coverage: &Coverage, seeds: u64) -> Result<(), SimError> {
    let met = |(group, name, runs, times): (&str, &str, u64, u64)| Met {
        group: group.to_owned(),
        name: name.to_owned(),
        runs,
        times,
    };
    let swarm = Swarm { name: "swarm", seeds, violations: 0 };
    let report = Report::new(&swarm, coverage.iter().map(met).collect()).seeded(args.seed);
    if args.output() == Output::Json {
        return report.text().and_then(|text| out::all(&text)).map_err(SimError::Output);
    }
    out::line(coverage);
    out::line(format_args!("{seeds} seeds, no violation"));
    if let Output::Both(path) = args.output() {
        report.write(Some(path))?;
    }
    Ok(())
}
