//! Jobs on several threads: one job per policy and size, each replaying the whole tape.
//!
//! Jobs share only the tape, so results do not depend on the number of threads or on their order.
//! Strict LRU is one job for all sizes (see `stack.rs`), and a baseline that holds every page needs
//! no job: it has only cold misses. The next uses for OPT are computed once, in advance. Jobs of
//! the engine take longest, so they start first.

use super::curve::{Curve, Point};
use super::next_use::NextUse;
use super::player::System;
use super::replay::{Outcome, Replay};
use super::stack::StackDistances;
use super::tape::Tape;
use super::watch::{Progress, Watch};
use super::words::SpillError;
use crate::baseline::Baseline;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// The reason why there are no curves.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MrcError {
    /// The tape has no accesses.
    #[error("the trace has no access to a page, so there is no miss ratio; is it the right file?")]
    NoAccess,
    /// The requested miss ratio is not from 0 to 1.
    #[error(
        "{0} is not a miss ratio; give a share of the accesses from 0 to 1, such as 0.01 for 1 %"
    )]
    Target(f64),
    /// The tape's temporary file failed.
    #[error(transparent)]
    Spill(#[from] SpillError),
    /// The stop flag was set.
    #[error("stopped before the miss-ratio curve was complete")]
    Cancelled,
}

/// Replays a tape for many policies and sizes.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The tape.
    pub tape: &'a Tape,
    /// Number of threads. Each needs the memory of one policy at one size.
    pub threads: NonZeroUsize,
    /// Set it to true to end the run soon, with [`MrcError::Cancelled`].
    pub stop: &'a AtomicBool,
    /// Called with the progress, from any thread, a few hundred times a second. It must not block.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl Run<'_> {
    /// The curve of each policy, in the given order, at the given sizes (in pages, in any order;
    /// each is replayed once).
    ///
    /// A size that a policy rejects becomes a [`Gap`](super::Gap) and does not affect the others.
    ///
    /// # Errors
    /// [`MrcError::NoAccess`] for a tape without accesses, [`MrcError::Spill`] when a temporary
    /// file fails, [`MrcError::Cancelled`].
    pub fn curves(&self, systems: &[System<'_>], sizes: &[u64]) -> Result<Vec<Curve>, MrcError> {
        if self.tape.accesses() == 0 {
            return Err(MrcError::NoAccess);
        }
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let mut curves: Vec<Curve> = systems
            .iter()
            .map(|system| Curve {
                policy: system.name().to_owned(),
                points: Vec::new(),
                gaps: Vec::new(),
                cold: self.tape.cold(),
            })
            .collect();

        let (known, mut jobs) = self.split(systems, &sizes);
        for (curve, outcome) in known {
            curves[curve].add(outcome);
        }
        jobs.sort_by_key(|job| matches!(systems[job.curve], System::Baseline(_)));
        let opt =
            jobs.iter().any(|job| matches!(systems[job.curve], System::Baseline(Baseline::Opt)));
        let passes = jobs.len() as u64 + u64::from(opt);
        let watch = Watch::new(self.stop, self.progress, passes * self.tape.len());
        let next_use = if opt { Some(NextUse::watched(self.tape, &watch)?) } else { None };
        let replay = Replay { tape: self.tape, next_use: next_use.as_ref(), watch: &watch };
        let outcomes = share(&watch, &jobs, self.threads, |job| match job.what {
            What::Size(pages) => Ok(vec![replay.measure(&systems[job.curve], pages)?]),
            What::AllOfStrictLru => {
                let distances = StackDistances::watched(self.tape, &watch)?;
                Ok(sizes
                    .iter()
                    .map(|&pages| Outcome::Measured(replay.point(pages, distances.misses(pages))))
                    .collect())
            }
        })?;
        for (job, outcomes) in jobs.iter().zip(outcomes) {
            outcomes.into_iter().for_each(|outcome| curves[job.curve].add(outcome));
        }
        for curve in &mut curves {
            curve.points.sort_unstable_by_key(|point| point.pages);
            curve.gaps.sort_unstable_by_key(|gap| gap.pages);
        }
        Ok(curves)
    }

    /// The results that are known without a replay, and the jobs for the others.
    fn split(&self, systems: &[System<'_>], sizes: &[u64]) -> (Vec<(usize, Outcome)>, Vec<Job>) {
        let mut known = Vec::new();
        let mut jobs = Vec::new();
        for (curve, system) in systems.iter().enumerate() {
            if matches!(system, System::Baseline(Baseline::Lru)) {
                jobs.push(Job { curve, what: What::AllOfStrictLru });
                continue;
            }
            for &pages in sizes {
                match self.without_playing(system, pages) {
                    Some(outcome) => known.push((curve, outcome)),
                    None => jobs.push(Job { curve, what: What::Size(pages) }),
                }
            }
        }
        (known, jobs)
    }

    fn without_playing(&self, system: &System<'_>, pages: u64) -> Option<Outcome> {
        let all_fits =
            matches!(system, System::Baseline(_)) && pages >= u64::from(self.tape.distinct());
        all_fits.then(|| {
            let (accesses, misses) = (self.tape.accesses(), self.tape.cold());
            Outcome::Measured(Point { pages, accesses, misses })
        })
    }
}

struct Job {
    curve: usize,
    what: What,
}

enum What {
    Size(u64),
    AllOfStrictLru,
}

impl Curve {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Measured(point) => self.points.push(point),
            Outcome::Refused(gap) => self.gaps.push(gap),
        }
    }
}

