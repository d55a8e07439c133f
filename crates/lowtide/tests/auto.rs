//! A limit that sets itself follows what a program really needs, within its bounds.

use lowtide::budget::AutoLimits;
use lowtide::{OpenOptions, Pager, Size, Tenant, TenantError, View};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Long enough on any machine: a test that gets this far has failed.
const PATIENCE: Duration = Duration::from_secs(120);

fn make(dir: &Path, bytes: u64) -> std::path::PathBuf {
    let path = dir.join("data");
    std::fs::write(&path, vec![7; bytes as usize]).unwrap();
    path
}

/// A file of some bytes, and a tenant whose limit sets itself between 1 MiB and `most`.
fn opened(dir: &Path, bytes: u64, most: u64) -> (Pager, Tenant, View) {
    let path = make(dir, bytes);
    let pager = Pager::builder().max(Size::mib(64)).build().unwrap();
    let tenant = pager.tenant("a").create().unwrap();
    tenant.set_auto(AutoLimits::new(Size::mib(1), Size::mib(most))).unwrap();
    let view = OpenOptions::new().tenant(&tenant).open(&pager, &path).unwrap();
    (pager, tenant, view)
}

/// Reads pages at random below a page until something is true of the tenant.
fn read_until(view: &View, below: u64, tenant: &Tenant, mut done: impl FnMut(&Tenant) -> bool) {
    let (began, mut random) = (Instant::now(), 1_u64);
    while !done(tenant) {
        let limit = tenant.auto().unwrap();
        assert!(began.elapsed() < PATIENCE, "{limit:?} {:?}", tenant.pressure().unwrap());
        for _ in 0..200 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            assert_eq!(view.page(random % below).unwrap()[0], 7);
        }
        std::thread::yield_now();
    }
}

fn high(tenant: &Tenant) -> u64 {
    tenant.limits().unwrap().high.bytes()
}

#[test]
fn a_tenant_gets_what_it_uses_and_gives_back_what_it_uses_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (pager, tenant, view) = opened(dir.path(), 24 * MIB, 32);
    assert_eq!(high(&tenant), MIB, "it begins with little");
    assert_eq!(tenant.limits().unwrap().max, Size::mib(32));
    let pages = 16 * MIB / 4096;
    read_until(&view, pages, &tenant, |tenant| high(tenant) >= 14 * MIB);
    assert!(high(&tenant) <= 32 * MIB);
    read_until(&view, pages / 8, &tenant, |tenant| {
        high(tenant) <= 11 * MIB && tenant.usage().unwrap() <= 12 * MIB
    });
    let stat = tenant.auto().unwrap().expect("its limit sets itself");
    assert!(stat.grown > 0 && stat.shrunk > 0, "{stat:?}");
    assert!(stat.least_bytes == MIB && stat.most_bytes >= 14 * MIB, "{stat:?}");
    assert!(stat.refaults > 0 && stat.waited > Duration::ZERO, "{stat:?}");
    // Frames that no page needs have no memory: those of the large phase have gone back.
    let kept = pager.stat().resident_bytes;
    assert!(kept <= tenant.usage().unwrap() + 6 * MIB, "{kept}");
}

#[test]
fn a_tenant_that_is_not_accessed_gives_memory_back_while_the_program_computes() {
    let dir = tempfile::tempdir().unwrap();
    let (_pager, tenant, view) = opened(dir.path(), 8 * MIB, 32);
    // What is in memory must be well above the least, to which it gives back. A slow device lets
    // the limit grow long before that much has come in.
    read_until(&view, 8 * MIB / 4096, &tenant, |tenant| {
        high(tenant) >= 6 * MIB && tenant.usage().unwrap() >= 6 * MIB
    });
    let (began, before) = (Instant::now(), tenant.usage().unwrap());
    while tenant.usage().unwrap() > before / 3 {
        assert!(began.elapsed() < PATIENCE, "{:?}", tenant.auto().unwrap());
        // A fifth of a processor is not idle, and leaves the rest to other tests.
        let computing = Instant::now();
        while computing.elapsed() < Duration::from_millis(4) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_millis(16));
    }
    // It may shrink while pages are still active. A limit that had made the pages leave by
    // shrinking would be as small as what is left.
    let left = tenant.usage().unwrap();
    assert!(high(&tenant) >= left / 4 * 5, "it is idle, not small: {:?}", tenant.auto().unwrap());
}

