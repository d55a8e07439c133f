//! How long operations wait, and for what: patience and deadlines hold, "for ever" is one of them, and what has no end of its own is given one.

mod common;

use common::{Dir, make_file};
use lowtide::{OpenOptions, Pager, Size, TenantError};
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
    let pager =
        Pager::builder().max(pages(64)).patience(Duration::MAX).io_deadline(Duration::MAX).build().unwrap();
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
            let guard = view.read(3).unwrap();
            held.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(20));
            drop(guard);
        });
        while !held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        view.write_at(3 * PAGE, b"x").unwrap();
    });
    view.discard(0..256).unwrap();
    assert!(pager.root().set_max(pages(32)).unwrap());
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
                for page in (first..first + 256).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                    drop(view.read(page).unwrap());
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
    assert_eq!(other.move_to(&chain[62]), Err(TenantError::TooDeep), "what is below it would be too deep");
    other.move_to(&chain[61]).unwrap();
    assert_eq!(below.child("x").create().unwrap_err(), TenantError::TooDeep);
    // Reclaim asks for the protection of the deepest.
    let view = chain[63].open(&path).unwrap();
    for page in 0..64 {
        drop(view.read(page).unwrap());
    }
    let view = pager.open(&path).unwrap();
    for page in 0..64 {
        drop(view.read(page).unwrap());
    }
    pager.validate().unwrap();
}
