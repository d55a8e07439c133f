//! Where pages must stand still while they are written, a store waits for the write; elsewhere it
//! does not.

use crate::common::{Dir, make_file};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{Error, OpenOptions, Pager, Size};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// A device whose writes wait for a gate.
#[derive(Default)]
struct Slow {
    gate: Mutex<Option<Gate>>,
    waiting: AtomicU64,
}

impl Inject for Slow {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match &*self.gate.lock().unwrap() {
            Some(gate) if request.op == InjectOp::Write => {
                self.waiting.fetch_add(1, SeqCst);
                Verdict::Hang(gate.clone())
            }
            _ => Verdict::Pass,
        }
    }
}

impl Slow {
    fn close(&self) -> Gate {
        self.gate.lock().unwrap().insert(Gate::new()).clone()
    }

    fn open(&self) {
        if let Some(gate) = self.gate.lock().unwrap().take() {
            gate.open();
        }
    }

    /// Waits until a write waits. Only a hang makes it fail.
    fn await_write(&self) {
        let began = Instant::now();
        while self.waiting.swap(0, SeqCst) == 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is written");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Opens the device at the end, also of a test that fails: its threads are waited for.
struct Opened<'a>(&'a Slow);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn a_store_waits_for_the_write_of_its_page_where_that_was_asked_for() {
    for (stable, order) in [(true, 0), (true, 2), (false, 0), (false, 2)] {
        let dir = Dir::new();
        let path = make_file(&dir, 64 * PAGE);
        let device = Arc::new(Slow::default());
        let pager = Pager::builder().max(Size::mib(1)).inject(device.clone()).build().unwrap();
        let options = OpenOptions::new().write(true).folio_order(order).stable_writes(stable);
        let view = options.open(&pager, &path).unwrap();
        assert_eq!(pager.report().contains("(as requested)"), stable, "{}", pager.report());
        view.write_at(0, &[1; 4 * PAGE as usize]).unwrap();
        device.close();
        let stored = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _opened = Opened(&device);
            let flush = scope.spawn(|| view.flush());
            device.await_write();
            let store = scope.spawn(|| {
                let result = view.write_at(PAGE, &[2; 2 * PAGE as usize]);
                stored.store(true, SeqCst);
                result
            });
            if stable {
                // Long enough for a store that does not wait.
                for _ in 0..50 {
                    std::thread::sleep(Duration::from_millis(1));
                    assert_eq!(view.page(1).unwrap()[9], 1, "the bytes stand still");
                }
                assert!(!stored.load(SeqCst));
                device.open();
                store.join().unwrap().unwrap();
            } else {
                store.join().unwrap().unwrap();
                device.open();
            }
            flush.join().unwrap().unwrap();
        });
        view.flush().unwrap();
        let file = std::fs::read(&path).unwrap();
        assert!(file[PAGE as usize..][..2 * PAGE as usize].iter().all(|b| *b == 2));
        assert!(file[..PAGE as usize].iter().all(|b| *b == 1));
        pager.validate().unwrap();
    }
}

#[test]
fn a_store_that_waits_for_a_write_that_never_ends_is_told() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    let device = Arc::new(Slow::default());
    let pager = Pager::builder()
        .max(Size::mib(1))
        .io_timeout(Duration::from_millis(300))
        .inject(device.clone())
        .build()
        .unwrap();
    let view = OpenOptions::new().write(true).stable_writes(true).open(&pager, &path).unwrap();
    view.write_at(0, &[1; PAGE as usize]).unwrap();
    device.close();
    assert!(matches!(view.flush(), Err(Error::Timeout { .. })));
    assert!(matches!(view.write_at(5, b"x"), Err(Error::Timeout { .. })));
    assert_eq!(view.page(0).unwrap()[5], 1);
    device.open();
    view.write_at(5, b"x").unwrap();
    view.flush().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[5], b'x');
}

/// Stores and flushes of the same pages for a while: all of it comes to an end, and the last store
/// is in the file.
#[test]
fn writers_and_flushes_of_the_same_pages_get_by_each_other() {
    for order in [0, 3] {
        let dir = Dir::new();
        let path = make_file(&dir, 64 * PAGE);
        let pager = Pager::builder().max(Size::mib(4)).build().unwrap();
        let options = OpenOptions::new().write(true).folio_order(order).stable_writes(true);
        let view = options.open(&pager, &path).unwrap();
        let (stop, flushes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    view.flush().unwrap();
                    flushes.fetch_add(1, SeqCst);
                }
            });
            let writers: Vec<_> = (1..3)
                .map(|value| {
                    let (view, flushes) = (&view, &flushes);
                    scope.spawn(move || {
                        // The flushing thread may get a processor late.
                        let goes_on = |i: u64| i < 300 || flushes.load(SeqCst) < 3;
                        for i in (0..).take_while(|i| goes_on(*i)) {
                            view.write_at(i % 48 * PAGE, &[value; 16 * PAGE as usize]).unwrap();
                        }
                        view.write_at(0, &[9; 64 * PAGE as usize]).unwrap();
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            stop.store(true, SeqCst);
        });
        view.flush().unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 9));
        pager.validate().unwrap();
    }
}
