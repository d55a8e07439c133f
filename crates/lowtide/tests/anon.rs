//! Anonymous regions: contents, zeroes, limits, giving up, growing, closing.

use lowtide::{Error, Pager, RegionOptions, Size, SwapOptions, TenantFile, TenantVec};
use std::sync::mpsc;
use std::time::Duration;

/// A time that nothing waits that does not wait for its end.
const LONG: Duration = Duration::from_secs(600);

fn pager(max: &str, swap: Option<&str>) -> Pager {
    let mut builder = Pager::builder().max(max.parse::<Size>().unwrap());
    if let Some(limit) = swap {
        builder = builder.swap(SwapOptions::compressed(limit.parse::<Size>().unwrap()));
    }
    builder.build().unwrap()
}

/// What a page holds in some version: compressible, and of this page and version alone.
fn fill(page: u64, version: u64, bytes: &mut [u8]) {
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = if at % 4 == 0 { page << 32 | version << 12 | at as u64 } else { page };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn check(page: u64, version: u64, bytes: &[u8]) {
    let mut expected = vec![0; bytes.len()];
    fill(page, version, &mut expected);
    assert!(bytes == expected, "page {page} has other contents than version {version}");
}

#[test]
fn a_region_of_four_times_its_budget_keeps_its_contents() {
    let pager = pager("16M", Some("4M"));
    let tenant = pager.tenant("heap").max(Size::mib(2)).create().unwrap();
    let heap = tenant.region(8 << 20).unwrap();
    let pages = heap.page_count();
    for version in 1..4 {
        for page in 0..pages {
            if version > 1 {
                check(page, version - 1, &heap.page(page).unwrap());
            }
            fill(page, version, &mut heap.page_mut(page).unwrap());
        }
        assert!(tenant.usage().unwrap() <= 2 << 20);
        pager.validate().unwrap();
    }
    for page in (0..pages).rev() {
        check(page, 3, &heap.page(page).unwrap());
    }
    let stat = tenant.stat().unwrap();
    assert!(stat.events.pswpout > pages && stat.events.pswpin > pages, "{stat}");
    assert!(heap.swapped_pages() > pages / 2, "{} pages are in swap", heap.swapped_pages());
    pager.validate().unwrap();
    drop(heap);
    assert_eq!(tenant.stat().unwrap().anon, 0);
    let left = pager.root().usage().unwrap();
    assert_eq!(left, 0, "frames of pages, of the store and of the reserve");
    pager.validate().unwrap();
}

/// Swap refuses all pages, so they are active. To look at them again, classical reclaim has to make
/// some inactive, which it decides by statistics that are published from time to time.
#[test]
fn without_background_threads_a_region_that_swap_refuses_does_not_wait_for_ever() {
    for policy in ["mglru", "mglru-7.1", "tide", "lru"] {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let pager = Pager::builder()
                .max(Size::mib(1))
                .policy(policy.parse().unwrap())
                .swap(SwapOptions::compressed(Size::kib(4)))
                .background(false)
                .memory_timeout(Duration::MAX)
                .build()
                .unwrap();
            let tenant = pager.tenant("heap").max(Size::kib(256)).create().unwrap();
            let heap = tenant.region(1 << 20).unwrap();
            let refused = (0..heap.page_count()).map(|page| {
                let mut noise = page + 1;
                heap.page_mut(page).map(|mut bytes| {
                    for byte in bytes.iter_mut() {
                        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        *byte = (noise >> 56) as u8;
                    }
                })
            });
            // The first to be refused finds pages that are inactive.
            refused.filter_map(Result::err).take(3).for_each(|e| sender.send(e).unwrap());
        });
        for _ in 0..3 {
            let refused = receiver.recv_timeout(Duration::from_secs(60));
            assert!(matches!(refused, Ok(Error::OutOfBudget { .. })), "{policy}: {refused:?}");
        }
    }
}

