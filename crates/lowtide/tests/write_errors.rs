//! Devices that fail, fill up, or hang while pages are written: nothing is lost, no thread is
//! stuck, each handle gets the error.

use crate::common::{Dir, byte_at, eventually, make_file};
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{DirtyLimits, DirtyShare, Error, IoEngine, OpenOptions, Pager, Size, View};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

/// A device that fails on request.
#[derive(Default)]
struct Device {
    /// Errors of all writes, and of all syncs; 0: none.
    writes_fail: AtomicI32,
    syncs_fail: AtomicI32,
    /// Writes that touch one of these pages fail.
    bad: Mutex<BTreeSet<u64>>,
    /// Requests to the file of this name wait for the gate.
    hangs: Mutex<Option<(&'static str, Gate)>>,
    writes: AtomicU64,
    syncs: AtomicU64,
    /// Ranges written since the last look.
    written: Mutex<Vec<Range<u64>>>,
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let error = match request.op {
            InjectOp::Write => {
                self.writes.fetch_add(1, SeqCst);
                let pages = request.offset / PAGE..(request.offset + request.len).div_ceil(PAGE);
                let bad = self.bad.lock().unwrap().range(pages.clone()).next().is_some();
                self.written.lock().unwrap().push(pages);
                if bad { EIO } else { self.writes_fail.load(SeqCst) }
            }
            InjectOp::Sync => {
                self.syncs.fetch_add(1, SeqCst);
                self.syncs_fail.load(SeqCst)
            }
            _ => return Verdict::Pass,
        };
        let hangs = self.hangs.lock().unwrap();
        if let Some((name, gate)) = &*hangs
            && request.path.ends_with(name)
        {
            return Verdict::Hang(gate.clone());
        }
        if error == 0 { Verdict::Pass } else { Verdict::Fail(io::Error::from_raw_os_error(error)) }
    }
}

impl Device {
    fn pager(self: &Arc<Self>, max: &str, background: bool) -> Pager {
        let inject: Arc<dyn Inject> = self.clone();
        Pager::builder()
            .max(max.parse::<Size>().unwrap())
            .background(background)
            .io_timeout(Duration::from_secs(60))
            // Longer than a flusher waits for a processor on a busy machine.
            .memory_timeout(Duration::from_secs(60))
            // Nothing is written before it is requested or has to be.
            .dirty_limits(DirtyLimits::new(DirtyShare::Percent(90), DirtyShare::Percent(95)))
            .inject(inject)
            .build()
            .unwrap()
    }
}

fn writing() -> OpenOptions {
    OpenOptions::new().write(true)
}

fn pages_of(view: &View, pages: Range<u64>, version: u64) {
    for page in pages {
        view.write_at(page * PAGE, &version.to_le_bytes()).unwrap();
    }
}

fn version(path: &PathBuf, page: u64) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    u64::from_le_bytes(bytes[(page * PAGE) as usize..][..8].try_into().unwrap())
}

fn write_error(result: Result<(), Error>) -> (Range<u64>, u64, i32) {
    match result {
        Err(Error::Write { pages, incidents, source, .. }) => {
            (pages, incidents, source.raw_os_error().unwrap_or(0))
        }
        other => panic!("{other:?}"),
    }
}

/// Incidents that the result of a flush tells of.
fn told_by(result: Result<(), Error>) -> u64 {
    if result.is_ok() { 0 } else { write_error(result).1 }
}

