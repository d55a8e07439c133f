//! The checklist of `docs/kernel/reclaim.md` §9: each point is a test, here or elsewhere, or a
//! sentence on why there is nothing to test.
//!
//! | point | tested by, or why not |
//! |---|---|
//! | 1, 6, 46, 50 | `placement_is_decided_when_the_batch_is_flushed` |
//! | | `a_fault_is_placed_one_generation_older_since_7_2` |
//! | 2, 14 | `budgets_are_shifted_and_never_rounded_up` |
//! | | `a_group_below_the_shift_is_skipped_until_its_turn` |
//! | 3, 10, 19 | unit tests of `lruvec/generation.rs` |
//! | 4, 7 | `a_promoted_folio_is_moved_when_the_evictor_meets_it` |
//! | | unit tests of `lruvec/access.rs` |
//! | 5 | sizes are exact: everything is under one lock (`validate`) |
//! | 8 | unit tests of `folio/flags.rs` |
//! | 9 | `saturated_folios_are_sorted_but_not_counted_as_protected` |
//! | 11, 12 | unit test of `reclaim/evict.rs`; the limit is computed inside the loop over types |
//! | 13 | `a_batch_ends_with_the_first_huge_folio` |
//! | 15 | the budget is computed in `begin_mglru` only; there is no `memory.min` |
//! | 16 | `anonymous_memory_without_swap_does_not_stop_aging` |
//! | 17 | `out_of_memory.rs`, the aging scenario |
//! | 18, 30, 36, 37, 42 | one group, no root reclaim, no slab |
//! | 20 | an assertion in `reclaim/evict.rs`, exercised by `properties.rs` |
//! | 21 | `a_clean_reject_is_tried_exactly_once_more` |
//! | 22 | `writes_to_swap_are_no_congestion` in `swap.rs` |
//! | 23 | `congestion_needs_a_second_encounter` |
//! | 24 | readahead has no flag here |
//! | 25 | `one_clean_page_in_the_batch_keeps_the_flusher_asleep` |
//! | | before S11 the pass decides: `…_in_the_pass_…` |
//! | 26 | `no_reclaimer_sleeps_while_most_of_memory_is_clean` |
//! | 27 | `only_the_classical_lists_wait_for_isolated_pages` |
//! | 28 | `sorting_is_refill_and_not_scan` |
//! | 29 | there are no such counters |
//! | 31 | `anon_only_without_swap_reclaims_nothing_since_7_3` |
//! | | unit tests of `lruvec/swappiness.rs`, `lruvec/cost.rs` |
//! | 32 | I20 in `properties.rs` |
//! | 33 | unit tests of `lruvec/swappiness.rs` |
//! | 34 | `deactivation_is_forced_when_nothing_else_was_found` |
//! | 35, 47 | unit tests of `charge.rs` |
//! | 38 | unit test of `lruvec/classical.rs` |
//! | 39 | `the_active_list_gives_back_referenced_folios_too` |
//! | 40 | unit test of `lruvec/cost.rs` |
//! | 41 | `background_reclaim_never_uses_priority_zero` |
//! | 43 | `an_unevictable_folio_is_culled_even_if_it_was_promoted` |
//! | | `…_before_anything_else_is_asked_of_it` |
//! | 44 | `a_folio_that_the_driver_drops_leaves_no_trace` |
//! | 45, 53 | unit tests of `lruvec/access.rs` |
//! | 48 | nothing in the engine depends on pages locked by the shrinker |
//! | 49 | `policy.rs`: every later change has a switch of its own |
//! | 51 | `fidelity.rs` of lowtide-sim compares medians |
//! | 52 | `an_aging_that_visits_nothing_still_opens_a_generation` |
//! | | `an_idle_space_is_walked_once` |
//! | 54 | left to the driver: `writer/mod.rs` ends writes during an invocation |
//! | 55 | `a_page_leaves_memory_when_its_write_has_ended_and_not_before` in `swap.rs` |

use crate::harness::{Harness, ROOT};
use lowtide_core::{Flags, FolioId, LruType, Reason, Reclaim, Step, Task, ThrottleReason};

