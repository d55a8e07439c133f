//! Memory that is freed lazily goes without a write, and stays if it is stored to.
//!
//! Source: `docs/kernel/reclaim.md` §2.3, 4.1 and §9, 44; madvise(2). The same under random
//! operations: `properties.rs`, and on a whole machine the swarm.

use crate::harness::{Harness, ROOT};
use lowtide_core::{Flags, FolioId, Reason, Reclaim, Step, Task, Unmapped};

const POLICIES: [&str; 4] = ["mglru", "mglru-7.1", "lru", "tide"];

/// Pages of heap, and other pages of it or of a file beside them, all on their lists.
fn memory(policy: &str, slots: u64) -> Harness {
    let mut harness = Harness::of(policy, 256);
    if slots > 0 {
        harness.swap(slots, true);
    }
    harness.heap(0..62);
    harness.fill(62..124);
    harness
}

fn free(harness: &mut Harness, pages: std::ops::Range<u32>) {
    for id in pages {
        harness.facts.young[id as usize] = false;
        assert!(harness.engine.free_lazily(FolioId(id), Task::FAULT), "page {id}");
    }
    harness.engine.validate().unwrap();
}

#[test]
fn it_moves_to_the_lists_of_files_and_counts_as_anonymous() {
    for policy in POLICIES {
        let mut harness = memory(policy, 0);
        let lists = |harness: &Harness| {
            let stat = harness.engine.stat(ROOT);
            let anon = stat.inactive_anon + stat.active_anon;
            (anon, stat.inactive_file + stat.active_file, stat.anon, stat.file)
        };
        free(&mut harness, 0..31);
        assert_eq!(lists(&harness), (31, 93, 62, 62), "{policy}");
        let stat = harness.engine.stat(ROOT);
        assert_eq!((stat.events.pglazyfree, stat.events.pglazyfreed), (31, 0), "{policy}");
        assert!(!harness.engine.free_lazily(FolioId(3), Task::FAULT), "{policy}: it is already");
        assert!(!harness.engine.free_lazily(FolioId(99), Task::FAULT), "{policy}: of a file");
        // The program stores to one, and the driver learns of it at once.
        assert!(harness.engine.set_dirty(FolioId(3)), "{policy}");
        assert_eq!(lists(&harness), (32, 92, 62, 62), "{policy}");
        assert!(!harness.flags(3).contains(Flags::LAZYFREE), "{policy}");
        assert!(harness.engine.remove(FolioId(4)) && harness.engine.remove(FolioId(5)), "{policy}");
        harness.engine.validate().unwrap();
        assert_eq!(lists(&harness), (32, 90, 60, 62), "{policy}");
    }
}

#[test]
fn it_goes_without_swap_and_without_a_write() {
    for policy in POLICIES {
        let mut harness = memory(policy, 0);
        free(&mut harness, 10..42);
        (62..124).for_each(|id| harness.facts.locked[id as usize] = true);
        harness.reclaim(32);
        let mut dropped: Vec<_> = harness.dropped.iter().map(|id| id.0).collect();
        dropped.sort_unstable();
        assert_eq!(dropped, (10..42).collect::<Vec<_>>(), "{policy}");
        assert!(harness.freed.is_empty(), "{policy}: nothing of it is remembered");
        let stat = harness.engine.stat(ROOT);
        let e = stat.events;
        assert_eq!((e.pglazyfreed, e.pswpout, e.pgsteal), (32, 0, 32), "{policy}");
        assert_eq!((stat.anon, stat.file), (30, 62), "{policy}");
    }
}

#[test]
fn a_store_that_only_the_translation_knows_keeps_it_when_it_is_to_go() {
    for policy in POLICIES {
        let mut harness = memory(policy, 1000);
        free(&mut harness, 0..16);
        (16..124).for_each(|id| harness.facts.locked[id as usize] = true);
        let mut reclaim = Reclaim::new(ROOT, 16, Reason::Direct, Task::FAULT);
        let mut stored = Vec::new();
        while stored.is_empty() {
            match reclaim.step(&mut harness.engine, &mut harness.facts, 0) {
                Step::Walk => harness.walk(reclaim.age_job()),
                Step::Unmap => {
                    for victim in reclaim.victims() {
                        assert!(!victim.to_swap, "{policy}");
                        // Every second was stored to.
                        victim.outcome = Unmapped::Done;
                        if victim.folio.0.is_multiple_of(2) {
                            harness.engine.set_dirty(victim.folio);
                            victim.outcome = Unmapped::Raced;
                            stored.push(victim.folio.0);
                        }
                    }
                }
                Step::Done => panic!("{policy}: none was met"),
                _ => {}
            }
        }
        while reclaim.step(&mut harness.engine, &mut harness.facts, 0) == Step::Freed {}
        harness.engine.validate().unwrap();
        for id in stored {
            let flags = harness.flags(id);
            assert!(flags.contains(Flags::ANON) && !flags.contains(Flags::LAZYFREE), "{policy}");
        }
        assert!(harness.events().pglazyfreed > 0 && harness.events().pswpout == 0, "{policy}");
    }
}

#[test]
fn a_slot_that_it_has_is_free_from_then_on() {
    for policy in POLICIES {
        let mut harness = Harness::of(policy, 128);
        harness.swap(1000, false);
        harness.heap(0..124);
        harness.reclaim(1);
        let gone = (0..124).find(|&id| harness.flags(id).contains(Flags::SWAPPED)).unwrap();
        // It is being written: it stays.
        harness.swap_fault(gone, false);
        assert!(!harness.engine.free_lazily(FolioId(gone), Task::FAULT), "{policy}");
        harness.engine.end_writeback(FolioId(gone), true, Task::FAULT);
        let free = harness.engine.free_swap_pages();
        assert!(harness.engine.free_lazily(FolioId(gone), Task::FAULT), "{policy}");
        assert_eq!(harness.engine.free_swap_pages(), free + 1, "{policy}");
        assert!(!harness.flags(gone).intersects(Flags::SWAPCACHE | Flags::DIRTY), "{policy}");
        harness.engine.validate().unwrap();
    }
}