#[test]
fn one_bad_page_does_not_keep_its_neighbours_dirty() {
    let dir = Dir::new();
    let path = make_file(&dir, 256 * PAGE);
    for background in [false, true] {
        let device = Arc::new(Device::default());
        let pager = device.pager("4M", background);
        let view = writing().open(&pager, &path).unwrap();
        pages_of(&view, 0..200, 7);
        device.bad.lock().unwrap().insert(77);
        let (pages, incidents, error) = write_error(view.flush());
        assert_eq!((pages, incidents, error), (77..78, 1, EIO));
        let stat = pager.stat();
        assert_eq!((stat.memory.file_dirty, stat.failed_pages, stat.unwritten_bytes), (1, 1, PAGE));
        assert_eq!((version(&path, 76), version(&path, 78)), (7, 7));
        assert!(device.writes.load(SeqCst) < 40, "halves, not single pages: {:?}", device.writes);
        // Ranges that do not touch it are durable, but it is not forgotten.
        view.flush_range(0..77 * PAGE).unwrap();
        assert_eq!(write_error(view.flush_range(77 * PAGE + 5..77 * PAGE + 6)).0, 77..78);
        device.bad.lock().unwrap().clear();
        view.flush().unwrap();
        assert_eq!((version(&path, 77), pager.stat().failed_pages), (7, 0));
        pages_of(&view, 0..200, 0);
        view.flush().unwrap();
        pager.validate().unwrap();
    }
}

#[test]
fn each_kind_of_error_is_told_with_its_pages_and_what_to_do() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    let device = Arc::new(Device::default());
    let pager = device.pager("256K", false);
    let view = writing().open(&pager, &path).unwrap();
    for (error, advice) in
        [(ENOSPC, "make room"), (EDQUOT, "quota"), (EIO, "kernel's log"), (EROFS, "mount")]
    {
        view.write_at(9 * PAGE, b"nine").unwrap();
        device.writes_fail.store(error, SeqCst);
        let result = view.flush();
        let text = result.as_ref().unwrap_err().to_string();
        assert!(text.contains(advice) && text.contains("pages 9..10"), "{text}");
        assert_eq!(write_error(result), (9..10, 1, error));
        device.writes_fail.store(0, SeqCst);
        view.flush().unwrap();
    }
}

#[test]
fn each_handle_is_told_of_each_incident_once_and_a_later_one_of_what_nobody_heard() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    let device = Arc::new(Device::default());
    let pager = device.pager("256K", true);
    let view = writing().open(&pager, &path).unwrap();
    let other = writing().open(&pager, &path).unwrap();
    let fail_once = |page: u64| {
        device.writes_fail.store(EIO, SeqCst);
        view.write_at(page * PAGE, b"x").unwrap();
        // Closing writes, and no caller is left to get an error.
        drop(view.clone());
        let dropped = writing().open(&pager, &path).unwrap();
        let range = page * PAGE..page * PAGE + 1;
        let failed = dropped.flush_range(range);
        device.writes_fail.store(0, SeqCst);
        eventually("the retry", || {
            pager.stat().unwritten_bytes == 0 && pager.stat().failed_pages == 0
        });
        failed.unwrap_err()
    };
    fail_once(3);
    assert_eq!(write_error(view.flush()).1, 1);
    view.flush().unwrap();
    fail_once(4);
    fail_once(5);
    assert_eq!(write_error(other.flush()).1, 3, "three incidents since it last asked");
    other.flush().unwrap();
    let late = writing().open(&pager, &path).unwrap();
    late.flush().unwrap();
    assert_eq!(write_error(view.flush()).1, 2);
    view.flush().unwrap();
    // No flush: the failed write is the flusher's own.
    let tiny = pager.tenant("tiny").max(Size::kib(16)).create().unwrap();
    let mine = dir.path().join("mine");
    std::fs::write(&mine, vec![0; 64 << 10]).unwrap();
    let first = writing().tenant(&tiny).open(&pager, &mine).unwrap();
    device.writes_fail.store(EIO, SeqCst);
    pages_of(&first, 0..3, 1);
    drop(first);
    assert!(pager.stat().failed_pages > 0, "they wait for a flush");
    device.writes_fail.store(0, SeqCst);
    let second = writing().tenant(&tiny).open(&pager, &mine).unwrap();
    assert_eq!(write_error(second.flush()).1, 1, "no handle got it");
    second.flush().unwrap();
}

