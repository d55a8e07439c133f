//! What a user relies on who writes: the right bytes at every edge, no read that is not needed, one
//! version of a page for each guard, and nothing stuck when the device fails.

use crate::common::{Dir, byte_at, eventually, make_file};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::{Error, OpenOptions, Pager, Size, View};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const PAGE: u64 = 4096;

fn pager(pages: u64) -> Pager {
    Pager::builder().max(pages * PAGE).build().unwrap()
}

fn reads(pager: &Pager) -> u64 {
    pager.stat().io.reads
}

#[test]
fn whole_pages_are_replaced_without_a_read_and_parts_are_read_first() {
    let dir = Dir::new();
    let path = make_file(&dir, 300 * PAGE);
    let pager = pager(4096);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    view.write_at(0, &vec![7; 200 * PAGE as usize]).unwrap();
    assert_eq!(reads(&pager), 0);
    assert_eq!(pager.stat().memory.events.pgmajfault, 0, "nothing was read");
    assert_eq!(pager.stat().memory.file_dirty + pager.stat().memory.file_writeback, 200);

    // From the middle of page 250 to the middle of page 253.
    view.write_at(250 * PAGE + 100, &vec![8; 3 * PAGE as usize]).unwrap();
    assert_eq!(reads(&pager), 2, "the first and the last page");
    view.flush().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let expected = |at: u64| match at {
        _ if at < 200 * PAGE => 7,
        _ if (250 * PAGE + 100..253 * PAGE + 100).contains(&at) => 8,
        _ => byte_at(at),
    };
    assert!(bytes.iter().zip(0..).all(|(b, at)| *b == expected(at)));
    pager.validate().unwrap();
}

#[test]
fn holes_and_the_end_of_the_file_need_no_read_and_hold_zeroes() {
    let dir = Dir::new();
    let path = dir.path().join("grows");
    std::fs::write(&path, vec![1; 5000]).unwrap();
    let pager = pager(256);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    // All that the file has of its last page.
    view.write_at(4096, &[2; 904]).unwrap();
    assert_eq!(reads(&pager), 0, "up to the end is all of it");
    // Past the end, in the middle of a page, with a hole before it.
    view.write_at(10 * PAGE + 10, &[3; 20]).unwrap();
    view.write_at(4096 * 20 + 4000, &[4; 200]).unwrap();
    assert_eq!(reads(&pager), 0, "a hole has nothing to read");
    view.write_at(10 * PAGE + 50, &[5; 20]).unwrap();
    view.write_at(15 * PAGE + 1, &[6; 1]).unwrap();
    let mut expected = vec![1; 4096];
    expected.extend([2; 904]);
    expected.resize(20 * 4096 + 4200, 0);
    expected[10 * 4096 + 10..][..20].fill(3);
    expected[10 * 4096 + 50..][..20].fill(5);
    expected[15 * 4096 + 1] = 6;
    expected[20 * 4096 + 4000..].fill(4);
    assert_eq!(view.len(), expected.len() as u64);
    let mut seen = vec![9; expected.len()];
    view.read_at(0, &mut seen).unwrap();
    assert!(seen == expected, "before it is written");
    view.flush().unwrap();
    assert!(std::fs::read(&path).unwrap() == expected, "in the file");
}

/// Writes of all lengths at all offsets around pages, batches and large folios, far more than fits
/// into the budget, beside a model.
#[test]
fn every_alignment_writes_what_it_should() {
    for (page_bytes, order) in [(4096, 0), (512, 0), (4096, 3), (16384, 0), (512, 7)] {
        let dir = Dir::new();
        let path = dir.path().join("file");
        let mut model: Vec<u8> = (0..40_000).map(byte_at).collect();
        std::fs::write(&path, &model).unwrap();
        let pager = Pager::builder()
            .max(if order == 7 { 1024 } else { 96 } * page_bytes as u64)
            .base_page(page_bytes)
            .build()
            .unwrap();
        let view = OpenOptions::new().write(true).folio_order(order).open(&pager, &path).unwrap();
        let edges = [
            0,
            1,
            page_bytes - 1,
            page_bytes,
            page_bytes + 1,
            64 * page_bytes - 1,
            65 * page_bytes,
        ];
        let mut version = 0_u8;
        for step in 0..edges.len() * edges.len() * 2 {
            let (a, b) = (edges[step % edges.len()], edges[step / edges.len() % edges.len()]);
            let offset = a + step % 3 * 7 * page_bytes;
            version = version.wrapping_add(41);
            let bytes: Vec<u8> = (0..b).map(|i| version ^ byte_at(i as u64)).collect();
            view.write_at(offset as u64, &bytes).unwrap();
            if b > 0 {
                model.resize(model.len().max(offset + b), 0);
                model[offset..offset + b].copy_from_slice(&bytes);
            }
            if step % 10 == 9 {
                let mut seen = vec![0; model.len()];
                view.read_at(0, &mut seen).unwrap();
                assert!(seen == model, "{page_bytes} bytes, order {order}, step {step}");
            }
        }
        view.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == model, "{page_bytes} bytes, order {order}");
        pager.validate().unwrap();
    }
}

