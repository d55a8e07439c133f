//! Large folios bring pages in and write them many at a time: no byte differs because of it.

use crate::common::{Dir, eventually};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{OpenOptions, Pager, Size};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const PAGE: u64 = 4096;

fn pager(bytes: &str) -> Pager {
    Pager::builder().max(bytes.parse::<Size>().unwrap()).build().unwrap()
}

#[test]
fn a_folio_that_was_stored_in_a_hole_is_no_hole_any_more() {
    for order in [0, 1, 3, 9] {
        let dir = Dir::new();
        let path = dir.path().join("new");
        let pager = pager("32M");
        let view = OpenOptions::new()
            .create_with_len(8 << 20)
            .folio_order(order)
            .open(&pager, &path)
            .unwrap();
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

/// Rounds of stores, each beside hundreds of flushes.
const ROUNDS: u32 = 10;

/// Whole folios are stored while a thread does nothing but flush.
#[test]
fn what_is_stored_in_whole_folios_beside_flushes_is_in_the_file() {
    for round in 0..ROUNDS {
        for order in [4, 9] {
            let dir = Dir::new();
            let path = dir.path().join("file");
            let pager = pager("32M");
            let (bytes, folio) = (8_u64 << 20, PAGE << order);
            let view = OpenOptions::new()
                .create_with_len(bytes)
                .folio_order(order)
                .open(&pager, &path)
                .unwrap();
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
