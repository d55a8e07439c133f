//! Large folios bring pages in and write them many at a time: no byte differs because of it.

mod common;

use common::Dir;
use lowtide::{OpenOptions, Pager};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

fn pager(bytes: &str) -> Pager {
    Pager::builder().max(bytes.parse().unwrap()).build().unwrap()
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
        let view = OpenOptions::new().create(8 << 20).folio_order(order).open(&pager, &path).unwrap();
        let pages = 1 << order;
        let mut expected = vec![7; (pages * PAGE) as usize];
        view.write_at(0, &expected).unwrap();
        view.flush().unwrap();
        for page in [pages - 1, pages / 2] {
            eventually("a flushed page can be evicted", || {
                pager.root().reclaim("32M".parse().unwrap()).unwrap();
                !view.is_resident(page)
            });
            view.write_at(page * PAGE + 100, b"x").unwrap();
            expected[(page * PAGE) as usize + 100] = b'x';
            view.flush().unwrap();
            let file = std::fs::read(&path).unwrap();
            assert!(file[..expected.len()] == expected, "order {order}: a store of one byte changed others");
        }
    }
}