#[test]
fn the_root_can_have_such_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path(), 24 * MIB);
    let auto = AutoLimits::new(Size::mib(1), Size::mib(32));
    let pager = Pager::builder().max(Size::mib(32)).build().unwrap();
    let (root, view) = (pager.root(), pager.open(&path).unwrap());
    root.set_auto(auto).unwrap();
    read_until(&view, 16 * MIB / 4096, &root, |root| high(root) >= 14 * MIB);
    assert_eq!(root.limits().unwrap().max, Size::mib(32));
}

#[test]
fn a_scan_gets_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (_pager, tenant, view) = opened(dir.path(), 48 * MIB, 16);
    for _ in 0..6 {
        for page in 0..view.page_count() {
            drop(view.page(page).unwrap());
        }
    }
    assert!(high(&tenant) <= 2 * MIB, "{:?}", tenant.auto().unwrap());
}

#[test]
fn guards_on_more_than_the_limit_cost_no_operation() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path(), 16 * MIB);
    let builder = Pager::builder().max(Size::mib(32)).memory_timeout(Duration::ZERO);
    let pager = builder.build().unwrap();
    let tenant = pager.tenant("a").create().unwrap();
    tenant.set_auto(AutoLimits::new(Size::mib(1), Size::mib(16))).unwrap();
    let view = OpenOptions::new().tenant(&tenant).open(&pager, &path).unwrap();
    let guards: Vec<_> = (0..8 * MIB / 4096).map(|page| view.page(page).unwrap()).collect();
    let began = Instant::now();
    // Misses are what shows that the limit is too low: a tenant that waits for nothing may keep it.
    for page in (8 * MIB / 4096..16 * MIB / 4096).cycle() {
        if high(&tenant) >= 8 * MIB {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", tenant.auto().unwrap());
        drop(view.page(page).unwrap());
    }
    drop(guards);
}

#[test]
fn other_settings_end_it_or_are_refused() {
    let pager = Pager::builder().max(Size::mib(8)).build().unwrap();
    let tenant = pager.tenant("a").create().unwrap();
    let (least, most) = (Size::mib(2), Size::mib(1));
    for wrong in [
        AutoLimits::new(least, most),
        AutoLimits::new(0, most),
        AutoLimits::new(most, Size::MAX),
        AutoLimits::new(most, least).with_target(f64::NAN),
        AutoLimits::new(most, least).with_target(2.0),
    ] {
        let refused = tenant.set_auto(wrong);
        assert!(matches!(refused, Err(TenantError::AutoLimits { .. })), "{wrong:?}");
    }
    assert_eq!((tenant.auto().unwrap(), high(&tenant)), (None, u64::MAX));
    let bounds = AutoLimits::new(most, least);
    tenant.set_auto(bounds).unwrap();
    assert_eq!(tenant.auto().unwrap().map(|stat| stat.limits), Some(bounds));
    let _ = tenant.set_high(Size::mib(1)).unwrap();
    assert_eq!((tenant.auto().unwrap(), high(&tenant)), (None, MIB));
    tenant.set_auto(bounds).unwrap();
    tenant.set_auto(None).unwrap();
    assert_eq!(tenant.auto().unwrap(), None);
    assert_eq!(high(&tenant), u64::MAX);
    tenant.set_auto(bounds).unwrap();
    tenant.remove().unwrap();
    assert!(matches!(tenant.auto(), Err(TenantError::Gone)));
    let alone = Pager::builder().max(Size::mib(8)).background(false).build().unwrap();
    let refused = alone.tenant("a").create().unwrap().set_auto(bounds);
    assert!(matches!(refused, Err(TenantError::NoBackground)));
}