fn wakes(steps: &[Step]) -> usize {
    steps.iter().filter(|s| **s == Step::WakeFlushers).count()
}

fn naps(steps: &[Step]) -> usize {
    steps.iter().filter(|s| matches!(s, Step::Throttle(ThrottleReason::Congested, _))).count()
}

// Placement and generations.

#[test]
fn placement_is_decided_when_the_batch_is_flushed() {
    for (policy, marked) in [("mglru-7.1", 4), ("mglru", 3)] {
        let mut harness = Harness::of(policy, 64);
        for id in 0..31 {
            harness.fill(id..id + 1);
            assert!(id == 30 || harness.depth(id).is_none(), "folio {id} waits in the batch");
            harness.read(id);
        }
        // The folio whose arrival fills the batch is placed before it can be marked.
        assert_eq!(harness.depth(30), Some(4), "{policy}");
        assert!((0..30).all(|id| harness.depth(id) == Some(marked)), "{policy}");
    }
}

#[test]
fn a_fault_is_placed_one_generation_older_since_7_2() {
    for (policy, depth) in [("mglru-7.1", 2), ("mglru", 3), ("mglru-placement", 2)] {
        let mut harness = Harness::of(policy, 64);
        harness.fault(0..31);
        assert!((0..31).all(|id| harness.depth(id) == Some(depth)), "{policy}");
        assert!(
            (0..31).all(|id| !harness.flags(id).contains(Flags::ACTIVE)),
            "insertion consumes the flag"
        );
    }
}

#[test]
fn a_promoted_folio_is_moved_when_the_evictor_meets_it() {
    let mut harness = Harness::of("mglru", 128);
    harness.fault(0..124);
    harness.reclaim(1);
    assert!(harness.events().aging > 0, "everything was young, so reclaim had to age");
    let promoted = |id| harness.resident(id) && harness.flags(id).contains(Flags::WORKINGSET);
    assert!((0..124).any(promoted), "the walk met folios for the second time");
    assert!(
        harness.events().pgrefill > 0,
        "which the evictor then found on a list that they had left"
    );
}

/// I10: aging moves no folio that was not accessed.
#[test]
fn aging_leaves_the_unaccessed_where_they_are() {
    let mut harness = Harness::of("mglru-placement", 128);
    harness.fault(0..93);
    harness.facts.young.fill(false);
    let slots: Vec<_> = (0..93).map(|id| harness.flags(id).generation()).collect();
    let mut reclaim = Reclaim::new(ROOT, 1, Reason::Direct, Task::DESCRIPTOR);
    while harness.events().aging == 0 {
        assert_ne!(harness.step(&mut reclaim), Step::Done);
    }
    let unmoved = (0..93)
        .filter(|&id| harness.resident(id) && harness.flags(id).generation() == slots[id as usize]);
    assert!(unmoved.count() >= 93 - 64, "all but the batch being evicted");
    harness.run(&mut reclaim);
}

#[test]
fn an_aging_that_visits_nothing_still_opens_a_generation() {
    let mut harness = Harness::of("mglru", 64);
    harness.engine.remove_space(lowtide_core::SpaceId(0));
    harness.fault(0..62);
    let steps = harness.reclaim(1);
    assert!(harness.events().aging > 0 && !harness.freed.is_empty(), "{steps:?}");
}

#[test]
fn an_idle_space_is_walked_once() {
    for idle in [false, true] {
        let mut harness = Harness::of("mglru-7.1", 128);
        harness.fault(0..124);
        let mut reclaim = Reclaim::new(ROOT, 1, Reason::Direct, Task::FAULT);
        let (mut walks, mut visits) = (0, 0);
        loop {
            match reclaim.step(&mut harness.engine, &mut harness.facts, 0) {
                Step::Walk => {
                    walks += 1;
                    while let Some(space) = reclaim.age_job().next_space(&mut harness.engine) {
                        harness.engine.set_idle(space, idle);
                        visits += 1;
                    }
                }
                Step::Done => break,
                _ => {}
            }
        }
        assert!(walks >= 2, "everything was young: two generations had to be opened");
        assert_eq!(visits, if idle { 1 } else { walks });
        harness.engine.set_idle(lowtide_core::SpaceId(0), false);
    }
}

