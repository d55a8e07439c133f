//! What a user of swap relies on: nothing is lost, slots are neither leaked nor wasted, and pages
//! come back the way the kernel's do.
//!
//! Source: `docs/kernel/reclaim.md` §2.2, 2.3, 4.1, 7.5; `docs/kernel/fault-and-writeback.md` A7
//! and C3. The same promises under random operations: `properties.rs`; on a whole machine:
//! `swap.rs` of lowtide-sim.

use crate::harness::{Harness, ROOT};
use lowtide_core::{
    Flags, FolioId, LruType, MemcgId, Reason, Reclaim, Shadow, Step, Swap, SwapTooSmall, Task,
    Unmapped,
};

const POLICIES: [&str; 3] = ["mglru", "mglru-7.1", "lru"];

/// A harness with 124 pages of heap, all of them old enough to go, and swap for `slots` pages.
fn heap(policy: &str, slots: u64, synchronous: bool) -> Harness {
    let mut harness = Harness::of(policy, 128);
    harness.swap(slots, synchronous);
    harness.heap(0..124);
    harness
}

/// Reclaims until some page is being written to swap, or is written. Returns those pages.
fn swap_out(harness: &mut Harness) -> Vec<u32> {
    harness.reclaim(1);
    let ids: Vec<_> = (0..124).filter(|&id| !harness.facts.mapped[id as usize]).collect();
    assert!(!ids.is_empty(), "something was taken");
    ids
}

fn end_writes(harness: &mut Harness, ids: &[u32], written: bool) {
    ids.iter().for_each(|&id| harness.engine.end_writeback(FolioId(id), written, Task::FAULT));
}

/// A task that may not begin I/O frees what is clean already, and gets nothing else written.
#[test]
fn a_task_that_may_not_begin_io_writes_nothing_to_swap() {
    for policy in POLICIES {
        let mut harness = heap(policy, 1000, false);
        let all =
            harness.run(&mut Reclaim::new(ROOT, 32, Reason::Direct, Task::FAULT).without_io());
        assert!(!all.contains(&Step::Unmap), "{policy}: no victim would be without a write");
        assert_eq!(harness.engine.stat(ROOT).events.pswpout, 0, "{policy}");
        let writing = swap_out(&mut harness);
        end_writes(&mut harness, &writing, true);
        harness.run(&mut Reclaim::new(ROOT, 1, Reason::Direct, Task::FAULT).without_io());
        let freed: Vec<u32> = harness.freed.iter().map(|(id, _)| id.0).collect();
        assert!(!freed.is_empty() && freed.iter().all(|id| writing.contains(id)), "{policy}");
        harness.engine.validate().unwrap();
    }
}

/// Swaps pages out for good. Returns them with their shadows.
fn swapped_out(harness: &mut Harness) -> Vec<(u32, Shadow)> {
    while harness.freed.is_empty() {
        let writing: Vec<_> = (0..124)
            .filter(|&id| harness.resident(id) && harness.flags(id).contains(Flags::WRITEBACK))
            .collect();
        end_writes(harness, &writing, true);
        harness.reclaim(1);
    }
    std::mem::take(&mut harness.freed).into_iter().map(|(id, shadow)| (id.0, shadow)).collect()
}

#[test]
fn a_page_leaves_memory_when_its_write_has_ended_and_not_before() {
    for policy in POLICIES {
        let mut harness = heap(policy, 1000, false);
        let writing = swap_out(&mut harness);
        assert!(harness.freed.is_empty(), "{policy}: nothing was written yet");
        for &id in &writing {
            let expected = Flags::WRITEBACK | Flags::RECLAIM | Flags::SWAPCACHE | Flags::SWAPPED;
            assert!(harness.flags(id).contains(expected), "{policy}: {:?}", harness.flags(id));
        }
        let taken = writing.len() as u64;
        let stat = harness.engine.stat(ROOT);
        assert_eq!((stat.events.pswpout, stat.file_writeback), (taken, taken), "{policy}");
        assert_eq!(
            (stat.anon, stat.file, stat.swapcached),
            (124 - taken, 0, taken),
            "in neither: {policy}"
        );

        end_writes(&mut harness, &writing, true);
        harness.reclaim(1);
        // The batch was put back oldest first, each to the young end; rotation, in the order in
        // which writes ended, turns that round.
        let first = harness.freed[0].0.0;
        assert!(writing.contains(&first), "{policy}: what is written goes first");
        assert_eq!(harness.events().pgrotated, taken, "{policy}");
        assert!(harness.engine.free_swap_pages() < 1000 && !harness.resident(first), "{policy}");
    }
}

