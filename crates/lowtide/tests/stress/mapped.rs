//! A file that threads store to through a pointer, in the storm's budget.
//!
//! Each page has records of two threads, so both store to it while it is written back, leaves and
//! comes back. The kernel copies the bytes (`common/kernel.rs`): a page that the device cannot read
//! is an error then, and no signal. When all is flushed and the map has ended, the file has what
//! was stored. Before it ends the kernel's count of the file comes down to what is charged and
//! there is room for; beside a mirror, which finds it written and cached, to nothing.

use super::common::kernel::Kernel;
use super::file::Came;
use super::operations::Hand;
use super::plan::{Rng, mix};
use lowtide::Pager;
use lowtide::map::{MapError, MapMode, MapMut, MapOptions};
use lowtide_sys::page_cache::cached_pages;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a page of the processor, which maps have.
const PAGE: usize = 4096;
/// Bytes of a record. It lies in one page.
const RECORD: usize = 256;
/// Steps of a thread.
const STEPS: u64 = 200;
/// How long pages may stay.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of a file system in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// What a thread knows of its records: the version of each, unless a store of it has failed.
type Known = Vec<Option<u64>>;

/// See the module documentation.
pub(crate) fn stored_through(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    if storm.plan.page != PAGE {
        return Came::NotNow;
    }
    let way = hand.rng.pick(&[MapMode::Userfault, MapMode::Userfault, MapMode::PageCache]);
    let pages = 8 + hand.rng.below(storm.plan.budget.min(64) * 2) as usize;
    let path = hand.scene("mapped");
    std::fs::write(&path, vec![0; pages * PAGE]).expect("the file can be written");
    let file = File::options().read(true).write(true).open(&path).expect("the file is there");
    // SAFETY: only this scene uses the file.
    let map = match unsafe { MapOptions::new().mode(way).map_mut(&storm.pager, &file) } {
        Ok(map) => map,
        // Where the kernel has no `userfaultfd` there is nothing to play.
        Err(MapError::Mode { .. }) => return Came::NotNow,
        Err(error) => panic!("{way}: {error}"),
    };
    if map.report().how.contains("EFAULT") {
        return Came::NotNow;
    }
    play(hand, map, &path, pages)
}

fn play(hand: &mut Hand<'_>, mut map: MapMut, path: &Path, pages: usize) -> Came {
    let (fair, seed) = (hand.storm.plan.behaviour.is_fair(), hand.rng.next());
    let base = map.as_mut_ptr().expose_provenance();
    let at =
        move |record: usize| std::ptr::with_exposed_provenance_mut::<u8>(base + record * RECORD);
    let records = pages * PAGE / RECORD;
    let known: Vec<Known> = std::thread::scope(|scope| {
        let storing: Vec<_> = (0..2)
            .map(|number| scope.spawn(move || store(at, (number, records), seed, fair)))
            .collect();
        let mut rng = Rng(seed);
        while storing.iter().any(|thread| !thread.is_finished()) {
            let from = rng.below(pages as u64) as usize * PAGE;
            let flushed =
                if rng.one_in(3) { map.flush() } else { map.flush_range(from..from + PAGE) };
            assert!(flushed.is_ok() || !fair, "a flush of a map: {flushed:?}");
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, Known>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        storing.into_iter().map(join).collect()
    });
    if map.flush().is_err() {
        assert!(!fair, "the last flush of a map");
        return Came::Refused;
    }
    await_count(&hand.storm.pager, &map, path);
    // Did memory lose it, or was it not written?
    let (kernel, mut seen) = (Kernel::new(), vec![0; RECORD]);
    let seen: Vec<_> = (0..records)
        .map(|record| kernel.load(at(record), &mut seen).map(|()| seen.clone()))
        .collect();
    let (way, early) = (map.report().mode, std::fs::read(path).expect("the file is there"));
    drop(map);
    let bytes = std::fs::read(path).expect("the file is there");
    assert_eq!(bytes.len(), pages * PAGE, "a map does not change the length of its file");
    let of = |bytes: &[u8], record: usize| bytes[record * RECORD..][..RECORD].to_vec();
    let is_right = |found: &[u8], record: usize| {
        known[record % 2][record].is_none_or(|version| found == content(record, version))
    };
    let wrong: Vec<_> = (0..records)
        .filter(|&record| !is_right(&of(&bytes, record), record))
        .map(|record| {
            let memory = seen[record].as_ref().map(|found| is_right(found, record));
            let zeroes = of(&bytes, record).iter().all(|&byte| byte == 0);
            (record, memory, is_right(&of(&early, record), record), zeroes)
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{way}: of {records} records, 16 in a page, a file has not what was stored to these; \
         (number, in memory before the map was dropped, in the file then, zeroes now): {wrong:?}"
    );
    Came::Done
}

/// Waits until the page cache has no more of a file than is charged and the budget has room for:
/// pages in room that nothing takes may stay. Storms end their threads when they hang, so this
/// waits long.
fn await_count(pager: &Pager, map: &MapMut, path: &Path) {
    let file = File::open(path).expect("the file is there");
    let lives_in_memory = rustix::fs::fstatfs(&file).expect("a file system").f_type == TMPFS;
    let root = pager.root();
    let most = || {
        let max = root.limits().expect("the root is there").max.bytes();
        let room = max.saturating_sub(root.usage().expect("the root is there"));
        let report = map.report();
        if report.mode == MapMode::Userfault { 0 } else { report.resident_bytes + room }
    };
    let cached = || cached_pages(&file).expect("the file is ours") * PAGE as u64;
    let began = Instant::now();
    while !lives_in_memory && cached() > most() {
        assert!(
            began.elapsed() < PATIENCE,
            "{} bytes stay cached, and {} may: {}",
            cached(),
            most(),
            map.report()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stores to every second record, and loads what it has stored.
fn store(
    at: impl Fn(usize) -> *mut u8,
    (number, records): (usize, usize),
    seed: u64,
    fair: bool,
) -> Known {
    let (kernel, mut rng) = (Kernel::new(), Rng(mix(seed ^ number as u64)));
    let mut known = vec![Some(0); records];
    let mut found = vec![0; RECORD];
    for _ in 0..STEPS {
        let record = rng.below(records as u64 / 2) as usize * 2 + number;
        if rng.one_in(2) {
            let version = rng.next() | 1;
            let stored = kernel.store(at(record), &content(record, version)).is_some();
            assert!(stored || !fair, "a store through a map failed");
            // Of a page that went meanwhile, and could not come back, a part may be stored.
            known[record] = stored.then_some(version);
        } else if kernel.load(at(record), &mut found).is_none() {
            assert!(!fair, "a load through a map failed");
        } else if let Some(version) = known[record] {
            assert!(found == content(record, version), "record {record} of a map has other bytes");
        }
    }
    known
}

/// The bytes of a version of a record, which compress; zeroes for the first.
fn content(record: usize, version: u64) -> Vec<u8> {
    let word = |i: u64| if version == 0 { 0 } else { mix(version ^ (record as u64) << 32 ^ i) };
    (0..RECORD as u64 / 8).flat_map(|i| word(i % 4).to_le_bytes()).collect()
}