#[test]
fn anonymous_memory_without_swap_does_not_stop_aging() {
    for policy in ["mglru", "mglru-7.1"] {
        let mut harness = Harness::of(policy, 128);
        (0..31).for_each(|id| harness.insert(id, 0, LruType::Anon, None, Task::FAULT));
        harness.fault(31..124);
        harness.facts.young.fill(false);
        harness.reclaim(32);
        assert!(harness.events().aging > 0, "{policy}: file memory had run out of old generations");
        assert!(harness.freed.len() >= 32 && (0..31).all(|id| harness.resident(id)), "{policy}");
    }
}

// Budgets and batches.

/// I15, I17, and the numbers of `docs/kernel/reclaim.md` §3.2: with 16,000 pages the passes take 3,
/// 7, 15, 31.
#[test]
fn budgets_are_shifted_and_never_rounded_up() {
    for policy in ["mglru", "mglru-7.1"] {
        let mut harness = Harness::of(policy, 16_000);
        harness.fill(0..15_996);
        harness.reclaim(32);
        assert_eq!(
            (harness.events().pgscan, harness.freed.len()),
            (3 + 7 + 15 + 31, 56),
            "{policy}"
        );
    }
}

#[test]
fn a_group_below_the_shift_is_skipped_until_its_turn() {
    let mut harness = Harness::of("mglru", 4096);
    harness.fill(0..4092);
    harness.reclaim(1);
    assert_eq!(harness.freed.len(), 1, "nothing at priority 12, one page at 11");
}

#[test]
fn a_batch_ends_with_the_first_huge_folio() {
    for policy in ["mglru", "mglru-7.1", "lru"] {
        let mut harness = Harness::of(policy, 16 << 9);
        (0..16).for_each(|n| harness.insert(n << 9, 9, LruType::File, None, Task::DESCRIPTOR));
        harness.reclaim(32);
        assert_eq!(
            harness.freed.len(),
            1,
            "{policy}: one folio of 512 pages is more than the goal"
        );
        assert_eq!(harness.engine.usage(ROOT), 15 << 9);
    }
}

#[test]
fn background_reclaim_never_uses_priority_zero() {
    for (reason, reclaimed) in [(Reason::Direct, 1), (Reason::Kswapd, 0)] {
        let mut harness = Harness::of("mglru", 64);
        harness.fill(0..1);
        let mut reclaim = Reclaim::new(ROOT, 1, reason, Task::DESCRIPTOR);
        harness.run(&mut reclaim);
        assert_eq!(
            reclaim.reclaimed(),
            reclaimed,
            "{reason:?}: one page is below every shift but the last"
        );
    }
}

// Sorting.

#[test]
fn sorting_is_refill_and_not_scan() {
    let mut harness = Harness::of("mglru", 64);
    harness.fill(0..62);
    for _ in 0..6 {
        (0..10).for_each(|id| harness.read(id));
    }
    harness.reclaim(1000);
    let e = harness.events();
    assert!((10..62).all(|id| !harness.resident(id)));
    assert_eq!(e.pgsteal, e.pgscan, "what was isolated was freed");
    assert!(e.pgrefill >= 10, "the ten that were read often were sorted");
}

#[test]
fn saturated_folios_are_sorted_but_not_counted_as_protected() {
    let mut harness = Harness::of("mglru", 64);
    harness.fill(0..31);
    for _ in 0..5 {
        harness.read(0);
    }
    assert_eq!(harness.depth(0), Some(4));
    harness.reclaim(1);
    assert!(harness.depth(0) < Some(4), "moved up");
    assert_eq!((harness.events().pgrefill, harness.events().protected), (1, 0));
    assert_eq!(
        (harness.flags(0).refs(), harness.flags(0).tier()),
        (0, 3),
        "counting starts again, for good in tier 3"
    );
}