/// Runs all jobs on `threads` threads, and returns their results in the order of the jobs.
fn share<J: Sync, T: Send>(
    watch: &Watch<'_>,
    jobs: &[J],
    threads: NonZeroUsize,
    work: impl Fn(&J) -> Result<T, MrcError> + Sync,
) -> Result<Vec<T>, MrcError> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    let failure: Mutex<Option<MrcError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.get().min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    match work(job) {
                        Ok(result) => {
                            results
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push((index, result));
                        }
                        Err(error) => {
                            watch.abandon();
                            // The first failure is the cause; later ones may be its consequences.
                            failure
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, op, quietly, tape, zipf};
    use crate::{Gap, Player, PlayerError, Storage, spread};
    use lowtide_workload::{OpKind, SpaceId};
    use std::collections::HashSet;

    const ALL: [System<'static>; 6] = [
        System::Baseline(Baseline::Lru),
        System::Baseline(Baseline::Clock),
        System::Baseline(Baseline::Sieve),
        System::Baseline(Baseline::S3Fifo),
        System::Baseline(Baseline::Arc),
        System::Baseline(Baseline::Opt),
    ];

    fn misses(curve: &Curve) -> Vec<u64> {
        curve.points.iter().map(|point| point.misses).collect()
    }

    /// A loop over `n` pages: strict recency evicts each page just before its turn, until all fit.
    /// OPT in a cache of `c` keeps the most recent page and `c - 1` others, of which it hits
    /// all on each stretch of `n
    /// - 1` accesses: from the second round on, one access in `n - 1` has a fixed phase against the
    ///   rounds,
    /// and `n - c` of every `n - 1` accesses miss.
    #[test]
    fn on_a_loop_lru_misses_all_and_opt_as_few_as_the_formula_says() {
        let (n, rounds) = (50_u64, 1 + 49 * 4);
        let ops: Vec<_> = (0..n * rounds).map(|i| op(OpKind::Read, 0, i % n, 1)).collect();
        let tape = tape(&ops);
        let sizes: Vec<u64> = (1..=n).collect();
        let curves = quietly(&tape, 2).curves(&ALL, &sizes).unwrap();
        let (lru, opt) = (&curves[0], &curves[5]);
        assert_eq!((lru.cold, opt.cold), (n, n));
        for (c, (lru, opt)) in (1..=n).zip(lru.points.iter().zip(&opt.points)) {
            assert_eq!(lru.misses, if c < n { n * rounds } else { n }, "{c} pages");
            // After the first round, n * (rounds - 1) accesses are a whole number of stretches of n
            // - 1.
            let stretches = n * (rounds - 1) / (n - 1);
            assert_eq!(opt.misses, n + stretches * (n - c), "{c} pages");
        }
    }

    #[test]
    fn on_skewed_pages_policies_with_memory_of_frequency_beat_recency_and_none_beats_opt() {
        let tape = tape(&zipf(5_000, 200_000, 7));
        let footprint = u64::from(tape.distinct());
        let curves = quietly(&tape, 2)
            .curves(&ALL, &[footprint / 20, footprint / 10, footprint / 5])
            .unwrap();
        for size in 0..3 {
            let at = |curve: usize| curves[curve].points[size].miss_ratio();
            let [lru, clock, sieve, s3fifo, arc, opt] = [0, 1, 2, 3, 4, 5].map(at);
            assert!(clock < lru && arc < lru && sieve < lru && s3fifo < lru, "{curves:?}");
            assert!(
                [clock, sieve, s3fifo, arc].iter().all(|&ratio| ratio > opt * 1.1),
                "{curves:?}"
            );
        }
    }

    #[test]
    fn opt_is_never_beaten_and_all_end_at_the_cold_misses() {
        let tape = tape(&testing::mixed(3));
        let sizes = spread(u64::from(tape.distinct()), 24);
        let curves = quietly(&tape, 2).curves(&ALL, &sizes).unwrap();
        let opt = misses(&curves[5]);
        for curve in &curves {
            assert!(
                misses(curve).iter().zip(&opt).all(|(misses, bound)| misses >= bound),
                "{}",
                curve.policy
            );
            assert_eq!(misses(curve).last(), Some(&tape.cold()), "{}", curve.policy);
            assert_eq!(curve.points.len(), sizes.len());
        }
    }

    #[test]
    fn threads_and_storage_do_not_change_the_result() {
        let ops = testing::mixed(4);
        let in_memory = tape(&ops);
        let storage = Storage { memory_bytes: 1000, ..Storage::default() };
        let in_file = Tape::record(ops.iter().map(|&op| Ok::<_, String>(op)), &storage).unwrap();
        assert!(in_file.spilled() && !in_memory.spilled() && in_file.chunks() > 2);
        let sizes = spread(u64::from(in_memory.distinct()), 20);
        let first = quietly(&in_memory, 1).curves(&ALL, &sizes).unwrap();
        assert_eq!(quietly(&in_file, 1).curves(&ALL, &sizes).unwrap(), first);
        assert_eq!(quietly(&in_file, 3).curves(&ALL, &sizes).unwrap(), first);
    }

    /// Holds everything; refuses sizes below 32, and breaks at page 9 if it has exactly 40.
    struct Hoard(HashSet<(SpaceId, u64)>, u64);

    impl Player for Hoard {
        fn play(&mut self, kind: OpKind, space: SpaceId, page: u64) -> Result<bool, PlayerError> {
            match kind {
                _ if self.1 == 40 && page == 9 => Err("no memory is left".into()),
                OpKind::Free => Ok(self.0.remove(&(space, page))),
                OpKind::Sync => Ok(false),
                _ => Ok(!self.0.insert((space, page))),
            }
        }
    }

    fn hoard(pages: u64) -> Result<Box<dyn Player>, PlayerError> {
        if pages < 32 {
            Err("at least 32 pages are needed".into())
        } else {
            Ok(Box::new(Hoard(HashSet::new(), pages)))
        }
    }

    #[test]
    fn sizes_that_a_player_refuses_are_gaps_with_the_reason() {
        use OpKind::{Free, Load, Sync, Write};
        let tape =
            tape(&[op(Write, 0, 0, 20), op(Sync, 0, 0, 20), op(Free, 0, 0, 2), op(Load, 0, 0, 3)]);
        let system = System::Player { name: "hoard".to_owned(), make: &hoard };
        let progress = Mutex::new(Progress { done: 0, total: 0 });
        let note = |now: Progress| {
            let mut last = progress.lock().unwrap();
            *last = if now.done >= last.done { now } else { *last };
        };
        let run = Run { progress: &note, ..quietly(&tape, 2) };
        let curves = run.curves(&[system], &[100, 0, 31, 40, 50, 100]).unwrap();
        let point = |pages| Point { pages, accesses: 23, misses: 22 };
        assert_eq!(curves[0].points, [point(50), point(100)]);
        let gap = |pages, reason: &str| Gap { pages, reason: reason.to_owned() };
        let too_small = "at least 32 pages are needed";
        assert_eq!(
            curves[0].gaps,
            [gap(0, too_small), gap(31, too_small), gap(40, "no memory is left")]
        );
        let end = progress.into_inner().unwrap();
        assert_eq!((end.done, end.total), (5 * tape.len(), 5 * tape.len()));
    }

    #[test]
    fn a_set_stop_flag_ends_the_run() {
        let tape = tape(&zipf(100, 1000, 1));
        let stop = AtomicBool::new(true);
        for system in &ALL {
            let run = Run { stop: &stop, ..quietly(&tape, 2) };
            let result = run.curves(std::slice::from_ref(system), &[5, 10]);
            assert!(matches!(result, Err(MrcError::Cancelled)));
        }
    }

    #[test]
    fn a_tape_without_accesses_has_no_curve() {
        let tape = tape(&[op(OpKind::Sync, 0, 0, 1)]);
        assert!(matches!(quietly(&tape, 1).curves(&ALL, &[1]), Err(MrcError::NoAccess)));
    }

    #[test]
    fn a_budget_of_no_pages_is_a_gap() {
        let tape = tape(&zipf(100, 1000, 1));
        let curves = quietly(&tape, 1).curves(&[System::Baseline(Baseline::Arc)], &[0, 1]).unwrap();
        assert_eq!((curves[0].gaps[0].pages, curves[0].points[0].pages), (0, 1));
    }
}
