//! Files that get longer and shorter, by this pager and by others: what is past the end is never
//! seen again.

use crate::common::Dir;
use lowtide::advanced::OpenAdvanced as _;
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::{Error, OpenOptions, Pager, Size, View};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const PAGE: u64 = 4096;

fn pager() -> Pager {
    Pager::builder().max(Size::mib(2)).memory_timeout(Duration::from_millis(200)).build().unwrap()
}

/// A file of `bytes` sevens, as a view that may write.
fn sevens(pager: &Pager, path: &Path, bytes: u64, order: u8) -> View {
    std::fs::write(path, vec![7; bytes as usize]).unwrap();
    OpenOptions::new().write(true).folio_order(order).open(pager, path).unwrap()
}

fn outside(path: &Path) -> File {
    std::fs::OpenOptions::new().write(true).open(path).unwrap()
}

fn all(view: &View) -> Vec<u8> {
    view.read_to_vec(0..view.len()).unwrap()
}

/// Sevens, then zeroes.
fn then_zeroes(sevens: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| if at < sevens { 7 } else { 0 }).collect()
}

#[test]
fn what_is_cut_off_reads_as_zeroes_when_the_file_grows_again_in_memory_and_on_disk() {
    let dir = Dir::new();
    for order in [0, 2, 4] {
        for dirty in [false, true] {
            for cut in [0, 1, 100, PAGE - 1, PAGE, 5000, 3 * PAGE, 16 * PAGE, 17 * PAGE + 9] {
                for by_write in [false, true] {
                    let (pager, path) = (pager(), dir.path().join("data"));
                    let view = sevens(&pager, &path, 20 * PAGE + 77, order);
                    let other = OpenOptions::new().write(true).open(&pager, &path).unwrap();
                    // Everything is resident, known to the hit path of both views, and dirty in
                    // half of the cases.
                    for page in 0..view.page_count() {
                        drop((view.page(page).unwrap(), other.page(page).unwrap()));
                    }
                    if dirty {
                        view.write_at(0, &vec![7; 20 * PAGE as usize + 77]).unwrap();
                    }
                    other.set_len(cut).unwrap();
                    assert_eq!((view.len(), std::fs::metadata(&path).unwrap().len()), (cut, cut));
                    let behind = view.page(cut.div_ceil(PAGE));
                    assert!(
                        matches!(behind, Err(Error::OutOfRange { .. })),
                        "{order} {dirty} {cut}"
                    );
                    let end = 19 * PAGE + 5;
                    if by_write {
                        view.write_at(end - 1, &[0]).unwrap();
                    } else {
                        view.set_len(end).unwrap();
                    }
                    assert!(
                        all(&view) == then_zeroes(cut, end),
                        "in memory: {order} {dirty} {cut}"
                    );
                    // A store beside the gap must not carry old bytes to the file.
                    view.write_at(cut, &[0]).unwrap();
                    view.flush().unwrap();
                    assert!(
                        std::fs::read(&path).unwrap() == then_zeroes(cut, end),
                        "{order} {dirty} {cut}"
                    );
                    pager.validate().unwrap();
                }
            }
        }
    }
}

#[test]
fn a_guard_on_a_page_that_goes_keeps_the_file_as_it_is() {
    let dir = Dir::new();
    let (pager, path) = (pager(), dir.path().join("data"));
    let view = sevens(&pager, &path, 8 * PAGE, 0);
    view.write_at(5 * PAGE, &[7; 10]).unwrap();
    let guard = view.page(5).unwrap();
    assert!(matches!(view.set_len(10), Err(Error::HeldHere { page: 5, .. })));
    let (view, path) = (&view, &path);
    std::thread::scope(|scope| {
        let cut = scope.spawn(move || view.set_len(5 * PAGE + 1));
        let error = cut.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::HeldElsewhere { page: 5, .. }), "{error}");
    });
    assert_eq!((view.len(), std::fs::metadata(path).unwrap().len()), (8 * PAGE, 8 * PAGE));
    assert!(guard.iter().all(|b| *b == 7));
    // One on a page that stays does not matter.
    view.set_len(6 * PAGE).unwrap();
    drop(guard);
    view.set_len(5 * PAGE + 1).unwrap();
    assert!(all(view) == then_zeroes(6 * PAGE, 5 * PAGE + 1));
    pager.validate().unwrap();
}

