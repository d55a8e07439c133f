//! The rows of a swarm's coverage that one run fills: what its plan chose, and what it met.
//!
//! A row is made even for what did not occur, so that a table shows what a swarm never did.

use std::collections::BTreeMap;

use lowtide_core::{Policy, Switches};
use lowtide_sim::machine::MachineStat;
use lowtide_workload::SpaceKind;

use super::checker::Checker;
use super::client::{Clients, Counts};
use super::coverage::Coverage;
use super::plan::{Fault, Plan};

/// A count of a machine.
type Count = fn(&MachineStat) -> u64;

/// Counts of the kernel's machine, by the names of their rows.
const OF_MACHINES: [(&str, Count); 15] = [
    ("direct reclaims", |stat| stat.kernel.direct_reclaims),
    ("background wakes", |stat| stat.kernel.kswapd_wakes),
    ("flusher wakes", |stat| stat.kernel.flusher_wakes),
    ("reclaim naps", |stat| stat.kernel.throttled),
    ("writers held back", |stat| stat.kernel.dirty_pauses),
    ("writers held back (ms)", |stat| stat.kernel.dirty_throttled_ns / 1_000_000),
    ("aging walks", |stat| stat.kernel.walks),
    ("reads that hung", |stat| stat.kernel.hung_reads),
    ("device errors", |stat| stat.kernel.io_errors),
    ("reads by read-ahead", |stat| stat.kernel.readahead),
    ("faults repeated", |stat| stat.kernel.retry_mmap_drop),
    ("retries that missed", |stat| stat.kernel.retry_io_miss),
    ("lock contention", |stat| stat.rwsems.contended),
    ("device reads", |stat| stat.device.reads),
    ("device writes", |stat| stat.device.writes),
];

/// What a run has been through, on these machines.
pub(super) fn cover(
    plan: &Plan,
    stats: &[MachineStat],
    clients: &Clients,
    checker: &Checker,
) -> Coverage {
    let mut coverage = Coverage::default();
    policy(&mut coverage, plan.policy);
    memory(&mut coverage, plan);
    faults(&mut coverage, plan);
    operations(&mut coverage, &clients.counts);
    checks(&mut coverage, checker);
    machines(&mut coverage, stats);
    coverage
}

/// The policy: its name without what was switched in it, and its switches.
fn policy(coverage: &mut Coverage, policy: Policy) {
    let name = policy.to_string();
    let base = name.split('+').next().unwrap_or(&name);
    let releases = ["mglru-7.1", "mglru-6.12"];
    let base = releases
        .into_iter()
        .find(|release| base.starts_with(release))
        .unwrap_or_else(|| base.split('-').next().unwrap_or(base));
    coverage.met("policy", base, 1);
    for (name, switch) in Switches::all().iter_names() {
        coverage.met("switch on", name, policy.has(switch).into());
        coverage.met("switch off", name, (!policy.has(switch)).into());
    }
}

/// The machine that the plan chose.
fn memory(coverage: &mut Coverage, plan: &Plan) {
    let heaps = plan.spaces.iter().filter(|space| space.kind == SpaceKind::Anon).count();
    let large = (0..plan.spaces.len()).filter(|&space| plan.is_large(space)).count();
    coverage.met("device", plan.device, 1);
    coverage.met("fault path", plan.path.name(), 1);
    coverage.met("page size", format!("{:>5} bytes", plan.page), 1);
    let threads = plan.threads.len().next_power_of_two();
    coverage.met("threads", format!("up to {threads}"), 1);
    coverage.met("memory", if plan.whole { "whole machine" } else { "group" }, 1);
    for (name, times) in [
        ("without read-ahead", u64::from(plan.readahead == 0)),
        ("without fault-around", u64::from(plan.around == 0)),
        ("several processes", u64::from(plan.processes > 1)),
        ("heaps", heaps as u64),
        ("exact dirty figures", plan.exact.into()),
        ("files with large folios", large as u64),
        ("slow aging walks", u64::from(plan.walks > 1)),
        ("own dirty limits", plan.dirty.is_some().into()),
    ] {
        coverage.met("memory", name, times);
    }
}

