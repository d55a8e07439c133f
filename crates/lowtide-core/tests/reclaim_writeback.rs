//! What reclaim does about dirty pages and those being written: the table of
//! `docs/kernel/reclaim.md` §4.4, row by row, and the counters that show it.
//!
//! | row | tested by |
//! |---|---|
//! | congested | `lru_and_mglru_nap_a_tick_when_all_dirty_is_congested` |
//! | | `mglru_7_1_never_naps`, `congestion_ends_with_the_invocation` |
//! | gate of it | `less_than_half_dirty_only_yields` |
//! | | `the_gate_is_evaluated_for_the_group_that_is_reclaimed` |
//! | writeback | `background_reclaim_waits_for_pages_that_it_marked_and_for_nothing_else` |
//! | flushers | `flushers_are_woken_for_each_batch_that_waits_for_them` |
//! | end of a write | `the_end_of_a_write_rotates_only_what_reclaim_marked` |
//! | isolated | `only_the_classical_lists_wait_for_isolated_pages` in `easy_to_get_wrong.rs` |
//! | no progress | does not exist: a group reclaims itself |
//! | without I/O (§2.8 f) | `a_task_that_may_not_begin_io_skips_before_s9_and_puts_back_since` |
//! | legacy hierarchy | does not exist: there is one hierarchy |

use crate::harness::{Harness, ROOT};
use lowtide_core::limits::TICK_NS;
use lowtide_core::{
    Events, Flags, FolioId, LruType, MemcgId, Owner, Reason, Reclaim, Step, Task, ThrottleReason,
};

/// A harness with 62 pages that are all dirty, and being written if asked.
fn dirty(policy: &str, writing: bool) -> Harness {
    let mut harness = Harness::of(policy, 64);
    harness.fill(0..62);
    harness.dirty(0..62, writing);
    harness
}

fn run(harness: &mut Harness, target: MemcgId, reason: Reason) -> Vec<Step> {
    harness.run(&mut Reclaim::new(target, 32, reason, Task::DESCRIPTOR))
}

fn count(steps: &[Step], which: impl Fn(&Step) -> bool) -> u64 {
    steps.iter().filter(|step| which(step)).count() as u64
}

fn naps(events: &Events) -> [u64; 3] {
    [events.nr_throttled_congested, events.nr_throttled_writeback, events.nr_throttled_isolated]
}

#[test]
fn lru_and_mglru_nap_a_tick_when_all_dirty_is_congested() {
    for policy in ["lru", "tide", "mglru"] {
        let mut harness = dirty(policy, true);
        let steps = run(&mut harness, ROOT, Reason::Direct);
        let tick = Step::Throttle(ThrottleReason::Congested, TICK_NS);
        let ticks = count(&steps, |step| *step == tick);
        let events = harness.events();
        assert!(ticks > 0, "{policy}");
        assert_eq!(naps(&events), [ticks, 0, 0], "{policy}: and nothing else is slept for");
        assert_eq!(events.nr_throttled_yield, 0, "{policy}");
        assert!(
            events.nr_shrink_congested > 0 && events.nr_shrink_congested < events.nr_shrink_dirty
        );
        assert_eq!(
            events.nr_shrink_writeback, events.nr_shrink_dirty,
            "{policy}: none waits for a flusher"
        );
        assert_eq!((events.nr_shrink_immediate, events.nr_wakeup_flushers), (0, 0), "{policy}");
        assert!(events.nr_shrink_taken >= events.nr_shrink_dirty, "{policy}");
    }
}

#[test]
fn mglru_7_1_never_naps() {
    for policy in ["mglru-7.1", "mglru-7.1+S10", "mglru-7.1+S10+S11", "mglru-S15"] {
        for reason in [Reason::Direct, Reason::Kswapd, Reason::Proactive] {
            let mut harness = dirty(policy, true);
            let steps = run(&mut harness, ROOT, reason);
            assert_eq!(
                count(&steps, |step| matches!(step, Step::Throttle(..))),
                0,
                "{policy} {reason:?}"
            );
            let events = harness.events();
            assert_eq!((naps(&events), events.nr_throttled_yield), ([0; 3], 0), "{policy}");
            assert_eq!(
                (events.nr_shrink_dirty, events.nr_shrink_taken),
                (0, 0),
                "{policy}: not counted"
            );
            assert_eq!(events.pgsteal, 0, "{policy}");
        }
    }
}

/// §2.8 f and §3.5: what a scan skips stays at the eviction end, where the next scan meets it
/// again; what is isolated and put back goes to a younger generation.
#[test]
fn a_task_that_may_not_begin_io_skips_before_s9_and_puts_back_since() {
    let scanned = |policy: &str, io: bool| {
        let mut harness = Harness::of(policy, 256);
        harness.fill(0..248);
        harness.dirty(0..62, false);
        let reclaim = Reclaim::new(ROOT, 32, Reason::Direct, Task::DESCRIPTOR);
        harness.run(&mut if io { reclaim } else { reclaim.without_io() });
        harness.engine.validate().unwrap();
        let oldest = (0..62).filter(|&id| harness.depth(id) == Some(4)).count();
        (harness.events().nr_shrink_dirty > 0, oldest)
    };
    // S10 too, without which dirty file pages are sorted away before.
    for (policy, io, expected) in [
        ("mglru-7.1+S10+S15", false, (false, 62)),
        ("mglru-7.1+S10+S15", true, (true, 0)),
        ("mglru-7.1+S9+S10+S15", false, (true, 0)),
    ] {
        assert_eq!(scanned(policy, io), expected, "{policy}, I/O {io}");
    }
}

