//! What a user of tenants relies on: limits that hold, a tree that may change at any time, and one
//! budget for pages and for the program's own memory.

use crate::common::{Dir, byte_at, local_events};
use lowtide::{
    Error, OpenError, OpenOptions, Pager, Settled, Size, Tenant, TenantError, TenantLimits, View,
};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

/// A pager of `max` pages that does not wait for long.
fn pager(max: u64) -> Pager {
    Pager::builder().max(pages(max)).memory_timeout(Duration::from_millis(50)).build().unwrap()
}

/// A file of `n` pages with known contents.
fn file(dir: &Dir, name: &str, n: u64) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, (0..n * PAGE).map(byte_at).collect::<Vec<_>>()).unwrap();
    path
}

fn touch(view: &View, list: impl IntoIterator<Item = u64>) {
    for page in list {
        let bytes = view.page(page).unwrap();
        assert!(bytes.iter().zip(page * PAGE..).all(|(b, at)| *b == byte_at(at)), "page {page}");
    }
}

/// Pages of files that a tenant holds, without what is charged in advance.
fn resident(tenant: &Tenant) -> u64 {
    tenant.stat().unwrap().file
}

#[test]
fn usage_stays_within_max_while_a_larger_file_is_read() {
    let dir = Dir::new();
    let path = file(&dir, "data", 512);
    let pager = pager(1024);
    let small = pager.tenant("small").max(pages(100)).create().unwrap();
    let view = small.open(&path).unwrap();
    for page in 0..512 {
        touch(&view, [page]);
        assert!(small.usage().unwrap() <= 100 * PAGE);
    }
    assert!(resident(&small) > 60, "the budget is used");
    assert_eq!(pager.stat().memory.file, resident(&small), "what a tenant uses its ancestors use");
    let events = small.events().unwrap();
    assert!(events.max > 0 && events.oom == 0);
    assert_eq!(local_events(&pager.root(), "max"), 0);
    assert_eq!(pager.root().events().unwrap().max, events.max, "events go up");
    assert!(small.stat().unwrap().events.pgmajfault >= 512);
    pager.validate().unwrap();
}

#[test]
fn a_tenant_of_a_few_pages_works() {
    let dir = Dir::new();
    let path = file(&dir, "data", 64);
    let pager = pager(256);
    for policy_max in [1, 2, 3, 5, 33] {
        let tiny = pager.tenant("tiny").max(pages(policy_max)).create().unwrap();
        let view = tiny.open(&path).unwrap();
        touch(&view, (0..64).chain(0..64));
        assert_eq!(tiny.events().unwrap().oom, 0, "max {policy_max}");
        assert!(tiny.usage().unwrap() <= policy_max * PAGE);
        pager.validate().unwrap();
        drop(view);
        tiny.remove().unwrap();
    }
}

#[test]
fn a_limit_of_an_ancestor_holds_for_everything_below_it() {
    let dir = Dir::new();
    let path = file(&dir, "data", 300);
    let other = file(&dir, "other", 300);
    let pager = pager(1024);
    let top = pager.tenant("top").max(pages(120)).create().unwrap();
    let mid = top.child("mid").create().unwrap();
    let (a, b) = (mid.child("a").create().unwrap(), mid.child("b").create().unwrap());
    let (one, two) = (a.open(&path).unwrap(), b.open(&other).unwrap());
    for page in 0..300 {
        touch(&one, [page]);
        touch(&two, [299 - page]);
        assert!(top.usage().unwrap() <= 120 * PAGE);
        assert!(a.usage().unwrap() + b.usage().unwrap() <= mid.usage().unwrap());
    }
    assert!(resident(&a) > 0 && resident(&b) > 0);
    assert!(local_events(&top, "max") > 0 && a.events().unwrap().max == 0);
    pager.validate().unwrap();
}

