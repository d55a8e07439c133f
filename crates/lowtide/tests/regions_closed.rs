//! Regions and tenants that end while threads reclaim: nothing of them is left, whatever the
//! patience of the pager and however long the device of the swap file takes.

use crate::common::eventually;
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{Pager, PagerBuilder, Region, Size, SwapOptions, Tenant, TenantError};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const PAGE: u64 = 4096;

/// Writes of the swap file hang until the gate is opened.
#[derive(Debug, Default)]
struct Device {
    hangs: AtomicBool,
    gate: Gate,
    met: AtomicU64,
}

impl Device {
    fn open(&self) {
        self.hangs.store(false, SeqCst);
        self.gate.open();
    }

    fn await_request(&self) {
        eventually("a write of the swap file", || self.met.load(SeqCst) > 0);
    }
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if !self.hangs.load(SeqCst) || request.op != InjectOp::Write {
            return Verdict::Pass;
        }
        self.met.fetch_add(1, SeqCst);
        Verdict::Hang(self.gate.clone())
    }
}

/// A page that does not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    (0..PAGE / 8).flat_map(next).collect()
}

fn builder(device: &Arc<Device>, dir: &tempfile::TempDir) -> PagerBuilder {
    let swap = SwapOptions::compressed(Size::kib(256)).file(dir.path(), Size::mib(64));
    Pager::builder()
        .max(Size::mib(8))
        .swap(swap)
        .inject(Arc::<Device>::clone(device))
        .background(false)
}

/// Nothing is charged to a tenant, and nothing is in swap, in the end; nor is the pager there when
/// all handles are gone.
fn ends_with_nothing(pager: Pager, tenant: Tenant, device: Arc<Device>) {
    pager.validate().unwrap();
    // What is charged ahead is given back, too.
    let _ = tenant.set_max(Size::new(0)).unwrap();
    let used = || (tenant.usage().unwrap(), tenant.swap_usage().unwrap());
    eventually("all is given back", || used() == (0, 0));
    assert_eq!(pager.swap_file().map_or(0, |file| file.used), 0);
    let gone = Arc::downgrade(&device);
    drop((pager, tenant, device));
    eventually("the pager is gone", || gone.upgrade().is_none());
}

#[test]
fn regions_that_are_dropped_beside_a_reclaim_leave_nothing_whatever_the_patience() {
    for patience in [0, 1] {
        let (device, dir) = (Arc::new(Device::default()), tempfile::tempdir().unwrap());
        let pager = builder(&device, &dir).memory_timeout(Duration::from_millis(patience));
        let pager = pager.build().unwrap();
        let tenant = pager.tenant("t").max(Size::mib(4)).create().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    tenant.reclaim(Size::mib(1)).unwrap();
                }
            });
            for _ in 0..60 {
                let Ok(heap) = tenant.region(2 << 20) else { continue };
                for page in 0..heap.page_count() {
                    let _ = heap.write_at(page * PAGE, &[page as u8; PAGE as usize]);
                }
            }
            over.store(true, SeqCst);
        });
        ends_with_nothing(pager, tenant, device);
    }
}

/// A region whose pages a thread writes to the swap file, which hangs.
fn hanging(device: &Arc<Device>, dir: &tempfile::TempDir) -> (Pager, Tenant, Region) {
    let pager = builder(device, dir).memory_timeout(Duration::from_millis(50)).build().unwrap();
    let tenant = pager.tenant("t").max(Size::mib(4)).create().unwrap();
    let heap = tenant.region(3 << 20).unwrap();
    for page in 0..heap.page_count() {
        heap.write_at(page * PAGE, &noise(page)).unwrap();
    }
    device.hangs.store(true, SeqCst);
    (pager, tenant, heap)
}

