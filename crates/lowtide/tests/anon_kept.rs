//! Pages that come back from the swap file keep their slot while they are not stored to: evicted
//! again they need no write. What ends that, and that nothing of it stays behind.

use crate::common::{Dir, noise};
use lowtide::{Error, Pager, Region, Size, SwapOptions, Tenant};

const PAGE: u64 = 4096;

/// A pager with a swap file of `slots` slots, and a region of pages that do not compress.
fn swapped(dir: &Dir, slots: u64, pages: u64) -> (Pager, Tenant, Region) {
    let swap = SwapOptions::compressed(Size::kib(64)).file(dir.path(), Size::new(slots * PAGE));
    let pager = Pager::builder().max(Size::mib(16)).swap(swap).build().unwrap();
    let tenant = pager.tenant("heap").max(Size::mib(1)).create().unwrap();
    let heap = tenant.region(pages * PAGE).unwrap();
    for page in 0..pages {
        heap.page_mut(page).unwrap().copy_from_slice(&noise(page, 1));
    }
    (pager, tenant, heap)
}

fn check(heap: &Region, page: u64, version: u64) {
    assert!(heap.page(page).unwrap()[..] == noise(page, version), "page {page}");
}

/// Slots of the file that are in use.
fn used(pager: &Pager) -> u64 {
    pager.swap_file().unwrap().used.into()
}

fn check_empty(pager: &Pager) {
    pager.validate().unwrap();
    let root = pager.root();
    assert_eq!((root.usage().unwrap(), root.swap_usage().unwrap(), used(pager)), (0, 0, 0));
}

#[test]
fn pages_that_are_only_read_are_written_once() {
    let dir = Dir::new();
    let (pager, tenant, heap) = swapped(&dir, 4096, 1024);
    let before = (pager.swap_file().unwrap(), tenant.stat().unwrap().events);
    // All of them come in once, so that all have a slot that can be kept.
    for _ in 0..4 {
        (0..1024).for_each(|page| check(&heap, page * 389 % 1024, 1));
        pager.validate().unwrap();
    }
    let after = (pager.swap_file().unwrap(), tenant.stat().unwrap().events);
    assert!(after.0.read > before.0.read + 2000, "{:?}", after.0);
    // What was in memory when the reading began had no slot yet.
    let written = after.0.written - before.0.written;
    assert!(written <= 256, "{written} pages were written for reads");
    assert_eq!(after.1.pswpout - before.1.pswpout, written);
    assert!(after.1.pswpin > before.1.pswpin + 2000);
    let stat = tenant.stat().unwrap();
    assert!(stat.swapcached > 100, "{stat}");
    let (swapped, used) = (heap.swapped_pages(), used(&pager));
    assert!(swapped < used && used <= 1024, "{swapped} of {used}");
    assert_eq!(tenant.swap_usage().unwrap(), used * PAGE, "a slot counts while it is kept");
    drop(heap);
    check_empty(&pager);
}

#[test]
fn a_store_or_a_discard_gives_the_slot_up_and_nothing_of_it_comes_back() {
    let dir = Dir::new();
    let (pager, tenant, heap) = swapped(&dir, 4096, 1024);
    for round in 2..5 {
        for page in 0..1024 {
            check(&heap, page, if page % 3 == 0 { round - 1 } else { 1 });
            let before = used(&pager);
            if page % 3 == 0 {
                heap.page_mut(page).unwrap().copy_from_slice(&noise(page, round));
                assert!(used(&pager) <= before, "page {page} keeps what is void");
            }
        }
        pager.validate().unwrap();
    }
    (0..1024).for_each(|page| check(&heap, page, if page % 3 == 0 { 4 } else { 1 }));
    heap.clear(0..512 * PAGE).unwrap();
    (0..512).for_each(|page| assert!(heap.page(page).unwrap().iter().all(|byte| *byte == 0)));
    (512..1024).for_each(|page| check(&heap, page, if page % 3 == 0 { 4 } else { 1 }));
    assert!(tenant.swap_usage().unwrap() <= 512 * PAGE);
    heap.clear(0..1024 * PAGE).unwrap();
    assert_eq!((used(&pager), tenant.swap_usage().unwrap()), (0, 0));
    drop(heap);
    check_empty(&pager);
}

#[test]
fn a_file_of_which_more_than_half_is_used_is_not_filled_with_what_is_in_memory() {
    let dir = Dir::new();
    let (pager, _tenant, heap) = swapped(&dir, 1024, 1024);
    for _ in 0..3 {
        (0..1024).for_each(|page| check(&heap, page, 1));
        assert_eq!(used(&pager), heap.swapped_pages());
    }
    drop(heap);
    check_empty(&pager);
}

#[test]
fn a_tenant_that_uses_more_than_half_of_its_swap_keeps_no_slots() {
    let dir = Dir::new();
    let (pager, tenant, heap) = swapped(&dir, 8192, 1024);
    tenant.set_swap_max(Size::new(1024 * PAGE)).unwrap();
    for _ in 0..3 {
        (0..1024).for_each(|page| check(&heap, page, 1));
        assert_eq!(used(&pager), heap.swapped_pages());
        assert_eq!(tenant.swap_usage().unwrap(), used(&pager) * PAGE);
    }
    drop(heap);
    check_empty(&pager);
}

#[test]
fn kept_slots_are_given_up_when_the_file_is_full_and_others_need_them() {
    let dir = Dir::new();
    let (pager, tenant, heap) = swapped(&dir, 512, 320);
    // Of 320 pages some are in memory with their slots: less than half of the file is used.
    for _ in 0..3 {
        (0..320).for_each(|page| check(&heap, page, 1));
    }
    assert!(tenant.stat().unwrap().swapcached > 50, "{}", tenant.stat().unwrap());
    let other = pager.tenant("other").max(Size::kib(512)).create().unwrap();
    let beside = other.region(8 << 20).unwrap();
    let full = (0..beside.page_count()).find(|&page| match beside.page_mut(page) {
        Ok(mut guard) => {
            guard.copy_from_slice(&noise(page, 7));
            false
        }
        Err(Error::OutOfBudget { .. }) => true,
        Err(other) => panic!("{other}"),
    });
    let full = full.expect("8 MiB do not fit");
    assert_eq!(used(&pager), 512, "to the last slot");
    assert_eq!(heap.swapped_pages() + beside.swapped_pages(), 512, "none of a page in memory");
    assert_eq!(tenant.stat().unwrap().swapcached, 0);
    pager.validate().unwrap();
    (0..full).rev().take(200).for_each(|page| check(&beside, page, 7));
    drop(beside);
    (0..320).for_each(|page| check(&heap, page, 1));
    drop(heap);
    check_empty(&pager);
}
