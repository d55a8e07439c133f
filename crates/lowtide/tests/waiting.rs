//! How long operations wait, and for what: patience and deadlines hold, "forever" is one of them,
//! and what has no end of its own is given one.

use crate::common::{Dir, make_file};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{Error, OpenOptions, Pager, Settled, Size, TenantError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAGE: u64 = 4096;

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

#[test]
fn the_longest_duration_means_for_ever() {
    let dir = Dir::new();
    let path = make_file(&dir, 256 * PAGE);
    let pager = Pager::builder()
        .max(pages(64))
        .memory_timeout(Duration::MAX)
        .io_timeout(Duration::MAX)
        .build()
        .unwrap();
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    // More than fits, so that charges wait for write-back, and writers for the dirty limit.
    for at in (0..256 * PAGE).step_by(65_536) {
        view.write_at(at, &[1; 65_536]).unwrap();
    }
    view.flush().unwrap();
    // A store waits for the guard of another thread, which is dropped.
    let held = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = view.page(3).unwrap();
            held.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(20));
            drop(guard);
        });
        while !held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        view.write_at(3 * PAGE, b"x").unwrap();
    });
    view.revert(0..256 * PAGE).unwrap();
    assert_eq!(pager.root().set_max(pages(32)).unwrap(), Settled::Yes);
    view.write_at(0, b"y").unwrap();
    drop(view);
    pager.close().unwrap();
}

