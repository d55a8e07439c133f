//! Dividing memory among those whose curves are known, so that few accesses miss.
//!
//! Each page should go where it saves the most misses. A curve may be flat for long and fall at its
//! end, as that of a loop does: then a page alone saves nothing, and many together save much, if
//! all of them can be had. So at each turn one looks ahead: of all amounts that are left, which one
//! saves the most misses per page, and for whom? (Qureshi and Patt, "Utility-Based Cache
//! Partitioning", MICRO 2006.)

use super::curve::{ReuseCurve, at};

/// See [`divide`].
const AT_ONCE: u64 = 2;

/// Divides `pages` by the misses of the last minutes. Who has no curve gets nothing; what no one
/// has a use for is divided evenly.
///
/// Each gets room for what it accesses in `AT_ONCE` intervals first, if all do: of smaller sizes
/// a curve says too little.
///
/// Cost: O(points²) at most; points, mostly.
#[must_use]
pub fn divide(pages: u64, curves: &[Option<ReuseCurve>]) -> Vec<u64> {
    let least = |curve: &Option<ReuseCurve>| {
        curve.as_ref().map_or(0, |curve| curve.footprint.min(AT_ONCE * curve.at_once))
    };
    let mut parts: Vec<u64> = curves.iter().map(least).collect();
    if parts.iter().sum::<u64>() > pages {
        parts.fill(0);
    }
    let mut left = pages - parts.iter().sum::<u64>();
    loop {
        let steps = curves.iter().zip(&parts).map(|(curve, &has)| best(curve.as_ref()?, has, left));
        let best = steps.enumerate().filter_map(|(at, step)| Some((at, step?)));
        let Some((at, (_, to))) = best.max_by(|a, b| a.1.0.total_cmp(&b.1.0)) else { break };
        left -= to - parts[at];
        parts[at] = to;
    }
    let each = left / curves.len().max(1) as u64;
    parts.iter_mut().for_each(|part| *part += each);
    parts
}

/// Of the sizes that can be had with `left` pages more, the one that saves the most misses for each
/// of them, and how many it saves; `None` if none saves any.
fn best(curve: &ReuseCurve, has: u64, left: u64) -> Option<(f64, u64)> {
    let from = curve.recent.partition_point(|point| point.pages <= has);
    let now = at(&curve.recent, has);
    let possible = curve.recent[from..].iter().take_while(|point| point.pages <= has + left);
    let saved =
        possible.map(|point| ((now - point.misses) / (point.pages - has) as f64, point.pages));
    saved.filter(|step| step.0 > 0.0).max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::super::curve::Point;
    use super::*;
    use proptest::prelude::*;

    fn curve(points: &[(u64, f64)]) -> ReuseCurve {
        let points: Vec<_> =
            points.iter().map(|&(pages, misses)| Point { pages, misses }).collect();
        ReuseCurve {
            seconds: 1.0,
            accesses: 1.0,
            cold: 0.0,
            missed: 0.0,
            samples: 0,
            error: 0.0,
            error_of_ratio: 0.0,
            recent: points.clone(),
            points,
            footprint: 0,
            at_once: 0,
        }
    }

    #[test]
    fn a_loop_that_fits_gets_its_room_and_one_that_does_not_gets_none() {
        let skewed = curve(&[(0, 100.0), (10, 50.0), (20, 30.0), (40, 20.0), (100, 10.0)]);
        let short = curve(&[(0, 1000.0), (50, 1000.0), (60, 0.0)]);
        let long = curve(&[(0, 500.0), (999, 500.0), (1000, 0.0)]);
        let curves = [Some(skewed), Some(short), Some(long), None];
        assert_eq!(divide(100, &curves), [40, 60, 0, 0]);
        assert_eq!(divide(59, &curves), [44, 4, 4, 4], "no part of a step");
        assert_eq!(divide(2000, &curves), [100 + 210, 60 + 210, 1000 + 210, 210]);
        assert_eq!(divide(100, &[]), [0; 0]);
    }

    proptest! {
        /// On curves without cliffs no other division saves more.
        #[test]
        fn the_parts_fit_and_moving_a_page_saves_nothing(
            drops in prop::collection::vec(prop::collection::vec(0.0_f64..100.0, 1..20), 1..5),
            pages in 0_u64..60,
        ) {
            let curves: Vec<Option<ReuseCurve>> = drops.iter().map(|drops| {
                let mut drops = drops.clone();
                drops.sort_by(|a, b| b.total_cmp(a));
                let mut misses: f64 = drops.iter().sum();
                let mut points = vec![(0, misses)];
                for (at, drop) in (1..).zip(drops) {
                    misses -= drop;
                    points.push((at, misses));
                }
                Some(curve(&points))
            }).collect();
            let parts = divide(pages, &curves);
            prop_assert!(parts.iter().sum::<u64>() <= pages);
            let misses = |of: usize, pages| at(&curves[of].as_ref().unwrap().recent, pages);
            for from in 0..parts.len() {
                for to in 0..parts.len() {
                    if parts[from] > 0 && from != to {
                        let lost = misses(from, parts[from] - 1) - misses(from, parts[from]);
                        let saved = misses(to, parts[to]) - misses(to, parts[to] + 1);
                        prop_assert!(saved <= lost + 1e-6);
                    }
                }
            }
        }
    }
}
