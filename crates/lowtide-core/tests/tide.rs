//! The rules of `tide`, each on a memory arranged by hand.

use crate::harness::{Harness, ROOT};
use lowtide_core::{Flags, FolioId, LruType, Policy, Reason, Reclaim, Shadow, Step, Task};

const PAGES: u32 = 256;

/// A full memory of file pages, none of them young: SMALL has a twentieth.
fn full() -> Harness {
    let mut h = Harness::new(Policy::TIDE, PAGES);
    h.fill(0..PAGES);
    h
}

/// Evicts one page, and says which it was.
fn evict(h: &mut Harness) -> (u32, Shadow) {
    let before = h.freed.len();
    h.reclaim(1);
    assert_eq!(h.freed.len(), before + 1, "a goal of one page frees one page");
    let (id, shadow) = h.freed[before];
    (id.0, shadow)
}

fn come_back(h: &mut Harness, (id, shadow): (u32, Shadow)) {
    h.insert(id, 0, LruType::File, Some(shadow), Task::FAULT);
}

/// Pages of SMALL and of MAIN.
fn sizes(h: &Harness) -> (u64, u64) {
    let stat = h.engine.stat(ROOT);
    (stat.inactive_file, stat.active_file)
}

#[test]
fn the_first_fill_gives_small_a_twentieth() {
    let (small, main) = sizes(&full());
    assert_eq!(small + main, u64::from(PAGES));
    assert!((12..=16).contains(&small), "{small}");
}

#[test]
fn a_scan_passes_through_small_and_main_stays() {
    let mut h = full();
    let (_, main) = sizes(&h);
    for _ in 0..2 * PAGES {
        let (id, _) = evict(&mut h);
        h.insert(id, 0, LruType::File, None, Task::FAULT);
    }
    assert_eq!(sizes(&h).1, main);
    assert_eq!(h.events().workingset_activate_file, 0);
}

#[test]
fn a_page_that_was_away_for_a_short_time_takes_the_place_of_an_idle_one() {
    let mut h = full();
    // A page that has just passed through SMALL.
    let mut gone = Vec::new();
    for _ in 0..40 {
        gone.push(evict(&mut h));
        let id = gone[gone.len() - 1].0;
        h.insert(id, 0, LruType::File, None, Task::FAULT);
    }
    let last = evict(&mut h);
    let (_, main) = sizes(&h);
    come_back(&mut h, last);
    assert_eq!(h.events().workingset_activate_file, 0, "an insertion only notes it");
    let (idle, _) = evict(&mut h);
    assert_eq!(h.events().workingset_activate_file, 1);
    assert_eq!(sizes(&h).1, main, "one came and one went");
    assert!(h.resident(last.0) && idle != last.0);
    assert!(!gone.iter().any(|(id, _)| *id == idle), "it had been in MAIN from the first fill on");
}

#[test]
fn a_page_that_was_away_for_longer_than_any_is_idle_changes_nothing() {
    let mut h = full();
    // It was used before every page of MAIN.
    let first = evict(&mut h);
    let (small, main) = sizes(&h);
    come_back(&mut h, first);
    let (victim, _) = evict(&mut h);
    assert_eq!(h.events().workingset_activate_file, 0);
    assert_eq!(sizes(&h), (small, main));
    assert_ne!(victim, first.0, "it is the youngest of SMALL");
}

#[test]
fn a_page_of_main_that_is_in_use_is_spared_by_the_hand() {
    let mut h = full();
    for _ in 0..40 {
        let (id, _) = evict(&mut h);
        h.insert(id, 0, LruType::File, None, Task::FAULT);
    }
    let last = evict(&mut h);
    // All is in use but one: that one goes, if the hand comes so far, and otherwise none of MAIN.
    for id in 0..PAGES {
        if h.resident(id) {
            h.read(id);
            h.read(id);
        }
    }
    come_back(&mut h, last);
    evict(&mut h);
    assert_eq!(h.events().workingset_activate_file, 0);
}

#[test]
fn a_dirty_page_stays_in_its_queue_and_goes_when_it_is_written() {
    let mut h = full();
    let (first, _) = evict(&mut h);
    h.insert(first, 0, LruType::File, None, Task::FAULT);
    let (small, main) = sizes(&h);
    // The next victim, found by a dry run on a memory of the same history.
    let next = {
        let mut same = full();
        let (id, _) = evict(&mut same);
        same.insert(id, 0, LruType::File, None, Task::FAULT);
        evict(&mut same).0
    };
    h.dirty(next..next + 1, false);
    let (other, _) = evict(&mut h);
    assert_ne!(other, next);
    h.insert(other, 0, LruType::File, None, Task::FAULT);
    assert_eq!(sizes(&h), (small, main));
    assert!(h.flags(next).contains(Flags::DIRTY | Flags::RECLAIM));
    assert!(h.engine.start_writeback(FolioId(next)));
    h.engine.end_writeback(FolioId(next), true, Task::FAULT);
    assert_eq!(evict(&mut h).0, next, "it is at the end of SMALL");
}

#[test]
fn clean_pages_are_found_wherever_they_are() {
    for clean in [0, 5, 100, 255] {
        let mut h = full();
        h.dirty(0..clean, false);
        h.dirty(clean + 1..PAGES, false);
        assert_eq!(evict(&mut h).0, clean);
    }
}

/// While no reclaim runs, new pages gather in the young part of SMALL. The first reclaim passes
/// most of them to the old part, and the driver's lock must not be held for all of them.
#[test]
fn a_step_of_reclaim_looks_at_a_bounded_number_of_pages() {
    const MANY: u32 = 16 << 10;
    let mut h = Harness::new(Policy::TIDE, 2 * MANY);
    h.fill(0..MANY);
    evict(&mut h);
    h.fill(MANY..2 * MANY);
    let mut reclaim = Reclaim::new(ROOT, 32, Reason::Direct, Task::DESCRIPTOR).sharing_the_lock();
    let (mut most, mut steps) = (0, 0);
    loop {
        let before = h.events().pgrefill;
        let step = h.step(&mut reclaim);
        most = (h.events().pgrefill - before).max(most);
        steps += 1;
        if step == Step::Done {
            break;
        }
    }
    assert!(most > 0 && most <= 1100, "{most} pages in one of {steps} steps");
    assert_eq!(h.freed.len(), 33, "one before, and the goal");
}

/// In a small memory a batch decides about one page. It goes on past young ones all the same.
#[test]
fn young_pages_of_main_are_spared_in_small_memories_too() {
    /// A memory whose next victims are of MAIN.
    fn at_main(pages: u32) -> Harness {
        let mut h = Harness::new(Policy::TIDE, pages);
        h.fill(0..pages);
        let main = sizes(&h).1;
        while sizes(&h).1 == main {
            evict(&mut h);
        }
        h
    }
    for pages in [64, 300, 500, 5000] {
        let mut idle = at_main(pages);
        let main = sizes(&idle).1;
        let next: Vec<_> = (0..4).map(|_| evict(&mut idle).0).collect();
        assert_eq!(sizes(&idle).1, main - 4);
        let mut used = at_main(pages);
        for &id in &next[..3] {
            // The first is the echo of the miss.
            (0..2).for_each(|_| used.read(id));
        }
        assert_eq!(evict(&mut used).0, next[3], "{pages}: the first that is not in use");
    }
}
