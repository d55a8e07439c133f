//! The swap file: pages that do not compress, pages that were not used for long, a file that fails.

use lowtide::instruments::Verdict;
use lowtide::instruments::{Gate, Inject, InjectOp, Request};
use lowtide::{Error, Pager, Region, Size, SwapOptions, Tenant, TenantError};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Dir, noise};

const PAGE: u64 = 4096;

/// Bytes that compress to a small part.
fn text(page: u64, version: u64) -> Vec<u8> {
    format!("page {page} in version {version}; ").bytes().cycle().take(PAGE as usize).collect()
}

fn pager(dir: &Path, limit: &str, file: &str, inject: Option<Arc<dyn Inject>>) -> Pager {
    let swap = SwapOptions::compressed(limit.parse::<Size>().unwrap())
        .file(dir, file.parse::<Size>().unwrap());
    let builder = Pager::builder().max(Size::mib(16)).swap(swap);
    let builder = builder.memory_timeout(Duration::from_secs(60));
    match inject {
        Some(inject) => builder.inject(inject).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

fn heap(pager: &Pager, max: &str, bytes: u64) -> (Tenant, Region) {
    let tenant = pager.tenant("heap").max(max.parse::<Size>().unwrap()).create().unwrap();
    let heap = tenant.region(bytes).unwrap();
    (tenant, heap)
}

fn check_empty(pager: &Pager) {
    pager.validate().unwrap();
    let root = pager.root();
    assert_eq!((root.usage().unwrap(), root.swap_usage().unwrap()), (0, 0));
    assert_eq!(pager.swap_file().unwrap().used, 0);
}

#[test]
fn pages_that_do_not_compress_go_to_the_file_and_come_back() {
    let dir = Dir::new();
    let pager = pager(dir.path(), "1M", "16M", None);
    let (tenant, heap) = heap(&pager, "2M", 8 << 20);
    for version in 1..3 {
        for page in 0..heap.page_count() {
            if version > 1 {
                assert!(heap.page(page).unwrap()[..] == noise(page, version - 1), "page {page}");
            }
            heap.page_mut(page).unwrap().copy_from_slice(&noise(page, version));
        }
    }
    let (memory, file) = (tenant.swap_stat().unwrap(), pager.swap_file().unwrap());
    assert!(
        memory.raw_pages == 0 && u64::from(file.used) > heap.page_count() / 2,
        "{memory}{file:?}"
    );
    assert!(file.written > 8 * file.write_requests, "neighbours are written together: {file:?}");
    assert!(tenant.usage().unwrap() <= 2 << 20);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
    heap.clear(0..4 << 20).unwrap();
    assert!(heap.page(7).unwrap().iter().all(|byte| *byte == 0));
    assert!(heap.page(1500).unwrap()[..] == noise(1500, 2));
    drop(heap);
    check_empty(&pager);
}

#[test]
fn compressed_pages_that_were_not_used_for_long_go_to_the_file_when_memory_is_full() {
    let dir = Dir::new();
    let pager = pager(dir.path(), "64K", "16M", None);
    let (tenant, heap) = heap(&pager, "1M", 12 << 20);
    for page in 0..heap.page_count() {
        heap.page_mut(page).unwrap().copy_from_slice(&text(page, 1));
    }
    let (memory, file) = (tenant.swap_stat().unwrap(), pager.swap_file().unwrap());
    assert!(memory.pages > 100 && memory.memory_bytes <= 64 << 10, "{memory}");
    assert!(file.used > 500, "{file:?}");
    assert_eq!(memory.pages + u64::from(file.used), heap.swapped_pages());
    // The oldest are in the file: what was stored last comes back without a read.
    let before = file.read;
    for page in heap.page_count() - 300..heap.page_count() {
        assert!(heap.page(page).unwrap()[..] == text(page, 1), "page {page}");
    }
    let read = pager.swap_file().unwrap().read - before;
    assert!(read < 60, "{read} of 300 were read from the file");
    for page in 0..heap.page_count() {
        assert!(heap.page(page).unwrap()[..] == text(page, 1), "page {page}");
    }
    drop(heap);
    check_empty(&pager);
}

/// Fails requests on the swap file: with a period, from the first one that is counted on.
struct Faults {
    op: InjectOp,
    verdict: fn() -> Verdict,
    /// Every how many fails; 0 for none.
    every: AtomicU64,
    seen: AtomicU64,
    failed: Mutex<Vec<u64>>,
}

impl Faults {
    fn new(op: InjectOp, verdict: fn() -> Verdict) -> Arc<Self> {
        let (every, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { op, verdict, every, seen, failed: Mutex::default() })
    }

    fn fail_every(&self, every: u64) {
        self.every.store(every, Relaxed);
    }
}

impl Inject for Faults {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let every = self.every.load(Relaxed);
        if request.op != self.op || every == 0 {
            return Verdict::Pass;
        }
        assert_eq!(request.path, Path::new("[swap]"));
        if (self.seen.fetch_add(1, Relaxed) + 1).is_multiple_of(every) {
            self.failed.lock().unwrap().push(request.number);
            return (self.verdict)();
        }
        Verdict::Pass
    }
}

fn broken() -> Verdict {
    Verdict::Fail(io::Error::from_raw_os_error(5))
}

#[test]
fn a_read_that_fails_is_an_error_of_that_page_and_is_tried_again() {
    let dir = Dir::new();
    for (verdict, kind) in [
        (broken as fn() -> Verdict, None),
        // The bytes that come back are others than were written.
        (|| Verdict::Pretend, Some(io::ErrorKind::InvalidData)),
    ] {
        let faults = Faults::new(InjectOp::Read, verdict);
        let pager = pager(dir.path(), "1M", "16M", Some(Arc::<Faults>::clone(&faults)));
        let (tenant, heap) = heap(&pager, "1M", 4 << 20);
        for page in 0..heap.page_count() {
            heap.page_mut(page).unwrap().copy_from_slice(&noise(page, 1));
        }
        faults.fail_every(3);
        let mut errors = 0;
        // In an order in which nothing is read ahead for long.
        for page in (0..heap.page_count()).map(|page| page * 389 % heap.page_count()) {
            match heap.page(page) {
                Ok(guard) => assert!(guard[..] == noise(page, 1), "page {page}"),
                Err(Error::SwapIn { page: of, source, .. }) => {
                    assert_eq!((of, kind.unwrap_or(source.kind())), (page, source.kind()));
                    errors += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(errors > 100, "{errors} errors");
        // Where a read with neighbours fails, the page is read alone.
        assert!(errors <= faults.failed.lock().unwrap().len());
        pager.validate().unwrap();
        // Storing and discarding need no contents, or fail as well.
        faults.fail_every(1);
        let away = (0..heap.page_count()).find(|&page| !heap.is_resident(page)).unwrap();
        assert!(matches!(heap.page_mut(away), Err(Error::SwapIn { .. })));
        assert!(matches!(heap.write_at(away * PAGE, &[1]), Err(Error::SwapIn { .. })));
        heap.clear(away * PAGE..(away + 1) * PAGE).unwrap();
        faults.fail_every(0);
        for page in (0..heap.page_count()).filter(|&page| page != away) {
            assert!(heap.page(page).unwrap()[..] == noise(page, 1), "page {page}");
        }
        assert!(tenant.usage().unwrap() <= 1 << 20);
        drop(heap);
        check_empty(&pager);
    }
}

#[test]
fn a_store_to_all_of_a_page_in_swap_needs_nothing_of_it() {
    let dir = Dir::new();
    let faults = Faults::new(InjectOp::Read, broken);
    let pager = pager(dir.path(), "1M", "16M", Some(Arc::<Faults>::clone(&faults)));
    // The last page is not whole.
    let (tenant, heap) = heap(&pager, "1M", (4 << 20) - 1000);
    let fill = |version: u64| {
        for page in 0..heap.page_count() {
            let bytes = if page % 2 == 0 { text(page, version) } else { noise(page, version) };
            let len = PAGE.min(heap.len() - page * PAGE) as usize;
            heap.write_at(page * PAGE, &bytes[..len]).unwrap();
        }
    };
    fill(1);
    let (before, swapped) = (tenant.stat().unwrap().events, heap.swapped_pages());
    assert!(swapped > 500);
    // All reads fail.
    faults.fail_every(1);
    fill(2);
    let after = tenant.stat().unwrap().events;
    assert_eq!((after.pswpin, after.pgmajfault), (before.pswpin, before.pgmajfault));
    assert!(after.pswpout > before.pswpout + swapped / 2 && pager.swap_file().unwrap().read == 0);
    pager.validate().unwrap();
    faults.fail_every(0);
    heap.grow(1000).unwrap();
    for page in 0..heap.page_count() {
        let mut due = if page % 2 == 0 { text(page, 2) } else { noise(page, 2) };
        if page + 1 == heap.page_count() {
            due[PAGE as usize - 1000..].fill(0);
        }
        assert!(heap.page(page).unwrap()[..] == due, "page {page}");
    }
    drop(heap);
    check_empty(&pager);
}

#[test]
fn a_write_that_fails_keeps_the_pages_in_memory_and_loses_nothing() {
    let dir = Dir::new();
    for every in [1, 2, 3, 7] {
        let faults = Faults::new(InjectOp::Write, broken);
        let pager = pager(dir.path(), "256K", "16M", Some(Arc::<Faults>::clone(&faults)));
        let (_tenant, heap) = heap(&pager, "1M", 4 << 20);
        faults.fail_every(every);
        let mut stored = Vec::new();
        for page in 0..heap.page_count() {
            match heap.page_mut(page) {
                Ok(mut guard) => {
                    guard.copy_from_slice(&noise(page, every));
                    stored.push(page);
                }
                Err(Error::OutOfBudget { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(
            stored.len() as u64 == heap.page_count() || every == 1,
            "{} of {every}",
            stored.len()
        );
        assert!(!faults.failed.lock().unwrap().is_empty());
        pager.validate().unwrap();
        faults.fail_every(0);
        for &page in &stored {
            assert!(heap.page(page).unwrap()[..] == noise(page, every), "page {page}");
        }
        drop(heap);
        check_empty(&pager);
    }
}

#[test]
fn the_file_is_filled_to_its_last_slot_by_many_threads() {
    let dir = Dir::new();
    let pager = pager(dir.path(), "1M", "1M", None);
    let (_tenant, heap) = heap(&pager, "1M", 8 << 20);
    let full = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (heap, full) = (&heap, &full);
            scope.spawn(move || {
                for page in (0..heap.page_count()).filter(|page| page % 16 == number) {
                    match heap.page_mut(page) {
                        Ok(mut guard) => guard.copy_from_slice(&noise(page, 1)),
                        Err(Error::OutOfBudget { .. }) => {
                            full.fetch_add(1, Relaxed);
                            return;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert!(full.into_inner() > 0, "8 MiB do not fit");
    let file = pager.swap_file().unwrap();
    assert_eq!((file.used, file.slots), (256, 256));
    pager.validate().unwrap();
    drop(heap);
    check_empty(&pager);
}

#[test]
fn a_swap_file_that_cannot_be_made_is_an_error_of_the_builder() {
    let swap = SwapOptions::compressed(Size::mib(1)).file("/nowhere", Size::mib(1));
    let error = Pager::builder().max(Size::mib(4)).swap(swap).build().unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

/// Fails the one request with a number.
struct One(u64);

impl Inject for One {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.number == self.0 { broken() } else { Verdict::Pass }
    }
}

/// Stores, discards and reads what is left; returns how many errors there were, all of which went
/// away when the operation was done again.
fn play(pager: &Pager) -> usize {
    let (tenant, heap) = heap(pager, "512K", 1 << 20);
    let mut errors = 0;
    let mut insist = |act: &dyn Fn() -> Result<(), Error>| match act() {
        Ok(()) => {}
        Err(Error::SwapIn { .. } | Error::OutOfBudget { .. }) => {
            errors += 1;
            act().expect("only one request fails");
        }
        Err(other) => panic!("{other}"),
    };
    for version in 1..3 {
        for page in 0..heap.page_count() {
            insist(&|| heap.page_mut(page).map(|mut to| to.copy_from_slice(&noise(page, version))));
        }
        for page in (0..heap.page_count()).step_by(3) {
            insist(&|| heap.clear(page * PAGE..(page + 1) * PAGE));
        }
        for page in 0..heap.page_count() {
            insist(&|| {
                let due = if page % 3 == 0 { vec![0; PAGE as usize] } else { noise(page, version) };
                heap.page(page).map(|found| assert!(found[..] == due, "page {page}"))
            });
        }
        pager.validate().unwrap();
    }
    assert!(tenant.usage().unwrap() <= 512 << 10);
    drop(heap);
    check_empty(pager);
    errors
}

#[test]
fn each_request_of_the_swap_file_may_fail_and_nothing_is_lost() {
    let dir = Dir::new();
    let counted = Faults::new(InjectOp::Read, broken);
    let good = pager(dir.path(), "4K", "4M", Some(Arc::<Faults>::clone(&counted)));
    assert_eq!(play(&good), 0);
    let file = good.swap_file().unwrap();
    let requests = file.read_requests + file.write_requests;
    assert!(requests > 200, "{file:?}");
    let mut errors = 0;
    for number in (0..20).chain((20..requests).step_by(25)) {
        errors += play(&pager(dir.path(), "4K", "4M", Some(Arc::new(One(number)))));
    }
    assert!(errors > 0, "no read was needed by itself");
}

/// Writes, or reads, of the swap file hang until the gate is opened.
struct Hangs {
    op: InjectOp,
    gate: Gate,
    hung: AtomicU64,
}

impl Inject for Hangs {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op != self.op {
            return Verdict::Pass;
        }
        self.hung.fetch_add(1, Relaxed);
        Verdict::Hang(self.gate.clone())
    }
}

#[test]
fn a_tenant_that_is_removed_while_its_limit_is_lowered_is_gone_and_its_region_stays() {
    let dir = Dir::new();
    // A quarter of each page does not compress.
    let mixed = |page| [&noise(page, 1)[..1024], &text(page, 1)[1024..]].concat();
    let hangs = Arc::new(Lowering { begun: AtomicU64::new(0), gate: Gate::new() });
    let pager = pager(dir.path(), "8M", "8M", Some(Arc::<Lowering>::clone(&hangs)));
    let (tenant, heap) = heap(&pager, "2M", 3 << 20);
    for page in 0..heap.page_count() {
        heap.page_mut(page).unwrap().copy_from_slice(&mixed(page));
    }
    assert!(tenant.swap_stat().unwrap().memory_bytes > 256 << 10);
    hangs.begun.store(1, Relaxed);
    std::thread::scope(|scope| {
        let lowering = scope.spawn(|| tenant.set_max(Size::kib(64)));
        // What is compressed is more than the share of the new limit, so some is written first.
        while hangs.begun.load(Relaxed) == 1 {
            std::thread::yield_now();
        }
        tenant.remove().unwrap();
        hangs.gate.open();
        let lowered = lowering.join().unwrap();
        assert!(matches!(lowered, Err(TenantError::Gone)), "{lowered:?}");
    });
    for page in 0..heap.page_count() {
        assert!(heap.page(page).unwrap()[..] == mixed(page), "page {page}");
    }
    drop(heap);
    check_empty(&pager);
}

/// Writes of the swap file hang until the gate is opened, from the first that is to hang on.
struct Lowering {
    /// 0: none is to hang; 1: the next; 2: one does.
    begun: AtomicU64,
    gate: Gate,
}

impl Inject for Lowering {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op != InjectOp::Write || self.begun.load(Relaxed) == 0 {
            return Verdict::Pass;
        }
        self.begun.store(2, Relaxed);
        Verdict::Hang(self.gate.clone())
    }
}

#[test]
fn pages_are_given_up_while_they_go_to_the_file_and_while_they_come_back() {
    let dir = Dir::new();
    for op in [InjectOp::Write, InjectOp::Read] {
        let hangs = Arc::new(Hangs { op, gate: Gate::new(), hung: AtomicU64::new(0) });
        let pager = pager(dir.path(), "4K", "8M", Some(Arc::<Hangs>::clone(&hangs)));
        let (tenant, heap) = heap(&pager, "512K", 2 << 20);
        let other = tenant.region(1 << 20).unwrap();
        std::thread::scope(|scope| {
            let users: Vec<_> = (0..4)
                .map(|number| {
                    let heap = &heap;
                    scope.spawn(move || {
                        for page in (0..heap.page_count()).filter(|page| page % 4 == number) {
                            heap.page_mut(page).unwrap().copy_from_slice(&noise(page, 1));
                        }
                        for page in (0..heap.page_count()).filter(|page| page % 4 == number) {
                            let guard = heap.page(page).unwrap();
                            let gone = guard.iter().all(|byte| *byte == 0);
                            assert!(gone || guard[..] == noise(page, 1), "page {page}");
                        }
                    })
                })
                .collect();
            while hangs.hung.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            // What hangs is waited for; the rest goes at once.
            let discard = scope.spawn(|| heap.clear(0..2 << 20).unwrap());
            let closing = scope.spawn(move || drop(other));
            tenant.set_swap_max(Size::kib(64)).unwrap();
            std::thread::yield_now();
            tenant.set_swap_max(Size::MAX).unwrap();
            hangs.gate.open();
            discard.join().unwrap();
            closing.join().unwrap();
            users.into_iter().for_each(|user| user.join().unwrap());
        });
        heap.clear(0..2 << 20).unwrap();
        assert_eq!((heap.swapped_pages(), tenant.stat().unwrap().anon), (0, 0));
        tenant.remove().unwrap();
        drop(heap);
        check_empty(&pager);
    }
}

#[test]
fn limits_shrink_below_usage_while_sixteen_threads_swap_to_a_file_that_fails_now_and_then() {
    let dir = Dir::new();
    for op in [InjectOp::Read, InjectOp::Write] {
        let faults = Faults::new(op, broken);
        let pager = pager(dir.path(), "64K", "2M", Some(Arc::<Faults>::clone(&faults)));
        let (tenant, heap) = heap(&pager, "1M", 2 << 20);
        faults.fail_every(5);
        let working = AtomicU64::new(16);
        std::thread::scope(|scope| {
            for number in 0..16 {
                let (heap, working) = (&heap, &working);
                scope.spawn(move || {
                    let mut versions = vec![0; heap.page_count() as usize];
                    for step in 1..600_u64 {
                        let page = step * 7 % (heap.page_count() / 16) * 16 + number;
                        match heap.page(page) {
                            Ok(found) => {
                                let due = versions[page as usize];
                                let zeroes = due == 0 && found.iter().all(|byte| *byte == 0);
                                assert!(zeroes || found[..] == noise(page, due), "page {page}");
                            }
                            Err(Error::SwapIn { .. } | Error::OutOfBudget { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                        match heap.page_mut(page) {
                            Ok(mut guard) => {
                                guard.copy_from_slice(&noise(page, step));
                                versions[page as usize] = step;
                            }
                            Err(Error::SwapIn { .. } | Error::OutOfBudget { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                    working.fetch_sub(1, Relaxed);
                });
            }
            for round in 0.. {
                if working.load(Relaxed) == 0 {
                    break;
                }
                let _ = tenant
                    .set_max(["1M", "512K", "256K"][round % 3].parse::<Size>().unwrap())
                    .unwrap();
                tenant.set_swap_max(["2M", "512K"][round % 2].parse::<Size>().unwrap()).unwrap();
                pager.validate().unwrap();
                // Those that work need the lock, which is given to whom comes first.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(!faults.failed.lock().unwrap().is_empty());
        drop(heap);
        check_empty(&pager);
    }
}

#[test]
fn a_budget_below_what_is_compressed_pushes_the_coldest_to_the_file() {
    let dir = Dir::new();
    let pager = pager(dir.path(), "8M", "64M", None);
    let (tenant, heap) = heap(&pager, "4M", 20 << 20);
    for page in 0..heap.page_count() {
        heap.page_mut(page).unwrap()[..2048].copy_from_slice(&noise(page, 1)[..2048]);
    }
    let before = tenant.swap_stat().unwrap();
    assert!(before.memory_bytes > 2 << 20, "{before}");
    let was_in_file = pager.swap_file().unwrap().used;
    let settled = tenant.set_max(Size::kib(512)).unwrap();
    assert_eq!(settled, lowtide::Settled::Yes, "usage has come down");
    assert!(tenant.usage().unwrap() <= 512 << 10);
    let after = tenant.swap_stat().unwrap();
    let file = pager.swap_file().unwrap();
    assert!(after.memory_bytes <= 384 << 10 && file.used > was_in_file + 500, "{after}{file:?}");
    assert_eq!(after.pages + u64::from(file.used), heap.swapped_pages());
    for page in 0..heap.page_count() {
        assert!(heap.page(page).unwrap()[..2048] == noise(page, 1)[..2048], "page {page}");
    }
    drop(heap);
    check_empty(&pager);
}

#[test]
fn the_tables_of_compressed_pages_are_charged_to_their_tenant() {
    let dir = Dir::new();
    let pager = pager(dir.path(), "8M", "64M", None);
    let (tenant, heap) = heap(&pager, "4M", 16 << 20);
    for page in 0..heap.page_count() {
        heap.page_mut(page).unwrap().copy_from_slice(&text(page, 1));
    }
    let (stat, memory) = (tenant.swap_stat().unwrap(), tenant.stat().unwrap());
    let each = stat.table_bytes as f64 / stat.pages as f64;
    assert!((44.0..52.0).contains(&each), "{each} bytes a page: {stat}");
    let charged = memory.anon * PAGE + stat.memory_bytes + stat.table_bytes;
    // The rest are 16 pages in reserve, and what is charged ahead.
    let rest = tenant.usage().unwrap() - charged;
    assert!((16 * PAGE..(16 + 128) * PAGE).contains(&rest), "{rest} bytes");
    drop(heap);
    check_empty(&pager);
}

#[test]
fn pages_that_were_evicted_together_come_back_together_while_that_is_of_use() {
    let dir = Dir::new();
    let pager = pager(dir.path(), "1M", "32M", None);
    let (tenant, heap) = heap(&pager, "2M", 16 << 20);
    let mut version = 0;
    let mut play = |order: &dyn Fn(u64) -> u64| {
        version += 1;
        for page in 0..heap.page_count() {
            heap.write_at(page * PAGE, &noise(page, version)).unwrap();
        }
        let before = pager.swap_file().unwrap();
        for page in (0..2048).map(order) {
            assert!(heap.page(page).unwrap()[..] == noise(page, version), "page {page}");
        }
        pager.validate().unwrap();
        let after = pager.swap_file().unwrap();
        let ahead = after.ahead - before.ahead;
        (after.read_requests - before.read_requests, ahead, after.ahead_hits - before.ahead_hits)
    };
    let (requests, ahead, hits) = play(&|n| n);
    assert!(requests < 2048 / 4 && hits > 2048 / 2, "{requests} reads, {ahead} ahead, {hits} hits");
    // Each page once, and never two neighbours after each other.
    let (requests, ahead, hits) = play(&|n| n * 1021 % 4096);
    assert!(requests > 1600 && ahead < 2048 / 16, "{requests} reads, {ahead} ahead, {hits} hits");
    assert!(tenant.usage().unwrap() <= 2 << 20);
    drop(heap);
    let file = pager.swap_file().unwrap();
    assert_eq!(file.ahead, file.ahead_hits + file.ahead_unused, "{file:?}");
    check_empty(&pager);
}

#[test]
fn memory_stat_has_the_lines_of_zswap_for_what_is_compressed() {
    let dir = Dir::new();
    let mixed = |page| [&noise(page, 1)[..256], &text(page, 1)[256..]].concat();
    let swap = SwapOptions::compressed(Size::kib(64)).file(dir.path(), Size::mib(8));
    let pager = Pager::builder().max(Size::mib(16)).swap(swap).background(false);
    let pager = pager.build().unwrap();
    let (tenant, heap) = heap(&pager, "512K", 4 << 20);
    let below = tenant.child("below").max(Size::kib(256)).create().unwrap();
    let figures = |tenant: &Tenant| {
        let text = tenant.text(lowtide::TenantFile::Stat).unwrap();
        ["zswap", "zswapped", "zswap_incomp", "zswpin", "zswpout", "zswpwb"].map(|key| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} ")));
            line.unwrap().parse::<u64>().unwrap()
        })
    };
    assert_eq!(figures(&tenant), [0; 6]);
    for page in 0..heap.page_count() {
        heap.page_mut(page).unwrap().copy_from_slice(&mixed(page));
    }
    for page in (0..heap.page_count()).rev() {
        assert!(heap.page(page).unwrap()[..] == mixed(page));
    }
    let [bytes, was, incompressible, loaded, stored, written] = figures(&tenant);
    let stat = tenant.swap_stat().unwrap();
    assert_eq!([bytes, was, incompressible], [stat.compressed_bytes, stat.orig_bytes, 0]);
    assert_eq!(stored - loaded - written, stat.pages, "where they are that were stored");
    assert!(loaded > 0 && written > 0 && bytes > 0, "{stat}");
    let file = pager.swap_file().unwrap();
    assert!(written <= file.written, "{file:?}");
    assert_eq!(figures(&below), [0; 6]);
    assert_eq!(figures(&pager.root()), figures(&tenant));
    let memory = pager.stat().memory;
    assert_eq!([memory.zswap, memory.zswapped * PAGE], [bytes, was]);
    assert_eq!(tenant.stat().unwrap().zswap_events, memory.zswap_events);
    drop(heap);
    assert_eq!(figures(&tenant), [0, 0, 0, loaded, stored, written]);
}
