//! Live miss-ratio curves: what a pager says about other budgets than its own.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use crate::common::mapped::{PAGE, file, or_skip, word};
use lowtide::budget::{Curve, Share};
use lowtide::map::{MapMode, MapOptions};
use lowtide::{OpenOptions, Pager, Size, Tenant, View};
use std::time::Duration;

/// A pager without background threads: it looks at its sample when a curve is wanted.
fn pager(pages: u64) -> Pager {
    let size = Size::new(pages * PAGE as u64);
    Pager::builder().max(size).background(false).build().unwrap()
}

fn root(pager: &Pager) -> Curve {
    pager.root().curve().unwrap().unwrap()
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE as u64
}

/// Reads some pages through guards, and looks.
fn read(pager: &Pager, view: &View, pages: impl Iterator<Item = u64>) {
    for page in pages {
        drop(view.page(page).unwrap());
    }
    root(pager);
}

#[test]
fn a_circle_needs_room_for_all_of_it_whatever_the_budget_is() {
    let file = file(2000);
    for budget in [200, 4000] {
        let pager = pager(budget);
        let view = pager.open(file.path()).unwrap();
        for _ in 0..20 {
            for first in (0..1000).step_by(50) {
                read(&pager, &view, first..first + 50);
            }
        }
        let curve = root(&pager);
        let enough = curve.budget_for(0.01) / PAGE as u64;
        assert!((900..1150).contains(&enough), "{enough} pages, with a budget of {budget}");
        assert!(curve.ratio_at(bytes(850)) > 0.9, "{curve}");
        assert_eq!(curve.footprint(), bytes(1000));
        assert!((curve.accesses() - 20_000.0).abs() < 2100.0, "{}", curve.accesses());
        assert_eq!(curve.first_accesses(), 1000.0);
        let missed = if budget == 200 { 20_000.0 } else { 1000.0 };
        assert!((curve.missed() - missed).abs() < 1100.0, "{}", curve.missed());
    }
}

#[test]
fn the_advice_for_a_single_pass_is_that_no_budget_helps() {
    let file = file(2000);
    let pager = pager(4000);
    let view = pager.open(file.path()).unwrap();
    read(&pager, &view, 0..2000);
    let advice = pager.root().budget_for_misses(0.02).unwrap().unwrap();
    assert!(advice.to_string().ends_with("no budget helps"), "{advice}");
}

#[test]
fn the_advice_names_a_budget_what_it_misses_and_where_thrashing_begins() {
    let file = file(2000);
    let pager = pager(4000);
    let view = pager.open(file.path()).unwrap();
    for round in 0..40 {
        // Three quarters of the accesses go to 100 pages, the others round and round.
        for first in (0..900).step_by(100) {
            let part = 100 + (round * 900 + first) % 1800;
            read(&pager, &view, (0..100).chain(part..part + 33).map(|page| page % 2000));
        }
    }
    let advice = pager.root().budget_for_misses(0.02).unwrap().unwrap();
    assert!(advice.bytes > bytes(500) && advice.ratio < advice.first + 0.021, "{advice:?}");
    let text = advice.to_string();
    assert!(text.starts_with("with ") && text.contains("% of accesses miss"), "{text}");
    assert!(text.contains("being the first") && text.contains("more than half"), "{text}");
    assert_eq!(Size::from(advice).bytes(), advice.bytes);
}

#[test]
fn tenants_and_files_have_curves_of_their_own() {
    let (a, b) = (file(1000), file(1000));
    let pager = pager(4000);
    assert_eq!(pager.root().curve().unwrap(), None, "nothing was accessed");
    let tenant = pager.tenant("a").create().unwrap();
    let in_a = OpenOptions::new().tenant(&tenant).open(&pager, a.path()).unwrap();
    let in_b = pager.open(b.path()).unwrap();
    for _ in 0..10 {
        read(&pager, &in_a, 0..100);
        for first in (0..1000).step_by(100) {
            read(&pager, &in_b, first..first + 100);
        }
    }
    let of_tenant = tenant.curve().unwrap().unwrap();
    assert_eq!((of_tenant.footprint(), root(&pager).footprint()), (bytes(100), bytes(1100)));
    assert_eq!(in_b.curve().unwrap().footprint(), bytes(1000));
    assert!(
        of_tenant.ratio_at(bytes(120)) < 0.2 && in_b.curve().unwrap().ratio_at(bytes(120)) > 0.9
    );
    drop((in_a, in_b));
    tenant.remove().unwrap();
    assert!(tenant.curve().is_err());
}

#[test]
fn reads_through_descriptors_and_pages_that_were_read_ahead_count() {
    let file = file(1000);
    let pager = pager(4000);
    let view = pager.open(file.path()).unwrap();
    let mut buf = vec![0; bytes(100) as usize];
    for _ in 0..5 {
        for first in (0..1000).step_by(100) {
            view.read_at(bytes(first), &mut buf).unwrap();
            root(&pager);
        }
    }
    let curve = view.curve().unwrap();
    assert_eq!((curve.footprint(), curve.accesses()), (bytes(1000), 5000.0));
    assert!(curve.ratio_at(bytes(700)) > 0.9 && curve.ratio_at(bytes(1100)) < 0.21, "{curve}");
}

