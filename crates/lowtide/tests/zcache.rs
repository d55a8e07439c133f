//! Promise: clean pages that are evicted may stay compressed within the budget, and nothing else
//! changes: what is read is what the file has, also after others changed it; limits hold; and what
//! does not compress costs nothing.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use crate::common::{Dir, eventually};
use lowtide::map::{MapError, MapMode, MapOptions};
use lowtide::{OpenOptions, Pager, Policy, Settled, Size, View};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Pages of a budget, and of a file.
const BUDGET: u64 = 512;
const PAGES: u64 = 1024;
/// Sixteenths of the budget for compressed pages.
const HALF: u64 = 8;

/// A page of text that its number determines.
fn text(page: u64, bytes: usize) -> Vec<u8> {
    let words = ["a page ", "of text ", "number ", "that says ", "nothing, "];
    let mut word = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        words[(word >> 33) as usize % words.len()]
    };
    let mut page = format!("{page:8} ").into_bytes();
    while page.len() < bytes {
        page.extend_from_slice(next().as_bytes());
    }
    page.truncate(bytes);
    page
}

/// A page that does not compress.
fn noise(page: u64, bytes: usize) -> Vec<u8> {
    let mut state = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(next).collect()
}

type Contents = fn(u64, usize) -> Vec<u8>;

fn write(path: &Path, page_bytes: usize, contents: Contents) {
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| contents(page, page_bytes)).collect();
    std::fs::write(path, bytes).unwrap();
}

fn pager(page_bytes: usize, policy: &str) -> Pager {
    let policy: Policy = policy.parse().unwrap();
    let builder = Pager::builder().max(Size::new(BUDGET * page_bytes as u64)).policy(policy);
    builder.base_page(page_bytes).zcache_sixteenths(HALF).background(false).build().unwrap()
}

fn open(pager: &Pager, path: &Path) -> View {
    OpenOptions::new().write(true).read_ahead(Size::new(0)).open(pager, path).unwrap()
}

/// Reads all pages in order, as often.
fn circles(view: &View, count: u32, contents: Contents) {
    for _ in 0..count {
        for page in 0..view.page_count() {
            let guard = view.page(page).unwrap();
            assert!(guard[..] == contents(page, guard.len()), "page {page}");
        }
    }
}

#[test]
fn a_circle_that_is_larger_than_the_budget_is_read_once_if_it_fits_compressed() {
    for policy in ["mglru", "mglru-7.1", "lru", "tide"] {
        for page_bytes in [1024, 4096, 16384] {
            let dir = Dir::new();
            let path = dir.path().join("data");
            write(&path, page_bytes, text);
            let pager = pager(page_bytes, policy);
            let view = open(&pager, &path);
            circles(&view, 3, text);
            let (read, stat) = (pager.stat().io.read_bytes, pager.root().zcache_stat().unwrap());
            circles(&view, 2, text);
            let again = pager.stat().io.read_bytes - read;
            let after = pager.root().zcache_stat().unwrap();
            let (loaded, circle) = (after.loaded - stat.loaded, PAGES * page_bytes as u64);
            assert!(
                again * 4 < 2 * circle && loaded * 2 > PAGES,
                "{policy}, {page_bytes}: {again} of {circle} bytes read, {loaded} pages loaded; \
                 {after:?}"
            );
            assert!(after.ratio().unwrap() > 1.5 && after.corrupt == 0, "{after:?}");
            let counted = pager.root().stat().unwrap();
            let as_counted =
                (counted.zswap_events.zswpout, counted.zswap_events.zswpin, counted.zswapped);
            assert_eq!(as_counted, (after.stored, after.loaded, after.pages));
            assert!(pager.root().usage().unwrap() <= BUDGET * page_bytes as u64);
            pager.validate().unwrap();
            drop(view);
            assert_eq!(pager.root().usage().unwrap(), 0, "all of it is given back");
            pager.validate().unwrap();
        }
    }
}

#[test]
fn calls_for_many_pages_find_them() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, text);
    let pager = pager(4096, "tide");
    let view = open(&pager, &path);
    let all: Vec<u64> = (0..PAGES).collect();
    for _ in 0..5 {
        for part in all.chunks(32) {
            view.get_many(part, |index, bytes| assert!(bytes == text(part[index], 4096))).unwrap();
        }
    }
    let stat = pager.root().zcache_stat().unwrap();
    assert!(stat.loaded > PAGES, "{stat:?}");
}

