//! What the loop of Linux 6.12 did otherwise than that of 7.1 (`docs/kernel/reclaim.md` appendix
//! A), a switch at a time. Placement, tiers and the walk: unit tests of `lruvec`.

use crate::forest;
use crate::forest::Forest;
use crate::harness::{Harness, ROOT};
use lowtide_core::{LruType, Policy, Reason, Reclaim, Task};

/// Pages freed by a request for 32 from 8192 that nothing accesses, and the passes that it took.
fn freed(policy: &str, pages: u32) -> (u64, u32) {
    let mut harness = Harness::of(policy, pages);
    harness.fill(0..pages);
    let mut reclaim = Reclaim::new(ROOT, 32, Reason::Direct, Task::DESCRIPTOR);
    harness.run(&mut reclaim);
    harness.engine.validate().unwrap();
    (reclaim.reclaimed(), reclaim.passes())
}

#[test]
fn a_batch_was_not_bounded_by_the_budget() {
    let (pages, passes) = freed("mglru-7.1", 8192);
    assert!(passes > 3 && pages < 64, "a pass scans 2, 4, 8, ...: {pages} in {passes}");
    assert_eq!(freed("mglru-7.1-request", 8192), (64, 1), "a whole batch, at once");
}

#[test]
fn the_reclaim_of_a_group_did_not_end_at_its_goal() {
    // A pass at priority 12 scans 96 pages.
    let pages = 96 << 12;
    assert_eq!(freed("mglru-7.1", pages), (64, 1), "a batch meets the goal");
    let (pages, passes) = freed("mglru-7.1-goal", pages);
    assert!(pages >= 96 && passes == 1, "{pages} in {passes}");
}

/// With three generations of which none is empty, and most pages in the middle one.
#[test]
fn three_generations_could_be_enough() {
    let agings = |policy: &str| {
        let mut harness = Harness::of(policy, 8192);
        harness.fault(0..6000);
        harness.fill(6000..8000);
        harness.reclaim(3500);
        harness.events().aging
    };
    assert!(agings("mglru-7.1") > agings("mglru-7.1-three"));
}

/// Protection decided whether a group was scanned, not how much of it.
#[test]
fn a_half_protected_group_was_scanned_as_much_as_another() {
    let ratio = |policy: Policy| {
        let mut f = Forest::new(policy, 1 << 16, 1);
        let parent = f.group(forest::ROOT, 1 << 15);
        let (half, bare) = (f.group(parent, u64::MAX), f.group(parent, u64::MAX));
        f.engine.set_low(half, 1 << 13);
        f.fill(half, 1 << 14);
        f.fill(bare, (1 << 14) - 64);
        let third = f.group(parent, u64::MAX);
        f.fill(third, 1 << 12);
        f.engine.own_events(half).pgscan as f64 / f.engine.own_events(bare).pgscan as f64
    };
    let (since, before) = (ratio(Policy::MGLRU_7_1), ratio(Policy::MGLRU_6_12));
    assert!(since < 0.85 && before > 0.9, "{since} {before}");
}

/// A page that comes back after its generation was retired was no recent refault, and one that
/// was, counted as an activation.
#[test]
fn a_refault_was_recent_for_a_generation() {
    let counts = |policy: &str, more: u64| {
        let mut harness = Harness::of(policy, 512);
        harness.fill(0..248);
        harness.fault(248..496);
        harness.reclaim(32);
        let (id, shadow) = harness.freed[0];
        if more > 0 {
            harness.reclaim(more);
        }
        harness.insert(id.0, 0, LruType::File, Some(shadow), Task::DESCRIPTOR);
        let events = harness.events();
        (events.workingset_refault_file, events.workingset_activate_file)
    };
    assert_eq!(counts("mglru-7.1", 0), (1, 0), "an activation only in a fault");
    assert_eq!(counts("mglru-7.1-recency", 0), (1, 1));
    assert_eq!(counts("mglru-7.1-recency", 300), (1, 0), "its generation is gone");
}

/// What is referenced once is put back: into the youngest generation, or where it belongs.
#[test]
fn rejects_went_to_the_youngest_generation() {
    let depth = |policy: &str| {
        let mut harness = Harness::of(policy, 256);
        harness.fill(0..248);
        harness.map_young(0);
        harness.run(&mut Reclaim::new(ROOT, 32, Reason::Direct, Task::DESCRIPTOR));
        harness.depth(0)
    };
    assert_eq!(depth("mglru-7.1"), Some(2), "activated, as it would be the oldest again");
    assert_eq!(depth("mglru-6.12"), Some(1));
}
