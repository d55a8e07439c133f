//! Promise: pagers of several processes under one budget do not take from each other what one of
//! them has read ahead in a file that both watch.

use crate::common::eventually;
use crate::common::mapped::{PAGE, await_cached, file, or_skip, pager, word};
use lowtide::map::run::share_files;
use lowtide::map::{Map, MapMode, MapOptions};
use lowtide_sys::page_cache::cachestat;
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGES: usize = 8192;
const BUDGET: u64 = 8 << 20;

/// What two processes would say to each other through a table.
type Said = [(u64, Vec<std::ops::Range<u64>>); 2];

/// Two pagers, as two processes have them, which hear of each other.
fn pair(file: &File) -> Option<[(lowtide::Pager, Map); 2]> {
    let said: Arc<Mutex<Said>> = Arc::default();
    let one = |number: usize| {
        let (pager, said) = (pager("8M"), Arc::clone(&said));
        let exchange = move |_, own: Option<(u64, &[std::ops::Range<u64>])>| {
            let mut said = said.lock().unwrap();
            let own = own.map(|(pages, windows)| (pages, windows.to_vec()));
            said[number] = own.unwrap_or_default();
            said[1 - number].clone()
        };
        share_files(&pager, Arc::new(exchange));
        // SAFETY: the file is the test's.
        #[allow(unsafe_code)]
        let map = or_skip(unsafe { MapOptions::new().mode(MapMode::PageCache).map(&pager, file) })?;
        Some((pager, map))
    };
    Some([one(0)?, one(1)?])
}

#[test]
fn what_one_has_read_ahead_another_that_has_the_file_does_not_drop() {
    let file = file(PAGES);
    let Some([(reading, map), (idle, other)]) = pair(file.as_file()) else { return };
    assert_eq!(word(&other, 0), 0);
    let mut pages = (0..PAGES).cycle();
    eventually("pages are there before they are read", || {
        let there = (0..200).filter(|_| {
            let at = pages.next().unwrap() * PAGE;
            let there = cachestat(file.as_file(), at as u64, PAGE as u64).unwrap().cached == 1;
            assert_eq!(word(&map, at), at as u64);
            // Time enough for the other pager's threads.
            std::thread::sleep(Duration::from_millis(1));
            there
        });
        there.count() >= 190
    });
    await_cached(file.as_file(), 2 * BUDGET);
    drop((map, reading));
    // What the other has no charge for goes with the one that had.
    await_cached(file.as_file(), BUDGET / 8);
    idle.validate().unwrap();
}