#[test]
fn pages_behind_a_pointer_come_back_as_they_were_stored_last() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, text);
    let pager = pager(4096, "mglru");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: only this map changes the file.
    let map = unsafe { MapOptions::new().mode(MapMode::Userfault).map_mut(&pager, &file) };
    let mut map = match map {
        Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
        map => map.unwrap(),
    };
    let mut versions: Vec<u64> = (0..PAGES).collect();
    for turn in 0..6 {
        for page in 0..PAGES {
            let at = page as usize * 4096..(page as usize + 1) * 4096;
            let version = &mut versions[page as usize];
            assert!(map[at.clone()] == text(*version, 4096), "page {page} in turn {turn}");
            if (page + turn) % 7 == 0 {
                *version += 1000;
                map[at].copy_from_slice(&text(*version, 4096));
            }
        }
    }
    let stat = pager.root().zcache_stat().unwrap();
    assert!(stat.loaded > PAGES, "{stat:?}");
    pager.validate().unwrap();
    drop(map);
    let bytes = std::fs::read(&path).unwrap();
    let expected = versions.iter().flat_map(|version| text(*version, 4096));
    assert!(bytes.into_iter().eq(expected), "the file has what was stored");
    assert_eq!(pager.root().usage().unwrap(), 0);
}

#[test]
fn pages_that_do_not_compress_are_not_kept() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, noise);
    let pager = pager(4096, "mglru");
    let view = open(&pager, &path);
    circles(&view, 8, noise);
    let stat = pager.root().zcache_stat().unwrap();
    assert_eq!((stat.pages, stat.stored, stat.loaded), (0, 0, 0), "{stat:?}");
    let evicted = 8 * PAGES - BUDGET;
    assert!(stat.incompressible * 4 < evicted, "{} of {evicted} tried", stat.incompressible);
}

#[test]
fn what_is_stored_cut_off_or_punched_is_never_read_again_as_it_was() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, text);
    let pager = pager(4096, "mglru");
    let view = open(&pager, &path);
    circles(&view, 3, text);
    let compressed = || pager.root().zcache_stat().unwrap().pages;
    assert!(compressed() > 0);
    // As a whole, without reading it.
    for page in 0..PAGES / 2 {
        view.write_at(page * 4096, &text(page + 1000, 4096)).unwrap();
    }
    view.punch(4096 * (PAGES / 2)..4096 * (PAGES / 2 + 40)).unwrap();
    view.set_len(4096 * (PAGES - 20)).unwrap();
    view.set_len(4096 * PAGES).unwrap();
    for _ in 0..3 {
        for page in 0..PAGES {
            let guard = view.page(page).unwrap();
            let holes = [PAGES / 2..PAGES / 2 + 40, PAGES - 20..PAGES];
            let expected = if page < PAGES / 2 {
                text(page + 1000, 4096)
            } else if holes.iter().any(|hole| hole.contains(&page)) {
                vec![0; 4096]
            } else {
                text(page, 4096)
            };
            assert!(guard[..] == expected, "page {page}");
        }
    }
    pager.validate().unwrap();
}

#[test]
fn what_others_changed_is_seen_once_it_is_looked_at() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, text);
    let pager = pager(4096, "mglru");
    let view = OpenOptions::new().read_ahead(Size::new(0)).open(&pager, &path).unwrap();
    circles(&view, 3, text);
    assert!(pager.root().zcache_stat().unwrap().pages > 0);
    let other = File::options().write(true).open(&path).unwrap();
    other.set_len(4096 * (PAGES / 2)).unwrap();
    view.refresh_len().unwrap();
    other.set_len(4096 * PAGES).unwrap();
    other.write_all_at(&text(7, 4096), 4096 * (PAGES - 1)).unwrap();
    view.refresh_len().unwrap();
    for page in PAGES / 2..PAGES - 1 {
        assert!(view.page(page).unwrap().iter().all(|byte| *byte == 0), "page {page}");
    }
    assert!(view.page(PAGES - 1).unwrap()[..] == text(7, 4096));
}

#[test]
fn a_file_that_is_opened_next_has_no_pages_of_the_last() {
    let dir = Dir::new();
    let pager = pager(4096, "mglru");
    for (name, contents) in [("first", text as Contents), ("second", |p, n| text(p + 5000, n))] {
        let path = dir.path().join(name);
        write(&path, 4096, contents);
        let view = open(&pager, &path);
        circles(&view, 4, contents);
        assert!(pager.root().zcache_stat().unwrap().loaded > 0);
    }
}

