//! One call for many pages: its reads overlap, share the pool's lock, and wait for no hits.

use crate::common::{Dir, make_file};
use lowtide::advanced::PagerAdvanced as _;
use lowtide::{Pager, Size};
use std::ops::ControlFlow;
use std::time::Duration;

/// Every other page, so that no two are read together.
fn scattered(count: u64) -> Vec<u64> {
    (0..count).map(|k| k * 2).collect()
}

#[test]
fn misses_of_one_call_take_the_lock_together() {
    let dir = Dir::new();
    let path = make_file(&dir, 2 << 20);
    let pager = Pager::builder().max(Size::mib(4)).depth(32).build().unwrap();
    let view = pager.open(&path).unwrap();
    pager.measure_misses(true);
    let mut shown = 0;
    view.get_many(&scattered(256), |_, _| shown += 1).unwrap();
    let times = pager.miss_times();
    assert_eq!((shown, times.misses), (256, 256));
    // Once for each eight, and a few times more by threads in the background.
    assert!((32..64).contains(&times.lock.acquired), "{times:?}");
}

#[test]
fn without_background_threads_each_miss_is_charged_before_the_next_page_is_looked_at() {
    let dir = Dir::new();
    let path = make_file(&dir, 2 << 20);
    let pager = Pager::builder().max(Size::mib(4)).depth(32).background(false).build().unwrap();
    let view = pager.open(&path).unwrap();
    pager.measure_misses(true);
    view.get_many(&scattered(256), |_, _| ()).unwrap();
    assert_eq!(pager.miss_times().lock.acquired, 256);
}

#[test]
fn a_page_that_is_read_is_shown_before_a_long_row_of_hits_ends() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 << 10);
    let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
    let view = pager.open(&path).unwrap();
    drop(view.page(0).unwrap());
    let mut list = vec![0; 20_000];
    list[0] = 9;
    let (mut hits, mut hits_before) = (0, None);
    view.get_many(&list, |at, _| {
        if at == 0 {
            hits_before = Some(hits);
        } else {
            hits += 1;
            if hits_before.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
    .unwrap();
    assert_eq!(hits, 19_999);
    assert!(hits_before.unwrap() < hits, "it was read when all others had been shown");
}

#[test]
fn a_closure_that_has_seen_enough_ends_the_call_and_its_reads() {
    let dir = Dir::new();
    let path = make_file(&dir, 2 << 20);
    let pager = Pager::builder().max(Size::mib(4)).depth(4).build().unwrap();
    let view = pager.open(&path).unwrap();
    let mut shown = 0;
    view.get_many(&scattered(256), |_, _| {
        shown += 1;
        if shown == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!(shown, 3);
    assert!(pager.stat().misses < 16, "no more than were on their way: {}", pager.stat().misses);
}
