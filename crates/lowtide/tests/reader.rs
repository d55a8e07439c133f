//! Readers: pages one at a time, behind a slot that is kept.

use crate::common::{Dir, noise};
use lowtide::{Error, OpenOptions, Pager, Policy, Size, View};
use std::cell::RefCell;
use std::time::Duration;

const PAGE: u64 = 4096;

fn file(dir: &Dir, pages: u64) -> std::path::PathBuf {
    let bytes: Vec<u8> = (0..pages).flat_map(|page| noise(page, 1)).collect();
    let path = dir.path().join("data");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(dir: &Dir, pages: u64, max: &str) -> (Pager, View) {
    let builder = Pager::builder()
        .max(max.parse::<Size>().unwrap())
        .memory_timeout(Duration::from_millis(300));
    let pager = builder.build().unwrap();
    let view = OpenOptions::new().write(true).open(&pager, file(dir, pages)).unwrap();
    (pager, view)
}

#[test]
fn every_page_of_a_file_of_four_budgets_is_what_it_is_with_every_policy() {
    let dir = Dir::new();
    let path = file(&dir, 1024);
    for (policy, name) in Policy::builtin() {
        let pager = Pager::builder().max(Size::mib(1)).policy(policy).build().unwrap();
        let view = pager.open(&path).unwrap();
        let before = pager.stat();
        let mut reader = view.page_cursor();
        // Few pages again and again, and all of them in between.
        let pages = (0..40_000_u64).map(|n| if n % 8 > 0 { n * 7 % 64 } else { n / 8 % 1024 });
        for page in pages {
            assert!(reader.page(page).unwrap() == noise(page, 1), "{name}: page {page}");
        }
        assert!(matches!(reader.page(1024), Err(Error::OutOfRange { .. })), "{name}");
        drop(reader);
        pager.validate().unwrap();
        let after = pager.stat();
        let misses = after.misses - before.misses;
        let all = after.hits - before.hits + misses;
        // The first use of a page that was read ahead is neither: of those in order, each may be.
        assert!((34_000..=42_000).contains(&all), "{name}: {all} accesses were counted");
    }
}

#[test]
fn the_last_page_is_kept_until_the_next_or_the_release_or_the_end() {
    let dir = Dir::new();
    let (pager, view) = open(&dir, 64, "4M");
    let reclaimed = |page| {
        for _ in 0..4 {
            pager.root().reclaim(Size::new(1 << 20)).unwrap();
        }
        !view.is_resident(page)
    };
    let mut reader = view.page_cursor();
    for _ in 0..3 {
        let bytes = reader.page(5).unwrap();
        assert!(bytes == noise(5, 1));
    }
    assert!(!reclaimed(5), "it is held, so it stays");
    // A store waits for the reader, in another thread as for a guard, in this one not at all.
    let store = || view.write_at(5 * PAGE, &[9]);
    assert!(matches!(store(), Err(Error::HeldHere { .. })), "{:?}", store());
    let elsewhere = std::thread::scope(|scope| scope.spawn(store).join().unwrap());
    assert!(matches!(elsewhere, Err(Error::HeldElsewhere { .. })), "{elsewhere:?}");
    assert!(reader.page(5).unwrap() == noise(5, 1));
    reader.release();
    store().unwrap();
    assert_eq!(reader.page(5).unwrap()[0], 9);
    reader.page(6).unwrap();
    store().unwrap();
    view.flush().unwrap();
    assert!(reclaimed(5) && !reclaimed(6));
    drop(reader);
    assert!(reclaimed(6));
    pager.validate().unwrap();
}

#[test]
fn readers_and_guards_of_one_thread_hold_their_own_pages() {
    let dir = Dir::new();
    let (pager, view) = open(&dir, 64, "4M");
    let mut readers: Vec<_> = (0..20).map(|_| view.page_cursor()).collect();
    let guards: Vec<_> = (40..52).map(|page| view.page(page).unwrap()).collect();
    for round in 0..4 {
        for (at, reader) in readers.iter_mut().enumerate() {
            let page = at as u64 + 20 * (round % 2);
            assert!(reader.page(page).unwrap() == noise(page, 1));
        }
        for _ in 0..4 {
            pager.root().reclaim(Size::new(1 << 20)).unwrap();
        }
        let held = (0..20).map(|at| at + 20 * (round % 2)).chain(40..52);
        assert!(held.clone().all(|page| view.is_resident(page)), "round {round}");
        // The same page through a guard and a reader: either may go first.
        let first = &mut readers[0];
        let guard = view.page(20 * (round % 2)).unwrap();
        assert!(first.page(20 * (round % 2)).unwrap() == &guard[..]);
    }
    drop(readers);
    assert!(guards.iter().zip(40..).all(|(guard, page)| guard[..] == noise(page, 1)));
    drop(guards);
    let stored: Vec<u8> = vec![3; 64 * PAGE as usize];
    view.write_at(0, &stored).unwrap();
    pager.validate().unwrap();
}

/// Where another thread waits for a guard of this thread, the slot cannot take the guard's place.
#[test]
fn a_reader_reads_what_its_thread_holds_while_a_store_waits_for_it() {
    let dir = Dir::new();
    let (_pager, view) = open(&dir, 64, "4M");
    let guard = view.page(7).unwrap();
    std::thread::scope(|scope| {
        let store = scope.spawn(|| view.write_at(7 * PAGE, &[1]));
        std::thread::sleep(Duration::from_millis(50));
        let mut reader = view.page_cursor();
        for page in [7, 8, 7] {
            assert!(reader.page(page).unwrap() == noise(page, 1));
        }
        drop(guard);
        // From here on the store may have come between.
        assert!(reader.page(7).unwrap()[1..] == noise(7, 1)[1..]);
        reader.page(9).unwrap();
        // It may have given up; what counts is that it ended.
        drop(store.join().unwrap());
    });
    view.write_at(7 * PAGE, &[1]).unwrap();
    assert_eq!(view.page_cursor().page(7).unwrap()[0], 1);
}

#[test]
fn a_reader_that_outlives_the_records_of_its_thread_is_sound() {
    let dir = Dir::new();
    let (pager, view) = open(&dir, 64, "4M");
    let view: &'static View = Box::leak(Box::new(view));
    struct Late(lowtide::PageCursor<'static>);
    impl Drop for Late {
        fn drop(&mut self) {
            assert!(self.0.page(3).unwrap() == noise(3, 1));
            // One that is made after they have been given back.
            assert!(view_of(self).page_cursor().page(4).unwrap() == noise(4, 1));
        }
    }
    thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });
    static VIEW: std::sync::OnceLock<&'static View> = std::sync::OnceLock::new();
    fn view_of(_: &Late) -> &'static View {
        VIEW.get().unwrap()
    }
    let _ = VIEW.set(view);
    for _ in 0..8 {
        std::thread::spawn(move || {
            LATE.set(Some(Late(view.page_cursor())));
            drop(view.page(1).unwrap());
        })
        .join()
        .unwrap();
    }
    view.write_at(0, &[7; 8 * PAGE as usize]).unwrap();
    pager.validate().unwrap();
}
