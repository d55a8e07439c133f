//! Reads of many neighbouring pages: joined into few transfers, and right at every edge.

use crate::common::{Dir, byte_at, make_file};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{Error, IoEngine, OpenOptions, Pager, Size, View};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

fn is_right(offset: u64, bytes: &[u8]) -> bool {
    bytes.iter().zip(offset..).all(|(byte, at)| *byte == byte_at(at))
}

fn check_read_at(view: &View, offset: u64, len: usize) {
    let mut bytes = vec![0xAA; len];
    view.read_at(offset, &mut bytes).unwrap();
    assert!(is_right(offset, &bytes), "{len} bytes at {offset}");
}

/// What a device does with reads, by the bytes that they want.
#[derive(Default)]
struct Device {
    /// Reads that touch this byte fail.
    bad: AtomicU64,
    is_bad: AtomicBool,
    /// While there is one, reads wait for it.
    gate: Mutex<Option<Gate>>,
    asked: AtomicU64,
}

impl Device {
    fn break_at(&self, byte: u64) {
        self.bad.store(byte, SeqCst);
        self.is_bad.store(true, SeqCst);
    }
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op != InjectOp::Read {
            return Verdict::Pass;
        }
        self.asked.fetch_add(1, SeqCst);
        let range = request.offset..request.offset + request.len;
        if self.is_bad.load(SeqCst) && range.contains(&self.bad.load(SeqCst)) {
            return Verdict::Fail(io::Error::from_raw_os_error(5));
        }
        self.gate.lock().unwrap().clone().map_or(Verdict::Pass, Verdict::Hang)
    }
}

fn pager_on(device: &Arc<Device>, max: &str, engine: IoEngine) -> Pager {
    let inject: Arc<dyn Inject> = device.clone();
    Pager::builder()
        .max(max.parse::<Size>().unwrap())
        .io_engine(engine)
        .background(false)
        .inject(inject)
        .build()
        .unwrap()
}

#[test]
fn joined_reads_bring_the_right_bytes_for_every_page_size_and_folio_order() {
    let dir = Dir::new();
    let len = (1 << 20) + 777;
    let path = make_file(&dir, len);
    for (page_bytes, orders) in [(512, [0, 3, 9]), (4096, [0, 1, 5]), (65536, [0, 1, 2])] {
        for (engine, order) in
            orders.into_iter().flat_map(|o| [(IoEngine::Auto, o), (IoEngine::Psync, o)])
        {
            // Smaller than the file, so that pages of one call evict others of it.
            let max = if page_bytes == 65536 { "2M" } else { "700K" };
            let pager = Pager::builder()
                .max(max.parse::<Size>().unwrap())
                .base_page(page_bytes)
                .io_engine(engine);
            let pager = pager.build().unwrap();
            let view = OpenOptions::new().folio_order(order);
            let view = match view.open(&pager, &path) {
                Ok(view) => view,
                Err(lowtide::OpenError::FolioOrder { .. }) => continue,
                Err(e) => panic!("{e}"),
            };
            for (offset, bytes) in
                [(0, len), (1, 300_000), (70_001, 999), (len - 5000, 5000), (0, 65536)]
            {
                check_read_at(&view, offset, bytes as usize);
            }
            let list: Vec<u64> = (0..view.page_count()).collect();
            let mut shown = vec![0; list.len()];
            view.get_many(&list, |i, bytes| {
                shown[i] += 1;
                let start = list[i] * page_bytes as u64;
                let valid = (len - start).min(page_bytes as u64) as usize;
                assert!(is_right(start, &bytes[..valid]) && bytes[valid..].iter().all(|b| *b == 0));
            })
            .unwrap();
            assert!(shown.iter().all(|n| *n == 1), "each page is shown once");
            let stat = pager.stat();
            assert!(stat.memory.current <= stat.memory.max);
            pager.validate().unwrap();
        }
    }
}

#[test]
fn absent_neighbours_are_read_together() {
    let dir = Dir::new();
    let path = make_file(&dir, 2 << 20);
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let device = Arc::new(Device::default());
        let pager = pager_on(&device, "4M", engine);
        let view = pager.open(&path).unwrap();
        // Two pages in the middle are there: the range falls into two runs.
        drop((view.page(100).unwrap(), view.page(101).unwrap()));
        assert_eq!(device.asked.swap(0, SeqCst), 2);
        check_read_at(&view, 90 * 4096, 64 << 10);
        assert_eq!(
            device.asked.swap(0, SeqCst),
            2,
            "one read before and one behind the pages that are there"
        );
        let list: Vec<u64> = (200..264).collect();
        view.get_many(&list, |i, bytes| assert!(is_right(list[i] * 4096, bytes))).unwrap();
        assert_eq!(device.asked.swap(0, SeqCst), 1, "neighbours of a list, too");
        let stat = pager.stat();
        assert_eq!(
            (stat.io.reads, stat.memory.events.pgmajfault),
            (5, 2 + 14 + 64),
            "faults are counted by page"
        );
        pager.validate().unwrap();
    }
}