#[test]
fn a_page_that_was_never_stored_to_reads_as_zeroes_and_takes_no_memory() {
    let pager = pager("4M", None);
    let heap = pager.root().region((1 << 30) + 5).unwrap();
    assert_eq!(heap.page_count(), (1 << 18) + 1);
    for page in (0..heap.page_count()).step_by(1000) {
        assert!(heap.page(page).unwrap().iter().all(|byte| *byte == 0));
    }
    let mut bytes = [1; 10_000];
    heap.read_at(123_456, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 10_000]);
    assert_eq!(pager.root().usage().unwrap(), 0);
    heap.write_at(4090, &[7; 10]).unwrap();
    assert_eq!(heap.page(0).unwrap()[4089..], [0, 7, 7, 7, 7, 7, 7]);
    assert_eq!(heap.page(1).unwrap()[..5], [7, 7, 7, 7, 0]);
    assert_eq!(pager.root().stat().unwrap().anon, 2);
    assert!(matches!(heap.page(1 << 19), Err(Error::OutOfRange { .. })));
    assert!(matches!(heap.write_at(1 << 30, &[0; 6]), Err(Error::OutOfRange { .. })));
    heap.write_at(1 << 30, &[9; 5]).unwrap();
    pager.validate().unwrap();
}

#[test]
fn discarded_ranges_are_zeroes_and_give_memory_and_swap_back() {
    let pager = pager("8M", Some("2M"));
    let tenant = pager.tenant("heap").max(Size::mib(1)).create().unwrap();
    let heap = tenant.region(2 << 20).unwrap();
    for page in 0..512 {
        fill(page, 1, &mut heap.page_mut(page).unwrap());
    }
    let swapped = heap.swapped_pages();
    assert!(swapped > 100 && swapped == tenant.stat().unwrap().events.pswpout);
    // Half a page at each end.
    heap.clear(2048..100 * 4096 + 1000).unwrap();
    let first = heap.page(0).unwrap().to_vec();
    let mut expected = vec![0; 4096];
    fill(0, 1, &mut expected);
    expected[2048..].fill(0);
    assert!(first == expected, "the first half is there");
    for page in 1..100 {
        assert!(heap.page(page).unwrap().iter().all(|byte| *byte == 0) && !heap.is_resident(page));
    }
    fill(100, 1, &mut expected);
    expected[..1000].fill(0);
    assert!(heap.page(100).unwrap().to_vec() == expected, "all but the first bytes are there");
    for page in 101..512 {
        check(page, 1, &heap.page(page).unwrap());
    }
    pager.validate().unwrap();
    heap.clear(0..2 << 20).unwrap();
    assert_eq!((heap.swapped_pages(), tenant.stat().unwrap().anon), (0, 0));
    heap.clear(5..5).unwrap();
    heap.clear(7..9).unwrap();
    assert!(matches!(heap.clear(0..(2 << 20) + 1), Err(Error::OutOfRange { .. })));
    heap.write_at(4000, &[5; 200]).unwrap();
    heap.clear(4050..4100).unwrap();
    let mut bytes = [1; 200];
    heap.read_at(4000, &mut bytes).unwrap();
    assert!(bytes[..50] == [5; 50] && bytes[50..100] == [0; 50] && bytes[100..] == [5; 100]);
    drop(heap);
    assert_eq!(pager.root().usage().unwrap(), 0);
    pager.validate().unwrap();
}

#[test]
fn a_region_grows_and_what_it_grows_by_is_zeroes() {
    let pager = pager("4M", None);
    let heap = RegionOptions::new().name("list").create(&pager.root(), 100).unwrap();
    heap.write_at(0, &[3; 100]).unwrap();
    assert!(matches!(heap.write_at(50, &[3; 51]), Err(Error::OutOfRange { .. })));
    assert_eq!(heap.grow(10_000).unwrap(), 100);
    assert_eq!((heap.len(), heap.page_count()), (10_100, 3));
    let mut bytes = vec![1; 10_100];
    heap.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..100] == [3; 100] && bytes[100..].iter().all(|byte| *byte == 0));
    let error = heap.grow(1 << 50).unwrap_err();
    assert!(
        matches!(error, Error::Grow { .. }) && error.to_string().contains("RegionOptions::growth"),
        "{error}"
    );
    assert!(error.to_string().contains("[anon:list]"), "{error}");
    assert_eq!(heap.len(), 10_100);
    assert!(heap.grow(u64::MAX).is_err());
}

#[test]
fn without_swap_a_region_is_as_large_as_its_budget_and_then_fails_at_once() {
    let pager = Pager::builder().max(Size::mib(8)).memory_timeout(LONG).build().unwrap();
    let tenant = pager.tenant("heap").max(Size::mib(1)).create().unwrap();
    let heap = tenant.region(4 << 20).unwrap();
    let begun = std::time::Instant::now();
    let failed = (0..heap.page_count()).find(|&page| match heap.page_mut(page) {
        Ok(mut guard) => {
            fill(page, 1, &mut guard);
            false
        }
        Err(Error::OutOfBudget { report }) => {
            assert_eq!(report.stat.anon, 256, "{report}");
            true
        }
        Err(other) => panic!("{other}"),
    });
    assert_eq!(failed, Some(256));
    assert!(begun.elapsed() < LONG, "no waiting helps");
    assert_eq!(tenant.events().unwrap().oom, 1);
    for page in 0..256 {
        check(page, 1, &heap.page(page).unwrap());
    }
    heap.clear(0..4096).unwrap();
    fill(256, 1, &mut heap.page_mut(256).unwrap());
    pager.validate().unwrap();
}

