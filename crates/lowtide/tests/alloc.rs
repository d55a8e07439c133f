//! Collections in an arena that is larger than its tenant's budget.

#![expect(unsafe_code, reason = "blocks of an allocator")]

use crate::common::mapped::{check_empty, or_skip};
use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hashbrown::HashMap;
use lowtide::alloc::{LARGE, TenantArena};
use lowtide::map::MapError;
use lowtide::{Pager, Size, SwapOptions, Tenant};
use std::hash::{BuildHasherDefault, DefaultHasher};

fn tenant() -> (Pager, Tenant) {
    let dir = std::env::temp_dir();
    let swap = SwapOptions::compressed(Size::mib(8)).file(dir, Size::mib(64));
    let pager = Pager::builder().max(Size::mib(16)).swap(swap).build().unwrap();
    let tenant = pager.tenant("heap").max(Size::mib(2)).create().unwrap();
    (pager, tenant)
}

#[test]
fn vectors_and_tables_of_several_budgets_keep_what_threads_put_there() {
    let (pager, tenant) = tenant();
    let Some(arena) = or_skip(TenantArena::new(&tenant, 64 << 20)) else { return };
    std::thread::scope(|scope| {
        for number in 0..3_u64 {
            let arena = &arena;
            scope.spawn(move || {
                // Grows, and moves, and shrinks.
                let mut list = Vec::new_in(arena);
                list.extend((0..300_000_u64).map(|n| n << 2 | number));
                let hasher = BuildHasherDefault::<DefaultHasher>::default();
                let mut names = HashMap::with_hasher_in(hasher, arena);
                for n in 0..20_000_u64 {
                    let mut name = Vec::new_in(arena);
                    name.extend_from_slice(format!("{number} has {n}").as_bytes());
                    names.insert(n, name);
                }
                list.truncate(200_000);
                list.shrink_to_fit();
                assert!(list.iter().enumerate().all(|(n, word)| *word == (n as u64) << 2 | number));
                for n in (0..20_000).rev().step_by(3) {
                    assert_eq!(&names[&n][..], format!("{number} has {n}").as_bytes());
                }
            });
        }
        while tenant.stat().unwrap().events.pswpin < 1000 {
            assert!(tenant.usage().unwrap() <= 2 << 20);
            std::thread::yield_now();
        }
    });
    assert!(arena.error().is_none(), "{:?}", arena.error());
    pager.validate().unwrap();
    drop(arena);
    check_empty(&pager);
}

#[test]
fn large_blocks_give_their_pages_back_and_zeroes_are_zeroes() {
    let (pager, tenant) = tenant();
    let Some(arena) = or_skip(TenantArena::new(&tenant, 16 << 20)) else { return };
    for round in 1..4_u8 {
        let mut block = Vec::with_capacity_in(8 << 20, &arena);
        block.resize(8 << 20, round);
        block.truncate(4 << 20);
        block.shrink_to_fit();
        let report = arena.report();
        assert!(report.resident_bytes + report.swapped_bytes < 5 << 20, "{report}");
        assert!(block.iter().all(|byte| *byte == round));
        drop(block);
        let report = arena.report();
        assert!(report.resident_bytes + report.swapped_bytes < 1 << 20, "{report}");
        let layout = Layout::from_size_align(3 * LARGE + 100, 64).unwrap();
        let dirty = Box::<[u8], _>::new_uninit_slice_in(2 * LARGE, &arena);
        drop(dirty);
        let zeroes = arena.allocate_zeroed(layout).unwrap();
        // SAFETY: the block was just allocated.
        let bytes = unsafe { &mut *zeroes.as_ptr() };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        // SAFETY: the block is used no more.
        unsafe { arena.deallocate(zeroes.cast(), layout) };
    }
    drop(arena);
    check_empty(&pager);
}

#[test]
fn an_arena_without_addresses_left_is_an_error_of_the_allocation() {
    let (_pager, tenant) = tenant();
    let Some(arena) = or_skip(TenantArena::new(&tenant, 1 << 20)) else { return };
    let mut list = Vec::<u64, _>::new_in(&arena);
    assert!(list.try_reserve(1 << 18).is_err());
    list.try_reserve(1 << 16).unwrap();
    let error = TenantArena::new(&tenant, 100).unwrap_err();
    assert!(matches!(error, MapError::Range { .. }), "{error}");
    assert_eq!(Vec::<(), _>::with_capacity_in(5, &arena).len(), 0);
}