#[test]
fn synchronous_swap_frees_in_the_same_batch_and_keeps_no_second_copy() {
    for policy in POLICIES {
        let mut harness = heap(policy, 1000, true);
        harness.reclaim(1);
        let gone = harness.freed.len() as u64;
        assert!(gone > 0, "{policy}");
        assert_eq!(
            (harness.events().pswpout, harness.engine.stat(ROOT).swapcached),
            (gone, 0),
            "{policy}"
        );
        assert_eq!(harness.engine.free_swap_pages(), 1000 - gone, "{policy}");
        let (id, shadow) = harness.freed[0];
        assert!(harness.swap_in(id.0, Some(shadow), false), "{policy}: a load gives the slot up");
        assert_eq!(harness.engine.free_swap_pages(), 1001 - gone, "{policy}");
        let e = harness.events();
        assert_eq!(
            (e.pswpin, e.workingset_refault_anon, e.workingset_refault_file),
            (1, 1, 0),
            "{policy}"
        );
        assert!(harness.flags(id.0).contains(Flags::DIRTY), "{policy}: memory has the only copy");
    }
}

#[test]
fn what_is_only_read_again_keeps_its_slot_and_is_not_written_again() {
    for policy in POLICIES {
        let mut harness = heap(policy, 1000, false);
        let gone = swapped_out(&mut harness);
        let (id, shadow) = gone[0];
        assert!(!harness.swap_in(id, Some(shadow), false), "{policy}: a load keeps the slot");
        assert!(!harness.flags(id).intersects(Flags::DIRTY | Flags::SWAPPED), "{policy}");
        let written = harness.events().pswpout;
        // Reclaim with the others out of reach.
        (0..124).filter(|&n| n != id).for_each(|n| harness.facts.locked[n as usize] = true);
        harness.reclaim(64);
        assert!(!harness.resident(id), "{policy}");
        assert_eq!(harness.events().pswpout, written, "{policy}: swap had it already");
    }
}

#[test]
fn a_store_gives_the_slot_up_unless_it_is_being_written() {
    for policy in POLICIES {
        let mut harness = heap(policy, 1000, false);
        let (id, shadow) = swapped_out(&mut harness)[0];
        let free = harness.engine.free_swap_pages();
        assert!(harness.swap_in(id, Some(shadow), true), "{policy}");
        assert_eq!(harness.engine.free_swap_pages(), free + 1, "{policy}");
        assert!(
            harness.flags(id).contains(Flags::DIRTY)
                && !harness.flags(id).contains(Flags::SWAPCACHE)
        );

        let mut harness = heap(policy, 1000, false);
        let writing = swap_out(&mut harness)[0];
        assert!(
            !harness.swap_fault(writing, true),
            "{policy}: the device still reads from the folio"
        );
        assert!(!harness.flags(writing).contains(Flags::SWAPPED), "{policy}: but it is mapped");
        end_writes(&mut harness, &[writing], true);
        assert!(
            !harness.flags(writing).contains(Flags::DIRTY),
            "{policy}: the mapping alone knows of the store"
        );
    }
}

#[test]
fn a_failed_write_keeps_the_page_and_is_tried_again() {
    for policy in POLICIES {
        let mut harness = heap(policy, 1000, false);
        let writing = swap_out(&mut harness);
        end_writes(&mut harness, &writing, false);
        assert!(writing.iter().all(|&id| harness.flags(id).contains(Flags::DIRTY)), "{policy}");
        let before = harness.events().pswpout;
        for _ in 0..8 {
            harness.engine.publish();
            harness.reclaim(64);
        }
        let again =
            |id: &&u32| harness.resident(**id) && harness.flags(**id).contains(Flags::WRITEBACK);
        assert!(harness.events().pswpout > before, "{policy}");
        assert_eq!(
            writing.iter().filter(again).count(),
            writing.len(),
            "{policy}: written again, not freed"
        );
    }
}

/// `docs/kernel/reclaim.md` §9, 22: it is counted as writeback, but no thread is woken or sleeps
/// for it.
#[test]
fn writes_to_swap_are_no_congestion() {
    for policy in POLICIES {
        let mut harness = heap(policy, 1000, false);
        let steps: Vec<_> = (0..8).flat_map(|_| harness.reclaim(64)).collect();
        assert!(
            harness.engine.stat(ROOT).file_writeback > 62,
            "{policy}: most of memory is being written"
        );
        let for_files = |s: &&Step| matches!(s, Step::WakeFlushers | Step::Throttle(..));
        assert_eq!(steps.iter().find(for_files), None, "{policy}");
    }
}

#[test]
fn a_failed_read_leaves_the_page_in_swap() {
    let mut harness = heap("mglru", 1000, false);
    let (id, shadow) = swapped_out(&mut harness)[0];
    let free = harness.engine.free_swap_pages();
    harness.engine.try_charge(ROOT, 1).unwrap();
    let owner = lowtide_core::Owner { space: lowtide_core::SpaceId(0), page: u64::from(id) };
    harness.engine.swap_in(FolioId(id), owner, 0, ROOT, Some(shadow), Task::FAULT);
    assert!(harness.engine.swap_in_failed(FolioId(id)));
    assert_eq!((harness.engine.free_swap_pages(), harness.resident(id)), (free, false));
    harness.engine.validate().unwrap();
    assert!(harness.swap_in(id, Some(shadow), true), "it can be had later");
}