#[test]
fn protected_pages_stay_while_others_fill_the_budget() {
    let dir = Dir::new();
    let path = file(&dir, "data", 100);
    let large = file(&dir, "large", 4096);
    let pager = pager(512);
    let kept = pager.tenant("kept").min(pages(200)).create().unwrap();
    let view = kept.open(&path).unwrap();
    touch(&view, 0..100);
    let scan = pager.tenant("scan").create().unwrap();
    let flood = scan.open(&large).unwrap();
    touch(&flood, 0..4096);
    assert_eq!(resident(&kept), 100);
    let before = kept.stat().unwrap().events.pgmajfault;
    touch(&view, 0..100);
    assert_eq!(kept.stat().unwrap().events.pgmajfault, before, "all of it is still there");
}

#[test]
fn a_min_above_max_protects_from_others_and_not_from_max() {
    let dir = Dir::new();
    let path = file(&dir, "data", 200);
    let large = file(&dir, "large", 2048);
    let pager = pager(512);
    let odd = pager.tenant("odd").min(pages(300)).max(pages(50)).create().unwrap();
    assert_eq!(odd.limits().unwrap().min, pages(300), "taken as it is");
    let view = odd.open(&path).unwrap();
    touch(&view, 0..200);
    assert!(odd.usage().unwrap() <= 50 * PAGE, "its own limit holds");
    let before = resident(&odd);
    let flood = pager.open(&large).unwrap();
    touch(&flood, 0..2048);
    assert_eq!(resident(&odd), before, "others take nothing of it");
    assert_eq!(odd.events().unwrap().oom, 0);
    pager.validate().unwrap();
}

#[test]
fn lowering_max_evicts_and_says_whether_that_was_enough() {
    let dir = Dir::new();
    let path = file(&dir, "data", 200);
    let pager = pager(512);
    let t = pager.tenant("t").create().unwrap();
    let view = t.open(&path).unwrap();
    touch(&view, 0..200);
    assert_eq!(t.set_max(pages(80)).unwrap(), Settled::Yes);
    assert!(t.usage().unwrap() <= 80 * PAGE);
    let guards: Vec<_> = (0..40).map(|page| view.page(page).unwrap()).collect();
    assert_eq!(t.set_max(pages(10)).unwrap(), Settled::Later, "forty pages are held");
    assert_eq!(t.limits().unwrap().max, pages(10), "it is set all the same");
    assert_eq!((t.usage().unwrap(), t.events().unwrap().oom), (40 * PAGE, 1));
    assert!(matches!(view.page(100), Err(Error::OutOfBudget { .. })));
    drop(guards);
    touch(&view, 0..200);
    assert!(t.usage().unwrap() <= 10 * PAGE);
    assert!(t.peak().unwrap() >= 200 * PAGE);
    pager.validate().unwrap();
}

#[test]
fn above_high_whoever_charged_evicts_before_he_charges_more() {
    let dir = Dir::new();
    let path = file(&dir, "data", 600);
    let pager = pager(1024);
    let t = pager.tenant("t").high(pages(100)).create().unwrap();
    let view = t.open(&path).unwrap();
    for page in 0..300 {
        touch(&view, [page]);
        // A batch may have been charged in advance before the debt was noticed, and the debt is
        // paid at the next miss.
        assert!(t.usage().unwrap() <= (100 + 2 * 64) * PAGE);
    }
    view.get_many(&(300..600).collect::<Vec<_>>(), |_, _| ()).unwrap();
    assert!(t.usage().unwrap() <= (100 + 64) * PAGE);
    let events = t.events().unwrap();
    assert!(events.high > 0 && events.oom == 0 && events.max == 0);
    assert_eq!(t.set_high(pages(40)).unwrap(), Settled::Yes);
    assert!(t.usage().unwrap() <= 40 * PAGE);
    pager.validate().unwrap();
}

#[test]
fn reclaim_on_request_frees_what_was_asked_for() {
    let dir = Dir::new();
    let path = file(&dir, "data", 300);
    let pager = pager(512);
    let t = pager.tenant("t").create().unwrap();
    // Only what is requested: a late read-ahead would bring pages in again.
    let view = OpenOptions::new().tenant(&t).read_ahead(pages(0)).open(&pager, &path).unwrap();
    touch(&view, 0..300);
    let before = resident(&t);
    let freed = t.reclaim(pages(100)).unwrap();
    assert!((100 * PAGE..200 * PAGE).contains(&freed));
    assert_eq!(resident(&t), before - freed / PAGE);
    assert_eq!(t.stat().unwrap().events.pgsteal_proactive, freed / PAGE);
    assert_eq!(
        t.reclaim(Size::MAX).unwrap(),
        resident(&t) * PAGE + before * PAGE - freed,
        "and then nothing is left"
    );
    assert_eq!(t.reclaim(pages(0)).unwrap(), 0);
}

