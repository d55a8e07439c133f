//! What a failing device does to a user: a typed error for all callers concerned, nothing lost,
//! nothing stuck.

use crate::common::{Dir, byte_at, make_file};
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{DirtyLimits, DirtyShare, Error, IoEngine, OpenOptions, Pager, Size};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

/// Fails the operations of a kind while it is switched on, and counts how often it was asked.
#[derive(Default)]
struct Broken {
    reads: AtomicBool,
    writes: AtomicBool,
    syncs: AtomicBool,
    asked_reads: AtomicU64,
    /// Reads wait until this many threads are known to want the page.
    gate: Option<(Mutex<bool>, Condvar)>,
}

impl Inject for Broken {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let broken = match request.op {
            InjectOp::Read => {
                self.asked_reads.fetch_add(1, SeqCst);
                if let Some((open, bell)) = &self.gate {
                    let mut open = open.lock().unwrap();
                    while !*open {
                        open = bell.wait(open).unwrap();
                    }
                }
                &self.reads
            }
            InjectOp::Write => &self.writes,
            InjectOp::Sync => &self.syncs,
            _ => return Verdict::Pass,
        };
        if broken.load(SeqCst) {
            Verdict::Fail(io::Error::from_raw_os_error(5))
        } else {
            Verdict::Pass
        }
    }
}

fn pager(device: &Arc<Broken>, engine: IoEngine) -> Pager {
    let inject: Arc<dyn Inject> = device.clone();
    Pager::builder()
        .max(Size::kib(256))
        .io_engine(engine)
        .background(false)
        .inject(inject)
        .build()
        .unwrap()
}

#[test]
fn a_read_error_reaches_the_reader_and_the_page_can_be_read_once_the_device_works() {
    let dir = Dir::new();
    let path = make_file(&dir, 256 << 10);
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let device = Arc::new(Broken::default());
        let pager = pager(&device, engine);
        let view = pager.open(&path).unwrap();
        device.reads.store(true, SeqCst);
        for page in 0..64 {
            let Err(Error::Read { page: failed, source, .. }) = view.page(page) else {
                panic!("{page} was read")
            };
            assert_eq!((failed, source.raw_os_error()), (page, Some(5)));
        }
        let error =
            view.get_many(&[1, 2, 3], |_, _| -> () { panic!("nothing can be shown") }).unwrap_err();
        assert!(matches!(error, Error::Read { .. }), "{error}");
        assert_eq!(pager.stat().memory.current, 0, "a failed read gives its frame back");
        pager.validate().unwrap();
        device.reads.store(false, SeqCst);
        for page in 0..64 {
            assert_eq!(view.page(page).unwrap()[0], byte_at(page * 4096));
        }
    }
}

#[test]
fn one_read_serves_all_threads_that_miss_on_a_page_and_its_error_too() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 << 10);
    for fails in [false, true] {
        let device = Arc::new(Broken { gate: Some(Default::default()), ..Broken::default() });
        device.reads.store(fails, SeqCst);
        let pager = pager(&device, IoEngine::Auto);
        let view = pager.open(&path).unwrap();
        let threads = 16;
        let start = Barrier::new(threads + 1);
        let results: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        view.page(3).map(|page| page[17])
                    })
                })
                .collect();
            start.wait();
            // All threads run now; whichever comes after the gate opens finds the page, or reads it
            // for itself if it failed.
            while device.asked_reads.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            let (open, bell) = device.gate.as_ref().unwrap();
            *open.lock().unwrap() = true;
            bell.notify_all();
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        if fails {
            assert!(
                results.iter().all(|r| matches!(r, Err(Error::Read { page: 3, .. }))),
                "{results:?}"
            );
            assert_eq!(pager.stat().memory.current, 0);
        } else {
            assert!(
                results.iter().all(|r| matches!(r, Ok(b) if *b == byte_at(3 * 4096 + 17))),
                "{results:?}"
            );
            assert_eq!(
                (device.asked_reads.load(SeqCst), pager.stat().io.reads),
                (1, 1),
                "one read for all"
            );
        }
    }
}

