//! Curves of known streams.

use super::*;
use proptest::prelude::*;

const SPACE: SpaceId = SpaceId(3);
const ROOT: MemcgId = MemcgId::ROOT;
const PLAIN: Kind = Kind { order: 0, dear: false };

/// Strict LRU, by moving pages to the front: misses at each size of `sizes`.
fn lru(stream: &[u64], sizes: &[u64]) -> Vec<u64> {
    let mut misses = vec![0; sizes.len()];
    let mut stack: Vec<u64> = Vec::new();
    for page in stream {
        let found = stack.iter().position(|at| at == page);
        if let Some(at) = found {
            stack.remove(at);
        }
        for (misses, size) in misses.iter_mut().zip(sizes) {
            *misses += u64::from(found.is_none_or(|at| at as u64 >= *size));
        }
        stack.insert(0, *page);
    }
    misses
}

fn played(stream: &[u64], per_interval: usize) -> Reuse {
    let mut reuse = Reuse::default();
    for (at, part) in stream.chunks(per_interval).enumerate() {
        for &page in part {
            if reuse.samples(SPACE, page) {
                let _ = reuse.note((SPACE, page), PLAIN, ROOT, false);
            }
        }
        reuse.end_interval(at as u64 * 100_000_000, |_| None);
    }
    reuse
}

/// Pages with a popularity that falls with the page, without a pattern.
fn skewed(pages: u64, accesses: usize) -> Vec<u64> {
    let mut seed = 7_u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / (1_u64 << 31) as f64
    };
    (0..accesses).map(|_| (pages as f64 * next().powi(3)) as u64).collect()
}

#[test]
fn one_access_an_interval_is_exact_up_to_the_width_of_a_bucket() {
    let stream = skewed(300, 20_000);
    let curve = played(&stream, 1).of_group(ROOT).unwrap();
    let sizes: Vec<u64> = curve.points.iter().skip(1).map(|point| point.pages).collect();
    for (size, misses) in sizes.iter().zip(lru(&stream, &sizes)) {
        let ratio = misses as f64 / stream.len() as f64;
        assert!((curve.ratio(*size) - ratio).abs() < 0.005, "{size}: {ratio}");
    }
    assert!((250..=300).contains(&curve.footprint));
    assert!(curve.error < 1e-9, "every page is in the sample: {}", curve.error);
}

#[test]
fn a_sample_of_many_pages_is_within_two_points() {
    let stream = skewed(60_000, 300_000);
    let reuse = played(&stream, 10);
    let curve = reuse.of_space(SPACE).unwrap();
    assert!(curve.samples <= FILE_MOST as u64 && curve.samples > FILE_MOST as u64 / 4);
    let sizes = [500, 2_000, 8_000, 20_000, 40_000];
    let truth = exact(&stream, &sizes);
    for (size, truth) in sizes.iter().zip(truth) {
        let found = curve.misses(*size) / stream.len() as f64;
        assert!((found - truth).abs() < 0.02, "{size}: {found}, and it is {truth}");
    }
    assert!(curve.error / (stream.len() as f64) < 0.02, "{}", curve.error);
}

/// The share of misses at some sizes, by counting what was last accessed after each page's last.
fn exact(stream: &[u64], sizes: &[u64]) -> Vec<f64> {
    let mut tree = vec![0_i64; stream.len() + 1];
    let add = |tree: &mut Vec<i64>, mut at: usize, by: i64| {
        at += 1;
        while at < tree.len() {
            tree[at] += by;
            at += at & at.wrapping_neg();
        }
    };
    let sum = |tree: &[i64], mut at: usize| {
        let mut sum = 0;
        while at > 0 {
            sum += tree[at];
            at -= at & at.wrapping_neg();
        }
        sum
    };
    let mut last = BTreeMap::new();
    let mut misses = vec![0_u64; sizes.len()];
    for (at, page) in stream.iter().enumerate() {
        let distance = last.insert(*page, at).map(|before| {
            add(&mut tree, before, -1);
            (sum(&tree, at) - sum(&tree, before)) as u64
        });
        add(&mut tree, at, 1);
        for (misses, size) in misses.iter_mut().zip(sizes) {
            *misses += u64::from(distance.is_none_or(|distance| distance >= *size));
        }
    }
    misses.iter().map(|&misses| misses as f64 / stream.len() as f64).collect()
}

#[test]
fn a_loop_hits_only_with_room_for_all_of_it() {
    let stream: Vec<u64> = (0..40).flat_map(|_| 0..10_000).collect();
    let curve = played(&stream, 200).of_group(ROOT).unwrap();
    assert!(curve.ratio(8_500) > 0.95, "{}", curve.ratio(8_500));
    assert!(curve.ratio(11_500) < 0.04, "{}", curve.ratio(11_500));
    let enough = curve.pages_for(0.01);
    assert!((9_000..11_500).contains(&enough), "{enough}");
}