#[test]
fn a_tenant_that_is_removed_leaves_everything_to_its_parent() {
    let dir = Dir::new();
    let path = file(&dir, "data", 100);
    let pager = pager(512);
    let parent = pager.tenant("parent").create().unwrap();
    let child = parent.child("child").create().unwrap();
    // Only what is requested: the test counts pages.
    let view = OpenOptions::new().tenant(&child).read_ahead(pages(0)).open(&pager, &path).unwrap();
    let mut reserved = child.reserve(pages(10)).unwrap();
    touch(&view, 0..50);
    let counted = child.stat().unwrap().events;
    assert_eq!(parent.remove(), Err(TenantError::HasChildren { path: "/parent".into() }));
    child.remove().unwrap();
    assert!(is_gone(&child) && pager.find("parent/child").is_none());
    assert_eq!(child.usage(), Err(TenantError::Gone));
    assert_eq!(child.remove(), Err(TenantError::Gone));
    assert_eq!(
        parent.stat().unwrap().events.pgmajfault,
        counted.pgmajfault,
        "counts are added to the parent's"
    );
    assert_eq!((parent.usage().unwrap(), resident(&parent)), (60 * PAGE, 50));
    touch(&view, 0..100);
    assert_eq!(resident(&parent), 100, "the view goes on, and the parent pays");
    reserved.grow(pages(5)).unwrap();
    assert_eq!(parent.stat().unwrap().reserved, 15);
    drop(reserved);
    assert_eq!(parent.stat().unwrap().reserved, 0);
    let again = parent.child("child").create().unwrap();
    assert!(again != child && is_gone(&child), "the old handle does not find the new tenant");
    drop(view);
    pager.validate().unwrap();
    again.remove().unwrap();
    parent.remove().unwrap();
    assert_eq!(pager.root().usage().unwrap(), 0);
    pager.validate().unwrap();
}

#[test]
fn a_tenant_that_is_moved_takes_its_charges_with_it() {
    let dir = Dir::new();
    let path = file(&dir, "data", 200);
    let pager = pager(512);
    let (a, b) =
        (pager.tenant("a").create().unwrap(), pager.tenant("b").max(pages(120)).create().unwrap());
    let child = a.child("child").create().unwrap();
    let view = child.open(&path).unwrap();
    touch(&view, 0..100);
    child.move_to(&b).unwrap();
    assert_eq!((a.usage().unwrap(), b.usage().unwrap()), (0, child.usage().unwrap()));
    assert_eq!(child.path().unwrap(), "/b/child");
    assert_eq!(child.parent().unwrap(), Some(b.clone()));
    touch(&view, 0..200);
    assert!(b.usage().unwrap() <= 120 * PAGE, "the new ancestors' limits hold");
    child.move_to(&a).unwrap();
    touch(&view, 0..200);
    assert!(child.usage().unwrap() >= 200 * PAGE);
    child.move_to(&b).unwrap();
    assert!(b.usage().unwrap() <= 120 * PAGE, "what does not fit was evicted first");
    let guards: Vec<_> = (0..50).map(|page| view.page(page).unwrap()).collect();
    let tight = pager.tenant("tight").max(pages(20)).create().unwrap();
    assert!(matches!(child.move_to(&tight), Err(TenantError::NoRoom { .. })));
    assert_eq!(child.path().unwrap(), "/b/child", "nothing has changed");
    drop(guards);
    assert_eq!(b.move_to(&child), Err(TenantError::Cycle));
    assert_eq!(pager.root().move_to(&b), Err(TenantError::Root));
    pager.validate().unwrap();
}