#[test]
fn a_failed_write_keeps_the_page_dirty_and_is_told_once_to_every_handle() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 << 10);
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let device = Arc::new(Broken::default());
        let pager = pager(&device, engine);
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        let other = view.clone();
        view.write_at(2 * 4096, b"precious").unwrap();
        device.writes.store(true, SeqCst);
        assert!(matches!(view.flush(), Err(Error::Write { .. })));
        assert_eq!(pager.stat().memory.file_dirty, 1, "it is still dirty");
        assert_eq!(&view.page(2).unwrap()[..8], b"precious");
        device.writes.store(false, SeqCst);
        assert!(
            matches!(other.flush(), Err(Error::Write { .. })),
            "the other handle has not got it yet"
        );
        view.flush().unwrap();
        other.flush().unwrap();
        assert_eq!(pager.stat().memory.file_dirty, 0);
        assert_eq!(&std::fs::read(&path).unwrap()[2 * 4096..][..8], b"precious");
        pager.validate().unwrap();
    }
}

#[test]
fn data_is_not_called_durable_when_the_sync_failed() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 << 10);
    let device = Arc::new(Broken::default());
    let pager = pager(&device, IoEngine::Auto);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    view.write_at(0, b"x").unwrap();
    device.syncs.store(true, SeqCst);
    assert!(matches!(view.flush(), Err(Error::Write { .. })));
    device.syncs.store(false, SeqCst);
    view.flush().unwrap();
}

#[test]
fn a_budget_full_of_unwritable_pages_is_a_typed_error_and_recovers() {
    let dir = Dir::new();
    let path = make_file(&dir, 1 << 20);
    let device = Arc::new(Broken::default());
    let inject: Arc<dyn Inject> = device.clone();
    let pager = Pager::builder()
        .max(Size::kib(128))
        .memory_timeout(Duration::from_millis(500))
        // The budget is the limit.
        .dirty_limits(DirtyLimits::new(DirtyShare::Percent(50), DirtyShare::Percent(100)))
        .inject(inject)
        .build()
        .unwrap();
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    device.writes.store(true, SeqCst);
    let full = (0..256_u64).find_map(|page| view.write_at(page * 4096, &page.to_le_bytes()).err());
    let Some(Error::OutOfBudget { report }) = full else { panic!("{full:?}") };
    assert!(report.stat.file_dirty + report.stat.file_writeback > 0);
    device.writes.store(false, SeqCst);
    for page in 0..256_u64 {
        view.write_at(page * 4096, &page.to_le_bytes()).unwrap();
    }
    let _told = view.flush();
    view.flush().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!((0..256).all(|page| bytes[page * 4096..][..8] == (page as u64).to_le_bytes()));
    pager.validate().unwrap();
}

#[test]
fn a_panic_in_a_callback_leaves_nothing_in_flight() {
    let dir = Dir::new();
    let path = make_file(&dir, 256 << 10);
    let device = Arc::new(Broken::default());
    let pager = pager(&device, IoEngine::Auto);
    let view = pager.open(&path).unwrap();
    // Fewer than the depth, so that all have arrived when the first is shown; and more, so that
    // some have not.
    for pages in [0..4, 10..50] {
        let list: Vec<u64> = pages.clone().collect();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            view.get_many(&list, |_, _| -> () { panic!("the caller's own") })
        }));
        assert!(caught.is_err());
        for page in pages {
            assert_eq!(view.page(page).unwrap()[0], byte_at(page * 4096));
        }
        pager.validate().unwrap();
    }
}

#[test]
fn asking_for_a_page_in_flight_inside_a_callback_is_an_error_not_a_deadlock() {
    let dir = Dir::new();
    let path = make_file(&dir, 256 << 10);
    let device = Arc::new(Broken::default());
    let pager = pager(&device, IoEngine::Auto);
    let view = pager.open(&path).unwrap();
    let pages: Vec<u64> = (0..32).collect();
    let mut nested = 0;
    view.get_many(&pages, |i, _| {
        for other in 0..32 {
            match view.page(other) {
                Ok(page) => assert_eq!(page[0], byte_at(other * 4096)),
                Err(Error::Nested { .. }) => nested += 1,
                Err(e) => panic!("{i}: {e}"),
            }
        }
    })
    .unwrap();
    assert!(nested > 0, "some page was still in flight at the first callback");
}

/// Fails one kind of operation with one error, while it is switched on.
struct Refuses(InjectOp, i32, AtomicBool);

impl Inject for Refuses {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match request.op == self.0 && self.2.load(SeqCst) {
            true => Verdict::Fail(io::Error::from_raw_os_error(self.1)),
            false => Verdict::Pass,
        }
    }
}

