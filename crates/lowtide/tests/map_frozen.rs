//! Memory without a file to which nothing is stored for a moment: what is copied of it is of one
//! moment, wherever its pages are, and everything goes on afterwards.

use lowtide::map::{MapError, MapMut};
use lowtide::{Pager, Swap};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

const PAGE: usize = 4096;
const PAGES: usize = 2048;
const WHOLE: Range<usize> = 0..PAGES * PAGE;

/// Four times the budget, unless the machine has no `userfaultfd`.
fn memory(pager: &Pager) -> Option<MapMut> {
    match pager.root().map_anon(PAGES * PAGE) {
        Err(MapError::Way { why, .. }) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        memory => Some(memory.unwrap()),
    }
}

fn pager() -> Pager {
    let swap = Swap::compressed("2M".parse().unwrap());
    Pager::builder().max("2M".parse().unwrap()).swap(swap).build().unwrap()
}

#[test]
fn a_copy_of_frozen_memory_is_of_one_moment() {
    let pager = pager();
    let Some(mut memory) = memory(&pager) else { return };
    // Every third page was never stored to.
    for page in (0..PAGES).filter(|page| page % 3 != 0) {
        memory[page * PAGE + 8..page * PAGE + 16].copy_from_slice(&page.to_ne_bytes());
    }
    let whole = std::slice::from_ref(&WHOLE);
    let start = memory.as_mut_ptr();
    // SAFETY: aligned words of the map, which is used by these atomics alone meanwhile.
    #[allow(unsafe_code)]
    let counter = |page| unsafe { AtomicU64::from_ptr(start.wrapping_add(page * PAGE).cast()) };
    let counters: Vec<&AtomicU64> = (0..PAGES).filter(|page| page % 3 != 0).map(counter).collect();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 1.. {
                if stop.load(Relaxed) {
                    return;
                }
                counters.iter().for_each(|counter| counter.store(count, Release));
                rounds.store(count, Relaxed);
            }
        });
        for _ in 0..6 {
            // It goes on between two copies.
            let before = rounds.load(Relaxed);
            while rounds.load(Relaxed) == before {
                std::thread::yield_now();
            }
            let frozen = memory.freeze(whole).unwrap();
            let again = memory.freeze(whole).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::WouldBlock);
            let mut found = Vec::new();
            frozen
                .for_each_page(WHOLE, |at, bytes| {
                    let word = |n: usize| u64::from_ne_bytes(bytes[n..n + 8].try_into().unwrap());
                    assert_eq!(word(8), (at / PAGE) as u64, "the bytes of another page");
                    found.push(word(0));
                    Ok(())
                })
                .unwrap();
            assert_eq!(
                found.len(),
                counters.len(),
                "pages that were never stored to are not there"
            );
            let is_one = found.windows(2).all(|two| two[0] >= two[1]);
            assert!(is_one && found[0] - found[found.len() - 1] <= 1, "stores of two moments");
        }
        stop.store(true, Relaxed);
    });
    assert!(pager.root().usage().unwrap() <= 2 << 20);
    drop(memory);
    pager.validate().unwrap();
}

#[test]
fn a_part_that_is_not_in_memory_is_refused_and_nothing_stays_frozen() {
    let pager = pager();
    let Some(mut memory) = memory(&pager) else { return };
    let wrong = memory.freeze(&[WHOLE, 0..WHOLE.end + 1]).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    memory[5] = 7;
    assert_eq!(memory[5], 7);
}
