//! What `Stat` says about hits and misses, to who decides how large the budget is.

use crate::common::{Dir, make_file};
use lowtide::{OpenOptions, Pager, Size, Stat, View};
use std::hint::black_box;

const PAGE: u64 = 4096;
/// Hits that one sample stands for, as documented at `Stat::hits`.
const SAMPLE: u64 = 1024;

/// A pager with a budget of `pages` pages.
fn pager(pages: u64) -> Pager {
    let builder = Pager::builder().max(pages * PAGE);
    builder.policy("lru".parse().unwrap()).build().unwrap()
}

/// A pager, with a file of 16 pages that are all in memory.
fn resident() -> (Dir, Pager, View) {
    let dir = Dir::new();
    let (pager, path) = (pager(1024), make_file(&dir, 16 * PAGE));
    let view = pager.open(path).unwrap();
    view.read_to_vec(0..16 * PAGE).unwrap();
    (dir, pager, view)
}

fn hit(view: &View, times: u64) {
    for i in 0..times {
        black_box(view.page(i % 16).unwrap()[7]);
    }
}

#[test]
fn hits_of_every_kind_of_read_are_counted_within_two_samples() {
    let (_dir, pager, view) = resident();
    let begun = pager.stat();
    assert_eq!(begun.misses, 16);
    let (mut true_hits, mut bytes) = (0, [0; 100]);
    let pages: Vec<u64> = (0..16).collect();
    let mut check = |more: u64, what: &str| {
        true_hits += more;
        let stat = pager.stat();
        let error = (stat.hits - begun.hits).abs_diff(true_hits);
        assert!(error < 2 * SAMPLE, "{what}: {error} of {true_hits}");
        assert_eq!(stat.misses, 16, "{what}");
    };
    hit(&view, 100_000);
    check(100_000, "guards");
    for i in 0..50_000 {
        view.read_at(i % 15 * PAGE + PAGE - 50, &mut bytes).unwrap();
    }
    check(100_000, "read_at of two pages");
    for i in 0..50_000 {
        view.read_at(i % 16 * PAGE, &mut bytes).unwrap();
    }
    check(50_000, "read_at of one page");
    for _ in 0..5000 {
        view.get_many(&pages, |_, page| assert_eq!(page.len(), 4096)).unwrap();
    }
    check(80_000, "get_many");
    for _ in 0..2 {
        // Held twice: the second guard of a page takes another way.
        let _held: Vec<_> = pages.iter().map(|&page| view.page(page).unwrap()).collect();
        hit(&view, 20_000);
        check(20_016, "guards beside guards");
    }
    assert!(pager.stat().hit_ratio_since(&begun) == Some(1.0));
    assert!(pager.stat().hit_ratio().unwrap() > 0.999);
}

#[test]
fn a_scan_that_does_not_fit_has_no_hits_whether_it_is_read_ahead_or_not() {
    let dir = Dir::new();
    let path = make_file(&dir, 1024 * PAGE);
    for ahead in ["0", "1M"] {
        let pager = pager(128);
        let view = OpenOptions::new()
            .read_ahead(ahead.parse::<Size>().unwrap())
            .open(&pager, &path)
            .unwrap();
        assert_eq!(pager.stat().hit_ratio(), None, "nothing was read yet");
        let mut piece = vec![0; 32 * PAGE as usize];
        for _ in 0..2 {
            for page in 0..1024 {
                black_box(view.page(page).unwrap()[7]);
            }
            for page in (0..1024).step_by(32) {
                view.read_at(page * PAGE, &mut piece).unwrap();
            }
            for page in (0..1024_u64).step_by(32) {
                let pages: Vec<u64> = (page..page + 32).collect();
                view.get_many(&pages, |_, page| assert_eq!(page.len(), 4096)).unwrap();
            }
        }
        let stat = pager.stat();
        assert!(
            (5800..=6144).contains(&stat.misses),
            "read ahead {ahead}: {} of 6144",
            stat.misses
        );
        assert!(stat.hits <= 2 * SAMPLE, "read ahead {ahead}: {}", stat.hits);
        assert!(
            ahead == "0" || stat.io.ahead_used > 1000,
            "some of it was read ahead: {:?}",
            stat.io
        );
    }
}

#[test]
fn stores_are_neither_hits_nor_misses() {
    let dir = Dir::new();
    let pager = pager(1024);
    let view = OpenOptions::new().write(true).open(&pager, make_file(&dir, 64 * PAGE)).unwrap();
    for i in 0..10_000 {
        view.write_at(i % 64 * PAGE + 9, b"a part of a page").unwrap();
    }
    let Stat { hits, misses, .. } = pager.stat();
    assert_eq!((hits, misses), (0, 0));
}

#[test]
fn two_pagers_of_one_thread_are_told_apart() {
    let ((_a_dir, a, in_a), (_b_dir, b, in_b)) = (resident(), resident());
    let begun = (a.stat(), b.stat());
    let hits = || [a.stat().hits - begun.0.hits, b.stat().hits - begun.1.hits];
    hit(&in_a, 500_000);
    let [of_a, of_b] = hits();
    assert!(of_a.abs_diff(500_000) < 2 * SAMPLE && of_b == 0, "{of_a} {of_b}");
    hit(&in_b, 300_000);
    let [of_a, of_b] = hits();
    assert!(of_a.abs_diff(500_000) < 2 * SAMPLE, "{of_a}");
    assert!(of_b.abs_diff(300_000) < 2 * SAMPLE, "{of_b}");
    // In turns, two to one: 3000 samples of which each is one or the other's; ten standard
    // deviations are allowed.
    for _ in 0..1_048_576 {
        hit(&in_a, 2);
        hit(&in_b, 1);
    }
    let [then_a, then_b] = hits();
    let (of_a, of_b) = (then_a - of_a, then_b - of_b);
    assert!((of_a + of_b).abs_diff(3 << 20) < 2 * SAMPLE, "{of_a} {of_b}");
    assert!(of_a.abs_diff(2 << 20) < 270 * SAMPLE, "{of_a} {of_b}");
}

#[test]
fn threads_that_hit_a_few_times_each_are_counted_in_sum() {
    let (_dir, pager, view) = resident();
    let begun = pager.stat();
    // 400 samples are expected; ten standard deviations are allowed.
    for _ in 0..800 {
        std::thread::scope(|scope| drop(scope.spawn(|| hit(&view, 512)).join()));
    }
    let hits = pager.stat().hits - begun.hits;
    assert!(hits.abs_diff(800 * 512) < 150 * SAMPLE, "{hits}");
}

#[test]
fn a_stat_is_lines_of_names_and_numbers_without_an_empty_one() {
    let (_dir, pager, view) = resident();
    hit(&view, 10_000);
    let stat = pager.stat();
    let text = format!("{stat}\n");
    assert!(text.starts_with(&stat.memory.to_string()), "memory.stat comes first");
    assert!(text.ends_with(&format!("\nhits {}\nmisses 16\n", stat.hits)), "{text}");
    let is_fine = |line: &str| line.split_once(' ').is_some_and(|(_, n)| n.parse::<u64>().is_ok());
    assert!(text.lines().all(is_fine), "{text}");
}
