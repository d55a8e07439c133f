//! Maps that are stored to: no stored byte is lost, whatever the budget does.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use crate::common::mapped::{PAGE, await_cached, file, pager, random, word};
use lowtide::map::{Access, Map, MapError, MapMode, MapMut, MapOptions, RemapOptions};
use lowtide::{OpenOptions, Pager};
use std::borrow::{Borrow, BorrowMut};
use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

/// The map, or nothing where the kernel refuses the way.
fn made<M>(result: Result<M, MapError>) -> Option<M> {
    match result {
        Err(error @ MapError::Mode { mode: MapMode::PageCache, .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        other => Some(other.unwrap_or_else(|error| panic!("{error}"))),
    }
}

fn map_mut(pager: &Pager, file: &File) -> Option<MapMut> {
    // SAFETY: no test changes a file while it is mapped, unless that is what it is about.
    made(unsafe { MapOptions::new().map_mut(pager, file) })
}

fn map_copy(pager: &Pager, file: &File) -> Option<MapMut> {
    // SAFETY: as above.
    made(unsafe { MapOptions::new().map_copy(pager, file) })
}

fn word_of(file: &File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset).unwrap();
    u64::from_le_bytes(bytes)
}

/// Stores to, and reads, random words of a map that is larger than its budget, until the pager has
/// evicted `evicted` pages; returns what was stored.
fn churn(map: &mut MapMut, pager: &Pager, evicted: u64) -> HashMap<usize, u64> {
    let (mut stored, mut state) = (HashMap::new(), 4711);
    let words = map.len() / 8;
    for step in 0..2_000_000_u64 {
        let offset = random(&mut state) % words * 8;
        let expected = stored.get(&offset).copied().unwrap_or(offset as u64);
        assert_eq!(word(map, offset), expected, "at {offset} in step {step}");
        if step % 4 == 0 {
            map[offset..offset + 8].copy_from_slice(&(step | 1 << 63).to_le_bytes());
            stored.insert(offset, step | 1 << 63);
        }
        if step % 1000 == 0 {
            if pager.stat().memory.events.pgsteal >= evicted {
                break;
            }
            // On a busy machine the thread that watches needs time, too.
            std::thread::yield_now();
        }
    }
    let stat = pager.stat();
    assert!(stat.memory.events.pgsteal >= evicted, "there was no pressure: {stat}");
    stored
}

#[test]
fn stores_to_a_file_of_four_budgets_are_all_in_the_file() {
    let file = file(4096);
    let pager = pager("4M");
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    let stored = churn(&mut map, &pager, 3000);
    for (offset, value) in &stored {
        assert_eq!(word(&map, *offset), *value);
    }
    pager.validate().unwrap();
    map.flush().unwrap();
    drop(map);
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0, "a map that is gone is charged for nothing");
    for offset in (0..4096 * PAGE).step_by(8) {
        let expected = stored.get(&offset).copied().unwrap_or(offset as u64);
        assert_eq!(word_of(file.as_file(), offset as u64), expected, "at {offset}");
    }
}

#[test]
fn stores_to_copies_are_kept_under_pressure_and_the_file_does_not_change() {
    let file = file(4096);
    let pager = pager("4M");
    let Some(mut map) = map_copy(&pager, file.as_file()) else { return };
    assert_eq!(map.report().mode, MapMode::PageCache);
    let stored = churn(&mut map, &pager, 3000);
    for offset in (0..4096 * PAGE).step_by(8) {
        let expected = stored.get(&offset).copied().unwrap_or(offset as u64);
        assert_eq!(word(&map, offset), expected, "at {offset}");
        assert_eq!(word_of(file.as_file(), offset as u64), offset as u64, "at {offset}");
    }
    map.flush().unwrap();
    // What was stored stays when the stores end, and when they begin again.
    let map = map.make_read_only().unwrap();
    let mut map = map.make_mut().unwrap();
    map[0] = 77;
    for (offset, value) in stored.iter().filter(|(offset, _)| **offset > 0) {
        assert_eq!(word(&map, *offset), *value);
    }
    drop(map);
    pager.validate().unwrap();
    assert_eq!(word_of(file.as_file(), 0), 0);
}

#[test]
fn pages_of_a_private_map_that_are_only_read_are_kept_within_the_budget() {
    let file = file(8192);
    let pager = pager("4M");
    let Some(map) = map_copy(&pager, file.as_file()) else { return };
    let mut state = 99;
    while pager.stat().memory.events.pgsteal < 8000 {
        for _ in 0..500 {
            let offset = random(&mut state) % (map.len() / 8) * 8;
            assert_eq!(word(&map, offset), offset as u64);
        }
    }
    // The loop is ahead of the thread that trims, which comes to the budget when it rests.
    await_cached(file.as_file(), 8 << 20);
}

