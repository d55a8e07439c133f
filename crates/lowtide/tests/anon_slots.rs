//! Who pays for the tables that say where in swap the pages of a region are.

use lowtide::{Error, Pager, Size, SwapOptions, Tenant};

fn size(pages: u64) -> Size {
    Size::new(pages * 4096)
}

fn pager() -> (Pager, Tenant) {
    let swap = SwapOptions::compressed(Size::mib(2));
    let pager = Pager::builder().max(Size::mib(16)).background(false).swap(swap);
    let pager = pager.build().unwrap();
    let tenant = pager.tenant("heap").max(size(64)).create().unwrap();
    (pager, tenant)
}

fn slot_bytes(tenant: &Tenant) -> u64 {
    tenant.swap_stat().unwrap().slot_bytes
}

#[test]
fn the_tenant_pays_for_tables_of_slots_until_their_pages_are_discarded_or_the_region_ends() {
    let (pager, tenant) = pager();
    let [heap, other] = [(); 2].map(|()| tenant.region(4 * 512 * 4096).unwrap());
    let begins = pager.root().usage().unwrap();
    assert_eq!(slot_bytes(&tenant), 0);
    for heap in [&heap, &other] {
        for page in (0..heap.page_count()).step_by(8) {
            heap.page_mut(page).unwrap().fill(page as u8);
        }
    }
    assert_eq!(slot_bytes(&tenant), 8 * 4096, "each table has a page in swap");
    let child = tenant.child("child").max(size(64)).create().unwrap();
    assert_eq!(slot_bytes(&child), 0);
    // Pages of one word take no memory in swap, so what is charged are frames and tables.
    heap.clear(0..2 * 512 * 4096).unwrap();
    assert_eq!(slot_bytes(&tenant), 6 * 4096);
    heap.clear(2 * 512 * 4096..heap.len() - 8 * 4096).unwrap();
    assert_eq!(slot_bytes(&tenant), 5 * 4096, "a page of the last table is in swap");
    pager.validate().unwrap();
    drop(heap);
    assert_eq!(slot_bytes(&tenant), 4 * 4096);
    other.clear(0..other.len()).unwrap();
    assert_eq!(slot_bytes(&tenant), 0);
    let tables = tenant.swap_stat().unwrap().table_bytes;
    assert_eq!(pager.root().usage().unwrap(), begins + tables, "only tables of the store stay");
    drop(other);
    let _ = tenant.set_max(size(0)).unwrap();
    assert_eq!(tenant.usage().unwrap(), 0);
    pager.validate().unwrap();
}

#[test]
fn tables_of_slots_are_part_of_the_budget_and_a_page_without_one_stays_in_memory() {
    let (pager, tenant) = pager();
    // One page of each table: the tables of all would be more than the budget.
    let pages = 100;
    let heap = tenant.region(pages * 512 * 4096).unwrap();
    let mut stored = 0;
    for page in 0..pages {
        match heap.page_mut(page * 512) {
            Ok(mut guard) => guard.fill(page as u8 + 1),
            Err(Error::OutOfBudget { .. }) => break,
            Err(other) => panic!("{other}"),
        }
        stored += 1;
        assert!(tenant.usage().unwrap() <= 64 * 4096);
        pager.validate().unwrap();
    }
    assert!((32..64).contains(&stored), "{stored} pages were stored");
    for page in 0..stored {
        let guard = heap.page(page * 512).unwrap();
        assert!(guard.iter().all(|&byte| byte == page as u8 + 1), "page {page}");
    }
    heap.clear(0..heap.len()).unwrap();
    heap.page_mut(7).unwrap().fill(7);
    drop(heap);
    assert_eq!(pager.root().usage().unwrap(), 0);
    pager.validate().unwrap();
}