fn refusing(op: InjectOp, errno: i32) -> (Arc<Refuses>, Pager) {
    let device = Arc::new(Refuses(op, errno, AtomicBool::new(true)));
    let inject: Arc<dyn Inject> = device.clone();
    let pager = Pager::builder().max(Size::kib(256)).inject(inject).build().unwrap();
    (device, pager)
}

#[test]
fn a_hole_that_the_file_system_refuses_is_an_error_that_says_which_bytes_stay() {
    let dir = Dir::new();
    for errno in [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EROFS] {
        let path = make_file(&dir, 64 << 10);
        let (device, pager) = refusing(InjectOp::Punch, errno);
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        view.write_at(8192, &[7; 4096]).unwrap();
        let before = view.read_to_vec(0..64 << 10).unwrap();
        let error = view.punch(100..20_000).unwrap_err();
        let Error::Punch { bytes, .. } = &error else { panic!("{error}") };
        assert_eq!((bytes.clone(), error.raw_os_error()), (4096..16_384, Some(errno)), "{error}");
        // The part before it was stored as zeroes; everything else is as it was.
        let mut expected = before.clone();
        expected[100..4096].fill(0);
        assert!(view.read_to_vec(0..64 << 10).unwrap() == expected, "{error}");
        device.2.store(false, SeqCst);
        view.punch(100..20_000).unwrap();
        view.flush().unwrap();
        expected[100..20_000].fill(0);
        assert!(std::fs::read(&path).unwrap() == expected);
        pager.validate().unwrap();
    }
}

#[test]
fn where_a_file_system_makes_no_holes_zeroes_are_stored() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 << 10);
    let (_device, pager) = refusing(InjectOp::Punch, libc::EOPNOTSUPP);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    let mut expected = view.read_to_vec(0..64 << 10).unwrap();
    view.punch(100..20_000).unwrap();
    expected[100..20_000].fill(0);
    view.flush().unwrap();
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn a_name_that_is_not_durable_is_an_error_of_every_flush_until_it_is() {
    let dir = Dir::new();
    let path = dir.path().join("new");
    let (device, pager) = refusing(InjectOp::Name, libc::EIO);
    let view = OpenOptions::new().create_with_len(8192).open(&pager, &path).unwrap();
    view.write_at(0, &[7; 8192]).unwrap();
    for _ in 0..2 {
        let error = view.flush().unwrap_err();
        assert!(matches!(error, Error::NameNotDurable { .. }), "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert!(std::fs::read(&path).unwrap() == [7; 8192], "the bytes are there");
    }
    device.2.store(false, SeqCst);
    view.flush().unwrap();
    device.2.store(true, SeqCst);
    view.flush().expect("a name that is durable is not synced again");
}

#[test]
fn a_name_that_was_not_durable_when_its_file_was_closed_is_made_so_by_the_next_that_flushes() {
    let dir = Dir::new();
    let path = dir.path().join("new");
    let (device, pager) = refusing(InjectOp::Name, libc::EIO);
    drop(OpenOptions::new().create_with_len(8192).open(&pager, &path).unwrap());
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    view.write_at(0, &[7; 100]).unwrap();
    let error = view.flush().unwrap_err();
    assert!(matches!(error, Error::NameNotDurable { .. }), "{error}");
    device.2.store(false, SeqCst);
    view.flush().unwrap();
    // So it is when the file was made and could not be opened.
    let path = dir.path().join("short");
    let (_device, pager) = refusing_two(InjectOp::Name, InjectOp::Extend);
    OpenOptions::new().create_with_len(8192).open(&pager, &path).unwrap_err();
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    let error = view.flush().unwrap_err();
    assert!(matches!(error, Error::NameNotDurable { .. }), "{error}");
}

/// Refuses two kinds of operations.
fn refusing_two(first: InjectOp, second: InjectOp) -> (Arc<dyn Inject>, Pager) {
    struct Two(InjectOp, InjectOp);
    impl Inject for Two {
        fn before(&self, request: &Request<'_>) -> Verdict {
            match [self.0, self.1].contains(&request.op) {
                true => Verdict::Fail(io::Error::from_raw_os_error(libc::EIO)),
                false => Verdict::Pass,
            }
        }
    }
    let device: Arc<dyn Inject> = Arc::new(Two(first, second));
    let pager = Pager::builder().max(Size::kib(256)).inject(Arc::clone(&device)).build().unwrap();
    (device, pager)
}

#[test]
fn a_file_that_cannot_be_made_longer_or_shorter_says_so_once() {
    let dir = Dir::new();
    let path = make_file(&dir, 8192);
    let (_device, pager) = refusing(InjectOp::Extend, libc::ENOSPC);
    let error = OpenOptions::new().create_with_len(1 << 20).open(&pager, &path).unwrap_err();
    let full = io::Error::from_raw_os_error(libc::ENOSPC);
    assert_eq!(
        error.to_string(),
        format!("cannot extend {} to 1048576 bytes: {full}", path.display())
    );
    let (_device, pager) = refusing(InjectOp::Shrink, libc::EIO);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    let error = view.set_len(100).unwrap_err();
    assert!(matches!(error, Error::Grow { len: 100, .. }), "{error}");
    assert_eq!((view.len(), std::fs::metadata(&path).unwrap().len()), (8192, 8192));
    view.set_len(9000).expect("growing is not refused");
}

/// Fails the first sync, and then stops the first write.
#[derive(Default)]
struct StopsARescue {
    sync_failed: AtomicBool,
    /// Where the write begins that was stopped.
    stopped: Mutex<Option<u64>>,
    gate: Gate,
    holes: AtomicU64,
}

impl Inject for StopsARescue {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match request.op {
            InjectOp::Sync if !self.sync_failed.swap(true, SeqCst) => {
                return Verdict::Fail(io::Error::from_raw_os_error(libc::EIO));
            }
            InjectOp::Write if self.sync_failed.load(SeqCst) => {
                let mut stopped = self.stopped.lock().unwrap();
                if stopped.is_none() {
                    *stopped = Some(request.offset);
                    return Verdict::Hang(self.gate.clone());
                }
            }
            InjectOp::Punch | InjectOp::Shrink => drop(self.holes.fetch_add(1, SeqCst)),
            _ => {}
        }
        Verdict::Pass
    }
}

