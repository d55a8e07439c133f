//! Many seeds on several CPUs, with a result that does not depend on how many CPUs there were.
//!
//! Seeds are handed out in order. When one fails, those below it are still finished, so that the
//! failure reported is that of the lowest seed.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use thiserror::Error;

use super::coverage::Coverage;
use super::plan::Plan;
use super::run::{Violation, examine};
use super::sabotage::Bug;
use super::shrink::shrink;

/// Which swarm to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwarmConfig {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Threads of this process to run them on, at least 1.
    pub threads: usize,
    /// A bug to plant in every plan, to see whether it is found.
    pub bug: Option<Bug>,
}

/// A swarm in which nothing was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwarmReport {
    /// Seeds that were run: fewer than requested if the swarm was stopped.
    pub seeds: u64,
    /// What they have been through.
    pub coverage: Coverage,
}

/// A plan that does not end as it must.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct SwarmFailure {
    /// The seed it was drawn from; `None` for a plan that was given.
    pub seed: Option<u64>,
    /// As it was drawn.
    pub plan: Plan,
    /// How it fails.
    pub violation: Violation,
    /// The smallest plan found that fails in the same way.
    pub shrunk: Plan,
    /// How that fails.
    pub shrunk_violation: Violation,
}

impl SwarmFailure {
    fn new(seed: Option<u64>, plan: Plan, violation: Violation) -> Self {
        let (shrunk, shrunk_violation) = shrink(&plan, &violation);
        Self { seed, plan, violation, shrunk, shrunk_violation }
    }

    /// The command that replays the shrunk plan.
    #[must_use]
    pub fn command(&self) -> String {
        format!("lowtide-lab sim swarm --plan '{}'", self.shrunk)
    }
}

impl fmt::Display for SwarmFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seed {
            Some(seed) => {
                writeln!(f, "seed {seed} violates the invariant `{}`", self.violation.invariant)?;
            }
            None => writeln!(f, "the plan violates the invariant `{}`", self.violation.invariant)?,
        }
        writeln!(f, "  found:  {}", self.violation.what)?;
        writeln!(f, "  plan:   {}", self.plan)?;
        writeln!(f, "  shrunk: {}", self.shrunk)?;
        writeln!(f, "          {}", self.shrunk_violation.what)?;
        write!(f, "  replay: {}", self.command())
    }
}

/// Runs a swarm. `progress` is called now and then, by any of the threads, with the seeds done so
/// far; `stop` ends it early. The result depends on neither the number of threads nor the time they
/// take.
///
/// # Errors
/// The failure of the lowest seed that fails, with its shrunk plan.
pub fn run(
    config: &SwarmConfig,
    progress: &(dyn Fn(u64) + Sync),
    stop: &AtomicBool,
) -> Result<SwarmReport, Box<SwarmFailure>> {
    let next = AtomicU64::new(config.seeds.start);
    // Seeds from here on need not be run.
    let end = AtomicU64::new(config.seeds.end);
    let done = AtomicU64::new(0);
    let failed: Mutex<Option<(u64, Plan, Violation)>> = Mutex::new(None);
    let work = || {
        let mut report = SwarmReport::default();
        while !stop.load(Relaxed) {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= end.load(Relaxed) {
                break;
            }
            let plan = Plan { bug: config.bug, ..Plan::draw(seed) };
            match examine(&plan) {
                Ok(coverage) => {
                    report.seeds += 1;
                    report.coverage.add(&coverage);
                }
                Err(violation) => {
                    end.fetch_min(seed, Relaxed);
                    let mut failed = failed.lock().expect("no thread panics with the lock");
                    if failed.as_ref().is_none_or(|(lowest, ..)| seed < *lowest) {
                        *failed = Some((seed, plan, violation));
                    }
                }
            }
            progress(done.fetch_add(1, Relaxed) + 1);
        }
        report
    };
    let mut all = SwarmReport::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..config.threads.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let report = worker.join().expect("panics of runs are caught");
            all.seeds += report.seeds;
            all.coverage.add(&report.coverage);
        }
    });
    match failed.into_inner().expect("no thread panics with the lock") {
        Some((seed, plan, violation)) => {
            Err(Box::new(SwarmFailure::new(Some(seed), plan, violation)))
        }
        None => Ok(all),
    }
}

/// Carries out one plan, and shrinks it if it fails.
///
/// # Errors
/// Its failure.
pub fn replay(plan: &Plan) -> Result<Coverage, Box<SwarmFailure>> {
    examine(plan).map_err(|violation| Box::new(SwarmFailure::new(None, plan.clone(), violation)))
}
