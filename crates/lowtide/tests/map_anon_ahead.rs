//! Memory without a file behind a pointer comes back in clusters where it is touched in order, and
//! page by page where it is not. What is counted is requests and faults, not time.

use crate::common::eventually;
use crate::common::mapped::{PAGE, check_empty, or_skip, random};
use lowtide::map::{MapMut, MapOptions};
use lowtide::{Pager, Size, SwapOptions, Tenant};
use std::path::Path;
use std::time::{Duration, Instant};

const BUDGET: usize = 4 << 20;
/// Three times the budget.
const PAGES: usize = 3 * BUDGET / PAGE;

fn tenant(dir: &Path) -> (Pager, Tenant) {
    let swap = SwapOptions::compressed(Size::new(BUDGET as u64)).file(dir, Size::mib(64));
    let pager = Pager::builder().max(Size::mib(16)).swap(swap).build().unwrap();
    let tenant = pager.tenant("heap").max(Size::new(BUDGET as u64)).create().unwrap();
    (pager, tenant)
}

/// Bytes that do not compress, another one for each page.
fn noise(page: usize) -> [u8; PAGE] {
    let mut state = (page as u64) << 1 | 1;
    let mut bytes = [0; PAGE];
    for word in bytes.chunks_exact_mut(8) {
        random(&mut state);
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn of(memory: &MapMut, page: usize) -> &[u8] {
    &memory[page * PAGE..(page + 1) * PAGE]
}

fn filled(tenant: &Tenant) -> Option<MapMut> {
    let mut memory = or_skip(tenant.map_anon(PAGES * PAGE))?;
    for page in 0..PAGES {
        memory[page * PAGE..(page + 1) * PAGE].copy_from_slice(&noise(page));
        assert!(tenant.usage().unwrap() <= BUDGET as u64);
    }
    Some(memory)
}

/// Touches pages, checks them, and returns how many faults that took and how many requests to the
/// file.
fn play(
    pager: &Pager,
    tenant: &Tenant,
    memory: &MapMut,
    pages: impl Iterator<Item = usize>,
) -> (u64, u64) {
    let before = (memory.report().faults, pager.swap_file().unwrap().read_requests);
    for page in pages {
        assert!(of(memory, page) == noise(page), "page {page}");
        assert!(tenant.usage().unwrap() <= BUDGET as u64);
    }
    pager.validate().unwrap();
    let after = (memory.report().faults, pager.swap_file().unwrap().read_requests);
    (after.0 - before.0, after.1 - before.1)
}

/// Waits until this number of pages are in memory: a thread goes on when its page is there, a
/// moment before it is counted.
fn settles_at(memory: &MapMut, pages: usize) {
    let begun = Instant::now();
    while memory.report().resident_bytes != (pages * PAGE) as u64 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}, not {pages}", memory.report());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_read_in_order_takes_an_eighth_of_the_requests_and_faults() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pager, tenant) = tenant(dir.path());
    let Some(memory) = filled(&tenant) else { return };
    for round in 0..2 {
        let read = pager.swap_file().unwrap().read;
        let (faults, requests) = play(&pager, &tenant, &memory, 0..PAGES);
        let read = pager.swap_file().unwrap().read - read;
        assert!(read > PAGES as u64 / 2, "round {round}: {read} of {PAGES} came back");
        let most = PAGES as u64 / 8;
        assert!(requests <= most && faults <= most, "{round}: {requests} requests {faults} faults");
    }
    drop(memory);
    check_empty(&pager);
}

#[test]
fn two_arrays_that_are_read_side_by_side_are_both_in_order() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pager, tenant) = tenant(dir.path());
    let Some(memory) = filled(&tenant) else { return };
    let both = (0..PAGES / 2).flat_map(|page| [page, PAGES / 2 + page]);
    let (faults, requests) = play(&pager, &tenant, &memory, both);
    let most = PAGES as u64 / 4;
    assert!(requests <= most && faults <= most, "{requests} requests, {faults} faults");
    drop(memory);
    check_empty(&pager);
}

#[test]
fn what_is_read_in_no_order_brings_no_page_but_its_own() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pager, tenant) = tenant(dir.path());
    let Some(memory) = filled(&tenant) else { return };
    let before = pager.swap_file().unwrap();
    // Each page once, and never two neighbours after each other.
    let (faults, _) = play(&pager, &tenant, &memory, (0..PAGES).map(|n| n * 1021 % PAGES));
    let after = pager.swap_file().unwrap();
    let (ahead, read) = (after.ahead - before.ahead, after.read - before.read);
    assert!(faults > PAGES as u64 / 2, "{faults} faults");
    assert!(ahead <= PAGES as u64 / 16, "{ahead} of {read} were read ahead");
    drop(memory);
    check_empty(&pager);
}

#[test]
fn memory_that_is_filled_in_order_takes_few_faults_and_scattered_stores_take_no_more_than_theirs() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pager, tenant) = tenant(dir.path());
    let pages = BUDGET / PAGE / 2;
    let Some(mut memory) = or_skip(tenant.map_anon(64 * BUDGET)) else { return };
    for page in 0..pages {
        memory[page * PAGE] = 1;
    }
    let faults = memory.report().faults;
    assert!(faults <= pages as u64 / 8, "{faults} faults for {pages} pages");
    // What came too early is at most a window of zeroes.
    let resident = || memory.report().resident_bytes / PAGE as u64;
    // A thread goes on when its page is there, a moment before its block is counted.
    eventually("what was stored to is counted", || resident() >= pages as u64 - 1);
    let resident = resident();
    assert!((pages as u64 - 1..pages as u64 + 65).contains(&resident), "{resident} of {pages}");
    assert!((pages..pages + 100).all(|page| of(&memory, page).iter().all(|byte| *byte == 0)));
    // A window that is on its way may come after that.
    let begun = Instant::now();
    while memory.report().resident_bytes > 0 {
        memory.clear(0..64 * BUDGET).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", memory.report());
    }
    for n in 0..100 {
        memory[n * 97 * PAGE] = 1;
    }
    settles_at(&memory, 100);
    drop(memory);
    check_empty(&pager);
}

#[test]
fn nothing_is_read_ahead_where_that_is_not_wanted() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pager, tenant) = tenant(dir.path());
    let options = MapOptions::new().tenant(&tenant).len(BUDGET).read_ahead(0);
    let Some(mut memory) = or_skip(options.map_anon(&pager)) else { return };
    let pages = BUDGET / PAGE / 2;
    for page in 0..pages {
        memory[page * PAGE] = 1;
    }
    settles_at(&memory, pages);
    drop(memory);
    check_empty(&pager);
}