#[test]
fn what_is_taken_from_a_file_while_a_failed_sync_is_made_good_does_not_come_back() {
    let dir = Dir::new();
    const PAGE: u64 = 4096;
    for cuts in [false, true] {
        let path = make_file(&dir, 96 * PAGE);
        let device = Arc::new(StopsARescue::default());
        let inject: Arc<dyn Inject> = device.clone();
        let builder = Pager::builder().max(Size::kib(128)).background(false).inject(inject);
        let pager = builder.build().unwrap();
        let view = &OpenOptions::new().write(true).open(&pager, &path).unwrap();
        // Most of them are written and evicted before the sync that fails.
        for page in 0..96 {
            view.write_at(page * PAGE, &[7; PAGE as usize]).unwrap();
        }
        view.flush().unwrap_err();
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| view.flush());
            while device.stopped.lock().unwrap().is_none() {
                std::thread::yield_now();
            }
            let at = device.stopped.lock().unwrap().unwrap();
            let take = scope.spawn(move || match cuts {
                false => view.punch(at..at + PAGE),
                true => view.set_len(at),
            });
            // It waits for the write. If it did not, it would be here soon.
            for _ in 0..200 {
                if device.holes.load(SeqCst) == 0 && !take.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            device.gate.open();
            take.join().unwrap().unwrap();
            let _ = flush.join().unwrap();
            let _ = view.flush();
            let bytes = std::fs::read(&path).unwrap();
            if cuts {
                assert_eq!(bytes.len() as u64, at, "the file is long again");
            } else {
                assert!(
                    bytes[at as usize..][..PAGE as usize] == [0; PAGE as usize],
                    "old bytes are back"
                );
            }
        });
    }
}

/// Stops every sync.
#[derive(Default)]
struct StopsSyncs(Gate);

impl Inject for StopsSyncs {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op == InjectOp::Sync { Verdict::Hang(self.0.clone()) } else { Verdict::Pass }
    }
}

#[test]
fn a_file_that_is_closed_while_its_new_length_is_synced_is_not_taken_for_durable() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 << 10);
    let device = Arc::new(StopsSyncs::default());
    let inject: Arc<dyn Inject> = device.clone();
    let builder = Pager::builder().max(Size::kib(256)).inject(inject);
    let pager = builder.io_timeout(Duration::from_millis(50)).build().unwrap();
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    view.set_len(100).unwrap();
    drop(view);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    let error = view.flush().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    device.0.open();
    while view.flush().is_err() {}
}