#[test]
fn a_thread_that_holds_a_page_gets_an_error_instead_of_waiting_for_itself() {
    let pager = pager("4M", None);
    let heap = pager.root().region(1 << 20).unwrap();
    {
        let guard = heap.page_mut(3).unwrap();
        assert!(matches!(heap.page(3), Err(Error::HeldHere { page: 3, .. })));
        assert!(matches!(heap.page_mut(3), Err(Error::HeldHere { page: 3, .. })));
        assert!(matches!(heap.read_at(3 * 4096, &mut [0]), Err(Error::HeldHere { .. })));
        assert!(matches!(heap.clear(0..1 << 20), Err(Error::HeldHere { page: 3, .. })));
        drop(heap.page(4).unwrap());
        drop(guard);
    }
    let guard = heap.page(3).unwrap();
    assert!(matches!(heap.page_mut(3), Err(Error::HeldHere { page: 3, .. })));
    assert!(matches!(heap.clear(0..1 << 20), Err(Error::HeldHere { page: 3, .. })));
    assert_eq!(heap.page(3).unwrap()[0], guard[0]);
    drop(guard);
    heap.page_mut(3).unwrap()[0] = 1;
}

#[test]
fn a_guard_keeps_its_bytes_and_a_store_waits_for_it() {
    let pager = pager("4M", None);
    let heap = pager.root().region(1 << 20).unwrap();
    for page in [0, 1] {
        if page == 1 {
            heap.page_mut(page).unwrap().fill(1);
        }
        let guard = heap.page(page).unwrap();
        std::thread::scope(|scope| {
            let store = scope.spawn(|| heap.page_mut(page).unwrap().fill(9));
            for _ in 0..2000 {
                assert!(guard.iter().all(|byte| u64::from(*byte) == page));
                std::thread::yield_now();
            }
            assert!(!store.is_finished());
            drop(guard);
            store.join().unwrap();
        });
        assert!(heap.page(page).unwrap().iter().all(|byte| *byte == 9));
    }
}

#[test]
fn elements_are_those_of_one_page_and_copies_cross_pages() {
    #[derive(Clone, Copy, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C)]
    struct Odd([u8; 12]);
    let pager = pager("4M", None);
    let heap = pager.root().region(10_000).unwrap();
    {
        let mut numbers = heap.elements_mut::<u32>(1020).unwrap();
        assert_eq!(numbers.len(), 4);
        numbers.copy_from_slice(&[1, 2, 3, 4]);
    }
    assert_eq!(heap.elements::<u32>(1022).unwrap()[..], [3, 4]);
    assert_eq!(heap.elements::<u32>(2048).unwrap().len(), (10_000 - 8192) / 4);
    assert!(matches!(heap.elements::<u32>(2500), Err(Error::OutOfRange { .. })));
    heap.write_at(4 * 1022, bytemuck::cast_slice(&[5_u32, 6, 7, 8])).unwrap();
    let mut back = [0_u32; 6];
    heap.read_at(4 * 1020, bytemuck::cast_slice_mut(&mut back)).unwrap();
    assert_eq!(back, [1, 2, 5, 6, 7, 8]);
    heap.store(341, Odd([9; 12])).unwrap();
    assert_eq!(heap.load::<Odd>(341).unwrap(), Odd([9; 12]));
    assert!(matches!(heap.load::<u64>(u64::MAX), Err(Error::OutOfRange { .. })));
}

#[test]
fn a_region_whose_guard_was_forgotten_keeps_that_page_and_gives_back_the_others() {
    let swap = SwapOptions::compressed(Size::mib(1));
    let builder = Pager::builder().max(Size::mib(4)).swap(swap);
    let pager = builder.memory_timeout(Duration::from_millis(200)).build().unwrap();
    for stores in [false, true] {
        let before = pager.root().stat().unwrap().anon;
        let heap = pager.root().region(2 << 20).unwrap();
        for page in 0..heap.page_count() {
            fill(page, 1, &mut heap.page_mut(page).unwrap());
        }
        if stores {
            std::mem::forget(heap.page_mut(7).unwrap());
        } else {
            std::mem::forget(heap.page(7).unwrap());
        }
        drop(heap);
        assert_eq!(pager.root().stat().unwrap().anon, before + 1);
        pager.validate().unwrap();
    }
}

