//! The judgement: every policy on every trace at every budget, against the best of eight.
//!
//! A *case* is a trace at a budget. In each, the fewest misses of the eight are the *best*, and a
//! policy's *excess* is its misses over the best, less one: negative for a policy that beats them.
//! No policy of the eight has an excess of zero everywhere, or there would be nothing to build.
//! Misses include the first access of each page, as everywhere in this crate.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use lowtide_core::Policy;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_mrc::baseline::Baseline;
use lowtide_mrc::{
    Curve, MakePlayer, MrcError, Player, PlayerError, Progress, RecordError, Run, Storage, System,
    Tape,
};
use lowtide_sim::{Plain, PlainConfig, PlainSwap};
use lowtide_workload::SpaceKind;
use thiserror::Error;

use super::table::{Trace, TraceDamaged};

/// The policies whose fewest misses are the best.
pub const BEST_OF: [&str; 8] =
    ["mglru", "mglru-7.1", "lru", "strict-lru", "clock", "sieve", "s3-fifo", "arc"];
/// The excess that a policy may have anywhere.
pub const TOLERANCE: f64 = 0.02;
/// Budgets, as shares of the footprint.
const SMALLEST: f64 = 0.001;
const LARGEST: f64 = 0.8;
/// Slots of swap, for traces with heaps: more than any of them fills.
const SWAP_PAGES: u64 = 1 << 24;

/// A policy of the engine, or a textbook one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// On the plain machine.
    Engine(Policy),
    /// A textbook cache.
    Baseline(Baseline),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(policy) => policy.fmt(f),
            Self::Baseline(baseline) => baseline.fmt(f),
        }
    }
}

/// The name is neither a policy nor a baseline.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}; or a baseline: {names}", names = Baseline::ALL.map(Baseline::name).join(", "))]
pub struct UnknownSubject(lowtide_core::PolicyError);

impl FromStr for Subject {
    type Err = UnknownSubject;

    fn from_str(name: &str) -> Result<Self, UnknownSubject> {
        match name.parse() {
            Ok(baseline) => Ok(Self::Baseline(baseline)),
            Err(_) => name.parse().map(Self::Engine).map_err(UnknownSubject),
        }
    }
}

/// The reason why there is no judgement.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceDamaged),
    /// A trace cannot be replayed.
    #[error("cannot replay the trace `{trace}` of the corpus: {why}")]
    Replay {
        /// The trace.
        trace: &'static str,
        /// The reason.
        why: String,
    },
    /// The stop flag was set.
    #[error("stopped before the corpus was played")]
    Cancelled,
}

/// A trace at a budget.
#[derive(Clone, Debug)]
pub struct Case {
    /// The trace.
    pub trace: &'static Trace,
    /// Pages of the budget.
    pub pages: u64,
    /// Accesses.
    pub accesses: u64,
    /// By subject: its misses, if it accepts the budget.
    pub misses: Vec<Option<u64>>,
    /// The fewest misses of the eight.
    pub best: u64,
    /// The fewest misses possible.
    pub opt: u64,
}

impl Case {
    /// How much more than the best a subject misses, as a share of the best.
    #[must_use]
    pub fn excess(&self, subject: usize) -> Option<f64> {
        Some(self.misses[subject]? as f64 / self.best.max(1) as f64 - 1.0)
    }
}

/// How a subject stands over some cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Cells with a result.
    pub cases: u64,
    /// Mean excess.
    pub mean: f64,
    /// Largest excess, its trace and budget.
    pub worst: (f64, &'static str, u64),
    /// Cells whose excess is above [`TOLERANCE`].
    pub over: u64,
    /// Mean of misses over those of OPT, less one.
    pub to_opt: f64,
}

/// Every subject in every case.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The subjects' names.
    pub subjects: Vec<String>,
    /// The cases, by trace and budget.
    pub cases: Vec<Case>,
}

impl Judgement {
    /// The score of a subject over the cases that `of` selects, if there is any.
    #[must_use]
    pub fn score(&self, subject: usize, of: impl Fn(&Case) -> bool) -> Option<Score> {
        let mut sum =
            Score { cases: 0, mean: 0.0, worst: (f64::NEG_INFINITY, "", 0), over: 0, to_opt: 0.0 };
        for case in self.cases.iter().filter(|case| of(case)) {
            let Some(excess) = case.excess(subject) else { continue };
            sum.cases += 1;
            sum.mean += excess;
            sum.over += u64::from(excess > TOLERANCE);
            sum.to_opt += (1.0 + excess) * case.best.max(1) as f64 / case.opt.max(1) as f64 - 1.0;
            if excess > sum.worst.0 {
                sum.worst = (excess, case.trace.name, case.pages);
            }
        }
        let cases = sum.cases as f64;
        (sum.cases > 0).then(|| Score { mean: sum.mean / cases, to_opt: sum.to_opt / cases, ..sum })
    }
}

/// About `points` budgets for a footprint, by ratio from a thousandth, or the engine's least, to
/// four fifths; a footprint below the engine's least has one budget.
#[must_use]
pub fn budgets(footprint: u64, points: usize) -> Vec<u64> {
    let largest = (footprint as f64 * LARGEST).max(1.0);
    let smallest = (footprint as f64 * SMALLEST).max(MIN_BUDGET as f64).min(largest);
    let steps = points.max(2) - 1;
    let size = |i: usize| smallest * (largest / smallest).powf(i as f64 / steps as f64);
    let mut sizes: Vec<u64> = (0..=steps).map(|i| size(i).round() as u64).collect();
    sizes.dedup();
    sizes
}

