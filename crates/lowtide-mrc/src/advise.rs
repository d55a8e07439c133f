//! The smallest sufficient budget.
//!
//! A curve gives two sizes between which a miss ratio is reached. Bisection with one replay per
//! step narrows the bracket to at most 1 % of the answer, or to one page. So the answer was
//! measured and is sufficient, and the size below it was measured and is not.
//!
//! That is the smallest such size if more memory never causes more misses. Strict LRU and OPT
//! guarantee that; real policies do not (CLOCK's is the anomaly of L. A. Belady, R. A. Nelson, G.
//! S. Shedler, "An anomaly in space-time characteristics of certain programs running in a paging
//! machine", CACM 12(6), 1969, for FIFO). So the advice also measures a slightly larger size, keeps
//! all measurements, and lists any larger sizes that were *not* sufficient.

use super::curve::{Curve, Gap, Point};
use super::next_use::NextUse;
use super::player::System;
use super::replay::{Outcome, Replay};
use super::run::{MrcError, Run};
use super::stack::StackDistances;
use super::watch::Watch;
use crate::baseline::Baseline;

/// The bracket is narrow enough when the answer is at least this many times its width.
const PRECISION: u64 = 100;
/// Budgets above the footprint that are tried when the footprint itself is insufficient, in percent
/// of it: an engine keeps some pages free and evicts in batches, so it may need more pages than the
/// footprint.
const BEYOND_PERCENT: [u64; 4] = [110, 125, 150, 200];

/// The result for one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The policy's name.
    pub policy: String,
    /// The miss ratio that was requested, from 0 to 1.
    pub target: f64,
    /// The miss ratio of the cold misses alone. No budget gets below it.
    pub floor: f64,
    /// The answer.
    pub verdict: Verdict,
    /// All measured points, including the curve's, smallest size first.
    pub tried: Vec<Point>,
    /// Sizes that the policy rejected, smallest first.
    pub refused: Vec<Gap>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// A sufficient budget.
    Enough {
        /// The budget and its own run.
        at: Point,
        /// The largest smaller budget that was tried, unless the policy rejected it: it is not
        /// sufficient. At most 1 % or one page less, unless `at` is one page.
        below: Option<Point>,
        /// The smallest budget above that was measured.
        above: Option<Point>,
        /// Larger budgets that were measured and are *not* sufficient: the policy is not monotonic
        /// here. Choose a budget above them if that matters.
        relapses: Vec<Point>,
    },
    /// The cold misses alone exceed the target: [`Advice::floor`] is above it.
    BelowFloor,
    /// No tried budget is sufficient, though the cold misses are below the target. Budgets up to
    /// twice the footprint were tried.
    NotReached {
        /// The smallest budget with the fewest misses. `None` if the policy rejected all.
        best: Option<Point>,
    },
}

impl Run<'_> {
    /// The smallest budget with which the policy misses at most the share `target` of its accesses,
    /// starting from its `curve` of the same tape.
    ///
    /// Costs one pass over the tape for strict LRU (the answer is exact), otherwise some 8 to 15
    /// passes on one thread.
    ///
    /// # Errors
    /// [`MrcError::Target`] unless `target` is from 0 to 1, and those of [`curves`](Self::curves).
    pub fn advise(
        &self,
        system: &System<'_>,
        target: f64,
        curve: &Curve,
    ) -> Result<Advice, MrcError> {
        if !(0.0..=1.0).contains(&target) {
            return Err(MrcError::Target(target));
        }
        if self.tape.accesses() == 0 {
            return Err(MrcError::NoAccess);
        }
        let floor = self.tape.cold() as f64 / self.tape.accesses() as f64;
        let mut search =
            Search { target, tried: curve.points.clone(), refused: curve.gaps.clone() };
        let verdict =
            if floor > target { Verdict::BelowFloor } else { self.search(system, &mut search)? };
        search.tried.sort_unstable_by_key(|point| point.pages);
        search.refused.sort_unstable_by_key(|gap| gap.pages);
        let Search { tried, refused, .. } = search;
        Ok(Advice { policy: system.name().to_owned(), target, floor, verdict, tried, refused })
    }

    fn search(&self, system: &System<'_>, search: &mut Search) -> Result<Verdict, MrcError> {
        let footprint = u64::from(self.tape.distinct());
        let passes = match system {
            System::Baseline(Baseline::Lru) => 1,
            _ => search.passes(footprint),
        };
        let watch = Watch::new(self.stop, self.progress, passes * self.tape.len());
        let next_use = match system {
            System::Baseline(Baseline::Opt) => Some(NextUse::watched(self.tape, &watch)?),
            _ => None,
        };
        let distances = match system {
            System::Baseline(Baseline::Lru) => Some(StackDistances::watched(self.tape, &watch)?),
            _ => None,
        };
        let replay = Replay { tape: self.tape, next_use: next_use.as_ref(), watch: &watch };
        let measure = |search: &mut Search, pages: u64| {
            let outcome = match &distances {
                Some(distances) => Outcome::Measured(replay.point(pages, distances.misses(pages))),
                None => replay.measure(system, pages)?,
            };
            Ok::<_, MrcError>(search.note(outcome))
        };

        for percent in [100].into_iter().chain(BEYOND_PERCENT) {
            if search.smallest_enough().is_some() {
                break;
            }
            measure(search, (footprint * percent).div_ceil(100))?;
        }
        let Some(mut upper) = search.smallest_enough() else {
            return Ok(Verdict::NotReached { best: search.best() });
        };
        let precision =
            |pages: u64| if distances.is_some() { 1 } else { (pages / PRECISION).max(1) };
        let mut lower = search.largest_below(upper);
        while upper - lower > precision(upper) {
            let middle = lower + (upper - lower) / 2;
            if measure(search, middle)? {
                upper = middle;
            } else {
                lower = middle;
            }
        }
        if !search
            .tried
            .iter()
            .any(|point| point.pages > upper && point.pages - upper <= precision(upper))
        {
            measure(search, upper + precision(upper))?;
        }
        Ok(search.verdict(upper))
    }
}

