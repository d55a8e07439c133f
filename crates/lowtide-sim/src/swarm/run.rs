//! Carrying a plan out: once watched, once not, and both must end the same.

use super::client::Crew;
use super::contents::Truth;
use super::coverage::Coverage;
use super::overseer::{Overseer, Shared};
use super::plan::{Fault, Plan};
use super::quiet;
use crate::machine::{Machine, MachineConfig, MachineError, MachineStat, World};
use crate::spec::{DeviceSpec, MachineSpec};
use lowtide_core::Switches;
use lowtide_workload::SpaceKind;
use lowtide_workload::prng::mix64;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

/// Bytes of a page in the swarm's machines.
const PAGE: u64 = 4096;

/// What does not hold in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its name: the same after shrinking.
    pub invariant: String,
    /// What was found instead.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

impl Violation {
    fn new(invariant: &str, what: impl Into<String>) -> Self {
        Self { invariant: invariant.into(), what: what.into() }
    }
}

/// How a run ended.
#[derive(Debug)]
struct Ended {
    /// Of everything that one could see.
    fingerprint: u64,
    stat: MachineStat,
    coverage: Coverage,
}

/// Carries out a plan twice, with every check the first time. Returns what it has been through.
///
/// # Errors
/// The first thing that does not hold: in the run, or between the two.
pub fn examine(plan: &Plan) -> Result<Coverage, Violation> {
    let impossible = |error: super::PlanError| Violation::new("plan", error.to_string());
    plan.validate().map_err(impossible)?;
    let watched = guarded(plan, true)?;
    // A planted bug works through the watcher, so with one both runs are watched.
    let again = guarded(plan, plan.bug.is_some())?;
    if watched.fingerprint != again.fingerprint {
        let what = differences(&watched.stat, &again.stat);
        return Err(Violation::new("determinism", format!("the second run ended differently: {what}")));
    }
    Ok(watched.coverage)
}

/// A run; a panic in it is a violation like any other.
fn guarded(plan: &Plan, watched: bool) -> Result<Ended, Violation> {
    quiet::catch(|| once(plan, watched)).unwrap_or_else(|panic| Err(Violation::new("no panic", panic)))
}

fn machine_config(plan: &Plan) -> MachineConfig {
    let base = MachineSpec::preset("laptop").ok().flatten().expect("the laptop is built in");
    let device = DeviceSpec::preset(plan.device).expect("a plan's device is a preset");
    let memory = if plan.whole { plan.budget } else { 4 * plan.budget } * PAGE;
    MachineConfig {
        spec: MachineSpec {
            name: "swarm".into(),
            cpus: plan.cpus.into(),
            memory,
            kernel: 0,
            page: PAGE,
            readahead: plan.readahead * PAGE,
            fault_around: plan.around * PAGE,
            device,
            swap: None,
            ..base
        },
        policy: plan.policy,
        max: (!plan.whole).then_some(plan.budget * PAGE),
        seed: plan.seed,
    }
}

fn once(plan: &Plan, watched: bool) -> Result<Ended, Violation> {
    let found = |error: MachineError| match error {
        MachineError::Violation { invariant, what, at_ns } => {
            Violation::new(invariant, format!("{what} (after {at_ns} ns)"))
        }
        MachineError::Stuck { .. } => Violation::new("liveness", error.to_string()),
        _ => Violation::new("errors", error.to_string()),
    };
    let mut machine = Machine::new(&machine_config(plan)).map_err(found)?;
    let overseer = watched.then(|| Shared(Rc::new(RefCell::new(Overseer::new(plan)))));
    if let Some(shared) = &overseer {
        machine.world().watch = Some(Box::new(shared.clone()));
    }
    let crew = Crew::muster(plan, &mut machine, overseer.clone());
    let never = AtomicBool::new(false);
    machine.run(&never, &mut || ()).map_err(found)?;
    let stat = machine.stat();
    crew.finish(&mut machine);
    machine.run(&never, &mut || ()).map_err(found)?;
    let mut coverage = Coverage::default();
    if let Some(Shared(overseer)) = &overseer {
        let mut overseer = overseer.borrow_mut();
        let mut world = machine.world();
        overseer.check(&mut world);
        everything_is_on_the_device(&mut world, &overseer);
        if let Some(failure) = world.failure.take() {
            return Err(found(failure));
        }
        drop(world);
        coverage = cover(plan, &stat, &crew, &overseer);
    }
    let stat = machine.stat();
    let fingerprint = fingerprint(&mut machine.world(), &stat);
    Ok(Ended { fingerprint, stat, coverage })
}

