//! Making a failing plan smaller: every step tries to leave something out, and keeps what still
//! fails in the same way.
//!
//! Greedy: the list of simpler plans begins with the boldest, and starts over after each success.
//! The tries are bounded; a plan that has become small is tried in no time.

use lowtide_core::{Policy, Switches};
use lowtide_sim::spec::FaultPath;

use super::plan::{Fault, PAGE, Plan};
use super::run::{Violation, examine};

/// Runs at most.
const TRIES: u32 = 400;

/// Makes a plan smaller that violates an invariant. Returns the smallest plan found and how it
/// fails.
pub(super) fn shrink(plan: &Plan, violation: &Violation) -> (Plan, Violation) {
    let mut best = (plan.clone(), violation.clone());
    let mut tries = 0;
    'smaller: loop {
        for candidate in simpler(&best.0) {
            if tries == TRIES {
                break 'smaller;
            }
            tries += 1;
            if let Err(violation) = examine(&candidate)
                && violation.invariant == best.1.invariant
            {
                best = (candidate, violation);
                continue 'smaller;
            }
        }
        break;
    }
    best
}

/// Plans that are simpler than this one in one respect, the boldest first. All of them are
/// possible.
fn simpler(plan: &Plan) -> Vec<Plan> {
    let mut out = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut simpler = plan.clone();
        change(&mut simpler);
        if simpler != *plan && simpler.validate().is_ok() {
            out.push(simpler);
        }
    };
    fewer_parts(plan, &mut with);
    plainer_machine(&mut with);
    plainer_policy(plan, &mut with);
    plainer_threads(plan, &mut with);
    milder_faults(plan, &mut with);
    // A check after every turn finds the cause closer to where it is; a small plan can pay for it.
    with(&|p| p.check = 1);
    out
}

/// Tries a change of the plan.
type With<'a> = dyn FnMut(&dyn Fn(&mut Plan)) + 'a;

/// Without some threads, faults and spaces, and with fewer operations.
fn fewer_parts(plan: &Plan, with: &mut With<'_>) {
    let threads = plan.threads.len();
    if threads > 1 {
        with(&|p| p.threads.truncate(threads / 2));
        with(&|p| p.threads = p.threads.split_off(threads / 2));
        for i in 0..threads {
            with(&|p| leave_out(&mut p.threads, i));
        }
    }
    with(&|p| p.faults.clear());
    for i in 0..plan.faults.len() {
        with(&|p| leave_out(&mut p.faults, i));
    }
    with(&|p| p.threads.iter_mut().for_each(|t| t.ops /= 2));
    with(&|p| p.threads.iter_mut().for_each(|t| t.ops -= t.ops / 4));
    for i in 0..plan.spaces.len() {
        if plan.threads.iter().all(|t| t.space != i) {
            with(&|p| {
                p.spaces.remove(i);
                p.threads.iter_mut().filter(|t| t.space > i).for_each(|t| t.space -= 1);
            });
        }
        with(&|p| p.spaces[i].pages /= 2);
    }
}

/// On a smaller machine, or one with less that is special.
fn plainer_machine(with: &mut With<'_>) {
    with(&|p| p.room = p.budget);
    with(&|p| p.page = PAGE);
    with(&|p| p.walks = 1);
    with(&|p| p.budget /= 2);
    with(&|p| p.processes = 1);
    with(&|p| p.cpus = 1);
    with(&|p| p.cpus /= 2);
    with(&|p| p.whole = false);
    with(&|p| p.dirty = None);
    with(&|p| p.exact = false);
    with(&|p| p.large = false);
    with(&|p| p.readahead = 0);
    with(&|p| p.around = 0);
    with(&|p| p.device = "nvme");
    with(&|p| p.path = FaultPath::default());
    with(&|p| p.path = FaultPath::Hold);
}

/// With fewer differences from a built-in policy; not with another built-in one.
fn plainer_policy(plan: &Plan, with: &mut With<'_>) {
    let bases = [Policy::MGLRU, Policy::LRU, Policy::TIDE, Policy::MGLRU_7_1, Policy::MGLRU_6_12];
    for base in bases.into_iter().filter(|base| base.lists() == plan.policy.lists()) {
        for switch in Switches::all() {
            if plan.policy.has(switch) != base.has(switch) && near(plan.policy, base) {
                with(&|p| p.policy = p.policy.with(switch, base.has(switch)));
            }
        }
    }
}

/// With threads that do less, each for itself.
fn plainer_threads(plan: &Plan, with: &mut With<'_>) {
    for (i, thread) in plan.threads.iter().enumerate() {
        with(&|p| p.threads[i].ops /= 2);
        with(&|p| p.threads[i].syncs = 0);
        with(&|p| p.threads[i].frees = 0);
        for (letter, _) in thread.rare() {
            with(&|p| p.threads[i].rare_mut(letter).into_iter().for_each(|rate| *rate = 0));
        }
        with(&|p| p.threads[i].sleeps = 0);
        with(&|p| p.threads[i].think_ns = 0);
        with(&|p| p.threads[i].pages = 1);
        with(&|p| p.threads[i].pages /= 2);
        with(&|p| p.threads[i].writes = 0);
        with(&|p| p.threads[i].mapped = 0);
    }
}

/// With faults that come earlier, or change less.
fn milder_faults(plan: &Plan, with: &mut With<'_>) {
    for i in 0..plan.faults.len() {
        with(&|p| p.faults[i].0 /= 2);
        with(&|p| match &mut p.faults[i].1 {
            Fault::Slow(times) => *times = (*times / 2).max(1),
            Fault::Cut(seed) => *seed = 0,
            _ => {}
        });
    }
}

fn leave_out<T>(from: &mut Vec<T>, at: usize) {
    from.remove(at);
}

/// Whether a policy differs from a built-in one by so little that it was made from it.
fn near(policy: Policy, base: Policy) -> bool {
    Switches::all().iter().filter(|&s| policy.has(s) != base.has(s)).count() <= 4
}