#[test]
fn a_reader_sees_the_file_as_it_was_while_a_cut_waits_for_a_guard_and_gives_up() {
    let dir = Dir::new();
    let (pager, path) = (pager(), dir.path().join("data"));
    let pages = 2048;
    let view = &sevens(&pager, &path, pages * PAGE, 0);
    let guard = view.page(5).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut read = 0_u64;
            // Most of them are absent: the file is four times the budget.
            while !over.load(SeqCst) {
                let page = 6 + read * 61 % (pages - 6);
                assert!(view.page(page).unwrap().iter().all(|byte| *byte == 7), "page {page}");
                read += 1;
            }
            read
        });
        let error = scope.spawn(|| view.set_len(5 * PAGE)).join().unwrap().unwrap_err();
        over.store(true, SeqCst);
        assert!(matches!(error, Error::HeldElsewhere { page: 5, .. }), "{error}");
        assert!(reader.join().unwrap() > 0);
    });
    assert_eq!(view.len(), pages * PAGE);
    drop(guard);
    pager.validate().unwrap();
}

/// A device that can refuse to change lengths, and counts syncs.
#[derive(Default)]
struct Device {
    refuses: AtomicBool,
    syncs: AtomicU64,
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match request.op {
            InjectOp::Extend | InjectOp::Shrink if self.refuses.load(SeqCst) => {
                Verdict::Fail(io::Error::from_raw_os_error(libc::EPERM))
            }
            InjectOp::Sync => {
                self.syncs.fetch_add(1, SeqCst);
                Verdict::Pass
            }
            _ => Verdict::Pass,
        }
    }
}

#[test]
fn a_cut_that_the_file_system_refuses_changes_nothing() {
    let dir = Dir::new();
    for order in [0, 3] {
        let (device, path) = (Arc::new(Device::default()), dir.path().join("data"));
        let pager = Pager::builder().max(Size::mib(2)).inject(device.clone()).build().unwrap();
        let view = sevens(&pager, &path, 16 * PAGE, order);
        let bytes: Vec<u8> = (0..16 * PAGE).map(|at| at as u8 | 1).collect();
        view.write_at(0, &bytes).unwrap();
        device.refuses.store(true, SeqCst);
        let error = view.set_len(3 * PAGE + 5).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        assert!(view.len() == 16 * PAGE && all(&view) == bytes);
        view.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        device.refuses.store(false, SeqCst);
        view.set_len(3 * PAGE + 5).unwrap();
        pager.validate().unwrap();
    }
}

#[test]
fn a_length_alone_is_made_durable_by_flush() {
    let dir = Dir::new();
    let (device, path) = (Arc::new(Device::default()), dir.path().join("data"));
    let pager = Pager::builder().max(Size::mib(2)).inject(device.clone()).build().unwrap();
    let view = sevens(&pager, &path, 16 * PAGE, 0);
    for len in [5, 20 * PAGE] {
        let before = device.syncs.load(SeqCst);
        view.set_len(len).unwrap();
        view.flush().unwrap();
        assert_eq!(device.syncs.load(SeqCst), before + 1);
        view.flush().unwrap();
        assert_eq!(device.syncs.load(SeqCst), before + 1, "once");
    }
}

#[test]
fn a_growth_that_fails_leaves_file_and_view_as_they_were() {
    let dir = Dir::new();
    let (pager, path) = (pager(), dir.path().join("data"));
    let options = OpenOptions::new().create_with_len(3).growth(Size::mib(1));
    let view = options.open(&pager, &path).unwrap();
    view.write_at(0, b"abc").unwrap();
    for far in [2 << 20, 2 << 40, u64::MAX - 10] {
        let error = view.write_at(far, b"abc").unwrap_err();
        assert!(matches!(error, Error::Grow { .. }), "{error}");
        assert!(error.to_string().contains("OpenOptions::growth"), "{error}");
        assert_eq!((view.len(), std::fs::metadata(&path).unwrap().len()), (3, 3));
    }
    assert!(view.set_len(2 << 20).is_err());
    view.write_at(3, b"def").unwrap();
    assert_eq!(view.refresh_len().unwrap(), 6);
    assert!(matches!(
        view.read_at(10, &mut [0]),
        Err(Error::OutOfRange { offset: 10, bytes: 1, len: 6, .. })
    ));
    drop(view);
    // Room is made for what a file is created with, and there is a default.
    let view = OpenOptions::new()
        .create_with_len(2 << 40)
        .growth(Size::mib(1))
        .open(&pager, &path)
        .unwrap();
    view.write_at((2 << 40) + 5, b"x").unwrap();
    drop(view);
    let absurd = dir.path().join("absurd");
    let error = OpenOptions::new().create_with_len(1 << 62).open(&pager, &absurd).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
    assert!(!absurd.exists(), "it was not made");
}