#[test]
fn a_page_that_comes_back_by_a_store_is_a_refault_and_no_read() {
    let dir = Dir::new();
    let path = make_file(&dir, 1024 * PAGE);
    let pager = Pager::builder().max(Size::mib(1)).background(false).build().unwrap();
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    for round in 0..3 {
        for offset in (0..1024 * PAGE).step_by(16 * PAGE as usize) {
            view.write_at(offset, &[round; 16 * PAGE as usize]).unwrap();
        }
    }
    let events = pager.stat().memory.events;
    assert_eq!((reads(&pager), events.pgmajfault), (0, 0));
    assert_eq!(events.pgfault, 3 * 1024);
    assert!(events.workingset_refault_file > 1024, "{}", events.workingset_refault_file);
    view.flush().unwrap();
    assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 2));
}

/// Each write fills some pages with one number. A page never shows two, and not another one later
/// while it is held.
fn one_version(view: &View, page: u64, rounds: u32) {
    for _ in 0..rounds {
        let guard = view.page(page).unwrap();
        let first = guard[0];
        assert!(guard.iter().all(|b| *b == first), "page {page} shows parts of two writes");
        std::thread::yield_now();
        assert!(guard.iter().all(|b| *b == first), "page {page} changed under a guard");
    }
}

#[test]
fn guards_show_one_version_while_others_write_in_batches() {
    let dir = Dir::new();
    let path = dir.path().join("file");
    let pages = 200;
    std::fs::write(&path, vec![0; (pages * PAGE) as usize]).unwrap();
    // Less than the file, so that pages come and go.
    let pager = pager(128);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3_u64 {
            let view = view.clone();
            scope.spawn(move || {
                for step in 0..60_u64 {
                    let (from, n) =
                        ((step * 37 + writer * 61) % 120, 1 + (step * 13 + writer) % 80);
                    let version = (1 + step * 3 + writer) as u8;
                    view.write_at(from * PAGE, &vec![version; (n * PAGE) as usize]).unwrap();
                }
            });
        }
        for reader in 0..4 {
            let view = view.clone();
            scope.spawn(move || {
                (0..300).for_each(|i| one_version(&view, (i * 7 + reader * 50) % pages, 3));
            });
        }
    });
    view.flush().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.chunks(PAGE as usize).all(|page| page.iter().all(|b| *b == page[0])));
    pager.validate().unwrap();
}

/// Two threads make a file longer and fill the same new pages, each its half. Nothing of either may
/// be taken for a part of the hole.
#[test]
fn two_writers_behind_the_end_do_not_erase_each_other() {
    let dir = Dir::new();
    let path = dir.path().join("grows");
    let pager = pager(64);
    let view = OpenOptions::new().create_with_len(0).open(&pager, &path).unwrap();
    let pages = 600;
    std::thread::scope(|scope| {
        for half in 0..2_u64 {
            let view = view.clone();
            scope.spawn(move || {
                for i in 0..pages {
                    // In blocks that the two come upon in a different order.
                    let page = if half == 0 { i } else { i / 8 * 8 + 7 - i % 8 };
                    view.write_at(page * PAGE + half * 2048, &[1 + half as u8; 2048]).unwrap();
                }
            });
        }
    });
    view.flush().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for (page, bytes) in bytes.chunks(4096).enumerate() {
        assert!(
            bytes[..2048].iter().all(|b| *b == 1) && bytes[2048..].iter().all(|b| *b == 2),
            "page {page}"
        );
    }
    assert_eq!(bytes.len() as u64, pages * PAGE);
}

#[test]
fn a_batch_goes_past_a_page_that_somebody_reads_and_waits_for_it_alone() {
    let dir = Dir::new();
    let path = make_file(&dir, 20 * PAGE);
    let pager = pager(128);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    view.get_many(&(0..20).collect::<Vec<_>>(), |_, _| ()).unwrap();
    let guard = view.page(5).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| view.write_at(0, &vec![1; 20 * PAGE as usize]));
        // The others arrive while the guard is held, which still shows the old bytes.
        for page in (0..20).filter(|page| *page != 5) {
            eventually("a page beside the one that is held", || view.page(page).unwrap()[17] == 1);
        }
        assert!(!writer.is_finished());
        assert_eq!(guard[0], byte_at(5 * PAGE));
        drop(guard);
        writer.join().unwrap().unwrap();
    });
    assert!((0..20).all(|page| view.page(page).unwrap().iter().all(|b| *b == 1)));
}