/// The state of the search.
struct Search {
    target: f64,
    tried: Vec<Point>,
    refused: Vec<Gap>,
}

impl Search {
    fn enough(&self, point: &Point) -> bool {
        point.miss_ratio() <= self.target
    }

    /// Stores the result of a size and returns whether it is sufficient.
    fn note(&mut self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Measured(point) => {
                self.tried.retain(|known| known.pages != point.pages);
                self.tried.push(point);
                self.enough(&point)
            }
            Outcome::Refused(gap) => {
                self.refused.retain(|known| known.pages != gap.pages);
                self.refused.push(gap);
                false
            }
        }
    }

    fn smallest_enough(&self) -> Option<u64> {
        self.tried.iter().filter(|point| self.enough(point)).map(|point| point.pages).min()
    }

    /// The largest tried size below `pages`, or 0. It is not sufficient if `pages` is the smallest
    /// sufficient one.
    fn largest_below(&self, pages: u64) -> u64 {
        let tried = self.tried.iter().map(|point| point.pages);
        let refused = self.refused.iter().map(|gap| gap.pages);
        tried.chain(refused).filter(|&other| other < pages).max().unwrap_or(0)
    }

    fn best(&self) -> Option<Point> {
        self.tried.iter().min_by_key(|point| (point.misses, point.pages)).copied()
    }

    /// Approximate number of passes over the tape that the search needs.
    fn passes(&self, footprint: u64) -> u64 {
        let upper = self.smallest_enough().unwrap_or(footprint);
        let bracket = (upper - self.largest_below(upper)) / (upper / PRECISION).max(1);
        u64::from(bracket.max(1).ilog2()) + 2
    }

    fn verdict(&self, upper: u64) -> Verdict {
        let at = |pages: u64| self.tried.iter().find(|point| point.pages == pages).copied();
        let larger = || self.tried.iter().filter(|point| point.pages > upper);
        let mut relapses: Vec<Point> =
            larger().filter(|point| !self.enough(point)).copied().collect();
        relapses.sort_unstable_by_key(|point| point.pages);
        match at(upper) {
            Some(point) => Verdict::Enough {
                at: point,
                below: at(self.largest_below(upper)),
                above: larger().min_by_key(|point| point.pages).copied(),
                relapses,
            },
            None => Verdict::NotReached { best: self.best() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mixed, op, quietly, tape, zipf};
    use crate::{Player, PlayerError, Tape, spread};
    use lowtide_workload::{OpKind, SpaceId};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn ask(tape: &Tape, system: &System<'_>, target: f64) -> Advice {
        let run = quietly(tape, 2);
        let sizes = spread(u64::from(tape.distinct()), 20);
        let curve = run.curves(std::slice::from_ref(system), &sizes).unwrap().remove(0);
        run.advise(system, target, &curve).unwrap()
    }

    #[test]
    fn the_answer_is_enough_and_one_percent_less_is_not() {
        let tape = tape(&zipf(3000, 60_000, 5));
        for baseline in Baseline::ALL {
            let advice = ask(&tape, &System::Baseline(baseline), 0.3);
            let Verdict::Enough { at, below: Some(below), above: Some(above), .. } = advice.verdict
            else {
                panic!("{advice:?}");
            };
            assert!(at.miss_ratio() <= 0.3 && below.miss_ratio() > 0.3, "{baseline}");
            assert!(
                at.pages - below.pages <= (at.pages / 100).max(1) && above.pages > at.pages,
                "{baseline}"
            );
        }
    }

    #[test]
    fn the_answer_for_strict_lru_is_exact() {
        let tape = tape(&mixed(1));
        let distances =
            StackDistances::of(&tape, &std::sync::atomic::AtomicBool::new(false)).unwrap();
        let advice = ask(&tape, &System::Baseline(Baseline::Lru), 0.4);
        let Verdict::Enough { at, .. } = advice.verdict else { panic!("{advice:?}") };
        assert_eq!(Some(at.pages), distances.smallest_with((tape.accesses() as f64 * 0.4) as u64));
    }

    #[test]
    fn cold_misses_above_the_target_are_said_to_be_the_floor() {
        let tape = tape(&[op(OpKind::Read, 0, 0, 10), op(OpKind::Read, 0, 0, 10)]);
        let advice = ask(&tape, &System::Baseline(Baseline::Clock), 0.49);
        assert_eq!((advice.verdict, advice.floor), (Verdict::BelowFloor, 0.5));
        let advice = ask(&tape, &System::Baseline(Baseline::Clock), 0.5);
        assert!(
            matches!(
                advice.verdict,
                Verdict::Enough { at: Point { pages: 10, misses: 10, .. }, .. }
            ),
            "{advice:?}"
        );
    }

    #[test]
    fn targets_that_are_no_ratio_are_refused() {
        let tape = tape(&zipf(10, 100, 1));
        let system = System::Baseline(Baseline::Clock);
        let run = quietly(&tape, 1);
        let curve = run.curves(std::slice::from_ref(&system), &[5]).unwrap().remove(0);
        for target in [f64::NAN, -0.1, 1.5, f64::INFINITY] {
            assert!(matches!(run.advise(&system, target, &curve), Err(MrcError::Target(_))));
        }
    }

    /// Misses a given number of each thousand accesses.
    struct Script {
        misses_per_mille: u64,
        count: u64,
    }

    impl Player for Script {
        fn play(&mut self, _: OpKind, _: SpaceId, _: u64) -> Result<bool, PlayerError> {
            self.count += 1;
            Ok(self.count % 1000 >= self.misses_per_mille)
        }
    }

    fn scripted(pages: u64, misses_per_mille: u64) -> Result<Box<dyn Player>, PlayerError> {
        if pages < 32 {
            return Err("at least 32 pages are needed".into());
        }
        Ok(Box::new(Script { misses_per_mille, count: 0 }))
    }

    #[test]
    fn larger_budgets_that_are_worse_again_are_named() {
        let tape = tape(&zipf(1000, 20_000, 2));
        let distinct = u64::from(tape.distinct());
        // Sufficient from 300 pages on, but not between 600 and 699.
        let make = |pages: u64| {
            scripted(pages, if pages < 300 || (600..700).contains(&pages) { 200 } else { 100 })
        };
        let system = System::Player { name: "odd".to_owned(), make: &make };
        let run = quietly(&tape, 1);
        let curve = run
            .curves(std::slice::from_ref(&system), &[10, 200, 400, 650, distinct])
            .unwrap()
            .remove(0);
        let advice = run.advise(&system, 0.15, &curve).unwrap();
        let Verdict::Enough { at, below, relapses, .. } = advice.verdict else {
            panic!("{advice:?}")
        };
        assert!((300..=303).contains(&at.pages), "{at:?}");
        assert!(below.is_some_and(|below| (297..300).contains(&below.pages)), "{below:?}");
        assert_eq!(relapses.iter().map(|point| point.pages).collect::<Vec<_>>(), [650]);
        assert_eq!(advice.refused[0].pages, 10);
    }

    #[test]
    fn budgets_above_the_footprint_are_tried_before_giving_up() {
        let tape = tape(&zipf(100, 20_000, 2));
        let most = AtomicU64::new(0);
        let make = |pages: u64| {
            most.fetch_max(pages, Ordering::Relaxed);
            scripted(pages, if pages < 140 { 200 } else { 100 })
        };
        let system = System::Player { name: "hungry".to_owned(), make: &make };
        let advice = ask(&tape, &system, 0.15);
        assert!(
            matches!(advice.verdict, Verdict::Enough { at: Point { pages: 140, .. }, .. }),
            "{advice:?}"
        );
        let advice = ask(&tape, &system, 0.05);
        let Verdict::NotReached { best: Some(best) } = advice.verdict else { panic!("{advice:?}") };
        assert!(best.miss_ratio() < 0.11, "{advice:?}");
        assert_eq!(most.load(Ordering::Relaxed), 200);
    }
}
