//! Pages of a region that are freed lazily: dropped when memory is needed, kept when stored to.

use crate::common::{Dir, noise};
use lowtide::{Error, Pager, Policy, Region, Size, SwapOptions, Tenant};

const PAGE: u64 = 4096;

/// A region of `pages` pages that are all stored to, for a tenant with room for 256.
fn stored(policy: Policy, swap: Option<SwapOptions>, pages: u64) -> (Pager, Tenant, Region) {
    let builder = Pager::builder().max(Size::mib(16)).policy(policy);
    let builder = if let Some(swap) = swap { builder.swap(swap) } else { builder };
    let pager = builder.build().unwrap();
    let tenant = pager.tenant("heap").max(Size::mib(1)).create().unwrap();
    let heap = tenant.region(pages * PAGE).unwrap();
    (0..pages).for_each(|page| store(&heap, page, 1));
    (pager, tenant, heap)
}

fn store(heap: &Region, page: u64, version: u64) {
    heap.page_mut(page).unwrap().copy_from_slice(&noise(page, version));
}

/// Whether a page has what was stored; otherwise it is zeroes.
fn is_there(heap: &Region, page: u64, version: u64) -> bool {
    let bytes = heap.page(page).unwrap();
    let zeroes = bytes.iter().all(|byte| *byte == 0);
    assert!(zeroes || bytes[..] == noise(page, version), "page {page} is something else");
    !zeroes
}

/// Where nothing needs memory nothing happens, and a store keeps its page, even one byte of it.
/// When memory is needed the others go, also where there is no swap to write them to.
#[test]
fn pages_that_were_freed_lazily_go_when_memory_is_needed_and_not_before() {
    for (policy, name) in Policy::builtin() {
        let (pager, tenant, heap) = stored(policy, None, 200);
        heap.advise_free(0..150 * PAGE).unwrap();
        pager.validate().unwrap();
        assert!((0..200).all(|page| is_there(&heap, page, 1)), "{name}");
        assert_eq!(tenant.stat().unwrap().events.pglazyfree, 150, "{name}");

        store(&heap, 3, 2);
        heap.write_at(7 * PAGE + 100, &[9]).unwrap();
        heap.clear(11 * PAGE..12 * PAGE).unwrap();
        pager.validate().unwrap();
        // Room for half of them: no page of the rest can go anywhere.
        let more = tenant.region(130 * PAGE).unwrap();
        (0..130).for_each(|page| store(&more, page, 1));
        pager.validate().unwrap();

        let gone = (0..150).filter(|page| ![3, 7, 11].contains(page));
        let gone = gone.filter(|page| !is_there(&heap, *page, 1)).count() as u64;
        let stat = tenant.stat().unwrap();
        assert!(gone >= 70, "{name}: {gone} pages are gone");
        assert_eq!(stat.events.pglazyfreed, gone, "{name}");
        assert_eq!(stat.events.pswpout, 0, "{name}");
        assert!(is_there(&heap, 3, 2) && (150..200).all(|page| is_there(&heap, page, 1)), "{name}");
        let mut kept = noise(7, 1);
        kept[100] = 9;
        assert!(heap.page(7).unwrap()[..] == kept, "{name}: a store keeps all of its page");
        assert!(heap.page(11).unwrap().iter().all(|byte| *byte == 0), "{name}");
        drop((heap, more));
        assert_eq!(pager.root().usage().unwrap(), 0, "{name}");
        pager.validate().unwrap();
    }
}

/// What is in swap is given up at once; what has come back from the file, and has its slot, loses
/// it.
#[test]
fn pages_in_swap_and_their_slots_are_given_up_at_once() {
    let dir = Dir::new();
    let swap = SwapOptions::compressed(Size::kib(64)).file(dir.path(), Size::new(4096 * PAGE));
    let (pager, tenant, heap) = stored(Policy::MGLRU, Some(swap), 1024);
    (0..1024).for_each(|page| assert!(is_there(&heap, page, 1)));
    let stat = tenant.stat().unwrap();
    assert!(stat.swapcached > 0, "{stat}");
    let swapped: Vec<_> = (0..1024).filter(|page| !heap.is_resident(*page)).collect();
    assert!(swapped.len() > 500);
    heap.advise_free(0..1024 * PAGE).unwrap();
    pager.validate().unwrap();
    assert!(swapped.iter().all(|page| !is_there(&heap, *page, 1)));
    assert_eq!((tenant.swap_usage().unwrap(), pager.swap_file().unwrap().used), (0, 0));
    // The rest goes without a write.
    let written = pager.swap_file().unwrap().written;
    tenant.reclaim(Size::new(1 << 20)).unwrap();
    assert_eq!(pager.swap_file().unwrap().written, written);
    assert!((0..1024).all(|page| !is_there(&heap, page, 1)));
    pager.validate().unwrap();
}

#[test]
fn only_whole_pages_are_freed_and_a_range_that_is_not_in_the_region_is_refused() {
    let (pager, tenant, heap) = stored(Policy::MGLRU, None, 20);
    heap.advise_free(PAGE + 1..3 * PAGE).unwrap();
    heap.advise_free(10 * PAGE + 1..11 * PAGE - 1).unwrap();
    heap.advise_free(5 * PAGE..5 * PAGE).unwrap();
    assert_eq!(tenant.stat().unwrap().events.pglazyfree, 1, "page 2");
    let behind = heap.advise_free(19 * PAGE..21 * PAGE);
    assert!(matches!(behind, Err(Error::OutOfRange { .. })), "{behind:?}");
    // A page that this thread stores to at the moment is left alone, without a wait.
    let owned = heap.page_mut(5).unwrap();
    heap.advise_free(5 * PAGE..6 * PAGE).unwrap();
    drop(owned);
    assert_eq!(tenant.stat().unwrap().events.pglazyfree, 1);
    // One that a thread reads can be freed, and is not dropped meanwhile.
    let read = heap.page(6).unwrap();
    heap.advise_free(6 * PAGE..7 * PAGE).unwrap();
    tenant.reclaim(Size::new(1 << 20)).unwrap();
    assert!(read[..] == noise(6, 1));
    drop(read);
    pager.validate().unwrap();
}