/// After the last sync, with nobody left to write.
fn everything_is_on_the_device(world: &mut World, overseer: &Overseer) {
    for number in 0..world.files.len() {
        let object = world.files[number].object;
        let behind = |truth: &Truth| truth.device != truth.latest;
        if let Some(page) = overseer.contents.pages(object).iter().position(behind) {
            let truth = overseer.contents.truth(object, page as u64);
            world.violated("sync", format!("at the end, page {page} of file {number} is {truth:?}"));
        }
    }
}

/// A number that is the same if everything is: all counters, and what is resident where.
fn fingerprint(world: &mut World, stat: &MachineStat) -> u64 {
    let text = format!("{stat:?}");
    let mut sum = text.bytes().fold(0, |sum, byte| mix64(sum ^ u64::from(byte)));
    for object in &world.pool.memory.objects {
        for table in 0..object.pages.tables() {
            for cached in object.pages.table(table).unwrap_or(&[]) {
                sum = mix64(sum ^ u64::from(cached.to_bits()));
            }
        }
    }
    sum
}

/// Where two results differ, as far as counters tell.
fn differences(a: &MachineStat, b: &MachineStat) -> String {
    let (a, b) = (format!("{a:?}"), format!("{b:?}"));
    let parts: Vec<String> = a
        .split(", ")
        .zip(b.split(", "))
        .filter(|(a, b)| a != b)
        .take(5)
        .map(|(a, b)| format!("{a} or {b}"))
        .collect();
    if parts.is_empty() { "different pages are resident".into() } else { parts.join("; ") }
}

/// What a run has been through.
fn cover(plan: &Plan, stat: &MachineStat, crew: &Crew, overseer: &Overseer) -> Coverage {
    let mut coverage = Coverage::default();
    let mut met = |group, name: &str, times| coverage.met(group, name, times);
    let policy = plan.policy.to_string();
    let base = policy.split('+').next().unwrap_or(&policy);
    let base =
        if base.starts_with("mglru-7.1") { "mglru-7.1" } else { base.split('-').next().unwrap_or(base) };
    met("policy", base, 1);
    for (name, switch) in Switches::all().iter_names() {
        met("switch on", name, plan.policy.has(switch).into());
        met("switch off", name, (!plan.policy.has(switch)).into());
    }
    met("device", plan.device, 1);
    met("memory", if plan.whole { "whole machine" } else { "group" }, 1);
    met("memory", "without read-ahead", (plan.readahead == 0).into());
    met("memory", "without fault-around", (plan.around == 0).into());
    met("memory", "several processes", (plan.processes > 1).into());
    met("memory", "heaps", plan.spaces.iter().filter(|s| s.kind == SpaceKind::Anon).count() as u64);
    met("threads", &format!("up to {}", plan.threads.len().next_power_of_two()), 1);
    for (name, of) in [
        ("budget changed", plan.faults.iter().filter(|(_, f)| matches!(f, Fault::Max(_))).count()),
        ("slow device", plan.faults.iter().filter(|(_, f)| matches!(f, Fault::Slow(2..))).count()),
        ("failing device", plan.faults.iter().filter(|(_, f)| matches!(f, Fault::Fail(1..))).count()),
    ] {
        met("fault", name, of as u64);
    }
    let (kernel, events) = (&stat.kernel, &stat.memory.events);
    met("refused", "operations refused memory", crew.counts.refused.get());
    met("refused", "of which too early (7.1)", overseer.premature_oom);
    met("refused", "of which beside few evictable pages", overseer.oom_beside_few);
    met("refused", "of which while another task aged", overseer.oom_while_aging);
    met("refused", "operations the device failed", crew.counts.failed.get());
    met("refused", "lowered budgets not met", crew.counts.unmet.get());
    met("checked", "turns", overseer.turns);
    met("checked", "full checks", overseer.checks);
    met("checked", "syncs", crew.counts.syncs.get());
    met("checked", "accesses", kernel.accesses);
    for (name, times) in [
        ("direct reclaims", kernel.direct_reclaims),
        ("background wakes", kernel.kswapd_wakes),
        ("flusher wakes", kernel.flusher_wakes),
        ("reclaim naps", kernel.throttled),
        ("writers held back (ms)", kernel.dirty_throttled_ns / 1_000_000),
        ("aging walks", kernel.walks),
        ("device errors", kernel.io_errors),
        ("reads by read-ahead", kernel.readahead),
        ("faults repeated", kernel.retry_io_miss + kernel.retry_mmap_drop),
        ("lock contention", stat.rwsems.contended),
        ("device reads", stat.device.reads),
        ("device writes", stat.device.writes),
    ] {
        met("machine", name, times);
    }
    for (name, times) in events.iter().filter(|(_, times)| *times > 0) {
        met("counter", name, times);
    }
    coverage
}