#[test]
fn congestion_ends_with_the_invocation() {
    for policy in ["lru", "tide", "mglru"] {
        let mut harness = dirty(policy, true);
        run(&mut harness, ROOT, Reason::Direct);
        let before = harness.events().nr_throttled_congested;
        (0..62).for_each(|id| harness.engine.end_writeback(FolioId(id), true, Task::DESCRIPTOR));
        run(&mut harness, ROOT, Reason::Direct);
        assert_eq!(
            harness.events().nr_throttled_congested,
            before,
            "{policy}: nothing is dirty any more"
        );
        assert!(harness.events().pgsteal >= 32, "{policy}");
    }
}

#[test]
fn less_than_half_dirty_only_yields() {
    for policy in ["lru", "tide", "mglru"] {
        for (written, napping) in [(40, false), (80, true)] {
            let mut harness = Harness::of(policy, 128);
            harness.fill(0..124);
            harness.dirty(0..written, true);
            // The clean ones cannot be had at the moment.
            harness.facts.locked[written as usize..].fill(true);
            run(&mut harness, ROOT, Reason::Direct);
            let events = harness.events();
            assert_eq!(events.nr_throttled_congested > 0, napping, "{policy}: {events:?}");
            assert_eq!(events.nr_throttled_yield > 0, !napping, "{policy}: {events:?}");
        }
    }
}

#[test]
fn the_gate_is_evaluated_for_the_group_that_is_reclaimed() {
    for policy in ["lru", "tide", "mglru"] {
        let mut harness = Harness::of(policy, 512);
        // Plenty of clean memory elsewhere, which is no help to the group.
        harness.fill(0..310);
        let group = harness.engine.create_group(ROOT).unwrap();
        let space = harness.engine.add_space(group);
        for id in 320..382 {
            harness.engine.try_charge(group, 1).unwrap();
            let owner = Owner { space, page: id.into() };
            harness.engine.insert(
                FolioId(id),
                owner,
                0,
                LruType::File,
                group,
                None,
                Task::DESCRIPTOR,
            );
        }
        harness.dirty(320..382, true);
        run(&mut harness, group, Reason::Direct);
        let events = harness.engine.own_events(group);
        assert!(events.nr_throttled_congested > 0, "{policy}: {events:?}");
        assert_eq!(
            harness.engine.own_events(ROOT).nr_throttled_congested,
            0,
            "{policy}: counted where it was"
        );
        assert_eq!(
            harness.events().nr_throttled_congested,
            events.nr_throttled_congested,
            "{policy}: summed up"
        );
    }
}

#[test]
fn background_reclaim_waits_for_pages_that_it_marked_and_for_nothing_else() {
    for (policy, waiting) in
        [("lru", true), ("tide", true), ("mglru", true), ("mglru-S15", false), ("mglru-7.1", false)]
    {
        let mut harness = dirty(policy, true);
        let steps = run(&mut harness, ROOT, Reason::Kswapd);
        let events = harness.events();
        let waits =
            count(&steps, |step| *step == Step::Throttle(ThrottleReason::Writeback, 100_000_000));
        assert_eq!(naps(&events), [0, waits, 0], "{policy}: it never sleeps for congestion");
        assert_eq!((waits > 0, events.nr_shrink_immediate > 0), (waiting, waiting), "{policy}");
        // With a clean page among those that it takes, it has something better to do.
        let mut harness = Harness::of(policy, 64);
        harness.fill(0..62);
        harness.dirty(0..40, true);
        run(&mut harness, ROOT, Reason::Kswapd);
        assert!(harness.events().pgsteal > 0, "{policy}");
    }
}

#[test]
fn flushers_are_woken_for_each_batch_that_waits_for_them() {
    for policy in ["lru", "tide", "mglru", "mglru-S15", "mglru-7.1"] {
        let mut harness = dirty(policy, false);
        let steps = run(&mut harness, ROOT, Reason::Direct);
        let wakes = count(&steps, |step| *step == Step::WakeFlushers);
        assert!(wakes > 0, "{policy}");
        assert_eq!(harness.events().nr_wakeup_flushers, wakes, "{policy}");
        assert_eq!(
            naps(&harness.events()),
            [0; 3],
            "{policy}: pages without a write are no congestion"
        );
        let mut harness = dirty(policy, true);
        run(&mut harness, ROOT, Reason::Direct);
        assert_eq!(harness.events().nr_wakeup_flushers, 0, "{policy}: they are at it already");
    }
    let at_end = |policy| {
        let mut harness = dirty(policy, false);
        run(&mut harness, ROOT, Reason::Direct);
        harness.events().nr_wakeup_flushers
    };
    assert!(
        at_end("mglru") > at_end("mglru-S11"),
        "per batch since S11, at the end of a loop before"
    );
}

#[test]
fn the_end_of_a_write_rotates_only_what_reclaim_marked() {
    for policy in ["lru", "mglru", "mglru-7.1"] {
        let mut harness = Harness::of(policy, 128);
        harness.fill(0..124);
        harness.dirty(0..1, true);
        harness.dirty(100..101, true);
        harness.reclaim(1);
        assert!(harness.flags(0).contains(Flags::RECLAIM), "{policy}: met");
        assert!(!harness.flags(100).contains(Flags::RECLAIM), "{policy}: not met yet");
        let before = harness.depth(100);
        for id in [0, 100] {
            harness.engine.end_writeback(FolioId(id), true, Task::DESCRIPTOR);
        }
        let gone = harness.freed.len();
        harness.reclaim(1);
        assert_eq!(harness.events().pgrotated, 1, "{policy}");
        assert_eq!(
            harness.freed[gone].0,
            FolioId(0),
            "{policy}: ahead of everything that is clean"
        );
        assert!(harness.resident(100) && harness.depth(100) == before, "{policy}: where it was");
    }
}
