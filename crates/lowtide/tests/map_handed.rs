//! Promise: a file that is read in order is read by the kernel, in large pieces; its bytes are
//! right, the budget holds, and when the stream is over all of the mapping is as it was.

use crate::common::eventually;
use crate::common::mapped::{PAGE, await_cached, or_skip, pager, random, smaps, word};
use lowtide::map::{Map, MapMode, MapMut, MapOptions};
use lowtide_sys::page_cache::{is_visible, kernel_read_ahead};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const BUDGET: u64 = 256 << 20;
const SIZE: usize = 640 << 20;
/// Bytes of which the first eight are their offset; the others are holes, or zeroes.
const STEP: usize = 1 << 20;

/// A file of holes, which costs neither a disk nor time. None where its kernel reads too much ahead
/// for a budget, or where it does not say how much.
fn file() -> Option<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(SIZE as u64).unwrap();
    for offset in (0..SIZE).step_by(STEP) {
        file.as_file().write_all_at(&(offset as u64).to_le_bytes(), offset as u64).unwrap();
    }
    file.as_file().sync_all().unwrap();
    let ahead = kernel_read_ahead(file.as_file());
    if !ahead.as_ref().is_ok_and(|ahead| *ahead <= BUDGET / 32) || !is_visible(file.as_file()) {
        eprintln!("SKIPPED: the kernel reads {ahead:?} bytes ahead");
        return None;
    }
    Some(file)
}

/// Flags of the mappings at some addresses, each once.
fn flags(bytes: &[u8]) -> Vec<String> {
    let at = bytes.as_ptr_range();
    let here = smaps()
        .into_iter()
        .filter(|(range, ..)| (at.start.addr()..at.end.addr()).contains(&range.start));
    let mut found: Vec<_> = here.map(|(.., flags)| flags).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Reads all of it in order, and says whether a part was handed to the kernel meanwhile.
fn pass(bytes: &[u8]) -> bool {
    let mut handed = false;
    for offset in (0..bytes.len()).step_by(PAGE) {
        let due = if offset.is_multiple_of(STEP) { offset as u64 } else { 0 };
        assert_eq!(word(bytes, offset), due, "at {offset}");
        if offset % (16 << 20) == 0 {
            handed |= flags(bytes).iter().any(|flags| !flags.split(' ').any(|flag| flag == "rr"));
        }
    }
    handed
}

fn map(file: &File) -> Option<(lowtide::Pager, Map)> {
    let pager = pager("256M");
    // SAFETY: the file is the test's.
    #[allow(unsafe_code)]
    let map = or_skip(unsafe { MapOptions::new().mode(MapMode::PageCache).map(&pager, file) })?;
    Some((pager, map))
}

#[test]
fn a_pass_is_read_by_the_kernel_within_the_budget_and_leaves_the_mapping_as_it_was() {
    let Some(file) = file() else { return };
    let Some((pager, map)) = map(file.as_file()) else { return };
    let before = flags(&map);
    // On a busy machine the thread that watches may come late for a whole pass.
    eventually("a stream is handed", || pass(&map));
    await_cached(file.as_file(), BUDGET + BUDGET / 20);
    assert!(pager.stat().memory.current * pager.page_size() as u64 <= BUDGET);
    let mut state = 3;
    eventually("all is taken back", || {
        for _ in 0..100 {
            let step = random(&mut state) % (SIZE / STEP) * STEP;
            assert_eq!(word(&map, step), step as u64);
        }
        flags(&map) == before
    });
    pager.validate().unwrap();
}

/// Whether the kernel reads ahead at an offset.
fn is_handed(bytes: &[u8], offset: usize) -> bool {
    let address = bytes[offset..].as_ptr().addr();
    let here = smaps().into_iter().find(|(range, ..)| range.contains(&address));
    here.is_some_and(|(.., flags)| !flags.split(' ').any(|flag| flag == "rr"))
}

#[test]
fn pages_that_were_there_before_do_not_carry_a_stream_away_from_its_reader() {
    let Some(file) = file() else { return };
    let far = 96 << 20;
    // Where the thread that watches comes late, the reader is there first.
    eventually("a stream is handed up to pages that were there before", || {
        let Some((pager, map)) = map(file.as_file()) else { return true };
        // Loads whose values have no use, and which happen all the same.
        let load = |at| _ = black_box(word(&map, at));
        let touch = |at: usize, by| (at..at + STEP).step_by(by).for_each(load);
        // What is cached still of an earlier mapping may be dropped before it is charged.
        eventually("they are charged", || {
            touch(far, 2 * PAGE);
            pager.stat().memory.file >= (STEP / PAGE / 2) as u64
        });
        for at in (0..far - 8 * STEP).step_by(STEP) {
            touch(at, PAGE);
            // The thread that watches may be late; the reader is not.
            for _ in 0..50 {
                if is_handed(&map, at + 4 * STEP) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if is_handed(&map, far) {
                for page in (at + STEP..at + 2 * STEP).step_by(8 * PAGE) {
                    load(page);
                    std::thread::sleep(Duration::from_millis(1));
                    // The folio that is read is mapped as a whole, and the stream is past it.
                    assert!(is_handed(&map, page + 4 * STEP), "at {page}, from {at} on");
                }
                return true;
            }
        }
        false
    });
}

#[test]
fn threads_at_random_and_one_in_order_find_the_same_bytes_while_parts_are_handed_and_dropped() {
    let Some(file) = file() else { return };
    let Some((pager, map)) = map(file.as_file()) else { return };
    std::thread::scope(|scope| {
        for seed in 1..3 {
            let map = &map;
            scope.spawn(move || {
                let mut state = seed;
                for _ in 0..3000 {
                    let step = random(&mut state) % (SIZE / STEP) * STEP;
                    assert_eq!(word(map, step), step as u64);
                }
            });
        }
        (0..3).for_each(|_| _ = pass(&map));
    });
    await_cached(file.as_file(), BUDGET + BUDGET / 20);
    pager.validate().unwrap();
}

#[test]
fn what_is_stored_in_order_is_kept_while_parts_are_handed_and_dropped() {
    let Some(file) = file() else { return };
    let pager = pager("256M");
    // SAFETY: the file is the test's.
    #[allow(unsafe_code)]
    let map = unsafe { MapOptions::new().mode(MapMode::PageCache).map_mut(&pager, file.as_file()) };
    let Some(mut map): Option<MapMut> = or_skip(map) else { return };
    // A part of it: all that is stored has to be written.
    let stored = |offset: usize| offset < 64 << 20 && offset.is_multiple_of(64 * PAGE);
    for _ in 0..2 {
        pass(&map);
        for offset in (0..SIZE).step_by(PAGE).filter(|offset| stored(*offset)) {
            map[offset + 8..offset + 16].copy_from_slice(&(!offset).to_le_bytes());
        }
    }
    pass(&map);
    map.flush().unwrap();
    let mut found = [0; 8];
    for offset in (0..SIZE).step_by(PAGE) {
        let due = if stored(offset) { !offset as u64 } else { 0 };
        assert_eq!(word(&map, offset + 8), due, "at {offset}");
        if stored(offset) {
            file.as_file().read_exact_at(&mut found, offset as u64 + 8).unwrap();
            assert_eq!(u64::from_le_bytes(found), due, "in the file, at {offset}");
        }
    }
    await_cached(file.as_file(), BUDGET + BUDGET / 20);
}
