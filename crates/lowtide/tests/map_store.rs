//! Maps in `userfault` mode that are stored to: lowtide notices each store, writes it back, and
//! loses none.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use crate::common::mapped;
use crate::common::mapped::{PAGE, pager, random, word};
use crate::common::scene::again;
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::map::{Map, MapError, MapMode, MapMut, MapOptions};
use lowtide::{DirtyLimits, DirtyShare, OpenError, OpenOptions, Pager, Size};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Says to a process that it is the child of a test, and which file it maps.
const CHILD: &str = "LOWTIDE_MAP_STORE_CHILD";

/// A file of this length, whose every eight bytes are their own offset.
fn file(bytes: usize) -> tempfile::NamedTempFile {
    let file = mapped::file(bytes.div_ceil(PAGE));
    file.as_file().set_len(bytes as u64).unwrap();
    file
}

/// The map, or nothing where the kernel refuses the way.
fn made<M>(result: Result<M, MapError>) -> Option<M> {
    match result {
        Err(MapError::Mode { mode: MapMode::Userfault, why }) if why.contains("failed") => {
            eprintln!("SKIPPED: {why}");
            None
        }
        other => Some(other.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// In hundredths of what could be dirty.
fn limits(background: u32, hard: u32) -> DirtyLimits {
    let [background, hard] = [background, hard].map(DirtyShare::Percent);
    DirtyLimits::new(background, hard)
}

fn options() -> MapOptions {
    MapOptions::new().mode(MapMode::Userfault)
}

fn map_mut(pager: &Pager, file: &File) -> Option<MapMut> {
    // SAFETY: no test changes a file while it is mapped, unless that is what it is about.
    made(unsafe { options().map_mut(pager, file) })
}

fn word_of(file: &File, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset as u64).unwrap();
    u64::from_le_bytes(bytes)
}

/// Ends what other threads do meanwhile, also when a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn stores_to_a_file_of_four_budgets_are_all_in_the_file_and_the_budget_holds() {
    const PAGES: usize = 1024;
    let file = file(PAGES * PAGE);
    let pager = pager("1M");
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    let mut model: Vec<u64> = (0..PAGES * PAGE / 8).map(|word| word as u64 * 8).collect();
    let mut state = 4711;
    for step in 0..40_000_u64 {
        let at = random(&mut state) % model.len();
        assert_eq!(word(&map, at * 8), model[at], "word {at} in step {step}");
        if step % 3 == 0 {
            model[at] = step | 1 << 63;
            map[at * 8..at * 8 + 8].copy_from_slice(&model[at].to_le_bytes());
        }
        if step % 1000 == 0 {
            assert!(map.report().resident_bytes <= 1 << 20);
        }
    }
    pager.validate().unwrap();
    let stat = pager.stat();
    assert!(stat.memory.events.pgsteal > 5000, "there was no pressure: {stat}");
    assert!(stat.io.write_bytes > 0, "{stat}");
    map.flush().unwrap();
    let all_there = || {
        for (at, value) in model.iter().enumerate() {
            assert_eq!(word_of(file.as_file(), at * 8), *value, "word {at}");
        }
    };
    all_there();
    // And without a flush.
    for (at, value) in model.iter_mut().enumerate().step_by(1000) {
        *value = at as u64 | 3 << 62;
        map[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
    assert!(map.error().is_none());
    drop(map);
    for (at, value) in model.iter().enumerate() {
        assert_eq!(word_of(file.as_file(), at * 8), *value, "word {at}, after the drop");
    }
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0, "a map that is gone is charged for nothing");
}

/// Each thread has every fourth word of all pages. So a store, the write-back of the page because
/// of another store, and its eviction meet all the time.
#[test]
fn no_store_is_lost_that_races_with_write_back_flushes_and_eviction() {
    const PAGES: usize = 512;
    const THREADS: usize = 4;
    let file = file(PAGES * PAGE);
    let pager = Pager::builder().max(Size::kib(512)).dirty_limits(limits(5, 90)).build().unwrap();
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    let base = map.as_mut_ptr().expose_provenance();
    let words = PAGES * PAGE / 8;
    let at = |index: usize| std::ptr::with_exposed_provenance_mut::<AtomicU64>(base + index * 8);
    let done = AtomicBool::new(false);
    let models: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let storing: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut model: Vec<u64> =
                        (thread..words).step_by(THREADS).map(|word| word as u64 * 8).collect();
                    let mut state = 99 + thread as u64;
                    for step in 0..15_000_u64 {
                        let mine = random(&mut state) % model.len();
                        let index = thread + mine * THREADS;
                        // SAFETY: the map lives until after the scope, the word is in it and
                        // aligned, and no other thread uses it but this and write-back.
                        let word = unsafe { &*at(index) };
                        assert_eq!(word.load(Relaxed), model[mine], "word {index}, step {step}");
                        if step % 2 == 0 {
                            model[mine] = step | (thread as u64 + 1) << 60;
                            word.store(model[mine], Relaxed);
                        }
                    }
                    model
                })
            })
            .collect();
        let (map, done) = (&map, &done);
        scope.spawn(move || {
            while !done.load(Relaxed) {
                map.flush().unwrap();
                map.flush_async_range(0..64 * PAGE).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _ends = Ends(done);
        storing.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    pager.validate().unwrap();
    let stat = pager.stat();
    assert!(stat.memory.events.pgsteal > 10_000, "there was no pressure: {stat}");
    for round in ["in the map", "in the file"] {
        for index in 0..words {
            let value = models[index % THREADS][index / THREADS];
            let found = if round == "in the map" {
                word(&map, index * 8)
            } else {
                word_of(file.as_file(), index * 8)
            };
            assert_eq!(found, value, "word {index} {round}");
        }
        map.flush().unwrap();
    }
}

#[test]
fn a_program_that_is_killed_has_in_the_file_what_it_had_flushed() {
    const NAME: &str = "map_store::a_program_that_is_killed_has_in_the_file_what_it_had_flushed";
    const PAGES: usize = 256;
    if let Ok(path) = std::env::var(CHILD) {
        let pager = pager("256K");
        let file = File::options().read(true).write(true).open(path).unwrap();
        let Some(mut map) = map_mut(&pager, &file) else { std::process::exit(77) };
        for round in 1..=3_u64 {
            for page in 0..PAGES {
                map[page * PAGE..page * PAGE + 8].copy_from_slice(&round.to_le_bytes());
            }
            if round < 3 {
                map.flush().unwrap();
            }
        }
        std::process::abort();
    }
    // Write-back may be done with all of it before the end where the machine is busy: that
    // proves nothing, and the program is played again.
    for _ in 0..20 {
        let file = file(PAGES * PAGE);
        let ended = again(NAME).env(CHILD, file.path()).output().unwrap();
        if ended.status.code() == Some(77) {
            return eprintln!("SKIPPED: {}", String::from_utf8_lossy(&ended.stderr));
        }
        assert!(ended.status.code().is_none(), "{ended:?}");
        let found: Vec<u64> = (0..PAGES).map(|page| word_of(file.as_file(), page * PAGE)).collect();
        assert!(found.iter().all(|value| (2..=3).contains(value)), "{found:?}");
        if found.contains(&2) {
            return;
        }
    }
    panic!("nothing was ever in memory alone: the test proves nothing");
}

#[test]
fn what_shares_a_page_with_a_map_is_not_written_and_the_file_keeps_its_length() {
    let file = file(10_001);
    let pager = pager("1M");
    // SAFETY: the test changes what is not mapped.
    let map = made(unsafe { options().offset(100).len(9_500).map_mut(&pager, file.as_file()) });
    let Some(mut map) = map else { return };
    map.fill(7);
    // Others change what is theirs while both pages are in memory.
    file.as_file().write_all_at(&[9; 100], 0).unwrap();
    file.as_file().write_all_at(&[9; 401], 9_600).unwrap();
    file.as_file().write_all_at(&[9; 1000], 10_001).unwrap();
    map.flush().unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut File::open(file.path()).unwrap(), &mut bytes).unwrap();
    assert_eq!(bytes.len(), 11_001);
    let expected = |at: usize| if (100..9_600).contains(&at) { 7 } else { 9 };
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(*byte, expected(at), "byte {at}");
    }
    // Up to the end of the file, whatever is appended later.
    drop(map);
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    assert_eq!(map.len(), 11_001);
    map[11_000] = 5;
    file.as_file().write_all_at(&[3; 10], 11_001).unwrap();
    drop(map);
    let mut end = [0; 11];
    file.as_file().read_exact_at(&mut end, 11_000).unwrap();
    assert_eq!(end, [5, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(file.as_file().metadata().unwrap().len(), 11_011);
}

#[test]
fn a_file_that_others_cut_is_not_made_longer_by_what_was_stored_behind_its_end() {
    let file = file(64 * PAGE);
    let pager = pager("1M");
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    // So few that none is being written when the file is cut: that write would make it longer.
    for page in 0..20 {
        map[page * PAGE] = 1;
    }
    file.as_file().set_len(10 * PAGE as u64 + 50).unwrap();
    map.flush().unwrap();
    assert_eq!(file.as_file().metadata().unwrap().len(), 10 * PAGE as u64 + 50);
    let mut first = [0];
    file.as_file().read_exact_at(&mut first, 10 * PAGE as u64).unwrap();
    assert_eq!(first, [1]);
    drop(map);
    pager.validate().unwrap();
    assert_eq!(file.as_file().metadata().unwrap().len(), 10 * PAGE as u64 + 50);
}

/// Fails writes while the test wants that.
#[derive(Default)]
struct Broken(AtomicBool);

impl Inject for Broken {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op == InjectOp::Write && self.0.load(Relaxed) {
            return Verdict::Fail(std::io::Error::from_raw_os_error(libc::EIO));
        }
        Verdict::Pass
    }
}

#[test]
fn a_device_that_takes_nothing_is_an_error_of_the_flush_and_the_store_is_kept() {
    let file = file(64 * PAGE);
    let broken = Arc::<Broken>::default();
    let inject = Arc::<Broken>::clone(&broken);
    let pager = Pager::builder().max(Size::mib(1)).inject(inject).build().unwrap();
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    map[5 * PAGE..5 * PAGE + 8].copy_from_slice(&1_u64.to_le_bytes());
    broken.0.store(true, Relaxed);
    let error = map.flush().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    // A store to a page whose write failed, and that is dirty.
    map[5 * PAGE + 8..5 * PAGE + 16].copy_from_slice(&2_u64.to_le_bytes());
    broken.0.store(false, Relaxed);
    map.flush_range(5 * PAGE..5 * PAGE + 1).unwrap();
    assert_eq!(word_of(file.as_file(), 5 * PAGE), 1);
    assert_eq!(word_of(file.as_file(), 5 * PAGE + 8), 2);
    map.flush().unwrap();
}

/// A map that makes more dirty than may be waits: in its faults, so other maps do not.
#[test]
fn stores_wait_where_too_much_is_dirty_and_loads_do_not() {
    struct Slow;
    impl Inject for Slow {
        fn before(&self, request: &Request<'_>) -> Verdict {
            if request.op == InjectOp::Write {
                std::thread::sleep(Duration::from_millis(2));
            }
            Verdict::Pass
        }
    }
    const PAGES: usize = 2048;
    let (file, other) = (file(PAGES * PAGE), file(64 * PAGE));
    let pager = Pager::builder()
        .max(Size::mib(8))
        .dirty_limits(limits(5, 10))
        .inject(Arc::new(Slow))
        .build()
        .unwrap();
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    // SAFETY: nothing changes the file.
    let Some(reads) = made(unsafe { options().map(&pager, other.as_file()) }) else { return };
    let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let stat = pager.stat();
                most.fetch_max(stat.memory.file_dirty + stat.memory.file_writeback, Relaxed);
                for page in 0..64 {
                    assert_eq!(word(&reads, page * PAGE), (page * PAGE) as u64);
                }
            }
        });
        let _ends = Ends(&done);
        // All of the file is dirty at the end, if nothing makes the thread wait.
        for page in 0..PAGES / 2 {
            map[page * PAGE] = 3;
        }
    });
    let most = most.into_inner();
    // A tenth of 2048 pages, and what may be made dirty between two answers.
    assert!(most > 0 && most <= 204 + 64, "{most} pages were dirty at a time");
    drop(map);
    for page in 0..PAGES / 2 {
        let mut byte = [0];
        file.as_file().read_exact_at(&mut byte, (page * PAGE) as u64).unwrap();
        assert_eq!(byte, [3]);
    }
}

