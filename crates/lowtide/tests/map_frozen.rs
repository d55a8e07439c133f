//! Memory without a file to which nothing is stored for a moment: what is copied of it is of one
//! moment, wherever its pages are, and everything goes on afterwards.

use lowtide::map::{MapError, MapMut};
use lowtide::{Pager, Size, SwapOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

const PAGE: usize = 4096;
const PAGES: usize = 2048;
const WHOLE: Range<usize> = 0..PAGES * PAGE;

/// Four times the budget, unless the machine has no `userfaultfd`.
fn memory(pager: &Pager) -> Option<MapMut> {
    match pager.root().map_anon(PAGES * PAGE) {
        Err(MapError::Mode { why, .. }) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        memory => Some(memory.unwrap()),
    }
}

fn pager() -> Pager {
    let swap = SwapOptions::compressed(Size::mib(2));
    Pager::builder().max(Size::mib(2)).swap(swap).build().unwrap()
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
    let mut memory = Some(memory);
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
            let frozen = memory.take().unwrap().freeze(whole).unwrap();
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
            memory = Some(frozen.thaw());
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
    assert_eq!(wrong.source.kind(), ErrorKind::InvalidInput);
    memory = wrong.map;
    memory[5] = 7;
    assert_eq!(memory[5], 7);
}

#[test]
fn frozen_memory_that_is_dropped_goes_at_once() {
    let pager = pager();
    let Some(mut memory) = memory(&pager) else { return };
    memory.fill(1);
    drop(memory.freeze(std::slice::from_ref(&WHOLE)).unwrap());
    assert_eq!(pager.root().usage().unwrap(), 0);
    pager.validate().unwrap();
}

/// A part that is lent is the program's own memory: what it stores there is neither seen nor taken,
/// whatever happens around it, and the part comes back as zeroes that are kept within the budget.
#[test]
#[allow(unsafe_code)]
fn a_part_that_is_lent_is_the_programs_own_until_it_is_taken_back() {
    let pager = pager();
    let Some(mut memory) = memory(&pager) else { return };
    let start = memory.as_mut_ptr().expose_provenance();
    let at = |address| std::ptr::with_exposed_provenance_mut::<u8>(address);
    let (lent, part) = (PAGES / 4..PAGES / 2, PAGES / 4 * PAGE..PAGES / 2 * PAGE);
    // Words, stored and loaded as a program with a pointer does. SAFETY: words of the map.
    let word = |page: usize| unsafe { AtomicU64::from_ptr(at(start + page * PAGE).cast()) };
    let all = |salt: u64| (0..PAGES).for_each(|page| word(page).store(page as u64 + salt, Relaxed));
    let own = |address: *mut u8| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the addresses are lent.
        let got = unsafe { libc::mmap(address.cast(), part.len(), prot, flags, -1, 0) };
        assert_ne!(got, libc::MAP_FAILED);
    };
    let mut memory = Some(memory);
    for round in 1..4_u64 {
        all(round << 32);
        let (stop, stored) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            // Threads that wait for pages of the part while it is lent find what is there then.
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    lent.clone().for_each(|page| {
                        word(page).load(Relaxed);
                    });
                    stored.fetch_add(1, Relaxed);
                }
            });
            let whole = std::slice::from_ref(&WHOLE);
            let mut frozen = memory.take().unwrap().freeze(whole).unwrap();
            let mut copy = vec![0; part.len()];
            frozen
                .for_each_page(part.clone(), |at, bytes| {
                    copy[at - part.start..][..PAGE].copy_from_slice(bytes);
                    Ok(())
                })
                .unwrap();
            let put = || {
                own(at(start + part.start));
                // SAFETY: as many bytes, just mapped.
                unsafe {
                    at(start + part.start).copy_from_nonoverlapping(copy.as_ptr(), copy.len());
                };
                Ok(())
            };
            // SAFETY: ordinary memory is put there.
            unsafe { frozen.lend(part.clone(), put) }.unwrap();
            memory = Some(frozen.thaw());
            let before = stored.load(Relaxed);
            while stored.load(Relaxed) < before + 2 {
                std::thread::yield_now();
            }
            stop.store(true, Relaxed);
        });
        for salt in [round << 32, round << 40] {
            // Everything around it goes out and comes in.
            for _ in 0..2 {
                (0..PAGES).for_each(|page| {
                    let found = word(page).load(Relaxed);
                    assert_eq!(found, page as u64 + salt, "page {page}, lent {lent:?}");
                });
            }
            all(round << 40);
        }
        let map = memory.as_mut().unwrap();
        let report = map.report();
        let most = ((PAGES - lent.len()) * PAGE) as u64;
        assert!(report.resident_bytes + report.swapped_bytes <= most, "{report:?}");
        // SAFETY: it was lent, and nothing uses it.
        unsafe { map.take_back(part.clone()) }.unwrap();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let to = at(start + part.start).cast();
        // SAFETY: the map's addresses.
        assert_eq!(unsafe { libc::mprotect(to, part.len(), prot) }, 0);
        lent.clone().for_each(|page| assert_eq!(word(page).load(Relaxed), 0, "page {page}"));
    }
    assert!(pager.root().usage().unwrap() <= 2 << 20);
    drop(memory);
    pager.validate().unwrap();
}