#[test]
fn after_a_failed_sync_nothing_counts_until_it_is_written_again() {
    let dir = Dir::new();
    let path = make_file(&dir, 512 * PAGE);
    for background in [false, true] {
        let device = Arc::new(Device::default());
        let pager = device.pager("256K", background);
        let view = writing().open(&pager, &path).unwrap();
        // More than fits: some of them are evicted, written but not synced.
        pages_of(&view, 0..150, 1);
        device.syncs_fail.store(EIO, SeqCst);
        write_error(view.flush());
        assert!(pager.stat().failed_pages >= 150, "{:?}", pager.stat());
        device.written.lock().unwrap().clear();
        write_error(view.flush());
        device.written.lock().unwrap().clear();
        device.syncs_fail.store(0, SeqCst);
        view.flush().unwrap();
        let again: BTreeSet<u64> =
            device.written.lock().unwrap().iter().flat_map(Clone::clone).collect();
        assert!((0..150).all(|page| again.contains(&page)), "{again:?}");
        assert_eq!(pager.stat().failed_pages, 0);
        let bytes = std::fs::read(&path).unwrap();
        for page in 0..150 {
            let at = (page * PAGE) as usize;
            assert_eq!(bytes[at..at + 8], 1_u64.to_le_bytes());
            assert_eq!(
                bytes[at + 9],
                byte_at(page * PAGE + 9),
                "the rest of page {page} is as it was"
            );
        }
        device.written.lock().unwrap().clear();
        view.flush().unwrap();
        assert!(device.written.lock().unwrap().is_empty(), "all is durable");
        pager.validate().unwrap();
    }
}

#[test]
fn a_device_that_fails_for_a_while_loses_nothing_and_memory_stays_bounded() {
    // LOWTIDE_BROKEN_SECONDS=10 for a longer while.
    let seconds = std::env::var("LOWTIDE_BROKEN_SECONDS").map_or(0.5, |s| s.parse().unwrap());
    let dir = Dir::new();
    let path = make_file(&dir, 1024 * PAGE);
    let device = Arc::new(Device::default());
    let inject: Arc<dyn Inject> = device.clone();
    let pager = Pager::builder()
        .max(Size::kib(512))
        .memory_timeout(Duration::from_millis(100))
        .inject(inject)
        .build()
        .unwrap();
    let view = writing().open(&pager, &path).unwrap();
    let begin = Instant::now();
    let got: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let (view, device) = (view.clone(), &device);
                scope.spawn(move || {
                    let mut got = 0;
                    for step in 0..256 {
                        let page = writer * 256 + step;
                        if page == 60 {
                            device.writes_fail.store(EIO, SeqCst);
                        }
                        while let Err(e) = view.write_at(page * PAGE, &(page + 1).to_le_bytes()) {
                            assert!(matches!(e, Error::OutOfBudget { .. }), "{e}");
                        }
                        if step % 32 == 31 && device.writes_fail.load(SeqCst) == 0 {
                            // The failure may overtake it.
                            got += told_by(view.flush());
                        }
                    }
                    (view, got)
                })
            })
            .collect();
        eventually("the device's failure", || device.writes_fail.load(SeqCst) == EIO);
        while begin.elapsed().as_secs_f64() < seconds {
            assert!(pager.stat().memory.current <= 128);
            std::thread::sleep(Duration::from_millis(5));
        }
        device.writes_fail.store(0, SeqCst);
        let done: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        done.into_iter()
            .map(|(view, got)| {
                let got = got + told_by(view.flush());
                view.flush().expect("it got the error, and all is well");
                got
            })
            .collect()
    });
    assert_eq!(got, [1; 4], "each gets the incident once");
    view.flush().unwrap_err();
    view.flush().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(
        (0..1024).all(|page| bytes[page * PAGE as usize..][..8] == (page as u64 + 1).to_le_bytes())
    );
    pager.validate().unwrap();
}