#[test]
fn a_failing_block_in_a_run_fails_only_its_page() {
    let dir = Dir::new();
    let path = make_file(&dir, 1 << 20);
    for engine in [IoEngine::Auto, IoEngine::Psync] {
        let device = Arc::new(Device::default());
        let pager = pager_on(&device, "2M", engine);
        let view = pager.open(&path).unwrap();
        device.break_at(33 * 4096 + 512);
        let mut bytes = vec![0; 64 * 4096];
        let error = view.read_at(0, &mut bytes).unwrap_err();
        let Error::Read { page: 33, ref source, .. } = error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(5));
        assert!(
            (0..64).all(|page| view.is_resident(page) == (page != 33)),
            "its neighbours came in"
        );
        assert_eq!(pager.stat().memory.current, 63, "it gave its frame back");
        let list: Vec<u64> = (0..128).collect();
        let mut shown = 0;
        let error = view.get_many(&list, |_, _| shown += 1).unwrap_err();
        assert!(matches!(error, Error::Read { page: 33, .. }), "{error}");
        pager.validate().unwrap();
        device.is_bad.store(false, SeqCst);
        check_read_at(&view, 0, 1 << 20);
        pager.validate().unwrap();
    }
}

#[test]
fn a_read_of_many_pages_behind_the_end_of_a_file_that_shrank_is_an_error() {
    let dir = Dir::new();
    let path = make_file(&dir, 1 << 20);
    let pager = Pager::builder().max(Size::mib(2)).build().unwrap();
    let view = pager.open(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(300_000).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let error = view.read_at(0, &mut bytes).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { len: 300_000, .. }), "{error}");
    check_read_at(&view, 0, 300_000);
    pager.validate().unwrap();
}

#[test]
fn the_budget_holds_while_runs_are_in_flight_and_what_else_is_read_goes_on() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 << 20);
    let device = Arc::new(Device::default());
    let pager = pager_on(&device, "1M", IoEngine::Auto);
    let view = pager.open(&path).unwrap();
    drop(view.page(1000).unwrap());
    device.asked.store(0, SeqCst);
    let gate = Gate::new();
    *device.gate.lock().unwrap() = Some(gate.clone());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| check_read_at(&view, 0, 3 << 20));
        while device.asked.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        *device.gate.lock().unwrap() = None;
        for page in [1000, 1010, 1020] {
            assert_eq!(view.page(page).unwrap()[0], byte_at(page * 4096));
        }
        let stat = pager.stat();
        assert!(stat.memory.current <= stat.memory.max, "{}", stat.memory.current);
        pager.validate().unwrap();
        gate.open();
        reader.join().unwrap();
    });
    assert!(pager.stat().memory.current <= pager.stat().memory.max);
    pager.validate().unwrap();
}

#[test]
fn guards_and_stores_meet_joined_reads_and_see_whole_pages() {
    const PAGES: u64 = 512;
    let dir = Dir::new();
    let path = dir.path().join("stamped");
    let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
    let view = OpenOptions::new().create_with_len(PAGES * 4096).open(&pager, &path).unwrap();
    for page in 0..PAGES {
        view.write_at(page * 4096, &[0; 4096]).unwrap();
    }
    let whole = |bytes: &[u8]| bytes.iter().all(|b| *b == bytes[0]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000_u64 {
                view.write_at(round * 37 % PAGES * 4096, &[round as u8; 4096]).unwrap();
            }
        });
        scope.spawn(|| {
            for round in 0..2000_u64 {
                assert!(whole(&view.page(round * 59 % PAGES).unwrap()));
            }
        });
        for seed in 0..2_u64 {
            let view = &view;
            scope.spawn(move || {
                let mut bytes = vec![0; 128 * 4096];
                for round in 0..60_u64 {
                    let first = (seed * 91 + round * 17) % (PAGES - 128);
                    view.read_at(first * 4096, &mut bytes).unwrap();
                    assert!(bytes.chunks(4096).all(whole), "a page was torn");
                    let list: Vec<u64> = (first..first + 128).collect();
                    view.get_many(&list, |_, bytes| assert!(whole(bytes), "a page was torn"))
                        .unwrap();
                }
            });
        }
    });
    pager.validate().unwrap();
}
