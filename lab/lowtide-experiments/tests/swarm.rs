//! The swarm finds what is planted, and nothing else; and it has been through what it claims to
//! check.

use lowtide_experiments::swarm::{Bug, Plan, SwarmConfig, Violation, examine, run};
use std::sync::atomic::AtomicBool;

/// The violation of a seed's plan with a bug in it, if there is one.
fn violation(seed: u64, bug: Bug, always_checked: bool) -> Option<Violation> {
    let mut plan = Plan::draw(seed);
    plan.bug = Some(bug);
    if always_checked {
        plan.check = 1;
    }
    examine(&plan).err()
}

/// The first seed of `seeds` whose plan, with a bug in it, fails.
fn first_failure(bug: Bug, seeds: u64) -> Option<(u64, Violation)> {
    (1..=seeds).find_map(|seed| violation(seed, bug, false).map(|violation| (seed, violation)))
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
fn bugs_of_sizes_budgets_and_discards_are_found_within_a_few_seeds() {
    for (bug, invariant) in [
        (Bug::RaiseIgnored, "budget"),
        (Bug::DropDirty, "contents"),
        (Bug::Impatient, "contents"),
        (Bug::TruncateKeeps, "ends"),
        (Bug::TailKept, "contents"),
        (Bug::HoleKept, "contents"),
        (Bug::PartAlone, "contents"),
    ] {
        let (seed, first) = first_failure(bug, 30).unwrap_or_else(|| panic!("{bug} was not found"));
        let of_bug = |violation: &Violation| violation.invariant == invariant;
        // Whichever check comes first has found it; the one that is about it must find it, too.
        // All checks at each turn take a hundred times as long, so they are for plans that fail.
        let found = of_bug(&first)
            || (seed..seed + 120).any(|seed| {
                let failed = violation(seed, bug, false);
                failed.is_some_and(|failed| {
                    of_bug(&failed) || violation(seed, bug, true).is_some_and(|v| of_bug(&v))
                })
            });
        assert!(found, "{bug} is no violation of `{invariant}`: {first}");
    }
}

#[test]
fn plans_draw_every_dimension() {
    let config = SwarmConfig { seeds: 1..121, threads: 2, bug: None };
    let report = run(&config, &|_| (), &AtomicBool::new(false))
        .unwrap_or_else(|failure| panic!("{failure}"));
    for (group, name) in [
        ("budget", "lowered"),
        ("budget", "raised"),
        ("budget", "raised above the first"),
        ("discards", "cached pages dropped"),
        ("discards", "lazily freed pages dropped"),
        ("fault", "hanging reads"),
        ("machine", "reads that hung"),
        ("memory", "slow aging walks"),
        ("sizes", "files made shorter"),
        ("sizes", "files made longer"),
        ("sizes", "ends within a page"),
        ("sizes", "tails zeroed"),
        ("sizes", "accesses past the end"),
        ("sizes", "stores to parts of pages"),
        ("sizes", "holes"),
    ] {
        assert!(report.coverage.times(group, name) > 0, "no {name} in\n{}", report.coverage);
    }
    for page in (0..8).map(|power| 512 << power) {
        let name = format!("{page:>5} bytes");
        assert!(report.coverage.times("page size", &name) > 0, "no {name} in\n{}", report.coverage);
    }
}

#[test]
fn a_plan_with_everything_rare_is_replayed_from_its_text() {
    let text = "seed=7;cpus=2;page=16384;budget=64;room=128;memory=whole;walks=100;device=nvme;\
                readahead=32;around=16;policy=mglru;processes=1;spaces=file:300;\
                threads=0:uniform:m50:w50:s50:f1:z0:p4:t300:o400:d20:r20:h50;\
                faults=90:hang:2,120:max:128,200:cut:4,250:max:32,300:max:100;check=16";
    let plan: Plan = text.parse().unwrap();
    assert_eq!(plan.to_string(), text);
    let [first, second] = [0, 1].map(|_| examine(&plan).unwrap());
    assert_eq!(first, second);
    assert!(
        first.times("budget", "raised above the first") > 0
            && first.times("sizes", "tails zeroed") > 0
    );
    for wrong in ["page=1000", "page=256", "room=63", "walks=0"] {
        let (key, _) = wrong.split_once('=').unwrap();
        let from = text.find(key).unwrap();
        let end = from + text[from..].find(';').unwrap();
        let changed = format!("{}{wrong}{}", &text[..from], &text[end..]);
        let error = changed.parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn power_cuts_come_in_the_middle_of_things() {
    let config = SwarmConfig { seeds: 1..81, threads: 2, bug: None };
    let report = run(&config, &|_| (), &AtomicBool::new(false))
        .unwrap_or_else(|failure| panic!("{failure}"));
    for name in [
        "power cuts",
        "cuts with writes on their way",
        "cuts torn between neighbours",
        "pages older than stored",
        "acknowledged pages found",
        "syncs that acknowledged",
        "syncs that reported a failure",
        "writes failed",
        "flushes failed",
    ] {
        assert!(report.coverage.times("durability", name) > 0, "no {name} in\n{}", report.coverage);
    }
    assert!(report.coverage.times("durability", "power cuts") > 80);
}

/// Everything is being written to a slow device when the budget falls, but for one page: 7.1 does
/// not wait for the device. Of a swarm of 100,000 plans one was such; of its neighbours, which
/// differ in the seed of the accesses, about one in fifty is.
#[test]
fn what_7_1_gives_up_too_early_is_counted_and_no_violation() {
    let with_seed = |seed: u64| {
        format!(
            "seed={seed};cpus=6;page=32768;budget=4096;memory=group;device=network;readahead=0;\
             around=0;policy=mglru-7.1;processes=1;spaces=file:8192,file:2048;\
             threads=0:scan:m0:w100:s0:f0:z0:p64:t0:o95,\
             0:uniform:m0:w0:s0:f0:z0:p1:t0:o5:r20,\
             0:skewed:m50:w0:s1:f10:z0:p64:t1000:o23:r20,\
             0:skewed:m100:w50:s0:f10:z0:p16:t0:o95,\
             0:skewed:m0:w5:s0:f10:z0:p64:t30000:o95:r1,\
             1:uniform:m80:w100:s100:f0:z0:p1:t100:o95,\
             1:uniform:m0:w50:s0:f1:z0:p64:t100:o95;faults=129:max:1072;check=400"
        )
    };
    let early = |text: &str| {
        let coverage = examine(&text.parse().unwrap()).unwrap();
        coverage.times("refused", "of which too early (before 7.2)")
    };
    let mut plans = (72_581..73_081).map(with_seed);
    let text = plans.find(|text| early(text) > 0).expect("one of 500 plans gives up too early");
    assert_eq!(early(&text.replace("mglru-7.1", "mglru")), 0);
}

#[test]
fn a_plan_with_a_power_cut_is_replayed_from_its_text() {
    let text = "seed=7;cpus=2;budget=64;memory=group;device=hdd;readahead=32;around=16;\
                policy=mglru;dirty=5:20;figures=exact;processes=1;spaces=file:300;\
                threads=0:uniform:m50:w50:s50:f1:z0:p4:t300:o400;\
                faults=90:cut:3,120:fail-writes:2,200:cut:4,250:fail-flushes:2,300:cut:5;check=16";
    let plan: Plan = text.parse().unwrap();
    assert_eq!(plan.to_string(), text);
    let [first, second] = [0, 1].map(|_| examine(&plan).unwrap());
    assert_eq!(first, second);
    assert_eq!(first.times("durability", "power cuts"), 3);
}