#[test]
fn what_others_append_is_read_and_never_invented_or_overwritten() {
    let dir = Dir::new();
    for order in [0, 3] {
        for len in [1000, PAGE + 1000, 8 * PAGE, 9 * PAGE] {
            for dirty in [false, true] {
                let (pager, path) = (pager(), dir.path().join("data"));
                let view = sevens(&pager, &path, len, order);
                assert!(all(&view) == then_zeroes(len, len));
                if dirty {
                    view.write_at(len - 10, &[8; 10]).unwrap();
                }
                outside(&path).write_all_at(&[9; 9000], len).unwrap();
                let mut tail = vec![0; 9000];
                view.read_at(len, &mut tail).unwrap();
                assert!(tail.iter().all(|b| *b == 9), "order {order}, {len} bytes, dirty {dirty}");
                assert_eq!(view.len(), len + 9000);
                view.flush().unwrap();
                let mut disk = vec![0; 9000];
                File::open(&path).unwrap().read_exact_at(&mut disk, len).unwrap();
                assert!(
                    disk.iter().all(|b| *b == 9),
                    "on disk: order {order}, {len} bytes, dirty {dirty}"
                );
                assert_eq!(view.read_to_vec(len - 1..len).unwrap()[0], if dirty { 8 } else { 7 });
                pager.validate().unwrap();
            }
        }
    }
}

#[test]
fn what_others_cut_off_does_not_come_back() {
    let dir = Dir::new();
    for order in [0, 3] {
        for cut in [0, 100, 5000, 8 * PAGE] {
            let (pager, path) = (pager(), dir.path().join("data"));
            let view = sevens(&pager, &path, 10 * PAGE, order);
            view.write_at(0, &vec![7; 10 * PAGE as usize]).unwrap();
            view.flush().unwrap();
            outside(&path).set_len(cut).unwrap();
            assert_eq!(view.refresh_len().unwrap(), cut);
            assert!(matches!(view.page(9), Err(Error::OutOfRange { .. })));
            view.write_at(9 * PAGE, &[0]).unwrap();
            view.write_at(cut + 1, &[0]).unwrap();
            assert!(all(&view) == then_zeroes(cut, 9 * PAGE + 1), "order {order}, cut at {cut}");
            view.flush().unwrap();
            assert!(std::fs::read(&path).unwrap() == then_zeroes(cut, 9 * PAGE + 1));
            pager.validate().unwrap();
        }
    }
}

#[test]
fn a_store_of_nothing_changes_nothing_and_a_read_of_nothing_succeeds() {
    let dir = Dir::new();
    let pager = pager();
    let view = OpenOptions::new().create_with_len(0).open(&pager, dir.path().join("data")).unwrap();
    view.write_at(10, &[]).unwrap();
    assert_eq!(view.len(), 0);
    view.read_at(0, &mut []).unwrap();
    view.read_at(1, &mut []).unwrap();
}

#[test]
fn a_thread_with_a_guard_stores_while_a_cut_waits_for_the_store_that_waits_for_the_guard() {
    let dir = Dir::new();
    let path = dir.path().join("data");
    let pager =
        Pager::builder().max(Size::mib(2)).memory_timeout(Duration::from_secs(60)).build().unwrap();
    let view = sevens(&pager, &path, 8 * PAGE, 0);
    let guard = view.page(1).unwrap();
    let view = &view;
    std::thread::scope(|scope| {
        let store = scope.spawn(move || view.write_at(PAGE, &[7; 10]));
        // Each has time to begin to wait.
        std::thread::sleep(Duration::from_millis(50));
        let cut = scope.spawn(move || view.set_len(4 * PAGE));
        std::thread::sleep(Duration::from_millis(50));
        view.write_at(2 * PAGE, &[7; 10]).unwrap();
        drop(guard);
        store.join().unwrap().unwrap();
        cut.join().unwrap().unwrap();
    });
    assert!(all(view) == then_zeroes(4 * PAGE, 4 * PAGE));
    pager.validate().unwrap();
}

#[test]
fn stores_and_cuts_of_several_threads_leave_only_what_was_stored_after_the_last_cut() {
    let dir = Dir::new();
    for order in [0, 2] {
        let (pager, path) = (pager(), dir.path().join("data"));
        let view = sevens(&pager, &path, 0, order);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (view, done) = (view.clone(), &done);
                scope.spawn(move || {
                    for round in 0.. {
                        if done.load(SeqCst) {
                            break;
                        }
                        let at = (round * 7919 + thread * 37) % 60 * 1000;
                        view.write_at(at, &[7; 3000]).unwrap();
                        match view.read_at(at, &mut [0; 3000]) {
                            Ok(()) | Err(Error::OutOfRange { .. }) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                });
            }
            for round in 0..400 {
                view.set_len(round % 50 * 1111).unwrap();
            }
            view.set_len(0).unwrap();
            done.store(true, SeqCst);
        });
        let len = view.len();
        view.set_len(0).unwrap();
        view.set_len(len.max(70_000)).unwrap();
        assert!(all(&view).iter().all(|b| *b == 0));
        view.flush().unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 0));
        pager.validate().unwrap();
    }
}