#[test]
fn reclaiming_everything_ends_while_others_read() {
    let dir = Dir::new();
    let path = make_file(&dir, 512 * PAGE);
    let pager = Pager::builder().max(pages(256)).build().unwrap();
    let view = pager.open(&path).unwrap();
    let (stop, root) = (AtomicBool::new(false), pager.root());
    std::thread::scope(|scope| {
        for first in [0, 256] {
            let (view, stop) = (view.clone(), &stop);
            scope.spawn(move || {
                for page in
                    (first..first + 256).cycle().take_while(|_| !stop.load(Ordering::Relaxed))
                {
                    drop(view.page(page).unwrap());
                }
            });
        }
        for _ in 0..20 {
            let before_at_most = 256 * PAGE;
            let freed = root.reclaim(Size::MAX).unwrap();
            // A last piece may free a batch more than was wanted.
            assert!(freed <= before_at_most + 64 * PAGE, "{freed}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    pager.validate().unwrap();
}

#[test]
fn tenants_nest_so_deep_and_no_deeper() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    let pager = Pager::builder().max(pages(64)).build().unwrap();
    let mut chain = vec![pager.tenant("0").low(pages(8)).create().unwrap()];
    let refused = loop {
        let above = chain.last().unwrap();
        match above.child(&chain.len().to_string()).low(pages(8)).create() {
            Ok(tenant) => chain.push(tenant),
            Err(e) => break e,
        }
        assert!(chain.len() < 12_000, "there is an end");
    };
    assert_eq!((chain.len(), refused), (64, TenantError::TooDeep));
    let other = pager.tenant("other").create().unwrap();
    let below = other.child("below").create().unwrap();
    assert_eq!(
        other.move_to(&chain[62]),
        Err(TenantError::TooDeep),
        "what is below it would be too deep"
    );
    other.move_to(&chain[61]).unwrap();
    assert_eq!(below.child("x").create().unwrap_err(), TenantError::TooDeep);
    // Reclaim asks for the protection of the deepest.
    let view = chain[63].open(&path).unwrap();
    for page in 0..64 {
        drop(view.page(page).unwrap());
    }
    let view = pager.open(&path).unwrap();
    for page in 0..64 {
        drop(view.page(page).unwrap());
    }
    pager.validate().unwrap();
}

/// With a patience without end, so that an error can only come because waiting is known to be in
/// vain.
#[test]
fn a_thread_whose_own_guards_hold_all_memory_is_told_at_once() {
    let dir = Dir::new();
    let path = make_file(&dir, 8192 * PAGE);
    for (max, order) in [(32, 0), (4096, 0), (4096, 4)] {
        let pager = Pager::builder().max(pages(max)).memory_timeout(Duration::MAX).build().unwrap();
        let view = OpenOptions::new().folio_order(order).open(&pager, &path).unwrap();
        let mut guards = Vec::new();
        let error = loop {
            match view.page(guards.len() as u64) {
                Ok(guard) => guards.push(guard),
                Err(e) => break e,
            }
        };
        let Error::OutOfBudget { report } = &error else { panic!("{error}") };
        assert!(
            guards.len() as u64 <= max && guards.len() as u64 + 16 > max,
            "{} guards",
            guards.len()
        );
        assert!(report.held_here_bytes >= guards.len() as u64 * PAGE, "{report:?}");
        assert!(error.to_string().contains("guards of this very thread"), "{error}");
        drop(guards.pop());
        guards.truncate(guards.len() / 2);
        drop(view.page(5000).unwrap());
    }
    let pager = Pager::builder().max(pages(1024)).memory_timeout(Duration::MAX).build().unwrap();
    let small = pager.tenant("small").max(pages(64)).create().unwrap();
    let view = small.open(&path).unwrap();
    let guards: Result<Vec<_>, _> = (0..100).map(|page| view.page(page)).collect();
    assert!(guards.unwrap_err().to_string().contains("guards of this very thread"));
}

#[test]
fn patience_ends_when_other_threads_hold_all_memory_however_much_it_is() {
    let dir = Dir::new();
    let path = make_file(&dir, 17_000 * PAGE);
    let pager = Pager::builder()
        .max(pages(16_384))
        .memory_timeout(Duration::from_millis(200))
        .build()
        .unwrap();
    // Nothing is there that no thread holds.
    let view = OpenOptions::new().read_ahead(Size::new(0)).open(&pager, &path).unwrap();
    std::thread::scope(|scope| {
        let (send, held) = std::sync::mpsc::channel();
        let (release, over) = std::sync::mpsc::channel::<()>();
        let holder = view.clone();
        scope.spawn(move || {
            let mut guards = Vec::new();
            while let Ok(guard) = holder.page(guards.len() as u64) {
                guards.push(guard);
            }
            send.send(guards.len()).unwrap();
            let _ = over.recv();
        });
        assert_eq!(held.recv().unwrap(), 16_384);
        let before = pager.stat().memory.events.pgscan;
        let error = view.page(16_999).map(drop).unwrap_err();
        assert!(matches!(error, Error::OutOfBudget { .. }), "{error}");
        assert!(error.to_string().contains("hold fewer pages"), "{error}");
        let scanned = pager.stat().memory.events.pgscan - before;
        assert!(scanned < 10 * 16_384, "{scanned} pages were looked at in vain");
        drop(release);
    });
    drop(view.page(16_999).unwrap());
    pager.validate().unwrap();
}

#[test]
fn background_reclaim_keeps_a_part_of_the_budget_free_that_there_is_now() {
    let dir = Dir::new();
    let path = make_file(&dir, 1024 * PAGE);
    let pager = Pager::builder().max(pages(65_536)).build().unwrap();
    let view = pager.open(&path).unwrap();
    let rests = |what: &str, budget: u64| {
        for page in 0..budget {
            drop(view.page(page).unwrap());
        }
        // What is evicted from now on, no thread requested.
        std::thread::sleep(Duration::from_millis(100));
        let resident = pager.stat().memory.file;
        assert!(resident >= budget - 64, "{what}: {resident} of {budget} pages are left");
    };
    assert_eq!(pager.root().set_max(pages(256)).unwrap(), Settled::Yes);
    rests("max", 256);
    assert_eq!(pager.root().set_max(pages(65_536)).unwrap(), Settled::Yes);
    let reserved = pager.root().reserve(pages(65_536 - 200)).unwrap();
    rests("reservation", 200);
    drop(reserved);
}

#[test]
fn a_budget_that_is_no_multiple_of_a_system_page_is_counted_in_its_own_pages() {
    for page in [512, 1024, 2048, 4096] {
        let pager = Pager::builder().base_page(page).max(1_000_000).build().unwrap();
        pager.validate().unwrap();
        assert_eq!(pager.stat().budget_bytes, 1_000_000 / page as u64 * page as u64);
    }
}
