//! A device that does not answer a read: what waits for it, for how long, and what remains.

use crate::common::{Dir, byte_at, make_file};
use lowtide::advanced::PagerAdvanced as _;
use lowtide::instruments::{FaultSite, Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{Error, IoEngine, OpenOptions, Pager, Size, View};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// How long a read is waited for.
const DEADLINE: Duration = Duration::from_millis(50);
/// Much longer than anything here takes that does not wait for the device.
const LONG: Duration = Duration::from_secs(60);

/// Reads of some bytes of a file hang, and may fail in the end.
struct Hangs {
    path: PathBuf,
    bytes: Range<u64>,
    gate: Gate,
    fails: AtomicBool,
    hung: AtomicU64,
}

impl Inject for Hangs {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let (from, to) = (request.offset, request.offset + request.len);
        let hits = from < self.bytes.end && self.bytes.start < to && request.path == self.path;
        if request.op != InjectOp::Read || !hits || self.gate.is_open() {
            return Verdict::Pass;
        }
        self.hung.fetch_add(1, SeqCst);
        if self.fails.load(SeqCst) {
            while !self.gate.is_open() {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Verdict::Fail(io::Error::from_raw_os_error(5));
        }
        Verdict::Hang(self.gate.clone())
    }
}

struct World {
    _dir: Dir,
    path: PathBuf,
    other: PathBuf,
    device: Arc<Hangs>,
    pager: Pager,
}

impl World {
    /// A file of 256 pages, of which some hang, and another.
    fn new(engine: IoEngine, pages: Range<u64>) -> Self {
        let dir = Dir::new();
        let path = make_file(&dir, 256 * PAGE);
        let other = dir.path().join("other");
        std::fs::copy(&path, &other).unwrap();
        let device = Arc::new(Hangs {
            path: path.clone(),
            bytes: pages.start * PAGE..pages.end * PAGE,
            gate: Gate::new(),
            fails: AtomicBool::new(false),
            hung: AtomicU64::new(0),
        });
        let inject: Arc<dyn Inject> = device.clone();
        let pager = Pager::builder()
            .max(Size::kib(512))
            .io_engine(engine)
            .depth(4)
            .read_timeout(DEADLINE)
            .io_timeout(Duration::from_millis(200))
            .inject(inject)
            .build()
            .unwrap();
        Self { _dir: dir, path, other, device, pager }
    }

    fn open(&self) -> View {
        OpenOptions::new().write(true).open(&self.pager, &self.path).unwrap()
    }

    /// The device works, and all late reads end.
    fn repair(&self) {
        self.device.gate.open();
        let late = |site| self.pager.fault_sites().iter().find(|(at, _)| *at == site).unwrap().1;
        eventually(|| late(FaultSite::LateReadEnded) > 0);
    }
}

fn eventually(mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < LONG, "it has not happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn is_late<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.map(|_| ()).expect_err("the device does not answer");
    let text = error.to_string();
    assert!(matches!(error, Error::Timeout { .. }) && text.contains("0.05 s"), "{text}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
}

/// What the device answers, however busy others keep it.
#[track_caller]
fn arrives<T: std::fmt::Debug>(mut read: impl FnMut() -> Result<T, Error>) -> T {
    let begun = Instant::now();
    loop {
        match read() {
            Err(Error::Timeout { .. }) if begun.elapsed() < LONG => {}
            result => return result.unwrap(),
        }
    }
}

#[test]
fn a_read_that_a_device_does_not_answer_fails_in_time_and_its_page_comes_later() {
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let world = World::new(engine, 7..8);
        let view = world.open();
        is_late(view.page(7).map(|page| page[0]));
        is_late(view.page(7).map(|page| page[0]));
        is_late(view.read_at(7 * PAGE + 5, &mut [0; 4]));
        is_late(view.write_at(7 * PAGE + 5, b"part"));
        assert_eq!(world.device.hung.load(SeqCst), 1, "all want the same read");
        for page in (0..256).filter(|page| *page != 7) {
            let first = arrives(|| view.page(page).map(|page| page[0]));
            assert_eq!(first, byte_at(page * PAGE), "page {page}");
        }
        world.pager.validate().unwrap();
        world.repair();
        assert_eq!(arrives(|| view.page(7).map(|page| page[0])), byte_at(7 * PAGE));
        arrives(|| view.write_at(7 * PAGE + 5, b"part"));
        view.flush().unwrap();
        world.pager.validate().unwrap();
    }
}

#[test]
fn a_call_for_many_pages_fails_when_none_arrives_and_has_shown_the_others() {
    for pages in [100..101, 100..140] {
        let world = World::new(IoEngine::Auto, pages.clone());
        let view = world.open();
        let list: Vec<u64> = (0..60).map(|k| k * 4).collect();
        let mut shown = Vec::new();
        let result = view.get_many(&list, |index, bytes| {
            assert_eq!(bytes[0], byte_at(list[index] * PAGE));
            shown.push(list[index]);
        });
        is_late(result);
        assert!(shown.iter().all(|page| !pages.contains(page)), "{shown:?}");
        is_late(view.read_at(99 * PAGE, &mut [0; 3 * PAGE as usize]));
        world.pager.validate().unwrap();
        world.repair();
        let mut seen = 0;
        arrives(|| {
            seen = 0;
            view.get_many(&list, |_, _| seen += 1)
        });
        assert_eq!(seen, list.len());
        eventually(|| world.pager.validate().is_ok());
    }
}

#[test]
fn a_dead_device_takes_no_thread_from_others_and_not_all_of_the_memory() {
    let world = World::new(IoEngine::Auto, 0..256);
    let dead = world.open();
    let well = world.pager.open(&world.other).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let dead = &dead;
            scope.spawn(move || {
                for k in 0..3 {
                    is_late(dead.page(thread * 3 + k).map(|page| page[0]));
                }
            });
        }
        for _ in 0..3 {
            for page in 0..256 {
                let found = arrives(|| well.page(page).map(|bytes| bytes[9]));
                assert_eq!(found, byte_at(page * PAGE + 9));
            }
        }
    });
    // A read that no thread has begun in time was withdrawn, and can be tried again.
    eventually(|| {
        (0..48).for_each(|page| is_late(dead.page(page).map(|page| page[0])));
        world.device.hung.load(SeqCst) == 48
    });
    world.repair();
    for page in 0..256 {
        let found = arrives(|| dead.page(page).map(|bytes| bytes[9]));
        assert_eq!(found, byte_at(page * PAGE + 9));
    }
    world.pager.validate().unwrap();
}