#[test]
fn a_tenant_pays_for_its_own_and_gives_them_up_for_pages_that_it_needs() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, text);
    let pager = pager(4096, "mglru");
    let tenant = pager.tenant("a").max(Size::new(BUDGET / 2 * 4096)).create().unwrap();
    let options = OpenOptions::new().read_ahead(Size::new(0));
    let view = options.tenant(&tenant).open(&pager, &path).unwrap();
    circles(&view, 4, text);
    let stat = tenant.zcache_stat().unwrap();
    assert!(stat.pages > 0 && stat.memory_bytes <= BUDGET / 4 * 4096, "{stat:?}");
    assert!(tenant.usage().unwrap() <= BUDGET / 2 * 4096);
    // More guards than there are pages beside the compressed ones.
    let guards: Vec<_> = (0..BUDGET / 2 - 4).map(|page| view.page(page).unwrap()).collect();
    assert!(tenant.zcache_stat().unwrap().memory_bytes <= 4 * 4096);
    drop(guards);
    circles(&view, 3, text);
    // What is given back is memory, and not pages alone: holes are closed.
    let before = tenant.zcache_stat().unwrap();
    assert_eq!(tenant.set_max(Size::new(BUDGET / 4 * 4096)).unwrap(), Settled::Yes);
    let after = tenant.zcache_stat().unwrap();
    if after.memory_bytes >= 16 * 4096 {
        let (ratio, full) = (after.ratio().unwrap(), before.ratio().unwrap());
        assert!(ratio > 0.8 * full, "{ratio}, {full} before: {after:?}");
    }
    circles(&view, 2, text);
    assert_eq!(tenant.set_max(Size::new(32 * 4096)).unwrap(), Settled::Yes);
    assert!(tenant.usage().unwrap() <= 32 * 4096);
    circles(&view, 2, text);
    // Its parent pays when it is gone.
    tenant.remove().unwrap();
    circles(&view, 2, text);
    assert!(pager.root().zcache_stat().unwrap().pages > 0);
    pager.validate().unwrap();
    drop(view);
    assert_eq!(pager.root().usage().unwrap(), 0);
    pager.validate().unwrap();
}

#[test]
fn what_many_files_have_in_common_takes_a_sixteenth_of_the_budget_at_most() {
    let (dir, max) = (Dir::new(), 12 << 20);
    let builder = Pager::builder().max(Size::new(max)).background(false);
    let pager = builder.zcache_sixteenths(HALF).build().unwrap();
    let views: Vec<View> = (0..12)
        .map(|number| {
            let path = dir.path().join(number.to_string());
            write(&path, 4096, text);
            open(&pager, &path)
        })
        .collect();
    for _ in 0..4 {
        views.iter().for_each(|view| circles(view, 1, text));
    }
    let stat = pager.root().zcache_stat().unwrap();
    // Tables have 50 bytes for a page.
    let dictionaries = stat.table_bytes - (stat.pages * 64).min(stat.table_bytes);
    assert!((1..=max / 16).contains(&dictionaries), "{dictionaries}: {stat:?}");
    views.into_iter().skip(1).for_each(drop);
    pager.validate().unwrap();
}

#[test]
fn it_is_measured_whether_it_pays() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, text);
    let pager = Pager::builder().max(Size::new(BUDGET * 4096)).build().unwrap();
    let view = pager.open(&path).unwrap();
    // What fits is never compressed.
    let small: Vec<u64> = (0..BUDGET / 4).collect();
    for _ in 0..100 {
        view.get_many(&small, |index, bytes| assert!(bytes == text(small[index], 4096))).unwrap();
    }
    assert_eq!(pager.root().zcache_stat().unwrap().stored, 0);
    let off = Pager::builder().max(Size::new(BUDGET * 4096)).zcache(false).build().unwrap();
    circles(&off.open(&path).unwrap(), 3, text);
    assert_eq!(off.root().zcache_stat().unwrap(), lowtide::ZcacheStat::default());
}

#[test]
fn threads_that_read_and_write_at_once_see_whole_pages_of_the_last_store() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    write(&path, 4096, text);
    let builder = Pager::builder().max(Size::new(BUDGET * 4096)).zcache_sixteenths(HALF);
    let pager = builder.build().unwrap();
    let view = open(&pager, &path);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let view = view.clone();
            scope.spawn(move || {
                // Each has pages of its own, and reads those of all.
                let mut versions = vec![0; PAGES as usize];
                for turn in 0..6 * PAGES {
                    let page = turn * 97 % PAGES;
                    let own = page % 4 == thread;
                    if own && turn % 3 == 0 {
                        versions[page as usize] = turn * PAGES;
                        view.write_at(page * 4096, &text(page + turn * PAGES, 4096)).unwrap();
                    }
                    let guard = view.page(page).unwrap();
                    let number: u64 =
                        std::str::from_utf8(&guard[..8]).unwrap().trim().parse().unwrap();
                    assert!(number % PAGES == page && guard[..] == text(number, 4096));
                    assert!(!own || number == page + versions[page as usize], "page {page}");
                }
            });
        }
    });
    eventually("pages come back", || pager.root().zcache_stat().unwrap().loaded > 0);
    view.flush().unwrap();
    pager.validate().unwrap();
}
