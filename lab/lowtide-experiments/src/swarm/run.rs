//! Carrying a plan out: once watched, once not, and both must end the same.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use lowtide_sim::costs::Costs;
use lowtide_sim::machine::{Machine, MachineConfig, MachineError, MachineStat, World};
use lowtide_sim::spec::{DeviceSpec, MachineSpec};
use lowtide_workload::prng::mix64;

use super::checker::{Checker, Shared};
use super::client::Clients;
use super::cover::cover;
use super::coverage::Coverage;
use super::plan::Plan;
use super::quiet;

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
    /// A hash of everything that is observable.
    fingerprint: u64,
    /// One of each machine: one more than there were power cuts.
    stats: Vec<MachineStat>,
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
        let what = differences(&watched.stats, &again.stats);
        return Err(Violation::new(
            "determinism",
            format!("the second run ended differently: {what}"),
        ));
    }
    Ok(watched.coverage)
}

/// A run; a panic in it is a violation like any other.
fn guarded(plan: &Plan, watched: bool) -> Result<Ended, Violation> {
    quiet::catch(|| once(plan, watched))
        .unwrap_or_else(|panic| Err(Violation::new("no panic", panic)))
}

/// The plan's machine, after a number of power cuts.
fn machine_config(plan: &Plan, cuts: usize) -> MachineConfig {
    let base = MachineSpec::preset("laptop").ok().flatten().expect("the laptop is built in");
    let device = DeviceSpec::preset(plan.device).expect("a plan's device is a preset");
    let memory = if plan.whole { plan.room } else { 4 * plan.room } * plan.page;
    MachineConfig {
        spec: MachineSpec {
            name: "swarm".into(),
            cpus: plan.cpus.into(),
            memory,
            kernel: 0,
            page: plan.page,
            readahead: plan.readahead * plan.page,
            fault_around: plan.around * plan.page,
            fault_path: plan.path,
            device,
            swap: None,
            costs: Costs {
                walk_table_ns: base.costs.walk_table_ns * plan.walks,
                walk_entry_ns: base.costs.walk_entry_ns * plan.walks,
                walk_young_ns: base.costs.walk_young_ns * plan.walks,
                ..base.costs
            },
            ..base
        },
        policy: plan.policy,
        max: (!plan.whole).then_some(plan.room * plan.page),
        seed: plan.seed.wrapping_add((cuts as u64) << 32),
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
    let checker = watched.then(|| Shared(Rc::new(RefCell::new(Checker::new(plan)))));
    let clients = Clients::new(plan, checker.clone());
    let never = AtomicBool::new(false);
    let mut stats = Vec::new();
    let mut sum = 0;
    let mut machine = loop {
        let mut machine = Machine::new(&machine_config(plan, stats.len())).map_err(found)?;
        if let Some(shared) = &checker {
            machine.world().watch = Some(Box::new(shared.clone()));
        }
        clients.spawn(&mut machine);
        match machine.run(&never, &mut || ()) {
            Ok(()) => break machine,
            Err(MachineError::PowerCut { .. }) => {}
            Err(error) => return Err(found(error)),
        }
        clients.remember_sizes(&machine.world());
        let stat = machine.stat();
        sum = fingerprint(sum, &machine.world(), &stat);
        stats.push(stat);
        if let Some(Shared(checker)) = &checker {
            let files = Clients::files(&machine.world());
            let left = checker.borrow_mut().power_cut(&files, clients.cut.get());
            left.map_err(|what| Violation::new("power cut", what))?;
        }
    };
    let before_the_end = machine.stat();
    clients.finish(&mut machine);
    machine.run(&never, &mut || ()).map_err(found)?;
    let last = machine.stat();
    let fingerprint = fingerprint(sum, &machine.world(), &last);
    let mut coverage = Coverage::default();
    if let Some(Shared(checker)) = &checker {
        let mut checker = checker.borrow_mut();
        let mut world = machine.world();
        checker.check(&mut world);
        everything_is_durable(&mut world, &checker);
        nothing_is_locked(plan, &mut world);
        if let Some(failure) = world.failure.take() {
            return Err(found(failure));
        }
        drop(world);
        stats.push(before_the_end);
        coverage = cover(plan, &stats, &clients, &checker);
        stats.pop();
    }
    stats.push(last);
    Ok(Ended { fingerprint, stats, coverage })
}

/// After the last sync, when no task writes any more.
fn everything_is_durable(world: &mut World, checker: &Checker) {
    for number in 0..world.files.len() {
        let object = world.files[number].object;
        let behind = checker.contents.volatile(object).next();
        if let Some((page, truth)) = behind {
            world
                .violated("sync", format!("at the end, page {page} of file {number} is {truth:?}"));
        }
    }
}

/// After the last operation: no task has a lock of an address space any more. A page that was kept
/// for a retry was there for it, unless it was given up on purpose (D3).
fn nothing_is_locked(plan: &Plan, world: &mut World) {
    if let Some(number) = world.rwsems.iter().position(|lock| !lock.is_free()) {
        world.violated("locks", format!("at the end, semaphore {number} is held"));
    }
    let given_up = plan.threads.iter().any(|t| t.frees > 0 || t.resizes > 0);
    let missed = world.counts.retry_io_miss;
    if plan.path.keeps_page() && !given_up && missed > 0 {
        world.violated("retries", format!("{missed} pages were gone that were kept"));
    }
}

/// A number that is the same if everything is: all counters, and what is resident where.
fn fingerprint(before: u64, world: &World, stat: &MachineStat) -> u64 {
    let text = format!("{stat:?}");
    let mut sum = text.bytes().fold(before, |sum, byte| mix64(sum ^ u64::from(byte)));
    for object in &world.pool.memory.objects {
        for table in 0..object.pages.tables() {
            for cached in object.pages.table(table).unwrap_or(&[]) {
                sum = mix64(sum ^ u64::from(cached.to_bits()));
            }
        }
    }
    sum
}

/// Where two results differ, as far as counters show.
fn differences(a: &[MachineStat], b: &[MachineStat]) -> String {
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