/// Whether a fault is of some kind.
type IsOne = fn(&Fault) -> bool;

/// The faults that the plan chose.
fn faults(coverage: &mut Coverage, plan: &Plan) {
    let kinds: [(&str, IsOne); 5] = [
        ("slow device", |fault| matches!(fault, Fault::Slow(2..))),
        ("failing device", |fault| matches!(fault, Fault::Fail(1..))),
        ("failing writes", |fault| matches!(fault, Fault::FailWrites(1..))),
        ("hanging reads", |fault| matches!(fault, Fault::Hang(1..))),
        ("failing flushes", |fault| matches!(fault, Fault::FailFlushes(1..))),
    ];
    for (name, is_one) in kinds {
        let of = plan.faults.iter().filter(|(_, fault)| is_one(fault)).count();
        coverage.met("fault", name, of as u64);
    }
}

/// What the threads met.
fn operations(coverage: &mut Coverage, counts: &Counts) {
    let (budgets, sizes) = (&counts.budgets, &counts.sizes);
    for (group, name, times) in [
        ("budget", "lowered", &budgets.lowered),
        ("budget", "lowered, and not met", &budgets.unmet),
        ("budget", "raised", &budgets.raised),
        ("budget", "raised above the first", &budgets.above_first),
        ("durability", "syncs that acknowledged", &counts.syncs),
        ("durability", "syncs that reported a failure", &counts.failed_syncs),
        ("refused", "operations refused memory", &counts.refused),
        ("refused", "operations the device failed", &counts.failed),
        ("sizes", "files made shorter", &sizes.shorter),
        ("sizes", "files made longer", &sizes.longer),
        ("sizes", "ends within a page", &sizes.partial),
        ("sizes", "accesses past the end", &sizes.behind),
    ] {
        coverage.met(group, name, times.get());
    }
}

/// What the checker saw.
fn checks(coverage: &mut Coverage, checker: &Checker) {
    let cuts = checker.contents.cuts;
    for (group, name, times) in [
        ("memory", "large folios evicted", checker.large),
        ("durability", "power cuts", cuts.all),
        ("durability", "cuts with writes on their way", cuts.behind),
        ("durability", "cuts torn between neighbours", cuts.torn),
        ("durability", "pages older than stored", cuts.dropped),
        ("durability", "acknowledged pages found", cuts.kept),
        ("refused", "of which too early (before 7.2)", checker.premature_oom),
        ("checked", "turns", checker.turns),
        ("checked", "full checks", checker.checks),
        ("discards", "cached pages dropped", checker.dropped),
        ("discards", "lazily freed pages dropped", checker.lazily_dropped),
        ("sizes", "tails zeroed", checker.tails),
        ("sizes", "stores to parts of pages", checker.parts),
        ("sizes", "holes", checker.holes),
    ] {
        coverage.met(group, name, times);
    }
}

/// What the machines counted, all of them together.
fn machines(coverage: &mut Coverage, stats: &[MachineStat]) {
    let of_all = |count: Count| stats.iter().map(count).sum::<u64>();
    coverage.met("checked", "accesses", of_all(|stat| stat.kernel.accesses));
    coverage.met("durability", "writes failed", of_all(|stat| stat.kernel.write_errors));
    coverage.met("durability", "flushes failed", of_all(|stat| stat.kernel.flush_errors));
    for (name, count) in OF_MACHINES {
        coverage.met("machine", name, of_all(count));
    }
    let mut counters = BTreeMap::<_, u64>::new();
    for (name, times) in stats.iter().flat_map(|stat| stat.memory.events.iter()) {
        *counters.entry(name).or_default() += times;
    }
    for (name, times) in counters.into_iter().filter(|(_, times)| *times > 0) {
        coverage.met("counter", name, times);
    }
}