#[test]
fn a_vector_larger_than_its_budget_behaves_as_one_of_the_standard_library() {
    let pager = pager("8M", Some("2M"));
    let tenant = pager.tenant("list").max(Size::kib(512)).create().unwrap();
    // 12 bytes: elements lie across pages.
    let mut vec = TenantVec::<[u32; 3]>::new(&tenant).unwrap();
    let mut model: Vec<[u32; 3]> = Vec::new();
    let mut state = 1_u64;
    let mut random = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for step in 0..60_000_u32 {
        match random(40) {
            0..20 => {
                vec.push([step; 3]).unwrap();
                model.push([step; 3]);
            }
            20..22 => {
                let more = vec![[step, 1, 2]; random(300)];
                vec.extend_from_slice(&more).unwrap();
                model.extend_from_slice(&more);
            }
            22..24 => assert_eq!(vec.pop().unwrap(), model.pop()),
            24..30 if !model.is_empty() => {
                let at = random(model.len());
                vec.set(at as u64, [step, 5, 5]).unwrap();
                model[at] = [step, 5, 5];
            }
            30 if random(500) == 0 => {
                let len = random(model.len() + 10);
                vec.truncate(len as u64).unwrap();
                model.truncate(len);
            }
            _ => {
                let at = random(model.len() + 3);
                assert_eq!(vec.get(at as u64).unwrap(), model.get(at).copied());
            }
        }
        assert_eq!(vec.len(), model.len() as u64);
    }
    assert!(model.len() * 12 > 1 << 20, "{} elements", model.len());
    assert!(tenant.usage().unwrap() <= 512 << 10);
    let mut all = Vec::new();
    vec.for_each_chunk(|chunk| all.extend_from_slice(chunk)).unwrap();
    assert!(all == model);
    vec.truncate(0).unwrap();
    assert!(vec.is_empty() && vec.pop().unwrap().is_none());
    assert_eq!((vec.region().swapped_pages(), tenant.stat().unwrap().anon), (0, 0));
    drop(vec);
    assert_eq!(pager.root().usage().unwrap(), 0);
}

#[test]
fn a_tenant_swaps_no_more_than_its_swap_max() {
    for policy in ["mglru", "lru", "tide"] {
        let swap = SwapOptions::compressed(Size::mib(4));
        let builder = Pager::builder().max(Size::mib(8)).swap(swap).memory_timeout(LONG);
        let pager = builder.policy(policy.parse().unwrap()).build().unwrap();
        let tenant = pager.tenant("heap").max(Size::mib(1)).create().unwrap();
        tenant.set_swap_max(Size::kib(256)).unwrap();
        let heap = tenant.region(4 << 20).unwrap();
        let begun = std::time::Instant::now();
        let failed = (0..heap.page_count()).find(|&page| match heap.page_mut(page) {
            Ok(mut guard) => {
                fill(page, 1, &mut guard);
                false
            }
            Err(Error::OutOfBudget { .. }) => true,
            Err(other) => panic!("{other}"),
        });
        let failed = failed.expect("1 MiB and 256 KiB hold less than 4 MiB");
        assert!(begun.elapsed() < LONG, "{policy}: no waiting helps");
        assert!((256..320).contains(&failed), "{policy}: failed at page {failed}");
        assert_eq!(tenant.swap_usage().unwrap(), 256 << 10, "{policy}");
        tenant.set_swap_max(Size::MAX).unwrap();
        for page in failed..heap.page_count() {
            fill(page, 1, &mut heap.page_mut(page).unwrap());
        }
        for page in 0..heap.page_count() {
            check(page, 1, &heap.page(page).unwrap());
        }
        pager.validate().unwrap();
    }
}

