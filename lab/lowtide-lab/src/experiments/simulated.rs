//! The player on a simulated machine: the engine of the library, in virtual time. Plays are
//! independent, so they run in parallel, and the same seed gives the same rows.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use crate::sim::head;
use crate::sim::options::{self, Common, OnMachine, seconds};
use clap::Args;
use lowtide::Size;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::{jobs, show};
use lowtide_bpf::Programs;
use lowtide_experiments::client::script::{Sample, Throttle, play as simulate};
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::{DeviceSample, Row};
use lowtide_sim::MachineConfig;
use lowtide_sim::spec::MachineSpec;

use super::{Experiment, Play, Played, Setting};
use crate::throttle::{ProgramError, ThrottlePolicy};

/// The defaults of a simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) machine: &'static str,
    /// Policies, with commas between them.
    pub(crate) policies: &'static str,
    /// Virtual seconds measured.
    pub(crate) seconds: &'static str,
    /// Virtual time before them.
    pub(crate) warm: Duration,
}

/// `lowtide-lab sim NAME` of an experiment.
#[derive(Debug, Args)]
#[command(
    after_help = E::HELP,
    mut_arg("machine", |arg| arg.default_value(E::SIMULATED.machine)),
    mut_arg("policy", |arg| arg.default_value(E::SIMULATED.policies))
)]
pub(crate) struct Simulated<E: Experiment> {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// The experiment's own.
    #[command(flatten)]
    own: E,
    /// Virtual seconds measured
    #[arg(long, value_name = "N", value_parser = seconds(), default_value = E::SIMULATED.seconds)]
    seconds: u64,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

impl<E: Experiment> Simulated<E> {
    /// Simulates all plays and prints the rows.
    pub(crate) fn run(&self) -> Result<(), SimError> {
        let policies = self.common.begin()?;
        let machine = self.machine.load()?;
        machine.validate()?;
        let setting = Setting {
            world: "sim",
            machine: machine.name.clone(),
            is_default_machine: MachineSpec::preset(E::SIMULATED.machine)?.as_ref()
                == Some(&machine),
            page: machine.page,
            policies,
            seed: self.common.seed,
            warm: E::SIMULATED.warm,
            run: Duration::from_secs(self.seconds),
        };
        let plays = self.own.plays(&setting)?;
        let memory = plays.iter().map(|play| play.script.memory).max().unwrap_or_default();
        check_memory(&machine, 2 * memory)?;
        let pages = plays.iter().map(|play| play.script.bytes()).max().unwrap_or_default();
        let parallel = Host::ask().parallel(machine.pages(), pages / machine.page)?;
        head::experiment(
            &self.common,
            &format!("{}: {}", E::NAME, E::ABOUT),
            &machine,
            &self.own.describe(&setting, &plays),
            &format!(
                "{} s, after {} s that are left out",
                setting.run.as_secs(),
                setting.warm.as_secs()
            ),
        );

        let each = (setting.warm + setting.run).as_millis() as u64;
        let progress = Patient::new("virtual milliseconds", Unit::Steps, each * plays.len() as u64);
        let results = jobs::run(plays.len(), parallel, progress, |job, done| {
            play_counted(&machine, &plays[job], done, interrupt::flag())
        });
        let mut cut = Cut::default();
        let played =
            results.into_iter().map(|result| cut.take(result)).collect::<Result<Vec<_>, _>>()?;
        let rows = self.own.rows(&setting, &plays, &played);
        let mut closing = self.own.closing(&setting, &rows);
        closing.lines.insert(0, String::new());
        show::results(&self.common, &machine, &rows, E::COLUMNS, closing, cut)
    }
}

/// Only limits may cause reclaim.
fn check_memory(machine: &MachineSpec, needed: u64) -> Result<(), SimError> {
    let memory = machine.pages() * machine.page;
    if memory < needed {
        return Err(SimError::usage(
            format!(
                "machine `{}` has {} for programs and files",
                machine.name,
                options::floor(memory)
            ),
            format!(
                "choose one with at least {}, so that memory is short in the groups alone",
                Size::new(needed)
            ),
        ));
    }
    Ok(())
}

/// Simulates a play.
///
/// # Errors
/// [`SimError`].
#[cfg(test)]
pub(crate) fn play(machine: &MachineSpec, play: &Play) -> Result<Played, SimError> {
    play_counted(machine, play, &AtomicU64::new(0), &AtomicBool::new(false))
}

/// Simulates a play. `done` counts virtual milliseconds.
fn play_counted(
    machine: &MachineSpec,
    play: &Play,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<Played, SimError> {
    let config = MachineConfig {
        spec: machine.clone(),
        policy: play.policy,
        max: None,
        seed: play.script.seed,
    };
    let throttle = Throttle { policy: play.throttle.builtin(), hooks: hooks(&play.throttle)? };
    let result = simulate(&config, &play.script, throttle, done, stop)
        .map_err(|error| SimError::of_machine(play.policy, error, "simulating an experiment"))?;
    let seconds = play.script.run.as_secs_f64();
    let commands = |stat: &lowtide_sim::MachineStat| stat.device.reads + stat.device.writes;
    let row = Row::default().on_machine(Some(&result.began), &result.ended, 0);
    Ok(Played {
        row,
        seconds,
        samples: result.samples.iter().map(sample).collect(),
        device_tps: (commands(&result.ended) - commands(&result.began)) as f64 / seconds,
        slept_ms: result.slept_ns() as f64 / 1e6,
        program_runs: None,
        actors: result.actors,
    })
}

/// The program of a throttle policy, loaded for each run, so that runs do not share maps.
fn hooks(
    throttle: &ThrottlePolicy,
) -> Result<Option<Box<dyn lowtide_core::hooks::LimitHooks>>, SimError> {
    match throttle {
        ThrottlePolicy::Builtin(_) => Ok(None),
        ThrottlePolicy::Program { name, object } => {
            let programs = Programs::load(object, name)
                .map_err(|error| ProgramError { path: name.into(), why: error.to_string() })?;
            Ok(Some(Box::new(programs)))
        }
    }
}

fn sample(sample: &Sample) -> DeviceSample {
    let seconds = sample.ns as f64 / 1e9;
    DeviceSample {
        tps: sample.commands as f64 / seconds,
        read_kib: sample.read_bytes as f64 / 1024.0 / seconds,
        util_pct: Some(sample.busy_ns as f64 / 1e7 / seconds),
    }
}
