//! Maps: a plain pointer to a file that is larger than the budget.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use crate::common::mapped::{PAGE, await_cached, cached_bytes, file, pager, random, word};
use lowtide::map::{Access, Map, MapError, MapMode, MapOptions};
use lowtide::{OpenError, OpenOptions, Pager, Size};
use std::fs::File;
use std::time::{Duration, Instant};

/// Maps a whole file through the page cache; nothing where the kernel refuses.
fn cached(pager: &Pager, file: &File) -> Option<Map> {
    // SAFETY: as in `map`.
    match unsafe { MapOptions::new().mode(MapMode::PageCache).map(pager, file) } {
        Ok(map) => Some(map),
        Err(error @ MapError::Mode { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Maps a whole file by page faults that this process serves; nothing where the kernel refuses.
fn map(pager: &Pager, file: &File) -> Option<Map> {
    // SAFETY: no test changes a file while it is mapped, unless that is what it is about.
    match unsafe { MapOptions::new().mode(MapMode::Userfault).map(pager, file) } {
        Ok(map) => Some(map),
        Err(error @ MapError::Mode { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_cached_of_a_file_leaves_when_it_is_mirrored() {
    let (file, pager) = (file(1024), pager("1M"));
    let before = cached_bytes(file.as_file());
    let Some(map) = map(&pager, file.as_file()) else { return };
    let left = cached_bytes(file.as_file());
    // The machine may have taken some before.
    assert!(left <= before / 8, "{left} bytes stay of {before}");
    assert_eq!(word(&map, 700 * PAGE), 700 * PAGE as u64);
}

#[test]
fn threads_read_a_file_of_eight_budgets_through_a_pointer_and_the_budget_holds() {
    let file = file(2048);
    let pager = pager("1M");
    let Some(map) = map(&pager, file.as_file()) else { return };
    std::thread::scope(|scope| {
        for seed in 1..=4_u64 {
            let map = &map;
            scope.spawn(move || {
                let mut state = seed * 0x9E37_79B9;
                for _ in 0..20_000 {
                    let offset = random(&mut state) % (map.len() / 8) * 8;
                    assert_eq!(word(map, offset), offset as u64);
                }
            });
        }
        let pager = &pager;
        let map = &map;
        scope.spawn(move || {
            for _ in 0..50 {
                assert!(map.report().resident_bytes <= 1 << 20);
                assert!(pager.stat().memory.file * 4096 <= 1 << 20);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    });
    pager.validate().unwrap();
    let stat = pager.stat();
    assert!(stat.memory.events.pgsteal > 10_000, "{stat}");
    assert!(stat.resident_bytes < 1 << 20, "frames of maps take no memory: {stat}");
    assert!(map.error().is_none());
    drop(map);
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0, "a map that is gone is charged for nothing");
}

#[test]
fn pages_that_are_touched_again_and_again_stay_and_a_scan_goes_by() {
    let file = file(4096);
    let pager = pager("2M");
    let Some(map) = map(&pager, file.as_file()) else { return };
    map.advise(Access::Random).unwrap();
    let hot = 64;
    let mut came_back = 0;
    for round in 0..40 {
        for page in 0..hot {
            assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
        }
        let before = map.report().faults;
        for page in 0..hot {
            assert_eq!(word(&map, page * PAGE + 8), (page * PAGE + 8) as u64);
        }
        came_back += map.report().faults - before;
        // A fifth of the budget that is used once.
        let cold = hot + round * 100 % (4096 - hot - 100);
        for page in cold..cold + 100 {
            assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
        }
    }
    let faults = map.report().faults;
    assert!(came_back < 10, "{came_back} faults of pages that had just been touched");
    // 4000 cold pages and 64 hot ones; without young bits the hot ones would come in 40 times.
    assert!(faults < 4000 + 64 + 500, "{faults} faults: hot pages are evicted");
}

#[test]
fn what_is_read_in_order_is_read_ahead() {
    let file = file(4096);
    let pager = pager("4M");
    let Some(map) = map(&pager, file.as_file()) else { return };
    for page in 0..4096 {
        assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
    }
    let faults = map.report().faults;
    assert!(faults < 3000, "{faults} faults for 4096 pages in order");
    assert!(pager.stat().io.ahead_pages > 1000, "{}", pager.stat());
}

/// Rows of four pages, four of them side by side.
fn by_rows(at: usize) -> usize {
    at / 16 * 16 + at % 4 * 4 + at / 4 % 4
}

#[test]
fn the_next_window_is_there_before_a_reader_in_order_comes_to_it() {
    for order in [|at| at, by_rows] {
        let file = file(4096);
        let pager = pager("32M");
        let Some(map) = map(&pager, file.as_file()) else { return };
        for at in 0..3000 {
            let page = order(at);
            assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
            // Windows are as long as the budget allows by now: 1024 pages, or 512 if the reader was
            // taken for two streams. The next one is requested when half of it is left.
            let patience = Instant::now() + Duration::from_secs(60);
            while at >= 1500 && pager.stat().memory.file < page as u64 + 200 {
                let stat = pager.stat();
                assert!(Instant::now() < patience, "nothing is ahead of page {page}: {stat}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(pager.stat().io.ahead_wasted, 0);
    }
}

#[test]
fn of_windows_that_no_thread_comes_to_a_part_is_looked_at_and_they_become_shorter() {
    let file = file(8192);
    let pager = pager("4M");
    let Some(map) = map(&pager, file.as_file()) else { return };
    let mut state = 7;
    for _ in 0..200 {
        let first = random(&mut state) % 8000;
        for page in first..first + 40 {
            assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
        }
    }
    let io = pager.stat().io;
    assert!(io.ahead_wasted > 0 && io.ahead_wasted < io.ahead_pages, "{io:?}");
    // With windows of 64 pages, two at a time, it would be 200 times 128.
    assert!(io.ahead_pages < 200 * 128, "{io:?}");
}

#[test]
fn a_map_of_a_part_begins_and_ends_where_it_was_asked_to() {
    let file = file(16);
    let pager = pager("1M");
    let part = MapOptions::new().offset(5000).len(10_000);
    // SAFETY: as in `map`.
    let map = match unsafe { part.map(&pager, file.as_file()) } {
        Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
        map => map.unwrap(),
    };
    assert_eq!((map.len(), word(&map, 0), word(&map, 9992)), (10_000, 5000, 14_992));
    let behind = MapOptions::new().offset(1 << 20);
    // SAFETY: as in `map`.
    let error = unsafe { behind.map(&pager, file.as_file()) }.unwrap_err();
    assert!(matches!(error, MapError::Range { .. }), "{error}");
    // SAFETY: as in `map`.
    let empty = unsafe { MapOptions::new().len(0).map(&pager, file.as_file()) }.unwrap();
    assert!(empty.is_empty() && empty.iter().next().is_none());
    let small = Pager::builder().max(Size::mib(1)).base_page(1024).build().unwrap();
    // SAFETY: as in `map`.
    let error = unsafe { small.map(file.as_file()) }.unwrap_err();
    assert!(matches!(error, MapError::PageSize { pager: 1024, .. }), "{error}");
}

#[test]
fn two_maps_of_a_file_are_two_budgets_and_a_view_that_writes_is_refused() {
    let file = file(512);
    let pager = pager("4M");
    let [first, second] =
        ["a", "b"].map(|name| pager.tenant(name).max(Size::kib(512)).create().unwrap());
    // SAFETY: as in `map`.
    let [one, two] = [&first, &second].map(|tenant| unsafe { tenant.map(file.as_file()) });
    let (one, two) = match (one, two) {
        (Err(MapError::Mode { why, .. }), _) => return eprintln!("SKIPPED: {why}"),
        (one, two) => (one.unwrap(), two.unwrap()),
    };
    for page in 0..512 {
        assert_eq!(word(&one, page * PAGE), word(&two, page * PAGE));
    }
    for tenant in [&first, &second] {
        let usage = tenant.usage().unwrap();
        assert!((256 << 10..=512 << 10).contains(&usage), "{usage}");
    }
    let write = OpenOptions::new().write(true);
    let error = write.open(&pager, file.path()).unwrap_err();
    assert!(matches!(error, OpenError::Copies { copies: 2, .. }), "{error}");
    let view = pager.open(file.path()).unwrap();
    assert_eq!(view.page(3).unwrap()[0..8], one[3 * PAGE..3 * PAGE + 8]);
    drop((one, two, view));
    let view = write.open(&pager, file.path()).unwrap();
    // SAFETY: as in `map`.
    let error = unsafe { MapOptions::new().mode(MapMode::Userfault).map(&pager, file.as_file()) };
    assert!(matches!(error, Err(MapError::Mode { .. })), "a map would not see stores");
    drop(view);
}

#[test]
fn pages_that_are_soon_wanted_come_in_before_they_are_touched() {
    let file = file(256);
    let pager = pager("4M");
    let Some(map) = map(&pager, file.as_file()) else { return };
    map.advise_range(Access::WillNeed, 10 * PAGE..110 * PAGE).unwrap();
    let began = Instant::now();
    while map.report().resident_bytes < 100 * PAGE as u64 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", map.report());
        std::thread::sleep(Duration::from_millis(1));
    }
    for page in 10..110 {
        assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
    }
    assert_eq!(map.report().faults, 0);
    assert!(map.advise_range(Access::WillNeed, 0..map.len() + 1).is_err());
}

#[test]
fn the_kernels_own_mapping_is_kept_within_its_budget() {
    let file = file(16_384);
    let pager = pager("8M");
    let Some(map) = cached(&pager, file.as_file()) else { return };
    let mut state = 77;
    for _ in 0..60_000 {
        let offset = random(&mut state) % (map.len() / 8) * 8;
        assert_eq!(word(&map, offset), offset as u64);
    }
    // How much comes in while a busy machine does not run the thread is a matter of time. What it
    // comes back to is not: the budget, and the part that is left until it is worth a call.
    let began = Instant::now();
    while cached_bytes(file.as_file()) > 9 << 20 {
        let (cached, stat) = (cached_bytes(file.as_file()), pager.stat());
        assert!(began.elapsed() < Duration::from_secs(60), "{cached} bytes stay cached: {stat}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let stat = pager.stat();
    assert!(stat.memory.events.pgsteal > 10_000, "{stat}");
    pager.validate().unwrap();
    assert!(map.report().resident_bytes <= 8 << 20, "{}", map.report());
    drop(map);
    pager.validate().unwrap();
    // The thread that watches may have the file at this moment; then they go when it is done. A
    // page that another processor is about to put on its lists stays a little longer.
    await_cached(file.as_file(), 1 << 20);
}

#[test]
fn a_mapping_of_the_kernel_that_is_read_in_order_is_read_ahead_within_its_budget() {
    let file = file(16_384);
    let pager = pager("8M");
    let Some(map) = cached(&pager, file.as_file()) else { return };
    let (mut most, mut unread) = (0, 0);
    for round in 0..3 {
        if round == 2 {
            map.advise(Access::Random).unwrap();
            unread = pager.stat().io.ahead_pages;
        }
        for page in 0..16_384 {
            assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
            if page % 64 == 0 {
                most = most.max(pager.stat().memory.file * PAGE as u64);
            }
        }
    }
    let stat = pager.stat();
    assert!(unread > 16_384, "half of two rounds at least: {stat}");
    assert_eq!(stat.io.ahead_pages, unread, "nothing is read ahead of what is read at random");
    assert!(stat.io.ahead_wasted < unread / 8, "{stat}");
    // What was requested is charged before it is read.
    assert!(most <= 8 << 20, "{most} bytes were charged: {stat}");
    pager.validate().unwrap();
}

#[test]
fn a_mapping_of_the_kernel_sees_what_is_written_through_descriptors_and_children_have_it() {
    use std::os::unix::fs::FileExt;
    let file = file(4096);
    let pager = pager("4M");
    let Some(map) = cached(&pager, file.as_file()) else { return };
    for page in (0..4096).step_by(3) {
        let offset = (page * PAGE) as u64;
        file.as_file().write_all_at(&(offset + 1).to_le_bytes(), offset).unwrap();
    }
    for page in 0..4096 {
        let offset = (page * PAGE) as u64;
        let wanted = if page % 3 == 0 { offset + 1 } else { offset };
        assert_eq!(word(&map, page * PAGE), wanted, "page {page}");
    }
    drop(map);
}

/// The thread that watches looks at a file while its map goes, now and then; the more pages it has,
/// the longer it looks, and the longer it takes to close the file if it was the last to do so.
#[test]
fn a_mapping_of_the_kernel_that_is_gone_is_charged_for_nothing_at_once() {
    let file = file(2048);
    let pager = pager("16M");
    for round in 0..300 {
        let Some(map) = cached(&pager, file.as_file()) else { return };
        let mut state = round + 1;
        if round % 2 == 0 {
            (0..2048).for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
        }
        let until = Instant::now() + Duration::from_millis(round % 5);
        while pager.stat().memory.file == 0 || Instant::now() < until {
            let offset = random(&mut state) % (map.len() / 8) * 8;
            assert_eq!(word(&map, offset), offset as u64);
        }
        drop(map);
        assert_eq!(pager.stat().memory.file, 0, "round {round}");
    }
    pager.validate().unwrap();
}