#[test]
fn a_map_becomes_writable_and_read_only_again() {
    let file = file(16);
    let pager = pager("1M");
    let cached = MapOptions::new().mode(MapMode::PageCache);
    // SAFETY: as in `map_mut`.
    let Some(map) = made(unsafe { cached.map(&pager, file.as_file()) }) else { return };
    let mut map = map.make_mut().unwrap();
    map[5 * PAGE..5 * PAGE + 8].copy_from_slice(&99_u64.to_le_bytes());
    let map: Map = map.make_read_only().unwrap();
    assert_eq!((word(&map, 5 * PAGE), word_of(file.as_file(), 5 * PAGE as u64)), (99, 99));
    drop(map);
    // Rights that the descriptor does not have are not taken from elsewhere.
    let read_only = File::open(file.path()).unwrap();
    // SAFETY: as above.
    let map = unsafe { cached.map(&pager, &read_only) }.unwrap();
    let error = map.make_mut().unwrap_err();
    assert!(
        matches!(&error, MapError::Kernel { source, .. }
        if source.kind() == ErrorKind::PermissionDenied),
        "{error}"
    );
    // SAFETY: as above.
    let error = unsafe { MapOptions::new().map_mut(&pager, &read_only) }.unwrap_err();
    assert!(matches!(error, MapError::Kernel { step: "mmap(2)", .. }), "{error}");
    // A copy needs no right to write the file.
    // SAFETY: as above.
    let map = unsafe { MapOptions::new().map_copy_read_only(&pager, &read_only) }.unwrap();
    assert_eq!(word(&map, 5 * PAGE), 99);
    let mut map = map.make_mut().unwrap();
    map[5 * PAGE] = 1;
    assert_eq!((word(&map, 5 * PAGE), word_of(file.as_file(), 5 * PAGE as u64)), (1, 99));
    assert_eq!(map.flush().map_err(|error| error.kind()), Ok(()), "nothing is to be written");
}

#[test]
fn a_mirror_for_reading_is_not_stored_to() {
    let file = file(4);
    let pager = pager("1M");
    let mirror = MapOptions::new().mode(MapMode::Userfault);
    // SAFETY: as in `map_mut`.
    if let Ok(map) = unsafe { mirror.map(&pager, file.as_file()) } {
        let error = map.make_mut().unwrap_err();
        assert!(matches!(error, MapError::Mode { mode: MapMode::Userfault, .. }), "{error}");
        assert!(error.to_string().contains("pagecache"), "{error}");
    }
}

#[test]
fn a_file_that_a_view_writes_is_not_mapped_for_stores_and_the_other_way_round() {
    let file = file(64);
    let pager = pager("1M");
    let write = OpenOptions::new().write(true);
    let view = write.open(&pager, file.path()).unwrap();
    // SAFETY: as in `map_mut`.
    let error = unsafe { MapOptions::new().map_mut(&pager, file.as_file()) }.unwrap_err();
    assert!(matches!(error, MapError::Mode { mode: MapMode::PageCache, .. }), "{error}");
    assert!(error.to_string().contains("open for writing"), "{error}");
    drop(view);
    let Some(map) = map_mut(&pager, file.as_file()) else { return };
    let error = write.open(&pager, file.path()).unwrap_err();
    assert!(error.to_string().contains("copies") || error.to_string().contains("map"), "{error}");
    drop(map);
    write.open(&pager, file.path()).unwrap();
}

#[test]
fn a_view_sees_what_a_map_stored_in_pages_that_come_in_later() {
    let file = file(64);
    let pager = pager("1M");
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    let view = pager.open(file.path()).unwrap();
    let first = |page: u64| u64::from_le_bytes(view.page(page).unwrap()[..8].try_into().unwrap());
    assert_eq!(first(3), 3 * PAGE as u64);
    for page in [3, 4] {
        map[page * PAGE..page * PAGE + 8].copy_from_slice(&1_u64.to_le_bytes());
    }
    assert_eq!(first(3), 3 * PAGE as u64, "the view has this page already");
    assert_eq!(first(4), 1);
}