#[test]
fn discarding_drops_what_cannot_be_written_and_nothing_else() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    for background in [false, true] {
        let device = Arc::new(Device::default());
        let pager = device.pager("256K", background);
        let view = writing().open(&pager, &path).unwrap();
        pages_of(&view, 4..8, 9);
        device.bad.lock().unwrap().extend([5, 6]);
        write_error(view.flush());
        assert!(matches!(
            pager.open(&path).unwrap().revert(0..9 * PAGE),
            Err(Error::ReadOnly { .. })
        ));
        let guard = view.page(6).unwrap();
        assert!(matches!(view.revert(5 * PAGE..7 * PAGE), Err(Error::HeldHere { page: 6, .. })));
        drop(guard);
        assert_eq!(
            view.revert(5 * PAGE..7 * PAGE).unwrap() + u64::from(!background),
            1 + u64::from(!background)
        );
        assert_eq!((pager.stat().failed_pages, pager.stat().memory.file_dirty), (0, 0));
        assert_eq!(view.page(6).unwrap()[0], byte_at(6 * PAGE), "the file's own bytes are back");
        assert_eq!(&view.page(7).unwrap()[..8], &9_u64.to_le_bytes());
        view.flush().unwrap();
        pager.validate().unwrap();
        device.bad.lock().unwrap().clear();
        for page in 4..8 {
            view.write_at(page * PAGE, &[byte_at(page * PAGE); 1]).unwrap();
        }
        let bytes: Vec<u8> = (4 * PAGE..8 * PAGE).map(byte_at).collect();
        view.write_at(4 * PAGE, &bytes).unwrap();
    }
}

#[test]
fn pages_of_a_closed_file_that_cannot_be_written_wait_and_are_found_again() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    for background in [false, true] {
        let device = Arc::new(Device::default());
        let pager = device.pager("256K", background);
        let view = writing().open(&pager, &path).unwrap();
        pages_of(&view, 0..2, 3 + u64::from(background));
        device.writes_fail.store(ENOSPC, SeqCst);
        drop(view);
        assert_eq!(pager.stat().failed_pages, 2);
        let again = pager.open(&path).unwrap();
        assert_eq!(again.page(1).unwrap()[..8], (3 + u64::from(background)).to_le_bytes());
        drop(again);
        device.writes_fail.store(0, SeqCst);
        if background {
            eventually("the retry", || pager.stat().translation_bytes == 0);
        } else {
            writing().open(&pager, &path).unwrap();
        }
        assert_eq!(version(&path, 1), 3 + u64::from(background));
        assert_eq!(pager.stat().memory.current, 0, "and then the file goes");
    }
}

#[test]
fn a_pager_that_is_closed_says_what_it_could_not_write() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    for background in [false, true] {
        let device = Arc::new(Device::default());
        let pager = device.pager("256K", background);
        let view = writing().open(&pager, &path).unwrap();
        pages_of(&view, 0..2, 1);
        pager.clone().close().unwrap();
        assert_eq!(version(&path, 1), 1);
        pages_of(&view, 0..2, 2);
        device.writes_fail.store(EIO, SeqCst);
        drop(view);
        let error = pager.close().unwrap_err();
        assert_eq!((error.files.len(), error.files[0].pages), (1, 2));
        assert!(
            error.to_string().contains("2 pages could not be written")
                && !error.to_string().contains("stay in memory"),
            "{error}"
        );
        assert_eq!(version(&path, 1), 1);
    }
}

#[test]
fn a_hanging_device_times_out_and_holds_up_nobody_else() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    let other = dir.path().join("other");
    std::fs::write(&other, vec![0; 64 << 10]).unwrap();
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let device = Arc::new(Device::default());
        let inject: Arc<dyn Inject> = device.clone();
        let pager = Pager::builder()
            .max(Size::kib(256))
            .io_engine(engine)
            .io_timeout(Duration::from_millis(300))
            .inject(inject)
            .build()
            .unwrap();
        let (view, quick) =
            (writing().open(&pager, &path).unwrap(), writing().open(&pager, &other).unwrap());
        let gate = Gate::new();
        *device.hangs.lock().unwrap() = Some(("data", gate.clone()));
        pages_of(&view, 0..3, 5);
        pages_of(&quick, 0..3, 5);
        let error = view.flush().unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(error.to_string().contains("data"), "{error}");
        eventually("the other file's flush", || quick.flush().is_ok());
        assert!(
            matches!(view.revert(0..PAGE), Err(Error::Timeout { .. })),
            "the device may be reading it"
        );
        assert_eq!(&view.page(1).unwrap()[..8], &5_u64.to_le_bytes());
        *device.hangs.lock().unwrap() = None;
        gate.open();
        eventually("the flush", || view.flush().is_ok());
        assert_eq!((version(&path, 2), version(&other, 2)), (5, 5));
        pager.validate().unwrap();
    }
}

