//! Promise: the kernel's count of a file that is mapped agrees with the budget, in either mode:
//! beside a mirror the page cache has nothing of the file, whichever way it came in, and pages that
//! were stored to go when they are written, without a request.

use crate::common::eventually;
use crate::common::mapped::{PAGE, await_cached, cached_bytes, file, or_skip, pager, random, word};
use lowtide::Pager;
use lowtide::map::{Access, Map, MapMode, MapMut, MapOptions};
use lowtide_sys::page_cache::{cachestat, drop_cached, populate_read, read_ahead};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGES: usize = 4096;
const BUDGET: u64 = 4 << 20;

fn map(pager: &Pager, file: &File, way: MapMode) -> Option<Map> {
    // SAFETY: the file is the test's.
    #[allow(unsafe_code)]
    or_skip(unsafe { MapOptions::new().mode(way).map(pager, file) })
}

fn map_mut(pager: &Pager, file: &File, way: MapMode) -> Option<MapMut> {
    // SAFETY: the file is the test's.
    #[allow(unsafe_code)]
    or_skip(unsafe { MapOptions::new().mode(way).map_mut(pager, file) })
}

#[test]
fn what_was_cached_before_a_mirror_or_comes_beside_it_leaves() {
    for is_synced in [true, false] {
        let (file, pager) = (file(PAGES), pager("4M"));
        if !is_synced {
            // As a program leaves it that writes a file, closes it, and maps it.
            (0..PAGES).step_by(3).for_each(|page| {
                let (offset, word) = ((page * PAGE) as u64, page * PAGE);
                file.as_file().write_all_at(&word.to_le_bytes(), offset).unwrap();
            });
        }
        assert_eq!(cached_bytes(file.as_file()), (PAGES * PAGE) as u64, "all of it is cached");
        let Some(map) = map(&pager, file.as_file(), MapMode::Userfault) else { return };
        await_cached(file.as_file(), 0);
        let mut state = 7;
        for round in 0..3 {
            for _ in 0..PAGES {
                let offset = random(&mut state) % PAGES * PAGE;
                assert_eq!(word(&map, offset), offset as u64);
            }
            assert!(pager.stat().memory.file > 512, "the budget is used");
            let mut bytes = vec![0; (1 + round * 200) * PAGE];
            File::open(file.path()).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            await_cached(file.as_file(), 0);
        }
        drop(map);
        pager.validate().unwrap();
    }
}

#[test]
fn what_other_mappings_have_beside_a_mirror_is_reported_until_they_are_gone() {
    const FEW: usize = 48;
    let (file, pager) = (file(PAGES), pager("4M"));
    drop_cached(&file, 0, 0).unwrap();
    let (at, len) = ((PAGES / 2 * PAGE) as u64, FEW * PAGE);
    read_ahead(&file, at, len as u64).unwrap();
    let other = SharedMapping::map(&file, at, len, Rights::Read, Sharing::Shared, false).unwrap();
    populate_read(other.addresses()).unwrap();
    let Some(map) = map(&pager, file.as_file(), MapMode::Userfault) else { return };
    assert_eq!(word(&map, 5 * PAGE), 5 * PAGE as u64);
    eventually("the others' pages are reported", || map.report().elsewhere_bytes == len as u64);
    assert_eq!(cached_bytes(file.as_file()), len as u64);
    assert!(map.report().to_string().contains(&format!("{len} more in use elsewhere")));
    drop(other);
    eventually("nothing is in use elsewhere", || map.report().elsewhere_bytes == 0);
    await_cached(file.as_file(), 0);
}

#[test]
fn pages_that_were_stored_to_leave_by_themselves_and_after_a_flush() {
    let (file, pager) = (file(PAGES), pager("4M"));
    drop_cached(&file, 0, 0).unwrap();
    let Some(mut map) = map_mut(&pager, file.as_file(), MapMode::PageCache) else { return };
    map.advise(Access::Random).unwrap();
    let mut state = 11;
    for round in 0..5_u64 {
        for _ in 0..PAGES {
            let page = random(&mut state) % PAGES;
            map[page * PAGE + 8..page * PAGE + 16].copy_from_slice(&round.to_le_bytes());
        }
        await_cached(file.as_file(), BUDGET);
        if round % 2 == 1 {
            map.flush().unwrap();
            await_cached(file.as_file(), BUDGET);
            assert_eq!(cachestat(file.as_file(), 0, 0).map_or(0, |stat| stat.dirty), 0);
        }
    }
    // In order, as a file is filled: as many pages as the file has, at once.
    (0..PAGES).for_each(|page| map[page * PAGE + 16] = 1);
    await_cached(file.as_file(), BUDGET);
    map.flush().unwrap();
    drop(map);
    await_cached(file.as_file(), 0);
    let mut bytes = [0; PAGE];
    (0..PAGES).for_each(|page| {
        file.as_file().read_exact_at(&mut bytes, (page * PAGE) as u64).unwrap();
        assert_eq!((word(&bytes, 0), bytes[16]), ((page * PAGE) as u64, 1));
    });
}