#[test]
fn dropping_pages_frees_their_slots() {
    let mut harness = heap("mglru", 1000, false);
    let gone = swapped_out(&mut harness);
    harness.engine.free_swap(MemcgId::ROOT, gone.len() as u64 - 1);
    let (id, shadow) = gone[0];
    assert!(!harness.swap_in(id, Some(shadow), false));
    assert!(harness.engine.remove(FolioId(id)), "a page in memory takes its slot with it");
    let held = (0..124)
        .filter(|&n| harness.resident(n) && harness.flags(n).contains(Flags::SWAPCACHE))
        .count();
    assert_eq!(harness.engine.free_swap_pages(), 1000 - held as u64);
    harness.engine.validate().unwrap();
}

#[test]
fn without_a_free_slot_a_page_stays() {
    let mut harness = heap("lru", 3, true);
    harness.reclaim(64);
    assert_eq!(
        (harness.freed.len(), harness.engine.free_swap_pages()),
        (3, 0),
        "as many as there are slots"
    );
    let mut harness = heap("mglru", 63, true);
    harness.reclaim(64);
    assert!(
        harness.freed.is_empty(),
        "generations leave the heap alone when fewer than 64 slots are free"
    );
}

#[test]
fn when_swap_is_more_than_half_full_slots_are_given_up() {
    for full in [false, true] {
        let mut harness = heap("lru", 1000, false);
        let gone = swapped_out(&mut harness);
        let [by_fault, by_reclaim] = [0, 1].map(|n| gone[n].0);
        assert!(!harness.swap_in(by_reclaim, None, false), "slots are plenty");
        // From now on only this page is within reach.
        harness.facts.locked.fill(true);
        harness.facts.locked[by_reclaim as usize] = false;
        let used = 1000 - harness.engine.free_swap_pages();
        harness.swap(if full { used * 2 - 4 } else { used * 2 }, false);
        assert_eq!(harness.swap_in(by_fault, None, false), full, "a fault maps it");
        let mut reclaim = Reclaim::new(ROOT, 64, Reason::Direct, Task::FAULT);
        loop {
            match reclaim.step(&mut harness.engine, &mut harness.facts, 0) {
                Step::Unmap => {
                    reclaim.victims().iter_mut().for_each(|v| v.outcome = Unmapped::Pinned);
                }
                Step::Done => break,
                _ => {}
            }
        }
        assert_eq!(
            harness.facts.given_up,
            if full { vec![FolioId(by_reclaim)] } else { vec![] },
            "activated"
        );
        assert_eq!(harness.flags(by_reclaim).contains(Flags::SWAPCACHE), !full);
    }
}

/// `docs/kernel/reclaim.md` §2.3: the table of placements.
#[test]
fn pages_from_swap_are_placed_one_generation_older_since_7_2() {
    for (policy, back) in [("mglru-7.1", 2), ("mglru", 3)] {
        for store in [false, true] {
            let mut harness = Harness::of(policy, 192);
            harness.swap(1000, false);
            harness.heap(0..124);
            assert_eq!(harness.depth(0), Some(2), "{policy}: at its first touch");
            let (id, _) = swapped_out(&mut harness)[0];
            harness.swap_in(id, None, store);
            assert_eq!(
                harness.depth(id).is_some(),
                store,
                "{policy}: a store flushes the batch first"
            );
            harness.fill(124..154);
            assert_eq!(
                harness.depth(id),
                Some(back),
                "{policy}: placed as a page of the swap cache"
            );
        }
    }
}

#[test]
fn a_large_folio_has_a_slot_for_each_of_its_pages() {
    let mut harness = Harness::of("lru", 64);
    harness.swap(6, true);
    (0..2).for_each(|n| harness.insert(n * 4, 2, LruType::Anon, None, Task::FAULT));
    harness.reclaim(64);
    assert_eq!(
        (harness.freed.len(), harness.engine.free_swap_pages()),
        (1, 2),
        "two slots are too few for four pages"
    );
    assert_eq!(harness.events().pswpout, 4);
    harness.engine.free_swap(MemcgId::ROOT, 4);
    assert_eq!(harness.engine.free_swap_pages(), 6);
}

#[test]
fn swap_cannot_be_made_smaller_than_what_is_in_it() {
    let mut harness = heap("mglru", 1000, true);
    harness.reclaim(1);
    let used = 1000 - harness.engine.free_swap_pages();
    let small = Swap { pages: used - 1, synchronous: true };
    let error = harness.engine.set_swap(small).unwrap_err();
    assert_eq!(error, SwapTooSmall { pages: used - 1, used });
    assert!(error.to_string().contains("read pages in"), "{error}");
    assert_eq!(harness.engine.free_swap_pages(), 1000 - used, "nothing was changed");
    harness.engine.set_swap(Swap { pages: used, synchronous: true }).unwrap();
}
