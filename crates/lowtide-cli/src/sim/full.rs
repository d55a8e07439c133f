//! Operation streams on the full machine: one machine for each policy, in parallel.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use lowtide::Policy;
use lowtide_report::columns::Columns;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::LatencyUs;
use lowtide_report::progress::Patient;
use lowtide_report::row::{Row, RowLatency};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::stream::{self, Stream, StreamSpace};
use lowtide_sim::{MachineConfig, MachineError};
use serde::Serialize;

use lowtide_bench::sim::clock::Stopwatch;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::options::Common;
use lowtide_bench::sim::{jobs, show};

/// CPU nanoseconds that a program spends between two operations, outside memory management. A
/// guess: a few hundred instructions.
const OP_NS: u64 = 200;

/// The selected rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    /// A row for each.
    pub(crate) policies: &'a [Policy],
    /// Whether rows include the simulation's speed.
    pub(crate) timing: bool,
    /// The seed of the machines.
    pub(crate) seed: u64,
}

/// The properties that all rows share.
#[derive(Clone, Debug)]
pub(crate) struct Play<'a> {
    pub(crate) machine: &'a MachineSpec,
    /// The budget in bytes; `None` for all of its memory.
    pub(crate) max: Option<u64>,
    /// Files and heaps, by their numbers.
    pub(crate) spaces: Vec<StreamSpace>,
    /// Pages that are touched.
    pub(crate) data_pages: u64,
    /// A description of the work, for the message of an interruption.
    pub(crate) during: String,
}

/// The streams of one machine's threads.
pub(crate) struct Streams {
    /// The operations of each thread.
    pub(crate) streams: Vec<Stream>,
    /// The error of a stream that ended the run, if the machine did not.
    pub(crate) failed: Rc<Cell<Option<SimError>>>,
}

/// Rows, and the reason for the first incomplete one.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// A row for each policy.
    pub(crate) rows: Vec<Row>,
    /// Whether all rows are complete.
    pub(crate) cut: Cut,
    killed: Option<SimError>,
}

impl Outcome {
    /// Adds a row that ended in an out-of-memory kill.
    pub(crate) fn killed(&mut self, row: Row, what: String) {
        let policy = row.policy.clone();
        self.rows.push(Row { oom: Some(1), ..row });
        self.killed.get_or_insert(SimError::OutOfMemory { policy, what });
    }

    /// Prints or writes the rows, as [`show::results`] does.
    ///
    /// # Errors
    /// Those of [`show::results`]; [`SimError::OutOfMemory`] when any row is incomplete.
    pub(crate) fn show<M: Serialize>(
        self,
        common: &Common,
        machine: &M,
        columns: Columns,
        closing: &[String],
    ) -> Result<(), SimError> {
        show::results(common, machine, &self.rows, columns, closing, self.cut)?;
        self.killed.map_or(Ok(()), Err)
    }
}

/// Plays `streams`, made again for each policy, one for each thread. `row` makes a row without
/// results.
///
/// # Errors
/// Any [`SimError`] except [`SimError::OutOfMemory`] and interruptions, which [`Outcome::show`]
/// returns.
pub(crate) fn run(
    rows: &Rows<'_>,
    play: &Play<'_>,
    progress: Patient,
    row: impl Fn(Policy) -> Row,
    streams: impl Fn() -> Result<Streams, SimError> + Sync,
) -> Result<Outcome, SimError> {
    let Rows { policies, timing, seed } = *rows;
    let frames = play.max.map_or(play.machine.pages(), |max| max / play.machine.page);
    let parallel = Host::ask().parallel(frames, play.data_pages)?;
    let results =
        jobs::run(policies.len(), if timing { 1 } else { parallel }, progress, |number, done| {
            let began = Stopwatch::start();
            let Streams { streams, failed } = streams()?;
            let result = simulate(seed, play, policies[number], streams, done);
            failed.take().map_or(Ok((result, began.elapsed())), Err)
        });
    let mut outcome = Outcome::default();
    for (&policy, result) in policies.iter().zip(results) {
        let Some((result, took)) = outcome.cut.take(result)? else { continue };
        let row = row(policy);
        match result {
            Ok(result) => {
                let latency_us = Some(RowLatency::Whole(LatencyUs::from(&result.latency)));
                let row = row.on_machine(None, &result.stat, result.ops);
                let row = Row { latency_us, errors: Some(result.errors), ..row };
                outcome.rows.push(if timing {
                    row.timed(took, result.stat.bytes, play.data_pages)
                } else {
                    row
                });
            }
            Err(error @ MachineError::OutOfMemory { .. }) => outcome.killed(row, error.to_string()),
            Err(error) => {
                let error = SimError::of_machine(policy, error, &play.during);
                outcome.cut.take::<(), _>(Err(error))?;
            }
        }
    }
    Ok(outcome)
}

fn simulate(
    seed: u64,
    play: &Play<'_>,
    policy: Policy,
    streams: Vec<Stream>,
    done: &AtomicU64,
) -> Result<stream::StreamResult, MachineError> {
    let machine = MachineConfig { spec: play.machine.clone(), policy, max: play.max, seed };
    stream::run(&machine, &play.spaces, streams, OP_NS, done, interrupt::flag())
}
