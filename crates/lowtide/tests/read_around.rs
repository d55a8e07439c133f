//! Read-around: neighbours of a missed page come with it where that was useful, and only there.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use crate::common::mapped::{PAGE, file, pager, random, word};
use lowtide::map::{Access, MapError, MapMode, MapOptions};
use lowtide::{OpenOptions, Pager, Size, View};

fn open(pager: &Pager, path: &std::path::Path, window: &str) -> View {
    OpenOptions::new().read_ahead(window.parse::<Size>().unwrap()).open(pager, path).unwrap()
}

fn read(view: &View, page: u64) {
    assert_eq!(word(&view.page(page).unwrap(), 0), page * PAGE as u64);
}

/// Reads of the device for these pages of a file of 4096, and pages that were read unasked.
fn reads_of(window: &str, pages: impl IntoIterator<Item = u64>) -> (u64, u64) {
    let (file, pager) = (file(4096), pager("4M"));
    let view = open(&pager, file.path(), window);
    pages.into_iter().for_each(|page| read(&view, page));
    pager.validate().unwrap();
    let io = pager.stat().io;
    (io.reads, io.ahead_pages)
}

#[test]
fn a_file_that_is_read_backwards_is_read_in_blocks() {
    let (reads, ahead) = reads_of("1M", (0..4096).rev());
    assert!(reads < 1024, "{reads} reads");
    assert!(ahead > 3000, "{ahead} pages");
}

#[test]
fn blocks_whose_pages_are_read_in_any_order_are_read_as_a_whole() {
    let mut state = 9;
    let mut blocks: Vec<u64> = (0..256).collect();
    blocks.sort_by_cached_key(|_| random(&mut state));
    // A region is known after its first block, which is read by single pages.
    blocks.sort_by_key(|block| block / 32);
    let order = [3, 9, 0, 14, 7, 1, 12, 5, 15, 8, 2, 11, 6, 13, 4, 10];
    let pages = blocks.iter().flat_map(|block| order.map(|within| block * 16 + within));
    let (reads, _) = reads_of("1M", pages);
    assert!(reads < 1024, "{reads} reads");
}

#[test]
fn scattered_reads_bring_their_page_alone() {
    let mut state = 5;
    let (reads, ahead) = reads_of("1M", (0..20_000).map(|_| random(&mut state) as u64 % 4096));
    assert!(reads > 10_000, "{reads} reads: most miss");
    assert!(ahead < reads / 50, "{ahead} pages were read around {reads} misses");
}

#[test]
fn nothing_is_read_around_where_nothing_is_to_be_read_ahead() {
    let (reads, ahead) = reads_of("0", (0..4096).rev());
    assert_eq!((reads, ahead), (4096, 0));
}

#[test]
fn a_map_that_is_read_backwards_has_few_faults_unless_it_is_advised_to_be_random() {
    let (file, pager) = (file(4096), pager("4M"));
    // SAFETY: nothing changes the file while it is mapped.
    let map =
        match unsafe { MapOptions::new().mode(MapMode::Userfault).map(&pager, file.as_file()) } {
            Err(error @ MapError::Mode { .. }) => return eprintln!("SKIPPED: {error}"),
            map => map.unwrap(),
        };
    let backwards = || {
        (0..4096).rev().for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
    };
    backwards();
    let faults = map.report().faults;
    assert!(faults < 1024, "{faults} faults for 4096 pages");
    map.advise(Access::Random).unwrap();
    let (before, ahead) = (map.report().faults, pager.stat().io.ahead_pages);
    backwards();
    assert!(map.report().faults - before > 3000, "advised to be random");
    assert_eq!(pager.stat().io.ahead_pages, ahead);
    pager.validate().unwrap();
}