#[test]
fn a_late_read_that_fails_leaves_its_page_to_the_next() {
    let world = World::new(IoEngine::Auto, 3..4);
    world.device.fails.store(true, SeqCst);
    let view = world.open();
    is_late(view.page(3).map(|page| page[0]));
    world.repair();
    eventually(|| view.page(3).is_ok());
    assert_eq!(view.page(3).unwrap()[1], byte_at(3 * PAGE + 1));
    drop(view);
    eventually(|| world.pager.stat().memory.current == 0);
    world.pager.validate().unwrap();
}

#[test]
fn what_would_change_a_page_with_a_late_read_fails_in_time_too() {
    let world = World::new(IoEngine::Auto, 200..201);
    let view = world.open();
    is_late(view.page(200).map(|page| page[0]));
    let cut = view.set_len(100 * PAGE).unwrap_err();
    assert!(matches!(cut, Error::Timeout { .. }), "{cut}");
    let punched = view.punch(200 * PAGE..201 * PAGE).unwrap_err();
    assert!(matches!(punched, Error::Timeout { .. }), "{punched}");
    world.repair();
    eventually(|| view.set_len(100 * PAGE).is_ok());
    assert!(view.page(200).is_err());
    world.pager.validate().unwrap();
}

#[test]
fn a_file_that_is_closed_before_its_late_read_ends_gives_its_memory_back_then() {
    let world = World::new(IoEngine::Auto, 9..10);
    let view = world.open();
    is_late(view.page(9).map(|page| page[0]));
    let begun = Instant::now();
    drop(view);
    assert!(begun.elapsed() < LONG);
    assert_eq!(world.pager.stat().memory.current, 1, "the device may write to it");
    world.repair();
    eventually(|| world.pager.stat().memory.current == 0);
    let view = world.open();
    assert_eq!(arrives(|| view.page(9).map(|page| page[0])), byte_at(9 * PAGE));
}

#[test]
fn a_pager_that_is_dropped_before_a_late_read_ends_goes_at_once() {
    let world = World::new(IoEngine::Auto, 9..10);
    let (view, gate) = (world.open(), world.device.gate.clone());
    is_late(view.page(9).map(|page| page[0]));
    let device = Arc::downgrade(&world.device);
    let begun = Instant::now();
    drop((view, world));
    assert!(begun.elapsed() < LONG);
    assert!(device.strong_count() > 0, "the late read keeps the memory that it writes to");
    gate.open();
    eventually(|| device.strong_count() == 0);
}

#[test]
fn late_reads_have_half_of_the_budget_and_those_after_them_fail_in_the_same_way() {
    let world = World::new(IoEngine::Auto, 0..256);
    let view = world.open();
    for first in (0..256).step_by(8) {
        let pages: Vec<_> = (first..first + 8).collect();
        let error = view.get_many(&pages, |_, _| ()).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        view.prefetch(0..256 * PAGE);
    }
    // A call may have begun, and a window have been read ahead, when there were fewer.
    let late = world.pager.stat().memory.file;
    assert!((8..=128 / 2 + 16).contains(&late), "{late} of 128 pages");
    let error = view.page(255).map(drop).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    world.repair();
    for page in 0..256 {
        let found = arrives(|| view.page(page).map(|bytes| bytes[7]));
        assert_eq!(found, byte_at(page * PAGE + 7));
    }
    world.pager.validate().unwrap();
}
