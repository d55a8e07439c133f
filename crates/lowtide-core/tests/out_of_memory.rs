//! The two premature out-of-memory kills of Linux 7.1, and their end (`docs/kernel/reclaim.md` §4.5
//! and 4.6; I25, I26).
//!
//! *Aging*: one thread ages; until it publishes the new generation, every other reclaimer finds
//! "aging is needed" and "another thread ages", and leaves with nothing done. Sixteen retries later
//! the charge has failed, with all of memory clean and cold.
//!
//! *Throttling*: a small group full of dirty pages on a slow device. Reclaim that sorts such pages
//! away never learns that they are under writeback, so it never sleeps; the retries last
//! milliseconds, the device a second.
//!
//! A third happens in small memories only: all that could be evicted waits in the batch of another
//! CPU.

use crate::harness::{Harness, ROOT};
use crate::writer::{OutOfMemory, Writer};
use lowtide_core::{Charge, FolioId, LruType, Next, Policy, Reason, Reclaim, Step, Switches, Task};

/// A full memory of clean file pages without accesses, in the oldest of three generations; and
/// a thread that has walked for the next generation and has not yet published it.
fn slow_ager(policy: Policy) -> (Harness, Reclaim) {
    const PAGES: u32 = 3968;
    let mut harness = Harness::new(policy, PAGES);
    harness.fault(0..PAGES);
    harness.facts.young.fill(false);
    for _ in 0..10 {
        let mut reclaim = Reclaim::new(ROOT, 1, Reason::Direct, Task::FAULT);
        let mut step = Step::Yield;
        while step != Step::Done {
            step = harness.step(&mut reclaim);
            if step == Step::Walk && harness.depth(PAGES - 1) == Some(3) {
                let gone: Vec<_> = harness.freed.drain(..).map(|(folio, _)| folio.0).collect();
                gone.iter().for_each(|&id| harness.fill(id..id + 1));
                return (harness, reclaim);
            }
        }
    }
    panic!("{policy} never aged with three generations");
}

/// Charges one page, reclaiming as often as the charge asks for it. Returns the pages reclaimed,
/// whether the page was charged, and whether it came to an aging walk.
fn charge(harness: &mut Harness) -> (u64, bool, bool) {
    let mut charge = Charge::new(ROOT, 1);
    let (mut result, mut total, mut walked) = (None, 0, false);
    loop {
        match charge.next(&mut harness.engine, Task::FAULT, result) {
            Next::Charged { .. } => return (total, true, walked),
            Next::Failed { .. } | Next::Gone => return (total, false, walked),
            Next::Reclaim(mut reclaim) => {
                walked |= harness.run(&mut reclaim).contains(&Step::Walk);
                total += reclaim.reclaimed();
                result = Some(reclaim.reclaimed());
            }
        }
    }
}

#[test]
fn while_one_thread_ages_the_others_starve_in_7_1_only() {
    let s4_s8 = Policy::MGLRU_7_1.with(Switches::S4 | Switches::S8, true);
    for (policy, survives) in [
        (Policy::MGLRU_7_1, false),
        (Policy::MGLRU_7_1.with(Switches::S4, true), false),
        (Policy::MGLRU_7_1.with(Switches::S8, true), true),
        (s4_s8, true),
        (Policy::MGLRU.with(Switches::S8, false), false),
        (Policy::MGLRU, true),
    ] {
        let (mut harness, mut ager) = slow_ager(policy);
        let (reclaimed, charged, walked) = charge(&mut harness);
        assert_eq!(
            (reclaimed > 0, charged),
            (survives, survives),
            "{policy}: {reclaimed} reclaimed"
        );
        assert!(!walked, "{policy}: the walk for this generation is over");
        // As soon as the ager goes on, all tasks find something.
        harness.run(&mut ager);
        assert!(charge(&mut harness).1, "{policy}");
    }
}