#[test]
fn an_unevictable_folio_is_culled_even_if_it_was_promoted() {
    for policy in ["mglru", "mglru-7.1", "mglru-unevictable"] {
        let mut harness = Harness::of(policy, 64);
        harness.fault(0..62);
        harness.engine.set_unevictable(FolioId(5), true);
        harness.reclaim(62);
        harness.facts.young.fill(false);
        harness.reclaim(62);
        assert!(harness.flags(5).contains(Flags::CULLED) && harness.depth(5).is_none(), "{policy}");
        assert_eq!(harness.engine.stat(ROOT).unevictable, 1);
        harness.engine.set_unevictable(FolioId(5), false);
        assert!(harness.depth(5).is_some(), "{policy}: it comes back at once");
    }
}

#[test]
fn an_unevictable_folio_is_culled_before_anything_else_is_asked_of_it() {
    for policy in ["mglru", "mglru-7.1"] {
        let mut harness = Harness::of(policy, 64);
        harness.fill(0..31);
        // Saturated: an evictable folio would be moved up instead.
        (0..5).for_each(|_| harness.read(0));
        harness.engine.set_unevictable(FolioId(0), true);
        harness.reclaim(1);
        assert!(harness.flags(0).contains(Flags::CULLED), "{policy}: at the first meeting");
    }
}

#[test]
fn a_clean_reject_is_tried_exactly_once_more() {
    let mut harness = Harness::of("mglru", 64);
    harness.fill(0..62);
    harness.facts.locked.fill(true);
    let mut reclaim = Reclaim::new(ROOT, 1, Reason::Direct, Task::DESCRIPTOR);
    harness.run(&mut reclaim);
    assert_eq!(reclaim.reclaimed(), 0);
    assert_eq!(harness.facts.judged.len() as u64, 2 * harness.events().pgscan);
}

#[test]
fn a_folio_that_the_driver_drops_leaves_no_trace() {
    let mut harness = Harness::of("mglru", 64);
    harness.fill(0..40);
    assert!((0..40).all(|id| harness.engine.remove(FolioId(id))), "on a list or waiting for one");
    assert_eq!((harness.engine.usage(ROOT), harness.events().pgsteal), (0, 0));
    harness.engine.validate().unwrap();
}

// Dirty folios and throttling.

#[test]
fn congestion_needs_a_second_encounter() {
    for (policy, napping) in
        [("mglru", true), ("lru", true), ("mglru-S15", false), ("mglru-S10", false)]
    {
        let mut harness = Harness::of(policy, 64);
        harness.fill(0..62);
        harness.dirty(0..62, true);
        let mut reclaim = Reclaim::new(ROOT, 32, Reason::Direct, Task::DESCRIPTOR);
        let mut steps = Vec::new();
        while naps(&steps) == 0 && steps.last() != Some(&Step::Done) {
            steps.push(harness.step(&mut reclaim));
        }
        assert_eq!(naps(&steps) > 0, napping, "{policy}");
        // Passes of 1, 3, 7, 15 and 31 meet every folio for the first time.
        assert!(
            !napping || harness.facts.judged.len() > 57,
            "{policy}: napped after {:?}",
            harness.facts.judged
        );
        harness.run(&mut reclaim);
    }
}

#[test]
fn no_reclaimer_sleeps_while_most_of_memory_is_clean() {
    let mut harness = Harness::of("mglru", 128);
    harness.fill(0..124);
    harness.dirty(0..40, true);
    harness.facts.locked[40..].fill(true);
    let steps = harness.reclaim(32);
    assert_eq!(naps(&steps), 0);
    assert!(steps.contains(&Step::Yield), "congested all the same");
}