#[test]
fn swappiness_decides_between_pages_of_files_and_of_regions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    for (swappiness, expected) in [(0, [false, true]), (201, [true, false])] {
        let pager = pager("8M", Some("4M"));
        let tenant = pager.tenant("both").max(Size::mib(2)).create().unwrap();
        tenant.set_swappiness(swappiness).unwrap();
        let (heap, view) = (tenant.region(1 << 20).unwrap(), tenant.open(&path).unwrap());
        for page in 0..heap.page_count() {
            fill(page, 1, &mut heap.page_mut(page).unwrap());
        }
        // As much again in pages of the file, and a little more: something has to go.
        for page in 0..heap.page_count() + 64 {
            assert_eq!(view.page(page).unwrap()[5], 7);
        }
        let swapped = tenant.swap_usage().unwrap() > 0;
        let file = (0..heap.page_count() + 64).any(|page| !view.is_resident(page));
        assert_eq!([swapped, file], expected, "swappiness {swappiness}");
        for page in 0..heap.page_count() {
            check(page, 1, &heap.page(page).unwrap());
        }
    }
}

#[test]
fn a_tenant_that_is_full_of_compressed_pages_can_still_read_all_that_it_has() {
    for policy in ["mglru", "lru", "tide"] {
        let swap = SwapOptions::compressed(Size::mib(8));
        let builder = Pager::builder().max(Size::mib(8)).swap(swap);
        let pager = builder.policy(policy.parse().unwrap()).build().unwrap();
        let tenant = pager.tenant("heap").max(Size::mib(2)).create().unwrap();
        let heap = tenant.region(64 << 20).unwrap();
        // Three quarters of a page compress to a word.
        let content = |page: u64| {
            let mut bytes = vec![1; 4096];
            let mut state = page * 2 + 1;
            for word in bytes[..1024].chunks_exact_mut(8) {
                state = state.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
                word.copy_from_slice(&state.to_le_bytes());
            }
            bytes
        };
        let full = (0..heap.page_count())
            .find(|&page| match heap.page_mut(page) {
                Ok(mut guard) => {
                    guard.copy_from_slice(&content(page));
                    false
                }
                Err(Error::OutOfBudget { .. }) => true,
                Err(other) => panic!("{other}"),
            })
            .expect("64 MiB compress to 16");
        let stat = tenant.swap_stat().unwrap();
        assert!(stat.memory_bytes <= 1536 << 10, "{policy}: {stat}");
        assert!(full > 1200, "{policy}: full at {full}; {stat}");
        for round in 0..2 {
            for page in 0..full {
                let page = if round == 0 { page } else { page * 7919 % full };
                let guard = heap.page(page).unwrap_or_else(|e| panic!("{policy}, {page}: {e}"));
                assert!(guard[..] == content(page), "{policy}: page {page}");
            }
        }
        assert!(tenant.usage().unwrap() <= 2 << 20);
        pager.validate().unwrap();
        drop(heap);
        assert_eq!(pager.root().usage().unwrap(), 0);
    }
}

#[test]
fn a_tenant_above_its_swap_high_is_slowed_down_and_goes_on_swapping() {
    let pager = pager("8M", Some("4M"));
    let tenant = pager.tenant("heap").max(Size::mib(1)).create().unwrap();
    tenant.set_swap_high(Size::mib(1)).unwrap();
    assert_eq!(tenant.text(TenantFile::SwapHigh).unwrap(), "1048576\n");
    let heap = tenant.region(4 << 20).unwrap();
    let store = |pages: std::ops::Range<u64>| {
        pages.for_each(|page| fill(page, 1, &mut heap.page_mut(page).unwrap()));
    };
    store(0..400);
    assert!(tenant.swap_usage().unwrap() < 1 << 20);
    let events = || tenant.text(TenantFile::SwapEvents).unwrap();
    assert_eq!(events(), "high 0\nmax 0\nfail 0\n");
    let before = tenant.pressure().unwrap().throttle.total;
    // A few pages above: far above, each batch would sleep for two seconds.
    let enough = (400..1024).find(|&page| {
        store(page..page + 1);
        tenant.swap_usage().unwrap() > (1 << 20) + (64 << 10)
    });
    let enough = enough.expect("swap.high stops nothing");
    store(enough + 1..enough + 40);
    assert!(!events().starts_with("high 0"), "{}", events());
    let lost = tenant.pressure().unwrap().throttle.total - before;
    assert!(lost > Duration::from_millis(10), "no thread has slept: {lost:?}");
    for page in 0..enough {
        check(page, 1, &heap.page(page).unwrap());
    }
    tenant.set_swap_high(Size::MAX).unwrap();
    assert_eq!(tenant.text(TenantFile::SwapHigh).unwrap(), "max\n");
    tenant.set_swap_max(Size::mib(1)).unwrap();
    let full = (enough + 40..1024).any(|page| heap.page_mut(page).is_err());
    assert!(full && !events().contains("max 0"), "{}", events());
    pager.validate().unwrap();
}
