//! A swap file whose device does not answer: what waits for it, for how long, and what remains.

use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{Error, OpenOptions, Pager, PagerBuilder, Region, Size, SwapOptions, Tenant};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Pages of the tenant.
const BUDGET: u64 = 64;
/// Pages of its region.
const PAGES: u64 = 4 * BUDGET;
/// How long a request is waited for.
const DEADLINE: Duration = Duration::from_millis(50);

/// Requests of one kind hang until the gate is opened.
#[derive(Debug, Default)]
struct Device(Mutex<Option<(InjectOp, Gate)>>);

impl Device {
    fn hang(&self, op: InjectOp) -> Gate {
        let gate = Gate::new();
        *self.0.lock().unwrap() = Some((op, gate.clone()));
        gate
    }

    fn repair(&self, gate: &Gate) {
        *self.0.lock().unwrap() = None;
        gate.open();
    }
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match &*self.0.lock().unwrap() {
            Some((op, gate)) if *op == request.op => Verdict::Hang(gate.clone()),
            _ => Verdict::Pass,
        }
    }
}

/// A page that does not compress.
fn noise(page: u64, version: u64) -> Vec<u8> {
    let mut x = (page << 8 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    (0..PAGE / 8).flat_map(next).collect()
}

fn world(more: impl FnOnce(PagerBuilder) -> PagerBuilder) -> (Arc<Device>, Pager, Tenant, Region) {
    let (device, dir) = (Arc::new(Device::default()), tempfile::tempdir().unwrap());
    let swap = SwapOptions::compressed(Size::new(PAGE)).file(dir.path(), Size::mib(16));
    let pager = Pager::builder()
        .max(Size::mib(4))
        .swap(swap)
        .background(false)
        .memory_timeout(Duration::from_millis(100))
        .io_timeout(DEADLINE)
        .inject(Arc::<Device>::clone(&device));
    let pager = more(pager).build().unwrap();
    let tenant = pager.tenant("heap").max(Size::new(BUDGET * PAGE)).create().unwrap();
    let heap = tenant.region(PAGES * PAGE).unwrap();
    (device, pager, tenant, heap)
}

/// Runs something that is not to wait for the device, and fails if it does.
fn in_time<T: Send>(device: &Device, gate: &Gate, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(run);
        let begun = Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() > Duration::from_secs(60) {
                device.repair(gate);
                panic!("it waits for the device");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        thread.join().unwrap()
    })
}

/// Stores where nothing hangs, however busy others keep the device.
fn store(heap: &Region, page: u64, bytes: &[u8]) {
    let begun = Instant::now();
    while let Err(error) = heap.write_at(page * PAGE, bytes) {
        let is_late = matches!(error, Error::OutOfBudget { .. });
        assert!(is_late && begun.elapsed() < Duration::from_secs(60), "{error}");
    }
}