/// I22, for the batches of 1, 2, 4, … folios that a pass takes from 124: each begins with the folio
/// that the last ended before.
#[test]
fn one_clean_page_in_the_batch_keeps_the_flusher_asleep() {
    let before_aging = |harness: &mut Harness| {
        let mut reclaim = Reclaim::new(ROOT, 32, Reason::Direct, Task::DESCRIPTOR);
        let mut steps = Vec::new();
        while !matches!(steps.last(), Some(Step::Walk | Step::Done)) {
            steps.push(harness.step(&mut reclaim));
        }
        harness.run(&mut reclaim);
        wakes(&steps)
    };
    let dirty = |clean: &[u32]| {
        let mut harness = Harness::of("mglru", 128);
        harness.fill(0..124);
        for id in (0..124).filter(|id| !clean.contains(id)) {
            harness.dirty(id..id + 1, false);
        }
        clean.iter().for_each(|&id| harness.facts.locked[id as usize] = true);
        harness
    };
    assert!(before_aging(&mut dirty(&[])) >= 6, "every batch is dirty to the last page");
    // 124 >> 6, 5, 4, … : passes of 1, 3, 7, 15, 31, 62, and the rest.
    assert_eq!(before_aging(&mut dirty(&[0, 1, 4, 11, 26, 57, 119])), 0);
}

/// Policies that wake at the end of a pass: 7.1 itself, with dirty folios isolated, and the newest
/// without S11.
const WAKE_AT_THE_END: [&str; 3] = ["mglru-7.1", "mglru-7.1+S10", "mglru-S11"];

/// A harness on which a pass of priority 12 scans 4 pages, the next 8, and so on.
fn sixteen_thousand_pages(policy: &str, dirty: impl Iterator<Item = u32>) -> Harness {
    let mut harness = Harness::of(policy, 16_384);
    harness.fill(0..16_384);
    dirty.for_each(|id| harness.dirty(id..id + 1, false));
    harness
}

#[test]
fn one_clean_page_in_the_pass_keeps_7_1s_flusher_asleep() {
    for policy in WAKE_AT_THE_END {
        for clean in 0..4 {
            let mut harness = sixteen_thousand_pages(policy, (0..4).filter(|&id| id != clean));
            assert_eq!(
                wakes(&harness.reclaim(1)),
                0,
                "{policy}: page {clean} is clean, three are dirty"
            );
            assert!(!harness.resident(clean), "{policy}: reclaim took the clean page");
        }
    }
}

#[test]
fn a_pass_that_meets_dirty_pages_only_wakes_7_1s_flusher() {
    for policy in WAKE_AT_THE_END {
        let mut harness = sixteen_thousand_pages(policy, 0..4);
        assert_eq!(
            wakes(&harness.reclaim(1)),
            1,
            "{policy}: once, at the end of the pass that met them"
        );
        let mut harness = sixteen_thousand_pages(policy, 0..4);
        assert!(harness.engine.start_writeback(FolioId(3)) && harness.engine.set_dirty(FolioId(3)));
        assert_eq!(
            wakes(&harness.reclaim(1)),
            0,
            "{policy}: the flusher is at one of them already"
        );
    }
}

/// The passes of priority 12 to 8 wake; that of priority 7 takes clean pages in its first batch,
/// dirty ones in its second.
#[test]
fn a_clean_page_counts_for_the_whole_pass_in_7_1_and_for_its_batch_since_s11() {
    for (policy, wake) in [("mglru-7.1", 5), ("mglru-7.1+S10", 5), ("mglru-7.1+S10+S11", 6)] {
        let clean = 124..188;
        let mut harness = sixteen_thousand_pages(policy, (0..252).filter(|id| !clean.contains(id)));
        // They are isolated and kept, so that the pass goes on.
        clean.clone().for_each(|id| harness.facts.locked[id as usize] = true);
        assert_eq!(wakes(&harness.reclaim(1)), wake, "{policy}");
    }
}