#[test]
fn a_handle_of_a_removed_tenant_never_finds_another_one() {
    let pager = pager(64);
    let old = pager.tenant("a").create().unwrap();
    old.remove().unwrap();
    // Each has the place of the one before: more often than a place has serial numbers.
    for _ in 0..70_000 {
        let tenant = pager.tenant("a").create().unwrap();
        assert!(old != tenant && is_gone(&old) && !is_gone(&tenant));
        tenant.remove().unwrap();
    }
    let last = pager.tenant("a").create().unwrap();
    let gone = [
        old.usage().map(drop),
        old.set_max(pages(32)).map(drop),
        old.reclaim(pages(1)).map(drop),
        old.rename("b"),
        old.move_to(&last),
        last.move_to(&old),
        old.child("c").create().map(drop),
        old.stat().map(drop),
        old.dirty().map(drop),
        old.remove(),
    ];
    assert!(gone.iter().all(|result| *result == Err(TenantError::Gone)), "{gone:?}");
    assert!(old.reserve(pages(1)).is_err());
    assert_eq!((last.limits().unwrap().max, last.usage()), (Size::MAX, Ok(0)));
    pager.validate().unwrap();
}

#[test]
fn names_are_unique_among_siblings_and_may_be_strange() {
    let pager = pager(64);
    let strange = [
        "..",
        ".",
        " ",
        "a b",
        "ünï/".trim_end_matches('/'),
        "\n",
        "💧",
        "memory.max",
        "%41",
        "a\\b",
        "-",
    ];
    for name in strange {
        let t = pager.tenant(name).create().unwrap();
        assert_eq!((&*t.name().unwrap(), pager.find(name)), (name, Some(t.clone())));
        let exists = TenantError::Exists { path: format!("/{name}") };
        assert_eq!(pager.tenant(name).create().unwrap_err(), exists);
    }
    for name in ["", "a/b", "/", "a\0"] {
        let Err(TenantError::InvalidName { name: refused, .. }) = pager.tenant(name).create()
        else {
            panic!("{name:?} was taken")
        };
        assert_eq!(refused, name);
    }
    let a = pager.tenant("a").create().unwrap();
    let b = a.child("b").create().unwrap();
    assert_eq!((pager.find("a/b"), pager.find("/a/b")), (Some(b.clone()), Some(b.clone())));
    assert_eq!(
        (pager.find(""), pager.find("a//b"), pager.find("a/b/")),
        (Some(pager.root()), None, None)
    );
    b.rename("c").unwrap();
    b.rename("c").unwrap();
    assert_eq!((b.path().unwrap().as_str(), pager.find("a/b")), ("/a/c", None));
    a.child("d").create().unwrap();
    assert_eq!(b.rename("d"), Err(TenantError::Exists { path: "/a/d".into() }));
    assert_eq!(
        pager.tenant("c").create().unwrap().move_to(&a),
        Err(TenantError::Exists { path: "/a/c".into() })
    );
    let names: Vec<_> =
        a.children().unwrap().iter().map(|t| t.name().unwrap().to_string()).collect();
    assert_eq!(names, ["c", "d"]);
    assert_eq!(pager.root().rename("x"), Err(TenantError::Root));
    assert_eq!(pager.root().path().unwrap(), "/");
}

#[test]
fn limits_are_rounded_down_to_pages_and_the_root_has_only_max() {
    let pager = pager(64);
    let t = pager
        .tenant("t")
        .min(Size::new(4095))
        .low(Size::new(4096))
        .high(Size::new(12_287))
        .create()
        .unwrap();
    let mut expected = TenantLimits::default();
    (expected.low, expected.high) = (pages(1), pages(2));
    assert_eq!(t.limits().unwrap(), expected);
    t.set_min(pages(3)).unwrap();
    t.set_low(pages(4)).unwrap();
    t.set_swap_max(pages(5)).unwrap();
    (expected.min, expected.low, expected.swap_max) = (pages(3), pages(4), pages(5));
    assert_eq!(t.limits().unwrap(), expected);
    let root = pager.root();
    assert_eq!(root.set_min(pages(1)), Err(TenantError::Root));
    assert_eq!(root.set_high(pages(1)), Err(TenantError::Root));
    assert_eq!(root.remove(), Err(TenantError::Root));
    for bad in [pages(31), pages(65), Size::MAX] {
        let Err(TenantError::RootBudget { min_bytes, .. }) = root.set_max(bad) else {
            panic!("{bad} is no budget of the root");
        };
        assert_eq!(min_bytes, 32 * PAGE);
    }
    assert_eq!(root.set_max(pages(40)).unwrap(), Settled::Yes);
    pager.validate().unwrap();
}

