//! The swarm finds what is planted, and nothing else; and it has been through what it claims to check.

use lowtide_sim::swarm::{Bug, Plan, SwarmConfig, Violation, examine, run};
use std::sync::atomic::AtomicBool;

/// The first seed of `seeds` whose plan, with a bug in it, fails.
fn first_failure(bug: Bug, seeds: u64) -> Option<(u64, Violation)> {
    (1..=seeds).find_map(|seed| {
        let mut plan = Plan::draw(seed);
        plan.bug = Some(bug);
        examine(&plan).err().map(|violation| (seed, violation))
    })
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = first_failure(bug, 200);
        let Some((_, violation)) = found else { panic!("{bug} was not found") };
        let of_syncs = violation.invariant.starts_with("sync");
        let durability = [Bug::ErrorLost, Bug::SyncForgetsWriting, Bug::FlushLies];
        assert!(!durability.contains(&bug) || of_syncs, "{bug}: {violation}");
    }
}

#[test]
fn power_cuts_come_in_the_middle_of_things() {
    let config = SwarmConfig { seeds: 1..81, threads: 2, bug: None };
    let report = run(&config, &|_| (), &AtomicBool::new(false)).unwrap_or_else(|failure| panic!("{failure}"));
    for name in [
        "power cuts",
        "cuts with writes on their way",
        "cuts torn between neighbours",
        "pages older than stored",
        "acknowledged pages found",
        "syncs that acknowledged",
        "syncs that told of a failure",
        "writes failed",
        "flushes failed",
    ] {
        assert!(report.coverage.times("durability", name) > 0, "no {name} in\n{}", report.coverage);
    }
    assert!(report.coverage.times("durability", "power cuts") > 80);
}

#[test]
fn a_plan_with_a_power_cut_is_replayed_from_its_text() {
    let text = "seed=7;cpus=2;budget=64;memory=group;device=hdd;readahead=32;around=16;policy=mglru;dirty=5:20;\
                figures=exact;processes=1;spaces=file:300;threads=0:uniform:m50:w50:s50:f1:z0:p4:t300:o400;\
                faults=90:cut:3,120:fail-writes:2,200:cut:4,250:fail-flushes:2,300:cut:5;check=16";
    let plan: Plan = text.parse().unwrap();
    assert_eq!(plan.to_string(), text);
    let [first, second] = [0, 1].map(|_| examine(&plan).unwrap());
    assert_eq!(first, second);
    assert_eq!(first.times("durability", "power cuts"), 3);
}