#[test]
fn a_device_that_never_answers_does_not_keep_a_pager_from_going() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let device = Arc::new(Device::default());
        let inject: Arc<dyn Inject> = device.clone();
        let pager = Pager::builder()
            .max(Size::kib(256))
            .io_engine(engine)
            .io_timeout(Duration::from_millis(100))
            .inject(inject)
            .build()
            .unwrap();
        let view = OpenOptions::new().write(true).lock(false).open(&pager, &path).unwrap();
        *device.hangs.lock().unwrap() = Some(("data", Gate::new()));
        pages_of(&view, 0..3, 5);
        let begin = Instant::now();
        drop(view);
        let error = pager.close().unwrap_err();
        assert!(matches!(error.files[0].source, Error::Timeout { .. }), "{error}");
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "three deadlines, and some time to be scheduled"
        );
    }
}

#[test]
fn a_tenant_of_one_page_goes_on_writing() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    for background in [false, true] {
        let device = Arc::new(Device::default());
        let pager = device.pager("256K", background);
        let tenant = pager.tenant("one").max(Size::kib(4)).create().unwrap();
        let view = writing().tenant(&tenant).open(&pager, &path).unwrap();
        pages_of(&view, 0..64, 6);
        assert!(tenant.stat().unwrap().file <= 1);
        view.flush().unwrap();
        assert!((0..64).all(|page| version(&path, page) == 6));
        assert!(device.writes.load(SeqCst) >= 64);
        pages_of(&view, 0..64, 0);
    }
}

/// A part of the budget cannot be written, and guards of another thread are on the rest: these are
/// dropped some day, so the reader waits for them. Forever, so that an error is a decision.
#[test]
fn a_file_that_cannot_be_written_is_no_reason_while_clean_pages_are_pinned() {
    let dir = Dir::new();
    let (bad, good) = (make_file(&dir, 8 * PAGE), dir.path().join("good"));
    std::fs::write(&good, vec![1; 80 * PAGE as usize]).unwrap();
    let device = Arc::<Device>::default();
    device.writes_fail.store(EIO, SeqCst);
    let inject: Arc<dyn Inject> = device.clone();
    let pager = Pager::builder()
        .max(Size::kib(256))
        .memory_timeout(Duration::MAX)
        .inject(inject)
        .build()
        .unwrap();
    let bad = writing().open(&pager, &bad).unwrap();
    pages_of(&bad, 0..8, 1);
    let good = OpenOptions::new().read_ahead(0).open(&pager, &good).unwrap();
    let (pinned, let_go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guards: Vec<_> = (0..56).map(|page| good.page(page).unwrap()).collect();
            pinned.wait();
            let_go.wait();
            drop(guards);
        });
        pinned.wait();
        let reader = scope.spawn(|| good.page(70).map(|page| page[0]));
        // Rounds of writes fail meanwhile, as many as make a file hopeless, and more.
        let failed = device.writes.load(SeqCst);
        eventually("rounds of writes", || {
            reader.is_finished() || device.writes.load(SeqCst) > failed + 10
        });
        let_go.wait();
        assert_eq!(reader.join().unwrap().unwrap(), 1);
    });
    device.writes_fail.store(0, SeqCst);
    drop(bad.flush());
    bad.flush().unwrap();
}

