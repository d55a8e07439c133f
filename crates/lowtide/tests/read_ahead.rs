//! Read-ahead: what is read in order is there before it is requested, and nothing else is read.

use crate::common::{Dir, byte_at, eventually, make_file};
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{OpenOptions, Pager, Settled, Size, View};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

fn size(text: &str) -> Size {
    text.parse().unwrap()
}

/// Counts reads by the file's name, and lets those of one file hang.
#[derive(Default)]
struct Device {
    reads: AtomicU64,
    hangs: Mutex<Option<(PathBuf, u64, Gate)>>,
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op != InjectOp::Read {
            return Verdict::Pass;
        }
        self.reads.fetch_add(1, SeqCst);
        match &*self.hangs.lock().unwrap() {
            Some((path, from, gate)) if path == request.path && request.offset >= *from => {
                Verdict::Hang(gate.clone())
            }
            _ => Verdict::Pass,
        }
    }
}

/// A pager whose threads do nothing that its callers did not do themselves.
fn quiet_pager(device: &Arc<Device>, max: &str) -> Pager {
    let inject: Arc<dyn Inject> = device.clone();
    Pager::builder().max(size(max)).background(false).inject(inject).build().unwrap()
}

fn open(pager: &Pager, path: &Path, window: &str) -> View {
    OpenOptions::new().read_ahead(size(window)).open(pager, path).unwrap()
}

fn read(view: &View, page: u64) {
    let bytes = view.page(page).unwrap();
    assert!(bytes.iter().zip(page * 4096..).all(|(byte, at)| *byte == byte_at(at)), "page {page}");
}

#[test]
fn a_file_that_is_read_in_order_is_read_in_large_pieces_however_it_is_read() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 << 20);
    let by_guards = |view: &View| (0..1024).for_each(|page| read(view, page));
    let by_ranges = |view: &View| {
        // Ranges that begin and end inside pages.
        for offset in (0..4 << 20).step_by(10_000) {
            let mut bytes = vec![0; 10_000.min((4 << 20) - offset)];
            view.read_at(offset as u64, &mut bytes).unwrap();
            assert!(bytes.iter().zip(offset as u64..).all(|(byte, at)| *byte == byte_at(at)));
        }
    };
    let by_lists = |view: &View| {
        for first in (0..1024).step_by(8) {
            let list: Vec<u64> = (first..first + 8).collect();
            view.get_many(&list, |i, bytes| assert_eq!(bytes[7], byte_at(list[i] * 4096 + 7)))
                .unwrap();
        }
    };
    type Way<'a> = (&'a str, &'a dyn Fn(&View));
    let ways: [Way<'_>; 3] = [("guards", &by_guards), ("ranges", &by_ranges), ("lists", &by_lists)];
    for (name, way) in ways {
        let device = Arc::new(Device::default());
        let pager = quiet_pager(&device, "2M");
        let view = open(&pager, &path, "128K");
        way(&view);
        let (reads, io) = (device.reads.load(SeqCst), pager.stat().io);
        assert!(reads < 60, "{name}: {reads} reads of the device for 1024 pages");
        assert!(io.ahead_pages > 950, "{name}: {io:?}");
        assert_eq!(
            (io.ahead_used, io.ahead_wasted),
            (io.ahead_pages, 0),
            "{name}: all of it was used"
        );
        assert_eq!(io.read_bytes, 4 << 20, "{name}: nothing was read twice");
        pager.validate().unwrap();
    }
}

#[test]
fn several_streams_of_one_view_are_followed_at_a_time() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 << 20);
    let device = Arc::new(Device::default());
    let pager = quiet_pager(&device, "4M");
    let view = open(&pager, &path, "64K");
    for step in 0..200 {
        for stream in 0..4 {
            read(&view, stream * 256 + step);
        }
    }
    let (reads, io) = (device.reads.load(SeqCst), pager.stat().io);
    assert!(reads < 100 && io.ahead_used > 750, "{reads} reads, {io:?}");
}

#[test]
fn random_access_reads_nothing_ahead() {
    let dir = Dir::new();
    let path = make_file(&dir, 16 << 20);
    let pager = Pager::builder().max(size("4M")).build().unwrap();
    let view = pager.open(&path).unwrap();
    let mut random = 1_u64;
    let mut next = || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % 4000
    };
    let mut bytes = vec![0; 20_000];
    for _ in 0..5000 {
        read(&view, next());
        view.read_at(next() * 4096, &mut bytes).unwrap();
    }
    assert_eq!(pager.stat().io.ahead_pages, 0);
}

#[test]
fn read_ahead_is_off_where_it_was_not_wanted() {
    let dir = Dir::new();
    let path = make_file(&dir, 1 << 20);
    let pager = Pager::builder().max(size("4M")).build().unwrap();
    (0..256).for_each(|page| read(&open(&pager, &path, "0"), page));
    assert_eq!((pager.stat().io.reads, pager.stat().io.ahead_pages), (256, 0));
    let device = Arc::new(Device::default());
    let pager = quiet_pager(&device, "4M");
    let view = pager.open(&path).unwrap();
    (0..256).for_each(|page| read(&view, page));
    assert_eq!(pager.stat().io.ahead_pages, 0, "without background threads it must be requested");
}

