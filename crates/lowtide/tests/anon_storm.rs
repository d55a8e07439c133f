//! Anonymous regions under many threads: stores, reads, discards, growing, limits that shrink, a
//! tenant that is removed, regions that come and go. Each byte is checked against what its writer
//! remembers, and in the end everything is given back.

use lowtide::{Error, Pager, Region, Size, SwapOptions, Tenant, TenantError};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const PAGE: u64 = 4096;

/// A generator of numbers.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What a page holds in a version; zeroes in version 0.
fn word(page: u64, version: u64, at: u64) -> u64 {
    match version {
        0 => 0,
        _ if at.is_multiple_of(32) => (page << 40 | version << 9 | at).wrapping_mul(0x9E37_79B9),
        _ => page << 32 | version,
    }
}

fn fill(page: u64, version: u64, bytes: &mut [u8]) {
    for (at, slot) in bytes.chunks_exact_mut(8).enumerate() {
        slot.copy_from_slice(&word(page, version, at as u64).to_le_bytes());
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")))
}

fn check(page: u64, version: u64, bytes: &[u8]) {
    for (at, found) in words(bytes).enumerate() {
        let expected = word(page, version, at as u64);
        assert!(found == expected, "page {page} in version {version} has {found:#x} at {at}");
    }
}

/// A page of another thread: zeroes, or one version throughout.
fn check_whole(page: u64, bytes: &[u8]) {
    let second = words(bytes).nth(1).expect("a page has words");
    check(page, if second == 0 { 0 } else { second & 0xFFFF_FFFF }, bytes);
}

/// What one thread does to the pages `number`, `number + threads`, ... for which it alone stores.
fn work(heap: &Region, number: u64, threads: u64, steps: u64, seed: u64, full: &AtomicU64) {
    let mut rng = Rng(seed * 0x9E37 + number + 1);
    let mine = heap.page_count() / threads;
    let mut versions = vec![0_u64; mine as usize];
    let mut buffer = vec![0; PAGE as usize];
    // Without room an operation fails as a whole.
    let failed = |result: Result<(), Error>| match result {
        Ok(()) => false,
        Err(Error::OutOfBudget { .. }) => {
            full.fetch_add(1, Relaxed);
            true
        }
        Err(other) => panic!("{other}"),
    };
    for step in 1..=steps {
        let own = rng.below(mine);
        let page = own * threads + number;
        let version = &mut versions[own as usize];
        match rng.below(16) {
            0..4 => {
                let store = heap.page_mut(page).map(|mut guard| fill(page, step, &mut guard));
                if !failed(store) {
                    *version = step;
                }
            }
            4..6 => {
                fill(page, step, &mut buffer);
                if !failed(heap.write_at(page * PAGE, &buffer)) {
                    *version = step;
                }
            }
            6..9 => {
                let read = heap.page(page).map(|guard| check(page, *version, &guard));
                failed(read);
            }
            9..11 => {
                if !failed(heap.read_at(page * PAGE, &mut buffer)) {
                    check(page, *version, &buffer);
                }
            }
            11 => {
                heap.clear(page * PAGE..(page + 1) * PAGE).expect("it needs no room");
                *version = 0;
            }
            _ => {
                let other = rng.below(mine * threads);
                let read = heap.page(other).map(|guard| check_whole(other, &guard));
                failed(read);
            }
        }
    }
    for (own, version) in versions.into_iter().enumerate() {
        let page = own as u64 * threads + number;
        loop {
            match heap.page(page) {
                Ok(guard) => {
                    check(page, version, &guard);
                    break;
                }
                Err(Error::OutOfBudget { .. }) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        }
    }
}

fn pager(max: &str, swap: SwapOptions, policy: &str) -> Pager {
    let builder =
        Pager::builder().max(max.parse::<Size>().unwrap()).policy(policy.parse().unwrap());
    builder.swap(swap).memory_timeout(std::time::Duration::from_secs(2)).build().unwrap()
}

fn compressed(limit: &str) -> SwapOptions {
    SwapOptions::compressed(limit.parse::<Size>().unwrap())
}

/// Everything is back.
fn check_empty(pager: &Pager, tenant: &Tenant) {
    pager.validate().unwrap();
    assert_eq!(pager.root().usage().unwrap(), 0);
    if let Ok(stat) = tenant.stat() {
        assert_eq!((stat.anon, stat.swapcached), (0, 0));
    }
    assert_eq!(pager.root().swap_usage().unwrap(), 0);
}

#[test]
fn contents_are_kept_at_two_four_and_eight_times_the_budget() {
    for policy in ["mglru", "mglru-7.1", "lru", "tide"] {
        for times in [2, 4, 8] {
            let pager = pager("16M", compressed("8M"), policy);
            let tenant = pager.tenant("heap").max(Size::mib(4)).create().unwrap();
            let heap = tenant.region(times * (4 << 20)).unwrap();
            let full = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for number in 0..4 {
                    let (heap, full) = (&heap, &full);
                    scope.spawn(move || work(heap, number, 4, 4000, times, full));
                }
            });
            assert_eq!(full.into_inner(), 0, "{policy}: it compresses to less than a tenth");
            assert!(tenant.usage().unwrap() <= 4 << 20);
            drop(heap);
            check_empty(&pager, &tenant);
        }
    }
}

#[test]
fn sixteen_threads_fill_swap_to_the_last_slot_and_nothing_is_lost() {
    // The multi-gen LRU leaves the last 63 slots alone.
    for (policy, left) in [("mglru", 63 << 12), ("lru", 0), ("tide", 0)] {
        fill_swap(policy, left);
    }
}