#[test]
fn stores_end_and_begin_again_and_a_file_has_one_map_that_is_stored_to() {
    let file = file(16 * PAGE);
    let pager = pager("1M");
    let read_only = File::open(file.path()).unwrap();
    // SAFETY: as in `map_mut`.
    let refused = unsafe { options().map_mut(&pager, &read_only) }.unwrap_err();
    let Some(mut map) = map_mut(&pager, file.as_file()) else { return };
    assert!(
        matches!(&refused, MapError::Kernel { source, .. }
            if source.kind() == ErrorKind::PermissionDenied),
        "{refused}"
    );
    assert_eq!(map.report().mode, MapMode::Userfault);
    map[3 * PAGE] = 9;
    let map: Map = map.make_read_only().unwrap();
    assert_eq!(map[3 * PAGE], 9);
    let mut map = map.make_mut().unwrap();
    map[3 * PAGE + 1] = 8;
    // SAFETY: as in `map_mut`.
    let error = unsafe { options().map_mut(&pager, file.as_file()) }.unwrap_err();
    assert!(error.to_string().contains("open for writing"), "{error}");
    let error = OpenOptions::new().write(true).open(&pager, file.path()).unwrap_err();
    assert!(error.to_string().contains("map"), "{error}");
    // A private map has no file to write to.
    // SAFETY: as above.
    let error = unsafe { options().map_copy(&pager, file.as_file()) }.unwrap_err();
    assert!(matches!(error, MapError::Mode { mode: MapMode::Userfault, .. }), "{error}");
    drop(map);
    let view = OpenOptions::new().write(true).open(&pager, file.path()).unwrap();
    assert_eq!(view.page(3).unwrap()[..2], [9, 8]);
}

#[test]
fn a_file_that_another_pager_stores_to_is_locked_and_its_lock_ends_with_the_map() {
    let file = file(64 * PAGE);
    let (first, second) = (pager("512K"), pager("512K"));
    let Some(mut map) = map_mut(&first, file.as_file()) else { return };
    // SAFETY: the map is refused.
    let refused = unsafe { options().map_mut(&second, file.as_file()) };
    let locked = matches!(refused, Err(MapError::Open(OpenError::Locked { .. })));
    assert!(locked, "{refused:?}");
    let view = OpenOptions::new().write(true).lock_timeout(Duration::ZERO);
    assert!(matches!(view.open(&second, file.path()), Err(OpenError::Locked { .. })));
    map[..8].copy_from_slice(&7_u64.to_le_bytes());
    drop(map);
    // The lock was given back, with what was stored in the file.
    let mut map = map_mut(&second, file.as_file()).unwrap();
    assert_eq!(word(&map, 0), 7);
    map[..8].copy_from_slice(&8_u64.to_le_bytes());
    drop(map);
    assert_eq!(word_of(file.as_file(), 0), 8);
}
