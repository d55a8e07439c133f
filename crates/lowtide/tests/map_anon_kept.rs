//! Memory without a file behind a pointer keeps the slots of pages that come back from the swap
//! file and are only read: evicted again they need no write. What ends that, and that no store is
//! lost by it.

use crate::common::mapped::{PAGE, check_empty, or_skip, random};
use lowtide::map::MapMut;
use lowtide::{Pager, Size, SwapOptions, Tenant};
use std::hint::black_box;
use std::path::Path;

const BUDGET: usize = 2 << 20;
/// Four times the budget.
const PAGES: usize = 4 * BUDGET / PAGE;

fn tenant(dir: &Path, file: Size) -> (Pager, Tenant) {
    let swap = SwapOptions::compressed(Size::kib(64)).file(dir, file);
    let pager = Pager::builder().max(Size::mib(16)).swap(swap).build().unwrap();
    let tenant = pager.tenant("heap").max(Size::new(BUDGET as u64)).create().unwrap();
    (pager, tenant)
}

/// Bytes that do not compress.
fn noise(page: usize, version: u64) -> [u8; PAGE] {
    let mut state = (page as u64) << 20 | version << 1 | 1;
    let mut bytes = [0; PAGE];
    for word in bytes.chunks_exact_mut(8) {
        random(&mut state);
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn of(memory: &mut MapMut, page: usize) -> &mut [u8] {
    &mut memory[page * PAGE..(page + 1) * PAGE]
}

fn filled(tenant: &Tenant) -> Option<MapMut> {
    let mut memory = or_skip(tenant.map_anon(PAGES * PAGE))?;
    (0..PAGES).for_each(|page| of(&mut memory, page).copy_from_slice(&noise(page, 1)));
    Some(memory)
}

#[test]
fn pages_that_are_only_read_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let (pager, tenant) = tenant(dir.path(), Size::mib(64));
    let Some(mut memory) = filled(&tenant) else { return };
    let mut read = |at: fn(usize) -> usize| {
        for page in (0..PAGES).map(at) {
            assert!(of(&mut memory, page) == noise(page, 1), "page {page}");
            assert!(tenant.usage().unwrap() <= BUDGET as u64);
        }
        pager.validate().unwrap();
    };
    read(|page| page);
    let before = pager.swap_file().unwrap();
    // In order, so that they come in together; and one by one.
    (0..2).for_each(|_| read(|page| page));
    (0..2).for_each(|_| read(|page| page * 389 % PAGES));
    let after = pager.swap_file().unwrap();
    let (came, went) = (after.read - before.read, after.written - before.written);
    assert!(came > 2 * PAGES as u64, "{came} pages came back");
    assert!(went < came / 8, "{went} pages were written for reads, of {came}");
    assert!(tenant.stat().unwrap().swapcached > 0);
    drop(memory);
    check_empty(&pager);
}

#[test]
fn a_store_gives_the_slot_up_and_what_the_file_had_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (pager, tenant) = tenant(dir.path(), Size::mib(64));
    let Some(mut memory) = filled(&tenant) else { return };
    for version in 2..6 {
        for page in (0..PAGES).map(|page| page * 389 % PAGES) {
            // It is read first, so it may have come in with a slot.
            let before = if page % 3 == 0 { version - 1 } else { 1 };
            assert!(of(&mut memory, page) == noise(page, before), "page {page}");
            if page % 3 == 0 {
                of(&mut memory, page)[PAGE - 8..]
                    .copy_from_slice(&noise(page, version)[PAGE - 8..]);
                of(&mut memory, page)[..PAGE - 8]
                    .copy_from_slice(&noise(page, version)[..PAGE - 8]);
            }
        }
        pager.validate().unwrap();
    }
    for page in 0..PAGES {
        let last = if page % 3 == 0 { 5 } else { 1 };
        assert!(of(&mut memory, page) == noise(page, last), "page {page}");
    }
    memory.clear(0..PAGES / 2 * PAGE).unwrap();
    assert!(of(&mut memory, 0).iter().all(|byte| *byte == 0));
    drop(memory);
    check_empty(&pager);
}

#[test]
fn stores_in_order_to_pages_that_were_read_are_few_messages() {
    let dir = tempfile::tempdir().unwrap();
    let (pager, tenant) = tenant(dir.path(), Size::mib(64));
    let Some(mut memory) = filled(&tenant) else { return };
    let faults = |memory: &mut MapMut, stores: bool| {
        let before = memory.report().faults;
        for page in 0..PAGES {
            let byte = black_box(of(memory, page)[7]);
            if stores {
                of(memory, page)[7] = black_box(byte);
            }
        }
        memory.report().faults - before
    };
    let reads = faults(&mut memory, false);
    let both = faults(&mut memory, true);
    assert!(both < reads + PAGES as u64 / 4, "{reads} faults for reads, {both} with stores");
    (0..PAGES).for_each(|page| assert!(of(&mut memory, page) == noise(page, 1), "page {page}"));
    drop(memory);
    check_empty(&pager);
}

#[test]
fn threads_that_load_and_store_lose_nothing_while_slots_are_kept_taken_and_short() {
    // The file has room for all, and for little more than all, so that reclaim takes slots away.
    for file in [Size::mib(64), Size::new((PAGES * PAGE) as u64)] {
        let dir = tempfile::tempdir().unwrap();
        let (pager, tenant) = tenant(dir.path(), file);
        let Some(mut memory) = filled(&tenant) else { return };
        std::thread::scope(|scope| {
            for (thread, part) in memory.chunks_mut(PAGES / 4 * PAGE).enumerate() {
                scope.spawn(move || {
                    let first = thread * PAGES / 4;
                    let mut versions = vec![1; PAGES / 4];
                    let mut state = thread as u64 + 1;
                    for step in 0..6000 {
                        random(&mut state);
                        // Some in order, some at random; two loads for each store.
                        let run = state >> 20 & 1 == 0;
                        let at = if run { step } else { (state >> 33) as usize } % versions.len();
                        let bytes = &mut part[at * PAGE..(at + 1) * PAGE];
                        let (page, version) = (first + at, &mut versions[at]);
                        assert!(bytes == noise(page, *version), "page {page}");
                        if state.is_multiple_of(3) {
                            *version += 1;
                            bytes.copy_from_slice(&noise(page, *version));
                        }
                    }
                    for (at, version) in versions.into_iter().enumerate() {
                        let bytes = &part[at * PAGE..(at + 1) * PAGE];
                        assert!(bytes == noise(first + at, version), "page {}", first + at);
                    }
                });
            }
        });
        pager.validate().unwrap();
        drop(memory);
        check_empty(&pager);
    }
}