fn fill_swap(policy: &str, left: u64) {
    const SWAP: u64 = 2 << 20;
    let pager = pager("8M", compressed("2M").size(Size::new(SWAP)), policy);
    let tenant = pager.tenant("heap").max(Size::mib(1)).create().unwrap();
    let heap = tenant.region(8 << 20).unwrap();
    let (full, filled, seen) = (AtomicU64::new(0), Barrier::new(17), Barrier::new(17));
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (heap, full, filled, seen) = (&heap, &full, &filled, &seen);
            scope.spawn(move || {
                let mut stored = Vec::new();
                for page in (0..heap.page_count()).filter(|page| page % 16 == number) {
                    match heap.page_mut(page) {
                        Ok(mut guard) => {
                            fill(page, 1, &mut guard);
                            stored.push(page);
                        }
                        Err(Error::OutOfBudget { .. }) => {
                            full.fetch_add(1, Relaxed);
                            break;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                filled.wait();
                seen.wait();
                // Room for others, so that each can see its own pages again.
                for &page in &stored {
                    let again = heap.page(page);
                    match again {
                        Ok(guard) => check(page, 1, &guard),
                        Err(Error::OutOfBudget { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    heap.clear(page * PAGE..(page + 1) * PAGE).unwrap();
                }
            });
        }
        filled.wait();
        assert!(pager.root().swap_usage().unwrap() >= SWAP - left, "{policy}");
        pager.validate().unwrap();
        seen.wait();
    });
    assert!(full.into_inner() > 0, "{policy}: 8 MiB do not fit");
    pager.validate().unwrap();
    drop(heap);
    check_empty(&pager, &tenant);
}

#[test]
fn limits_shrink_below_usage_and_the_tenant_is_removed_while_threads_work() {
    let pager = pager("16M", compressed("8M"), "mglru");
    let tenant = pager.tenant("heap").max(Size::mib(4)).create().unwrap();
    let heap = tenant.region(6 << 20).unwrap();
    let (full, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let (heap, full) = (&heap, &full);
                scope.spawn(move || work(heap, number, 4, 6000, 7, full))
            })
            .collect();
        let (tenant, pager, done) = (&tenant, &pager, &done);
        scope.spawn(move || {
            for round in 0.. {
                if done.load(Relaxed) {
                    break;
                }
                let max = Size::new([4, 3, 5, 2][round % 4] << 20);
                if tenant.set_max(max).is_err() || round == 40 {
                    break;
                }
                tenant.set_swappiness([60, 200, 1, 201][round / 2 % 4]).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
                pager.validate().unwrap();
            }
            tenant.remove().unwrap();
            pager.validate().unwrap();
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Relaxed);
    });
    assert!(tenant.usage() == Err(TenantError::Gone));
    drop(heap);
    check_empty(&pager, &tenant);
}

#[test]
fn regions_come_and_go_beside_files_and_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    let pager = pager("4M", compressed("2M"), "mglru");
    let tenant = pager.tenant("heap").max(Size::mib(2)).create().unwrap();
    let view = tenant.open(&path).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (tenant, view) = (&tenant, &view);
            scope.spawn(move || {
                for round in 0..12 {
                    let heap = tenant.region(1 << 20).unwrap();
                    let full = AtomicU64::new(0);
                    work(&heap, 0, 1, 400, number * 100 + round, &full);
                    assert_eq!(full.into_inner(), 0);
                    for page in (0..view.page_count()).skip(number as usize).step_by(7) {
                        assert_eq!(view.page(page).unwrap()[9], 7);
                    }
                }
            });
        }
    });
    let stat = tenant.stat().unwrap();
    assert!(stat.file > 0 && stat.anon == 0, "{stat}");
    drop(view);
    check_empty(&pager, &tenant);
}

#[test]
fn memory_and_file_together_keep_all_contents_while_the_coldest_move() {
    let dir = tempfile::tempdir().unwrap();
    for (policy, limit) in
        [("mglru", "256K"), ("lru", "128K"), ("mglru-7.1", "4K"), ("tide", "256K")]
    {
        let swap = compressed(limit).file(dir.path(), Size::mib(32));
        let pager = pager("16M", swap, policy);
        let tenant = pager.tenant("heap").max(Size::mib(2)).create().unwrap();
        let other = pager.tenant("other").max(Size::mib(1)).create().unwrap();
        let (heap, beside) = (tenant.region(8 << 20).unwrap(), other.region(2 << 20).unwrap());
        let (full, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for number in 0..4 {
                let (heap, full) = (&heap, &full);
                workers.push(scope.spawn(move || work(heap, number, 4, 5000, 3, full)));
            }
            let (beside, full) = (&beside, &full);
            workers.push(scope.spawn(move || work(beside, 0, 1, 5000, 4, full)));
            let (other, done) = (&other, &done);
            // Regions that end while their pages are moved, and whose numbers are used again.
            scope.spawn(move || {
                for round in 0.. {
                    if done.load(Relaxed) {
                        break;
                    }
                    let short = other.region(1 << 20).unwrap();
                    work(&short, 0, 1, 300, round, full);
                }
            });
            for worker in workers {
                worker.join().unwrap();
            }
            done.store(true, Relaxed);
        });
        assert_eq!(full.into_inner(), 0, "{policy}: the file is large enough");
        assert!(pager.swap_file().unwrap().written > 100, "{policy}");
        drop((heap, beside));
        check_empty(&pager, &tenant);
        assert_eq!(pager.swap_file().unwrap().used, 0);
    }
}
