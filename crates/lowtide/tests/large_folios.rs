//! Large folios bring pages in and write them many at a time: no byte differs because of it.

mod common;

use common::Dir;
use lowtide::{OpenOptions, Pager, Size};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

fn pager(bytes: &str) -> Pager {
    Pager::builder().max(bytes.parse::<Size>().unwrap()).build().unwrap()
}

/// Waits for something that another thread does. Only a hang makes it fail.
fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_folio_that_was_stored_in_a_hole_is_no_hole_any_more() {
    for order in [0, 1, 3, 9] {
        let dir = Dir::new();
        let path = dir.path().join("new");
        let pager = pager("32M");
        let view =
            OpenOptions::new().create(8 << 20).folio_order(order).open(&pager, &path).unwrap();
        let pages = 1 << order;
        let mut expected = vec![7; (pages * PAGE) as usize];
        view.write_at(0, &expected).unwrap();
        view.flush().unwrap();
        for page in [pages - 1, pages / 2] {
            eventually("a flushed page can be evicted", || {
                pager.root().reclaim(Size::mib(32)).unwrap();
                !view.is_resident(page)
            });
            view.write_at(page * PAGE + 100, b"x").unwrap();
            expected[(page * PAGE) as usize + 100] = b'x';
            view.flush().unwrap();
            let file = std::fs::read(&path).unwrap();
            assert!(
                file[..expected.len()] == expected,
                "order {order}: a store of one byte changed others"
            );
        }
    }
}

/// Whole folios are stored while a thread does nothing but flush.
#[test]
fn what_is_stored_in_whole_folios_beside_flushes_is_in_the_file() {
    let begun = Instant::now();
    let mut round = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        for order in [4, 9] {
            round += 1;
            let dir = Dir::new();
            let path = dir.path().join("file");
            let pager = pager("32M");
            let (bytes, folio) = (8_u64 << 20, PAGE << order);
            let view =
                OpenOptions::new().create(bytes).folio_order(order).open(&pager, &path).unwrap();
            let value = 1 + round as u8 % 250;
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let flushing = view.clone();
                let flusher = scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        flushing.flush().unwrap();
                    }
                    drop(flushing);
                });
                for at in (0..bytes).step_by(folio as usize) {
                    view.write_at(at, &vec![value; folio as usize]).unwrap();
                }
                view.flush().unwrap();
                stop.store(true, SeqCst);
                flusher.join().unwrap();
            });
            let flushed = std::fs::read(&path).unwrap();
            assert!(
                flushed.iter().all(|b| *b == value),
                "order {order}, round {round}: flush said Ok"
            );
            // Stores to pages that are resident, whose folios are written at the same time.
            view.write_at(0, &vec![value ^ 255; bytes as usize]).unwrap();
            drop(view);
            pager.close().unwrap();
            let closed = std::fs::read(&path).unwrap();
            assert!(
                closed.iter().all(|b| *b == value ^ 255),
                "order {order}, round {round}: close said Ok"
            );
        }
    }
}