/// I23: the end of a write moves a folio that reclaim waited for to the very end, ahead of
/// everything clean.
#[test]
fn a_folio_whose_write_ended_is_the_next_to_go() {
    for policy in ["mglru", "mglru-7.1", "lru"] {
        let mut harness = Harness::of(policy, 128);
        harness.fill(0..124);
        harness.dirty(0..1, true);
        harness.reclaim(1);
        let gone = harness.freed.len();
        assert!(harness.resident(0) && gone > 0, "{policy}: unwritten data stays");
        assert!(harness.flags(0).contains(Flags::RECLAIM), "{policy}");
        harness.engine.end_writeback(FolioId(0), true, Task::DESCRIPTOR);
        assert!(!harness.flags(0).contains(Flags::RECLAIM), "{policy}");
        harness.reclaim(1);
        assert_eq!(harness.freed[gone].0, FolioId(0), "{policy}");
        assert_eq!(harness.events().pgrotated, 1, "{policy}");
    }
}

#[test]
fn only_the_classical_lists_wait_for_isolated_pages() {
    for (policy, waiting) in [("lru", true), ("mglru", false)] {
        let mut harness = Harness::of(policy, 256);
        harness.fill(0..248);
        let hold = |harness: &mut Harness| {
            // Goals that keep a reclaim going until it has a full batch, and then it is left alone
            // with it.
            let mut reclaim = Reclaim::new(ROOT, 1000, Reason::Direct, Task::DESCRIPTOR);
            loop {
                let step = reclaim.step(&mut harness.engine, &mut harness.facts, 0);
                if step != Step::Unmap || reclaim.victims().len() >= 31 {
                    return (reclaim, step);
                }
                // No folio can be unmapped: all are kept.
            }
        };
        let mut held: Vec<_> = (0..3).map(|_| hold(&mut harness)).collect();
        let throttled = held
            .iter()
            .any(|(_, s)| matches!(s, Step::Throttle(ThrottleReason::Isolated, 20_000_000)));
        assert_eq!(throttled, waiting, "{policy}");
        held.iter_mut().for_each(|(reclaim, _)| drop(harness.run(reclaim)));
    }
}

// The classical lists, and swappiness.

#[test]
fn deactivation_is_forced_when_nothing_else_was_found() {
    let mut harness = Harness::of("lru", 128);
    harness.fill(0..124);
    for _ in 0..2 {
        (0..124).for_each(|id| harness.read(id));
    }
    // Nothing has been published, so nothing may be deactivated, and everything is active.
    let mut reclaim = Reclaim::new(ROOT, 32, Reason::Direct, Task::DESCRIPTOR);
    harness.run(&mut reclaim);
    assert!(reclaim.reclaimed() > 0 && harness.events().pgdeactivate > 0);
}

#[test]
fn the_active_list_gives_back_referenced_folios_too() {
    let mut harness = Harness::of("lru", 128);
    harness.fill(0..124);
    for _ in 0..2 {
        (0..124).for_each(|id| harness.read(id));
    }
    (0..124).for_each(|id| harness.map_young(id));
    harness.facts.exec[..62].fill(true);
    let mut reclaim = Reclaim::new(ROOT, 1, Reason::Direct, Task::DESCRIPTOR);
    let first_victims =
        (0..1000).map(|_| harness.step(&mut reclaim)).find(|step| *step == Step::Unmap);
    assert!(first_victims.is_some(), "deactivated folios become victims");
    let deactivated = |id| harness.resident(id) && harness.flags(id).contains(Flags::WORKINGSET);
    assert!(harness.events().pgdeactivate > 0);
    assert!((62..124).any(deactivated), "referenced, and deactivated into the workingset");
    assert!((0..62).all(|id| !deactivated(id)), "referenced program text stays active");
    harness.run(&mut reclaim);
}

#[test]
fn anon_only_without_swap_reclaims_nothing_since_7_3() {
    for (policy, reclaims) in [
        ("mglru", false),
        ("lru", false),
        ("mglru-anononly", true),
        ("mglru-7.1", true),
        ("lru-anononly", true),
    ] {
        let mut harness = Harness::of(policy, 64);
        harness.fill(0..62);
        harness.engine.set_swappiness(ROOT, 201);
        harness.reclaim(1);
        assert_eq!(!harness.freed.is_empty(), reclaims, "{policy}");
        assert_eq!(harness.events().pgscan > 0, reclaims, "{policy}");
    }
}