#[test]
fn a_map_grows_and_shrinks_with_what_was_stored() {
    let file = file(64);
    let pager = pager("1M");
    for private in [false, true] {
        let part = MapOptions::new().offset(PAGE as u64 + 100).len(10 * PAGE);
        let map = if private {
            // SAFETY: as in `map_mut`.
            unsafe { part.map_copy(&pager, file.as_file()) }
        } else {
            // SAFETY: as in `map_mut`.
            unsafe { part.map_mut(&pager, file.as_file()) }
        };
        let Some(mut map) = made(map) else { return };
        map[3 * PAGE + 4..3 * PAGE + 12].copy_from_slice(&5_u64.to_le_bytes());
        for len in [40 * PAGE, 50 * PAGE, 5 * PAGE, 20 * PAGE] {
            // SAFETY: there are no other pointers to the map.
            unsafe { map.remap(len, RemapOptions::new().may_move(true)) }.unwrap();
            assert_eq!((map.len(), word(&map, 3 * PAGE + 4)), (len, 5));
            let last = (len - 12) / 8 * 8 + 4;
            assert_eq!(word(&map, last), (PAGE + 100 + last) as u64);
        }
        // SAFETY: as above.
        let error = unsafe { map.remap(0, RemapOptions::new()) }.unwrap_err();
        assert!(matches!(error, MapError::Range { .. }), "{error}");
        // SAFETY: as above.
        let error = unsafe { map.remap(1 << 46, RemapOptions::new()) }.unwrap_err();
        assert!(matches!(error, MapError::Kernel { step: "mremap(2)", .. }), "{error}");
        assert_eq!((map.len(), word(&map, 3 * PAGE + 4)), (20 * PAGE, 5), "as before");
        assert!(map.report().mode == MapMode::PageCache && map.error().is_none());
        drop(map);
        pager.validate().unwrap();
    }
    // SAFETY: as above.
    let mirror = unsafe { MapOptions::new().mode(MapMode::Userfault).map(&pager, file.as_file()) };
    let Ok(mut mirror) = mirror else { return };
    // SAFETY: as above.
    let error = unsafe { mirror.remap(PAGE, RemapOptions::new()) }.unwrap_err();
    assert!(matches!(error, MapError::Mode { mode: MapMode::Userfault, .. }), "{error}");
    assert_eq!(word(&mirror, 8), 8);
}

#[test]
fn parts_are_flushed_and_parts_that_are_not_in_the_map_are_refused() {
    let file = file(16);
    let pager = pager("1M");
    let part = MapOptions::new().offset(100).len(12 * PAGE);
    // SAFETY: as in `map_mut`.
    let Some(mut map) = made(unsafe { part.map_mut(&pager, file.as_file()) }) else { return };
    let dirty = || lowtide_sys::page_cache::cachestat(file.as_file(), 0, 0).unwrap().dirty;
    map[2 * PAGE] = 1;
    map[7 * PAGE] = 1;
    assert_eq!(dirty(), 2);
    map.flush_range(7 * PAGE..7 * PAGE + 1).unwrap();
    map.flush_async_range(2 * PAGE..2 * PAGE + 1).unwrap();
    map.flush_async().unwrap();
    map.flush().unwrap();
    assert_eq!(dirty(), 0);
    for part in [0..map.len() + 1, map.len() + 1..map.len() + 1, 5..usize::MAX] {
        for error in [
            map.flush_range(part.clone()),
            map.flush_async_range(part.clone()),
            map.advise_range(Access::WillNeed, part.clone()),
        ] {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput, "{part:?}");
        }
    }
    map.flush_range(map.len()..map.len()).unwrap();
}

#[test]
fn advice_is_taken_in_both_modes() {
    let file = file(64);
    let pager = pager("1M");
    let all = [
        Access::Normal,
        Access::Random,
        Access::Sequential,
        Access::WillNeed,
        Access::PopulateRead,
        Access::DontDump,
        Access::DontFork,
    ];
    for way in [MapMode::PageCache, MapMode::Userfault] {
        // SAFETY: as in `map_mut`.
        let map = unsafe { MapOptions::new().mode(way).map(&pager, file.as_file()) };
        let map = match map {
            Err(error @ MapError::Mode { .. }) => {
                eprintln!("SKIPPED: {error}");
                continue;
            }
            other => other.unwrap(),
        };
        for advice in all {
            map.advise_range(advice, 5000..5000 + 20 * PAGE).unwrap();
            assert_eq!(word(&map, 20 * PAGE), 20 * PAGE as u64);
        }
        map.advise(Access::PopulateRead).unwrap();
    }
}

#[test]
fn maps_are_used_as_those_of_memmap2() {
    fn shared<T: Send + Sync + AsRef<[u8]> + Borrow<[u8]> + std::fmt::Debug>(map: &T) -> String {
        assert_eq!(map.as_ref(), map.borrow() as &[u8]);
        format!("{map:?}")
    }
    fn exclusive<T: AsMut<[u8]> + BorrowMut<[u8]>>(map: &mut T) {
        map.as_mut()[1] = 1;
        map.borrow_mut()[2] = 2;
    }
    let file = file(4);
    let pager = pager("1M");
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    exclusive(&mut map);
    assert_eq!((map[..3].to_vec(), map.is_empty()), (vec![0, 1, 2], false));
    assert_eq!(map.as_ptr(), map.as_mut_ptr().cast_const());
    assert!(shared(&map).starts_with("MapMut { ptr: 0x"), "{}", shared(&map));
    let map = map.make_read_only().unwrap();
    assert!(shared(&map).contains("len: 16384"), "{}", shared(&map));
    // SAFETY: as in `map_mut`.
    let nothing = unsafe { MapOptions::new().len(0).map_mut(&pager, file.as_file()) }.unwrap();
    nothing.flush().unwrap();
    assert!(nothing.make_read_only().unwrap().make_mut().unwrap().is_empty());
}