#[test]
fn stores_through_descriptors_count() {
    let file = file(1000);
    let pager = pager(4000);
    let view = OpenOptions::new().write(true).open(&pager, file.path()).unwrap();
    let buf = vec![7; bytes(100) as usize];
    for _ in 0..5 {
        for first in (0..1000).step_by(100) {
            view.write_at(bytes(first), &buf).unwrap();
            root(&pager);
        }
    }
    let curve = view.curve().unwrap();
    assert_eq!((curve.footprint(), curve.accesses()), (bytes(1000), 5000.0));
}

#[test]
fn touches_through_a_pointer_count() {
    let file = file(1000);
    for mode in [MapMode::Userfault, MapMode::PageCache] {
        let pager = Pager::builder().max(Size::new(bytes(2048))).build().unwrap();
        // SAFETY: no one changes the file.
        let made = unsafe { MapOptions::new().mode(mode).map(&pager, file.as_file()) };
        let Some(map) = or_skip(made) else { continue };
        for _ in 0..5 {
            for first in (0..1000).step_by(100) {
                for page in first..first + 100 {
                    assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
                }
                // In the page cache pages are noticed some time later.
                std::thread::sleep(Duration::from_millis(20));
                root(&pager);
            }
        }
        let curve = root(&pager);
        let pages = curve.footprint() / PAGE as u64;
        assert!((900..=1000).contains(&pages), "{mode:?}: {pages}");
        // In the page cache neighbours come with a page.
        let accesses = curve.accesses();
        assert!(accesses > 3000.0 && accesses < 9000.0, "{mode:?}: {accesses}");
        assert!(curve.ratio_at(bytes(1100)) < 0.5, "{mode:?}: {curve}");
    }
}

#[test]
fn a_single_pass_through_a_pointer_is_one_access_to_a_page_however_slow_it_is() {
    let file = file(8000);
    let pager = Pager::builder().max(Size::new(bytes(4096))).build().unwrap();
    // SAFETY: no one changes the file.
    let made = unsafe { MapOptions::new().mode(MapMode::Userfault).map(&pager, file.as_file()) };
    let Some(map) = or_skip(made) else { return };
    // Windows of 256 pages are read ahead, which wait for many looks until they are touched.
    for first in (0..8000).step_by(20) {
        for page in first..first + 20 {
            assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64);
        }
        root(&pager);
    }
    assert!(pager.stat().io.ahead_pages > 4000, "{:?}", pager.stat().io);
    let curve = root(&pager);
    let again = curve.accesses() / curve.first_accesses();
    assert!(again < 1.02, "{again} accesses to a page: {curve}");
    let advice = curve.advice(0.02).to_string();
    assert!(advice.ends_with("no budget helps"), "{advice}");
}

/// Two files under one budget of 600 pages: most accesses are of 5000 pages at random, and every
/// fifth of 400. So most of what is in memory is of the first, and each page of it is used seldom.
/// Returns the misses of the last part.
fn misses_when(share: impl Fn(&Pager) -> Vec<Tenant>, policy: &str) -> u64 {
    let (wide, narrow) = (file(5000), file(400));
    let size = Size::new(bytes(600));
    // Pages that stay compressed would be a third part, which is not divided.
    let pager = Pager::builder().max(size).background(false).zcache(false);
    let pager = pager.policy(policy.parse().unwrap()).build().unwrap();
    let tenants = share(&pager);
    let open = |tenant: &Tenant, of: &tempfile::NamedTempFile| {
        OpenOptions::new().tenant(tenant).read_ahead(0).open(&pager, of.path()).unwrap()
    };
    let (wide, narrow) = (open(&tenants[0], &wide), open(&tenants[1], &narrow));
    let (mut seed, mut half) = (1_u64, 0);
    let mut random = |pages| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % pages
    };
    for step in 0..20_000_u64 {
        for _ in 0..4 {
            drop(wide.page(random(5000)).unwrap());
        }
        drop(narrow.page(random(400)).unwrap());
        if step % 10 == 0 {
            root(&pager);
        }
        if step % 1000 == 0 && pager.root().share().unwrap() == Share::ByBenefit {
            // As the background thread does.
            pager.root().set_share(Share::ByBenefit).unwrap();
        }
        if step == 12_000 {
            half = pager.stat().misses;
        }
    }
    pager.validate().unwrap();
    pager.stat().misses - half
}

#[test]
fn a_budget_divided_by_benefit_misses_less_than_equal_parts() {
    let tenants = |pager: &Pager, max: Size| -> Vec<Tenant> {
        ["wide", "narrow"].map(|name| pager.tenant(name).max(max).create().unwrap()).into()
    };
    let half = Size::new(bytes(300));
    let policy = "mglru";
    let equal = misses_when(|pager| tenants(pager, half), policy);
    let common = misses_when(|pager| tenants(pager, Size::MAX), policy);
    let by_benefit = |pager: &Pager| {
        pager.root().set_share(Share::ByBenefit).unwrap();
        tenants(pager, Size::MAX)
    };
    let by_benefit = misses_when(by_benefit, policy);
    eprintln!("{policy}: equal {equal}, in common {common}, by benefit {by_benefit}");
    // With room for all of the narrow file 96 % of the accesses to the other miss: 30720.
    assert!(by_benefit < 32_000, "{by_benefit}");
    assert!(by_benefit * 100 < equal * 98, "{by_benefit}, {equal} in equal parts");
    assert!(by_benefit * 100 < common * 98, "{by_benefit}, {common} in common");
}