#[test]
fn each_group_has_its_own_curve_and_those_above_have_all() {
    let (a, b) = (group(1), group(2));
    let mut reuse = Reuse::default();
    let parent = |id: MemcgId| (id != ROOT).then_some(ROOT);
    for interval in 0..200_u64 {
        for page in 0..10 {
            let _ = reuse.note((SpaceId(1), page), PLAIN, a, false);
        }
        let _ = reuse.note((SpaceId(2), interval % 100), PLAIN, b, true);
        reuse.end_interval(interval * 1_000_000, parent);
    }
    let of = |group| reuse.of_group(group).unwrap();
    assert_eq!((of(a).footprint, of(b).footprint, of(ROOT).footprint), (10, 100, 110));
    assert!(of(a).ratio(20) < 0.01 && of(b).ratio(60) > 0.99);
    assert_eq!((of(a).missed, of(b).missed), (0.0, 200.0));
    assert!((of(ROOT).accesses - 2200.0).abs() < 1e-6);
}

#[test]
fn pages_and_groups_that_are_gone_leave_nothing() {
    let (a, parent) = (group(1), |id: MemcgId| (id != ROOT).then_some(ROOT));
    let mut reuse = Reuse::default();
    for page in 0..1000 {
        let _ = reuse.note((SPACE, page), PLAIN, a, false);
    }
    reuse.end_interval(1, parent);
    reuse.forget(SPACE, 0..400);
    assert_eq!(reuse.of_group(ROOT).unwrap().footprint, 600);
    assert_eq!(reuse.of_space(SPACE).unwrap().footprint, 600);
    let _ = reuse.note((SPACE, 500), PLAIN, ROOT, false);
    reuse.end_interval(2, parent);
    assert_eq!(reuse.of_group(a).unwrap().footprint, 599, "the page has moved up");
    reuse.forget_group(a);
    assert_eq!(reuse.of_group(a), None);
    assert_eq!(reuse.of_group(ROOT).unwrap().footprint, 600);
    reuse.forget_space(SPACE);
    assert_eq!((reuse.of_group(ROOT).unwrap().footprint, reuse.cost), (0, 0));
}

#[test]
fn a_large_folio_counts_for_all_its_pages() {
    let mut reuse = Reuse::default();
    for interval in 0..20_u64 {
        for folio in 0..10 {
            let _ = reuse.note((SPACE, folio * 16), Kind { order: 4, dear: false }, ROOT, false);
        }
        reuse.end_interval(interval, |_| None);
    }
    let curve = reuse.of_space(SPACE).unwrap();
    assert_eq!((curve.footprint, curve.cold), (160, 160.0));
    assert!(curve.ratio(60) > 0.9 && curve.ratio(170) < 0.06, "{curve:?}");
}

fn group(number: u16) -> MemcgId {
    MemcgId { slot: crate::units::MemcgSlot(number), serial: 0 }
}

proptest! {
    /// Whatever happens, sums stay what the pages say.
    #[test]
    fn the_stacks_have_the_weights_of_the_pages(
        steps in prop::collection::vec((0_u8..6, 0_u64..40_000, 0_u16..4), 1..400),
    ) {
        let mut reuse = Reuse::default();
        let mut tree = [0_u16; 4];
        for (at, (kind, page, number)) in steps.into_iter().enumerate() {
            let payer = if number == 0 { ROOT } else { group(number) };
            match kind {
                0..=2 => for page in page..page + 300 {
                    if reuse.samples(SPACE, page) {
                        let _ = reuse.note((SPACE, page), PLAIN, payer, kind == 2);
                    }
                },
                3 => reuse.forget(SPACE, page..page + 1000),
                5 => for page in page..page + 50 {
                    reuse.expect((SPACE, page), PLAIN, payer);
                },
                4 => tree[number as usize] = u16::from(number == 3),
                _ => {}
            }
            let parent = |id: MemcgId| {
                let above = tree[id.slot.0 as usize];
                (id != ROOT).then(|| if above == 0 { ROOT } else { group(above) })
            };
            reuse.end_interval(at as u64, parent);
            let weight = |file: &File| {
                let known = file.pages.values().filter(|sample| sample.last.is_some());
                known.count() as f64 * file.weight()
            };
            let pages: f64 = reuse.files.values().map(weight).sum();
            let root = reuse.groups.get(&ROOT);
            let curve = reuse.of_group(ROOT);
            prop_assert_eq!(curve.map_or(0, |curve| curve.footprint), pages as u64);
            prop_assert!(reuse.cost <= MOST && (root.is_some() || pages == 0.0));
        }
    }
}