#[test]
fn a_region_that_is_dropped_while_its_pages_are_written_to_swap_goes_when_the_device_answers() {
    let (device, dir) = (Arc::new(Device::default()), tempfile::tempdir().unwrap());
    let (pager, tenant, heap) = hanging(&device, &dir);
    std::thread::scope(|scope| {
        scope.spawn(|| tenant.reclaim(Size::mib(1)).unwrap());
        device.await_request();
        drop(heap);
        device.open();
    });
    ends_with_nothing(pager, tenant, device);
}

#[test]
fn a_tenant_whose_pages_are_written_to_swap_is_busy_and_is_removed_when_the_device_answers() {
    let (device, dir) = (Arc::new(Device::default()), tempfile::tempdir().unwrap());
    let (pager, tenant, heap) = hanging(&device, &dir);
    std::thread::scope(|scope| {
        scope.spawn(|| tenant.reclaim(Size::mib(1)));
        device.await_request();
        // A step for each millisecond of the patience would not fit.
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let removed = small.spawn_scoped(scope, || tenant.remove()).unwrap().join();
        assert_eq!(removed.unwrap(), Err(TenantError::Busy));
        device.open();
    });
    tenant.remove().unwrap();
    let found = (0..heap.page_count()).all(|page| heap.page(page).unwrap()[..] == noise(page));
    assert!(found, "the region of a tenant that was removed keeps its contents");
    drop((heap, tenant));
    let other = pager.tenant("u").create().unwrap();
    ends_with_nothing(pager, other, device);
}

#[test]
fn a_guard_that_was_forgotten_keeps_its_page_and_no_more() {
    let (device, dir) = (Arc::new(Device::default()), tempfile::tempdir().unwrap());
    let pager = builder(&device, &dir).build().unwrap();
    for stores in [false, true] {
        let tenant = pager.tenant("t").max(Size::mib(1)).create().unwrap();
        let heap = tenant.region(3 << 20).unwrap();
        for page in 0..heap.page_count() {
            heap.write_at(page * PAGE, &noise(page)).unwrap();
        }
        if stores {
            std::mem::forget(heap.page_mut(7).unwrap());
        } else {
            std::mem::forget(heap.page(7).unwrap());
        }
        drop(heap);
        assert_eq!((tenant.swap_usage().unwrap(), pager.swap_file().unwrap().used), (0, 0));
        // What is charged ahead is given back, too.
        let _ = tenant.set_max(Size::new(0)).unwrap();
        assert_eq!(tenant.usage().unwrap(), PAGE);
        pager.validate().unwrap();
        tenant.remove().unwrap();
    }
    let gone = Arc::downgrade(&device);
    drop((pager, device));
    eventually("the pager is gone", || gone.upgrade().is_none());
}

#[test]
fn pages_are_stored_to_in_the_destructor_of_a_thread_local() {
    struct OnExit(RefCell<Option<Region>>);
    impl Drop for OnExit {
        fn drop(&mut self) {
            if let Some(heap) = self.0.borrow_mut().take() {
                let mut guards: Vec<_> = (0..20).map(|page| heap.page_mut(page).unwrap()).collect();
                guards.iter_mut().for_each(|page| page.fill(2));
                assert!(heap.page_mut(20).is_ok() && heap.page(0).is_err(), "it is held here");
            }
        }
    }
    thread_local! {
        static ON_EXIT: OnExit = const { OnExit(RefCell::new(None)) };
    }
    let pager = Pager::builder().max(Size::mib(4)).build().unwrap();
    let heap = pager.root().region(1 << 20).unwrap();
    let of_thread = heap.clone();
    let thread = std::thread::spawn(move || {
        // Registered before anything of the pager's, so its destructor is the last.
        ON_EXIT.with(|on_exit| *on_exit.0.borrow_mut() = Some(of_thread.clone()));
        of_thread.page_mut(0).unwrap().fill(1);
    });
    thread.join().unwrap();
    assert!((0..20).all(|page| heap.page(page).unwrap().iter().all(|byte| *byte == 2)));
}