#[test]
fn a_view_of_a_tenant_of_another_pager_or_of_one_that_is_gone_is_refused() {
    let dir = Dir::new();
    let path = file(&dir, "data", 1);
    let (pager, other) = (pager(64), pager(64));
    let t = other.tenant("t").create().unwrap();
    let result = OpenOptions::new().tenant(&t).open(&pager, &path);
    assert!(matches!(result, Err(OpenError::Tenant { source: TenantError::OtherPager, .. })));
    assert_eq!(t.move_to(&pager.root()), Err(TenantError::OtherPager));
    t.remove().unwrap();
    assert!(matches!(t.open(&path), Err(OpenError::Tenant { source: TenantError::Gone, .. })));
    assert!(matches!(t.child("c").create(), Err(TenantError::Gone)));
    assert!(matches!(t.reserve(pages(1)), Err(Error::Tenant(TenantError::Gone))));
}

#[test]
fn reservations_and_pages_share_one_budget() {
    let dir = Dir::new();
    let path = file(&dir, "data", 200);
    let pager = pager(512);
    let t = pager.tenant("t").max(pages(100)).create().unwrap();
    let view = t.open(&path).unwrap();
    touch(&view, 0..200);
    let mut reserved = t.reserve(Size::new(60 * PAGE + 1)).unwrap();
    assert_eq!((reserved.bytes(), t.stat().unwrap().reserved), (60 * PAGE + 1, 61), "whole pages");
    assert_eq!(t.stat().unwrap().anon, 61);
    assert!(t.usage().unwrap() <= 100 * PAGE, "pages made room");
    touch(&view, 0..200);
    assert!(resident(&t) <= 39);
    pager.validate().unwrap();
    let Err(Error::OutOfBudget { report }) = reserved.grow(pages(40)) else {
        panic!("101 pages do not fit")
    };
    assert_eq!(
        (report.tenant.as_str(), report.stat.reserved, report.asked_bytes),
        ("/t", 61, 40 * PAGE)
    );
    assert_eq!(t.stat().unwrap().reserved, 61, "as it was");
    assert!(resident(&t) > 0, "what can never fit evicts nothing");
    reserved.grow(pages(38)).unwrap();
    assert_eq!(t.stat().unwrap().reserved, 99);
    touch(&view, 0..200);
    reserved.shrink(pages(90));
    assert_eq!(t.stat().unwrap().reserved, 9, "a part of a page is a page");
    let most = (0..200).map(|page| {
        touch(&view, [page]);
        resident(&t)
    });
    assert!(most.max() > Some(80), "pages have the room again");
    drop(reserved);
    assert_eq!(t.stat().unwrap().reserved, 0);
    pager.validate().unwrap();
}

#[test]
fn a_reservation_that_fails_half_way_charges_nothing() {
    let dir = Dir::new();
    let path = file(&dir, "data", 100);
    let pager = pager(512);
    let t = pager.tenant("t").max(pages(64)).create().unwrap();
    let view = t.open(&path).unwrap();
    let guards: Vec<_> = (0..30).map(|page| view.page(page).unwrap()).collect();
    assert!(matches!(t.reserve(pages(40)), Err(Error::OutOfBudget { .. })));
    assert_eq!((t.stat().unwrap().reserved, t.events().unwrap().oom), (0, 1));
    // Others may keep the processors for longer than the pager waits.
    let begun = Instant::now();
    let kept = loop {
        match t.reserve(pages(34)) {
            Err(_) if begun.elapsed() < Duration::from_secs(60) => {}
            reserved => break reserved.unwrap(),
        }
    };
    drop(guards);
    drop((kept, view));
    assert_eq!(pager.stat().memory.reserved, 0);
    pager.validate().unwrap();
}

fn is_gone(tenant: &Tenant) -> bool {
    tenant.usage() == Err(TenantError::Gone)
}