/// The one that ages opens its generation under the lists' lock. A reclaimer that isolates folios
/// under that lock, in vain, must release it before the next pass, or all its tries would be over
/// before the generation is there; one that does not isolate has no reason to wait.
#[test]
fn a_pass_that_found_nothing_releases_the_lock_and_one_that_did_not_look_never_had_it() {
    for (policy, looks) in [(Policy::MGLRU, true), (Policy::MGLRU_7_1, false)] {
        let (mut harness, mut ager) = slow_ager(policy);
        // What is young is kept and leaves the oldest generation: in the end there are two, and
        // nothing can be evicted.
        let (mut reclaim, mut yields) = (Reclaim::new(ROOT, 32, Reason::Direct, Task::FAULT), 0);
        for _ in 0..8 {
            harness.facts.young.fill(true);
            reclaim = Reclaim::new(ROOT, 32, Reason::Direct, Task::FAULT);
            let steps = harness.run(&mut reclaim);
            assert!(!steps.contains(&Step::Walk), "{policy}: the walk for this generation is over");
            yields = steps.iter().filter(|&&step| step == Step::Yield).count();
        }
        assert_eq!(reclaim.reclaimed(), 0, "{policy}");
        assert!(harness.run(&mut ager).contains(&Step::Done), "{policy}");
        if looks {
            assert!(yields >= 20 && reclaim.isolations() as usize >= yields, "{policy}: {yields}");
        } else {
            assert!(
                yields <= 2 && reclaim.isolations() <= 2,
                "{policy}: {yields}, {}",
                reclaim.isolations()
            );
        }
    }
}

/// A writer of 192 MiB into 128 MiB of memory, on a device that ends each write after a second.
fn write_all(policy: Policy) -> (Result<(), OutOfMemory>, Writer) {
    let mut writer = Writer::new(policy, 32_768, 1_000_000_000);
    let result = (0..49_152).try_for_each(|_| writer.write());
    (result, writer)
}

#[test]
fn a_writer_on_a_slow_device_is_killed_by_7_1_only() {
    let (result, writer) = write_all(Policy::MGLRU_7_1);
    assert_eq!(result, Err(OutOfMemory));
    assert_eq!(writer.steps.naps, 0, "7.1 never sleeps for congestion");
    for policy in [Policy::MGLRU, Policy::LRU, Policy::TIDE] {
        let (result, writer) = write_all(policy);
        assert_eq!(result, Ok(()), "{policy}");
        let steps = writer.steps;
        assert!(steps.naps > 0, "{policy}: it slept until the device was done: {steps:?}");
        writer
            .engine
            .stat(ROOT)
            .events
            .iter()
            .for_each(|(name, n)| assert!(n < 1 << 40, "{name} is {n}"));
    }
}

/// I25: a charge naps at most once in each of 26 passes of 18 invocations.
#[test]
fn on_a_device_that_never_ends_a_write_the_charge_fails_in_bounded_time() {
    let mut writer = Writer::new(Policy::MGLRU, 256, u64::MAX / 2);
    let result = (0..512).try_for_each(|_| writer.write());
    assert_eq!(result, Err(OutOfMemory));
    let steps = writer.steps;
    assert!(steps.wakes > 0 && steps.naps > 0, "{steps:?}");
    assert!(steps.invocations <= 18 && steps.naps <= 26 * 18, "{steps:?}");
}

#[test]
fn the_batch_of_another_cpu_is_no_hiding_place() {
    let elsewhere = Task { cpu: 1, in_lru_fault: false };
    for policy in [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU, Policy::TIDE] {
        let mut harness = Harness::new(policy, 48);
        (0..48).for_each(|id| harness.insert(id, 0, LruType::File, None, elsewhere));
        (0..31).for_each(|id| harness.engine.set_unevictable(FolioId(id), true));
        assert!((31..48).all(|id| harness.depth(id).is_none()), "these wait to be added");
        assert!(charge(&mut harness).1, "{policy}");
    }
}
