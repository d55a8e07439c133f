//! Promise: what the kernel has of a mapped file beyond what its tenant is charged for leaves
//! again, however it came in: past lowtide's back, before the mapping, or late.

use crate::common::mapped::{PAGE, await_cached, cached_bytes, file, or_skip, pager, random, word};
use lowtide::Pager;
use lowtide::map::{Access, Map, MapMode, MapOptions};
use lowtide_sys::page_cache::{drop_cached, populate_read, read_ahead};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const PAGES: usize = 4096;
const BUDGET: u64 = 4 << 20;
/// Less than the sixteenth of the budget that is dropped at once.
const FEW: usize = 48;

fn map(pager: &Pager, file: &File) -> Option<Map> {
    // SAFETY: the file is the test's.
    #[allow(unsafe_code)]
    let map = or_skip(unsafe { MapOptions::new().mode(MapMode::PageCache).map(pager, file) })?;
    map.advise(Access::Random).unwrap();
    Some(map)
}

/// Touches pages of the first half until the budget is full.
fn fill(pager: &Pager, map: &Map) {
    let (began, mut state) = (Instant::now(), 5);
    while pager.stat().memory.events.pgsteal < 500 {
        for _ in 0..100 {
            let offset = random(&mut state) % (PAGES / 2) * PAGE;
            assert_eq!(word(map, offset), offset as u64);
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", pager.stat());
    }
}

/// The budget is kept by what is in memory, and not only by what is charged.
fn await_budget(pager: &Pager, file: &File) {
    await_cached(file, BUDGET);
    pager.validate().unwrap();
}

#[test]
fn a_few_pages_that_others_read_leave_when_the_budget_is_full() {
    let (file, pager) = (file(PAGES), pager("4M"));
    let Some(map) = map(&pager, file.as_file()) else { return };
    for round in 0..3 {
        fill(&pager, &map);
        await_budget(&pager, file.as_file());
        let first = PAGES / 2 + round * 200;
        match round {
            0 => read_ahead(&file, (first * PAGE) as u64, (FEW * PAGE) as u64).unwrap(),
            1 => {
                let other = File::open(file.path()).unwrap();
                let mut bytes = [0; PAGE];
                (0..FEW).for_each(|page| {
                    other.read_exact_at(&mut bytes, ((first + page) * PAGE) as u64).unwrap();
                });
            }
            _ => {
                let mut other = std::process::Command::new("dd");
                let block = |name, of: usize| format!("{name}={of}");
                other.arg(format!("if={}", file.path().display())).arg("of=/dev/null");
                other.args([block("bs", PAGE), block("skip", first), block("count", FEW)]);
                assert!(other.output().unwrap().status.success());
            }
        }
        await_budget(&pager, file.as_file());
    }
}

#[test]
fn pages_that_another_mapping_had_leave_when_it_has_gone() {
    let (file, pager) = (file(PAGES), pager("4M"));
    let page = |at: usize| (at * PAGE) as u64;
    // What was written is in large folios; what comes back so is not.
    drop_cached(&file, 0, 0).unwrap();
    read_ahead(&file, page(PAGES / 2), page(FEW)).unwrap();
    let other = SharedMapping::map(
        &file,
        page(PAGES / 2),
        FEW * PAGE,
        Rights::Read,
        Sharing::Shared,
        false,
    );
    let other = other.unwrap();
    populate_read(other.addresses()).unwrap();
    let Some(map) = map(&pager, file.as_file()) else { return };
    fill(&pager, &map);
    // They are in use, and no tenant is charged for them.
    await_cached(file.as_file(), BUDGET + page(FEW));
    drop(other);
    await_budget(&pager, file.as_file());
}

#[test]
fn pages_that_find_room_stay() {
    let (file, pager) = (file(PAGES), pager("4M"));
    let Some(map) = map(&pager, file.as_file()) else { return };
    let began = Instant::now();
    // The kernel may take some for itself, and lowtide would take them each time.
    loop {
        // A few at a time, so that there are never many that are not charged yet.
        for first in (0..100).step_by(20) {
            let pages = first..first + 20;
            pages
                .clone()
                .for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
            while map.report().resident_bytes < (pages.end * PAGE) as u64 {
                assert!(began.elapsed() < Duration::from_secs(60), "{}", map.report());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        read_ahead(&file, (PAGES / 2 * PAGE) as u64, (FEW / 2 * PAGE) as u64).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let cached = cached_bytes(file.as_file());
        if cached == ((100 + FEW / 2) * PAGE) as u64 {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{cached} bytes are left");
    }
}
