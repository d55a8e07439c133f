//! What a pager says of itself, and the page that it publishes.

use lowtide::status::{self, Error, Origin, Status};
use lowtide::{OpenOptions, Pager, Size};
use std::process::id;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A process has one page.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next page that is written.
fn next(after: &Status) -> Status {
    loop {
        let page = status::read(id()).expect("the page");
        if page.written_ns > after.written_ns {
            return page;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_status_has_the_figures_of_the_pager_and_its_tenants() {
    let dir = tempfile::tempdir().expect("a folder");
    let pager = Pager::builder().max(Size::mib(8)).background(false).build().expect("a pager");
    let (small, large) = (pager.tenant("small"), pager.tenant("large").max(Size::mib(2)));
    let small = small.low(Size::kib(64)).create().expect("a tenant");
    let large = large.high(Size::mib(1)).create().expect("a tenant");
    let path = dir.path().join("data");
    let options = OpenOptions::new().create_with_len(4 << 20);
    let view = options.tenant(&large).open(&pager, &path).expect("a file");
    for page in 0..view.page_count() {
        drop(view.page(page).expect("a page"));
    }
    view.write_at(0, &[1; 4096]).expect("a store");
    let status = pager.status();
    let (stat, of_large) = (pager.stat(), large.stat().expect("figures"));

    assert_eq!((status.policy.as_str(), status.page_bytes), ("mglru", 4096));
    assert_eq!(
        (status.stat.io.reads, status.stat.io.read_bytes),
        (stat.io.reads, stat.io.read_bytes)
    );
    assert_eq!((status.stat.misses, status.stat.hits), (stat.misses, stat.hits));
    assert_eq!(status.stat.frame_metadata_bytes, stat.frame_metadata_bytes);
    assert!(status.stat.resident_bytes > 0);
    assert_eq!(status.stat.io.ahead_pages, stat.io.ahead_pages);
    let paths: Vec<_> = status.tenants.iter().map(|tenant| tenant.path.as_str()).collect();
    assert_eq!(paths, ["/", "/large", "/small"], "the root, then by usage");
    let [root, tenant, idle] = &status.tenants[..] else { panic!("{paths:?}") };
    assert_eq!((root.stat.max_bytes, tenant.stat.max_bytes), (Some(8 << 20), Some(2 << 20)));
    assert_eq!((tenant.stat.high_bytes, idle.stat.max_bytes), (Some(1 << 20), None));
    assert_eq!((idle.stat.low_bytes, idle.stat.usage_bytes), (64 << 10, 0));
    assert!(tenant.stat.usage_bytes > 512 << 10 && tenant.stat.usage_bytes <= 2 << 20);
    // Up to 64 pages are charged in advance.
    let advance = 64 * 4096;
    assert!(tenant.stat.peak_bytes + advance >= tenant.stat.usage_bytes);
    assert!(root.stat.usage_bytes + advance >= tenant.stat.usage_bytes);
    assert_eq!((tenant.stat.dirty_bytes, tenant.stat.anon_bytes), (4096, 0));
    assert_eq!(tenant.stat.evicted, of_large.events.pgsteal);
    assert!(
        tenant.stat.evicted > 0
            && tenant.stat.scanned >= tenant.stat.evicted
            && tenant.stat.faults > 0
    );
    assert_eq!(tenant.stat.high_events, large.events().expect("events").high);
    let of_ages: u64 = tenant.generations.iter().map(|age| age.file_bytes).sum();
    assert!(of_ages > 0 && of_ages <= tenant.stat.file_bytes, "{:?}", tenant.generations);
    assert_eq!(tenant.files, [path.to_string_lossy()]);
    assert_eq!(status.tenants_left_out, 0);
    large.curve().expect("a tenant").expect("it was accessed");
    let published = pager.status().tenants[1].curve.clone().expect("a curve");
    assert!(published.samples > 0);
    assert!(!published.points.is_empty() && published.accesses > 0.0, "{published:?}");
    drop(small);
}

#[test]
fn the_tenants_with_the_least_memory_are_left_out() {
    let pager = Pager::builder().max(Size::mib(8)).build().expect("a pager");
    for n in 0..600 {
        pager.tenant(&format!("{n}")).create().expect("a tenant");
    }
    let used = pager.find("599").expect("the last");
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("a length");
    let view = used.open(file.path()).expect("a view");
    drop(view.page(0).expect("a page"));
    let status = pager.status();
    assert_eq!(status.tenants.len() as u64 + status.tenants_left_out, 601);
    assert!(status.tenants_left_out > 0);
    assert_eq!(status.tenants[1].path, "/599");
}

#[test]
fn pagers_share_a_page_that_goes_with_the_last() {
    let _turn = turn();
    let pager = || Pager::builder().max(Size::mib(4)).build().expect("a pager");
    let (first, second) = (pager(), pager());
    assert!(matches!(status::read(id()), Err(Error::NotUnderLowtide { .. })));
    first.publish_status(Origin::Library).expect("a page");
    let page = status::read(id()).expect("the page");
    assert_eq!((page.pagers.len(), page.pid, page.origin), (1, id(), Origin::Library));
    second.publish_status(Origin::Python).expect("the page");
    second.publish_status(Origin::Python).expect("again is no other");
    let page = status::read(id()).expect("the page");
    assert_eq!((page.pagers.len(), page.origin), (2, Origin::Library));
    assert!(next(&page).written_ns - page.written_ns < 60_000_000_000, "it is written on");
    drop(first);
    let page = next(&status::read(id()).expect("the page"));
    assert_eq!(page.pagers.len(), 1);
    drop(second);
    assert!(matches!(status::read(id()), Err(Error::NotUnderLowtide { .. })));
    let third = pager();
    third.publish_status(Origin::Python).expect("a page again");
    assert_eq!(status::read(id()).expect("the page").origin, Origin::Python);
}

#[test]
fn a_pager_that_publishes_writes_what_is_dirty_where_it_is_dropped() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("a folder");
    for round in 0..20 {
        let path = dir.path().join(format!("{round}"));
        let pager = Pager::builder().max(Size::mib(4)).build().expect("a pager");
        pager.publish_status(Origin::Library).expect("a page");
        let view = OpenOptions::new().create_with_len(8192).open(&pager, &path).expect("a file");
        view.write_at(0, b"dirty").expect("a store");
        drop((view, pager));
        assert!(std::fs::read(&path).expect("the file").starts_with(b"dirty"));
    }
}

#[test]
fn a_status_costs_little() {
    let pager = Pager::builder().max(Size::mib(4)).build().expect("a pager");
    for n in 0..99 {
        pager.tenant(&format!("{n}")).create().expect("a tenant");
    }
    const ROUNDS: u32 = 200;
    let began = std::time::Instant::now();
    for _ in 0..ROUNDS {
        assert_eq!(pager.status().tenants.len(), 100);
    }
    eprintln!("Pager::status with 100 tenants: {:?}", began.elapsed() / ROUNDS);
}