/// Forever, so that an error can only come because waiting is known to be in vain.
#[test]
fn a_full_disk_is_named_to_the_writer_that_finds_no_room() {
    let dir = Dir::new();
    let device = Arc::<Device>::default();
    device.writes_fail.store(ENOSPC, SeqCst);
    let inject: Arc<dyn Inject> = device.clone();
    let pager = Pager::builder()
        .max(Size::mib(2))
        .memory_timeout(Duration::MAX)
        .inject(inject)
        .build()
        .unwrap();
    let full = dir.path().join("full");
    let view = OpenOptions::new().create_with_len(16 << 20).open(&pager, &full).unwrap();
    let error = (0..16)
        .find_map(|mib| view.write_at(mib << 20, &[7; 1 << 20]).err())
        .expect("there is no room");
    let Error::OutOfBudget { report } = &error else { panic!("{error}") };
    let unwritable = report.unwritable.as_ref().expect("the file is named");
    assert_eq!((unwritable.source.raw_os_error(), &*unwritable.path), (Some(ENOSPC), &full));
    let text = error.to_string();
    assert!(
        text.contains("make room on the file system") && !text.contains("raise its max"),
        "{text}"
    );
    // Room on the disk is room in the budget.
    device.writes_fail.store(0, SeqCst);
    for mib in 0..16 {
        view.write_at(mib << 20, &[8; 1 << 20]).unwrap();
    }
    // It gets the incident, once.
    drop(view.flush());
    view.flush().unwrap();
    pager.validate().unwrap();
}

/// A device whose first sync fails, and whose writes hang until gates are opened.
struct FirstSyncFails {
    first_page: Gate,
    others: Gate,
    syncs: AtomicU64,
    written: Mutex<Vec<Range<u64>>>,
}

impl Inject for FirstSyncFails {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match request.op {
            InjectOp::Write => {
                let pages = request.offset / PAGE..(request.offset + request.len).div_ceil(PAGE);
                let gate = if pages.start == 0 { &self.first_page } else { &self.others };
                self.written.lock().unwrap().push(pages);
                Verdict::Hang(gate.clone())
            }
            InjectOp::Sync if self.syncs.fetch_add(1, SeqCst) == 0 => {
                Verdict::Fail(io::Error::from_raw_os_error(EIO))
            }
            _ => Verdict::Pass,
        }
    }
}

#[test]
fn a_write_that_was_under_way_when_a_sync_failed_is_repeated_before_the_next_sync() {
    let dir = Dir::new();
    let device = Arc::new(FirstSyncFails {
        first_page: Gate::new(),
        others: Gate::new(),
        syncs: AtomicU64::new(0),
        written: Mutex::default(),
    });
    let inject: Arc<dyn Inject> = device.clone();
    let pager = Pager::builder()
        .max(Size::mib(1))
        // All that is dirty is written at once, also without a flush.
        .dirty_limits(DirtyLimits::new(DirtyShare::Percent(1), DirtyShare::Percent(90)))
        .inject(inject)
        .build()
        .unwrap();
    let view = OpenOptions::new()
        .create_with_len(20 * PAGE + 100)
        .open(&pager, dir.path().join("data"))
        .unwrap();
    view.write_at(0, &[1; PAGE as usize]).unwrap();
    let until = |what: &str, done: &dyn Fn(&[Range<u64>]) -> bool| {
        let begun = Instant::now();
        while !done(&device.written.lock().unwrap()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| view.flush_range(0..PAGE));
        until("the flush writes its page", &|written| !written.is_empty());
        // What is written from now on the flush does not wait for.
        view.write_at(PAGE, &vec![2; 19 * PAGE as usize + 100]).unwrap();
        until("the flusher writes the rest", &|written| written.iter().any(|w| w.start > 0));
        device.first_page.open();
        assert!(matches!(flush.join().unwrap(), Err(Error::Write { .. })));
    });
    let before = std::mem::take(&mut *device.written.lock().unwrap());
    device.others.open();
    // The error is reported once more, to the view, or not; after that the flush counts.
    view.flush().or_else(|_| view.flush()).unwrap();
    let after: BTreeSet<u64> = device.written.lock().unwrap().drain(..).flatten().collect();
    for pages in before {
        let repeated = pages.clone().all(|page| after.contains(&page));
        assert!(repeated, "{pages:?} may be lost, and only {after:?} were written again");
    }
    view.close().unwrap();
}