#[test]
fn a_guard_of_the_writer_itself_stops_its_page_only() {
    let dir = Dir::new();
    let path = make_file(&dir, 40 * PAGE);
    let pager = pager(128);
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    let guard = view.page(20).unwrap();
    let error = view.write_at(0, &vec![1; 40 * PAGE as usize]).unwrap_err();
    assert!(matches!(error, Error::HeldHere { page: 20, .. }), "{error}");
    assert!(
        (0..20).all(|page| view.page(page).unwrap()[0] == 1),
        "pages before it have been written"
    );
    assert_eq!(guard[0], byte_at(20 * PAGE));
    drop(guard);
    view.write_at(0, &vec![2; 40 * PAGE as usize]).unwrap();
    assert!((0..40).all(|page| view.page(page).unwrap()[0] == 2));
}

/// Fails the chosen operations.
#[derive(Default)]
struct Broken {
    reads: AtomicBool,
    writes: AtomicBool,
    extends: AtomicBool,
    failed: AtomicU64,
}

impl Inject for Broken {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let broken = match request.op {
            InjectOp::Read => &self.reads,
            InjectOp::Write => &self.writes,
            InjectOp::Extend => &self.extends,
            _ => return Verdict::Pass,
        };
        if broken.load(SeqCst) {
            self.failed.fetch_add(1, SeqCst);
            return Verdict::Fail(io::Error::from_raw_os_error(5));
        }
        Verdict::Pass
    }
}

#[test]
fn a_device_that_fails_in_the_middle_of_a_batch_leaves_nothing_stuck() {
    for background in [false, true] {
        let dir = Dir::new();
        let path = make_file(&dir, 400 * PAGE);
        let device = Arc::new(Broken::default());
        let pager = Pager::builder()
            .max(128 * PAGE)
            .memory_timeout(Duration::from_millis(50))
            .background(background)
            .inject(device.clone())
            .build()
            .unwrap();
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        // The last page is replaced in part, and cannot be read.
        device.reads.store(true, SeqCst);
        let error = view.write_at(0, &vec![1; 10 * PAGE as usize + 5]).unwrap_err();
        assert!(matches!(error, Error::Read { page: 10, .. }), "{error}");
        pager.validate().unwrap();
        assert!(
            (0..10).all(|page| view.page(page).unwrap()[0] == 1),
            "what came before it was written"
        );
        device.reads.store(false, SeqCst);

        // Nothing can be written back: the budget fills up with dirty pages, and then there is no
        // room.
        device.writes.store(true, SeqCst);
        let mut full = None;
        for from in (0..400).step_by(20) {
            if let Err(error) = view.write_at(from * PAGE, &vec![2; 20 * PAGE as usize]) {
                full = Some((from, error));
                break;
            }
        }
        let (from, error) = full.expect("400 pages do not fit into 128");
        assert!(matches!(error, Error::OutOfBudget { .. }), "{error}");
        pager.validate().unwrap();
        assert!(device.failed.load(SeqCst) > 0);

        // It heals: everything that was stored is there, and every page can be written.
        device.writes.store(false, SeqCst);
        for page in 0..from {
            assert_eq!(
                view.page(page).unwrap()[4095],
                2,
                "page {page}, which was stored to before the error"
            );
        }
        eventually("a healed device takes everything", || {
            view.write_at(0, &vec![3; 400 * PAGE as usize]).is_ok()
        });
        // The first flush may tell of what had failed.
        eventually("a healed device takes everything", || view.flush().is_ok());
        pager.validate().unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 3));
    }
}

#[test]
fn a_file_that_cannot_be_made_longer_stays_as_it_was() {
    let dir = Dir::new();
    let path = make_file(&dir, 3 * PAGE);
    let device = Arc::new(Broken::default());
    let pager = Pager::builder().max(Size::mib(1)).inject(device.clone()).build().unwrap();
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    device.extends.store(true, SeqCst);
    let error = view.write_at(2 * PAGE, &vec![1; 2 * PAGE as usize]).unwrap_err();
    assert!(matches!(error, Error::Grow { .. }), "{error}");
    assert_eq!((view.len(), pager.stat().memory.file), (3 * PAGE, 0));
    device.extends.store(false, SeqCst);
    view.write_at(2 * PAGE, &vec![1; 2 * PAGE as usize]).unwrap();
    view.flush().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * PAGE);
    pager.validate().unwrap();
}