/// How a judgement is made.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    /// Size of each trace; 1 is all of it.
    pub scale: f64,
    /// Budgets of each trace.
    pub points: usize,
    /// Threads.
    pub threads: NonZeroUsize,
    /// Set it to true to end soon.
    pub stop: &'a AtomicBool,
    /// Called with the number of traces done, and the progress of the next.
    pub progress: &'a (dyn Fn(usize, Progress) + Sync),
}

/// Plays `subjects`, the eight and OPT on every one of `traces`.
///
/// # Errors
/// Any [`JudgeError`].
pub fn judge(
    traces: &[&'static Trace],
    subjects: &[Subject],
    comparison: &Comparison<'_>,
) -> Result<Judgement, JudgeError> {
    let mut all: Vec<Subject> = subjects.to_vec();
    let eight = BEST_OF.iter().filter_map(|name| name.parse().ok());
    for more in eight.chain([Subject::Baseline(Baseline::Opt)]) {
        if !all.contains(&more) {
            all.push(more);
        }
    }
    let at = |name: &str| all.iter().position(|subject| subject.to_string() == name);
    let best: Vec<usize> = BEST_OF.iter().filter_map(|name| at(name)).collect();
    let opt = at(Baseline::Opt.name());
    let mut cases = Vec::new();
    for (done, trace) in traces.iter().enumerate() {
        let (sizes, accesses, curves) = play(trace, &all, comparison, done)?;
        for pages in sizes {
            let misses: Vec<_> = curves.iter().map(|curve| misses(curve, pages)).collect();
            let fewest = best.iter().filter_map(|&i| misses[i]).min();
            let opt = opt.and_then(|i| misses[i]);
            if let (Some(best), Some(opt)) = (fewest, opt) {
                cases.push(Case { trace, pages, accesses, misses, best, opt });
            }
        }
    }
    Ok(Judgement { subjects: all.iter().map(ToString::to_string).collect(), cases })
}

fn misses(curve: &Curve, pages: u64) -> Option<u64> {
    curve.points.iter().find(|point| point.pages == pages).map(|point| point.misses)
}

/// The curves of one trace, with its budgets and its accesses.
fn play(
    trace: &'static Trace,
    subjects: &[Subject],
    comparison: &Comparison<'_>,
    done: usize,
) -> Result<(Vec<u64>, u64, Vec<Curve>), JudgeError> {
    let failed = |why: String| JudgeError::Replay { trace: trace.name, why };
    let (ops, spaces) = trace.ops(comparison.scale)?;
    let ops = ops.into_iter().map(Ok::<_, Infallible>);
    let tape = Tape::record(ops, &Storage::default())
        .map_err(|e: RecordError<Infallible>| failed(e.to_string()))?;
    let sizes = budgets(tape.distinct().into(), comparison.points);
    let makers: Vec<Maker<'_>> = subjects.iter().map(|c| Maker::of(*c, &spaces)).collect();
    let systems: Vec<System<'_>> = makers.iter().map(Maker::system).collect();
    let progress = |progress| (comparison.progress)(done, progress);
    let run = Run {
        tape: &tape,
        threads: comparison.threads,
        stop: comparison.stop,
        progress: &progress,
    };
    let curves = run.curves(&systems, &sizes).map_err(|error| match error {
        MrcError::Cancelled => JudgeError::Cancelled,
        error => failed(error.to_string()),
    })?;
    Ok((sizes, tape.accesses(), curves))
}

/// What makes the caches or machines of a subject.
enum Maker<'a> {
    Baseline(Baseline),
    Engine(Policy, Box<MakePlayer<'a>>),
}

impl<'a> Maker<'a> {
    fn of(subject: Subject, spaces: &'a [SpaceKind]) -> Self {
        let policy = match subject {
            Subject::Baseline(baseline) => return Self::Baseline(baseline),
            Subject::Engine(policy) => policy,
        };
        let make = move |pages| -> Result<Box<dyn Player>, PlayerError> {
            let swap = Some(PlainSwap::disk(SWAP_PAGES));
            let mut machine = Plain::new(&PlainConfig { swap, ..PlainConfig::new(policy, pages) })?;
            for &kind in spaces {
                machine.add_space(kind, 0);
            }
            Ok(Box::new(machine))
        };
        Self::Engine(policy, Box::new(make))
    }

    fn system(&self) -> System<'_> {
        match self {
            Self::Baseline(baseline) => System::Baseline(*baseline),
            Self::Engine(policy, make) => {
                System::Player { name: policy.to_string(), make: make.as_ref() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::TRACES;

    #[test]
    fn budgets_go_by_ratio_from_a_thousandth_to_four_fifths_and_none_is_refused() {
        let many = budgets(1_000_000, 24);
        assert_eq!((many.len(), many[0], many[23]), (24, 1_000, 800_000));
        assert!(
            many.windows(2).all(|pair| (1.3..1.4).contains(&(pair[1] as f64 / pair[0] as f64)))
        );
        assert_eq!(budgets(1_000, 2), [MIN_BUDGET, 800]);
        assert_eq!(budgets(10, 5), [8]);
    }

    #[test]
    fn on_a_small_corpus_tide_is_better_on_average_than_each_of_the_eight() {
        let comparison = Comparison {
            scale: 0.02,
            points: 3,
            threads: NonZeroUsize::MIN,
            stop: &AtomicBool::new(false),
            progress: &|_, _| (),
        };
        let traces: Vec<&'static Trace> = TRACES.iter().collect();
        let judgement = judge(&traces, &[Subject::Engine(Policy::TIDE)], &comparison).unwrap();
        let mean = |i| judgement.score(i, |_| true).unwrap().mean;
        assert!(mean(0) < 0.0, "{}", mean(0));
        for (i, name) in judgement.subjects.iter().enumerate().skip(1) {
            assert_eq!(mean(i) < mean(0), name == "opt", "{name}: {}", mean(i));
        }
    }
}