#[test]
fn stores_past_a_swap_file_that_hangs_fail_in_time_and_nothing_is_lost() {
    let (device, pager, tenant, heap) = world(|builder| builder);
    for page in 0..PAGES {
        store(&heap, page, &noise(page, 1));
    }
    let mut versions = vec![1; PAGES as usize];
    for version in 2..4 {
        let gate = device.hang(InjectOp::Write);
        let refused = in_time(&device, &gate, || {
            let mut refused = 0;
            for page in 0..PAGES {
                match heap.write_at(page * PAGE, &noise(page, version)) {
                    Ok(()) => versions[page as usize] = version,
                    Err(Error::OutOfBudget { .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
                if refused == 3 {
                    break;
                }
            }
            // Setting a limit and reclaim on request wait no longer than that, either.
            let _ = tenant.set_max(Size::new(BUDGET / 2 * PAGE)).unwrap();
            tenant.reclaim(Size::new(PAGE)).unwrap();
            let _ = tenant.set_max(Size::new(BUDGET * PAGE)).unwrap();
            refused
        });
        assert_eq!(refused, 3, "there is room for more than the tenant has");
        pager.validate().unwrap();
        device.repair(&gate);
        // What was late may still be written: to slots that no page has.
        for _ in 0..2 {
            for page in 0..PAGES {
                let found = read(&heap, page);
                assert!(found == noise(page, versions[page as usize]), "page {page}");
            }
        }
    }
    drop(heap);
    assert_eq!(tenant.swap_usage().unwrap(), 0);
    let begun = Instant::now();
    while pager.swap_file().unwrap().used > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "slots of late writes stay");
        std::thread::sleep(Duration::from_millis(1));
    }
    pager.validate().unwrap();
}

/// Reads a page, whatever the device has to answer before.
fn read(heap: &Region, page: u64) -> Vec<u8> {
    let begun = Instant::now();
    loop {
        match heap.page(page) {
            Ok(guard) => return guard.to_vec(),
            Err(Error::OutOfBudget { .. } | Error::SwapIn { .. })
                if begun.elapsed() < Duration::from_secs(60) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_page_that_does_not_come_back_in_time_is_an_error_and_comes_later() {
    let (device, pager, _tenant, heap) = world(|builder| builder.read_timeout(DEADLINE));
    for page in 0..PAGES {
        store(&heap, page, &noise(page, 1));
    }
    let gone = (0..PAGES).find(|page| !heap.is_resident(*page)).unwrap();
    let gate = device.hang(InjectOp::Read);
    let error = in_time(&device, &gate, || heap.page(gone).map(drop).unwrap_err());
    let Error::SwapIn { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), ErrorKind::TimedOut, "{error}");
    pager.validate().unwrap();
    device.repair(&gate);
    assert!((0..PAGES).all(|page| read(&heap, page) == noise(page, 1)));
    pager.validate().unwrap();
}

#[test]
fn a_pager_is_dropped_while_its_swap_file_hangs_and_ends_when_the_device_answers() {
    let (device, pager, tenant, heap) = world(|builder| builder);
    let gate = device.hang(InjectOp::Write);
    let stored = |page: &u64| heap.write_at(page * PAGE, &noise(*page, 1)).is_ok();
    assert!(in_time(&device, &gate, || (0..PAGES).take_while(stored).count() < PAGES as usize));
    let left = Arc::downgrade(&device);
    in_time(&device, &gate, || drop((heap, tenant, pager)));
    device.repair(&gate);
    drop(device);
    let begun = Instant::now();
    while left.upgrade().is_some() {
        assert!(begun.elapsed() < Duration::from_secs(60), "a late write keeps the pager");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The file of each request, by the request's number.
#[derive(Debug, Default)]
struct Numbers(Mutex<HashMap<u64, PathBuf>>);

impl Inject for Numbers {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let other = self.0.lock().unwrap().insert(request.number, request.path.to_owned());
        assert_eq!(other, None, "another request has the number of {request:?}");
        Verdict::Pass
    }
}

#[test]
fn requests_of_a_file_and_of_swap_have_numbers_of_their_own() {
    let (numbers, dir) = (Arc::new(Numbers::default()), tempfile::tempdir().unwrap());
    let swap = SwapOptions::compressed(Size::new(PAGE)).file(dir.path(), Size::mib(16));
    let pager = Pager::builder().max(Size::mib(4)).swap(swap);
    let pager = pager.background(false).inject(Arc::<Numbers>::clone(&numbers)).build().unwrap();
    let tenant = pager.tenant("heap").max(Size::new(BUDGET * PAGE)).create().unwrap();
    let heap = tenant.region(PAGES * PAGE).unwrap();
    let path = dir.path().join("file");
    let view = OpenOptions::new().create_with_len(PAGES * PAGE).open(&pager, &path).unwrap();
    for page in 0..PAGES {
        store(&heap, page, &noise(page, 0));
        view.write_at(page * PAGE, &noise(page, 1)).unwrap();
        view.flush().unwrap();
    }
    let seen = numbers.0.lock().unwrap();
    for name in [path, "[swap]".into()] {
        let requests = seen.values().filter(|of| **of == name).count();
        assert!(requests > 10, "{requests} requests of {name:?}");
    }
}