#[test]
fn a_stream_whose_pages_are_evicted_unused_stops_reading_ahead() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 << 20);
    let device = Arc::new(Device::default());
    let pager = quiet_pager(&device, "1M");
    let (view, other) = (open(&pager, &path, "64K"), open(&pager, &path, "0"));
    for page in 0..200 {
        read(&view, page);
        // Everything else is used between two steps, so that nothing read ahead is there when its
        // turn comes.
        (300..1000).for_each(|page| read(&other, page));
    }
    let io = pager.stat().io;
    assert!(io.ahead_wasted > 0, "{io:?}");
    assert!(io.ahead_pages < 100, "it gave up: {io:?}");
    pager.validate().unwrap();
}

#[test]
fn a_scan_that_is_read_ahead_leaves_the_working_set_alone() {
    let dir = Dir::new();
    let path = make_file(&dir, 8 << 20);
    let device = Arc::new(Device::default());
    let pager = quiet_pager(&device, "1M");
    let view = open(&pager, &path, "64K");
    let hot = |view: &View| (0..128).for_each(|page| read(view, page * 2));
    let scan = open(&pager, &path, "64K");
    (0..8).for_each(|_| hot(&view));
    let before = device.reads.load(SeqCst);
    for page in 256..2048 {
        read(&scan, page);
        if page % 16 == 0 {
            hot(&view);
        }
    }
    let (reads, io) = (device.reads.load(SeqCst) - before, pager.stat().io);
    assert!(io.ahead_used > 1500, "{io:?}");
    assert!(reads < 1792 / 8, "{reads} reads: the hot pages stayed");
}

#[test]
fn a_tenant_reads_ahead_within_its_own_budget() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 << 20);
    let pager = Pager::builder().max(size("8M")).build().unwrap();
    let tenant = pager.tenant("small").max(size("256K")).create().unwrap();
    let view = OpenOptions::new().tenant(&tenant).open(&pager, &path).unwrap();
    for page in 0..1024 {
        read(&view, page);
        assert!(tenant.stat().unwrap().current <= 64);
    }
    let asked = pager.stat().io.ahead_pages;
    view.prefetch(0..1024 << 12);
    eventually("prefetch begins", || pager.stat().io.ahead_pages > asked);
    assert!(tenant.stat().unwrap().current <= 64);
    pager.validate().unwrap();
}

#[test]
fn windows_follow_a_budget_that_is_lowered() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 << 20);
    let device = Arc::new(Device::default());
    let pager = quiet_pager(&device, "8M");
    let view = open(&pager, &path, "128K");
    (0..64).for_each(|page| read(&view, page));
    let ahead = || pager.stat().io.ahead_pages;
    let before = ahead();
    assert!(before > 0);
    assert_eq!(pager.root().set_max(size("192K")).unwrap(), Settled::Yes);
    (0..48).for_each(|page| read(&view, 500 + page));
    assert_eq!(ahead(), before, "a sixteenth of 48 pages is no window");
    pager.validate().unwrap();
}

#[test]
fn prefetch_stops_where_there_is_no_room() {
    let dir = Dir::new();
    let path = make_file(&dir, 16 << 20);
    let device = Arc::new(Device::default());
    let pager = quiet_pager(&device, "1M");
    let view = pager.open(&path).unwrap();
    view.prefetch(0..100 << 12);
    assert_eq!(pager.stat().io.ahead_pages, 100, "there was room");
    view.prefetch(1000 << 12..4096 << 12);
    let io = pager.stat().io;
    assert!(
        (256..300).contains(&io.ahead_pages),
        "what is free, and an eighth of what is clean: {io:?}"
    );
    pager.validate().unwrap();
}

#[test]
fn a_device_that_hangs_does_not_stop_the_read_ahead_of_other_files() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 << 20);
    let hanging = dir.path().join("hanging");
    std::fs::copy(&path, &hanging).unwrap();
    let (device, gate) = (Arc::new(Device::default()), Gate::new());
    // Its first pages are read, what is read ahead of them hangs.
    *device.hangs.lock().unwrap() = Some((hanging.clone(), 3 * 4096, gate.clone()));
    let inject: Arc<dyn Inject> = device;
    let pager = Pager::builder().max(size("16M")).inject(inject).build().unwrap();
    let view = pager.open(&hanging).unwrap();
    (0..3).for_each(|page| read(&view, page));
    // More hints than one file may have waiting.
    (0..100).for_each(|at| view.prefetch((100 + at * 8) << 12..(104 + at * 8) << 12));
    let other = pager.open(&path).unwrap();
    (0..1024).for_each(|page| read(&other, page));
    eventually("the other file is read ahead", || pager.stat().io.ahead_used > 0);
    gate.open();
    drop((view, other));
    pager.validate().unwrap();
}
