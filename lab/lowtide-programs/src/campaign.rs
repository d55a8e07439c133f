//! Many plans, several at a time: each is played alone once, and then in every mode in which
//! nothing of it is known to differ.
//!
//! A play that does not end within its time is played again while no other play runs, to rule out
//! that the machine was busy. What differs is made smaller, and how often it differs is counted: a
//! race does so now and then.

use crate::difference::{Difference, Respect, compare, is_sound};
use crate::mode::Mode;
use crate::plan::Plan;
use crate::play::{Moved, Outcome, play};
use crate::shrink::shrink;
use crate::stage::Stage;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// Plays of a plan that differed, to see how often it does.
const AGAIN: u32 = 5;
/// Plays of a smaller plan before it counts as one that does not differ.
const PATIENCE: u32 = 3;
/// A play that differs by never ending is cut here while its plan is made smaller.
const SHORT: Duration = Duration::from_secs(4);

/// What to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first seed.
    pub seed: u64,
    /// Plans, one for each seed.
    pub programs: u64,
    /// No plan is begun after this.
    pub most: Option<Duration>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Plans at a time.
    pub at_a_time: usize,
    /// Play what is known to differ, too.
    pub known: bool,
    /// A play that takes longer hangs.
    pub limit: Duration,
    /// Differences after which no more plans are begun.
    pub findings: u64,
}

/// A plan that differs.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its seed, if it was drawn.
    pub seed: Option<u64>,
    /// Where; `None` is a player that is wrong alone.
    pub mode: Option<Mode>,
    /// The smallest plan found.
    pub plan: Plan,
    /// How it differs.
    pub difference: Difference,
    /// How often it did when it was played again.
    pub again: u32,
}

/// What was played.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Plans.
    pub programs: u64,
    /// Plays in each mode.
    pub plays: BTreeMap<&'static str, u64>,
    /// Operations in plans that were played in some mode.
    pub operations: BTreeMap<String, u64>,
    /// Pages that left and came back.
    pub moved: Moved,
    /// Plays that took too long once, while they wanted to run, and not again.
    pub slow: u64,
    /// What differs.
    pub findings: Vec<Finding>,
}

/// Plays plans with these options.
#[derive(Debug)]
pub struct Campaign<'a> {
    stage: &'a Stage,
    options: Options,
    /// Plays share it; one that must be alone has it alone.
    machine: RwLock<()>,
    next: AtomicU64,
    is_over: AtomicBool,
    tally: Mutex<Tally>,
}

impl<'a> Campaign<'a> {
    /// Nothing is played yet.
    #[must_use]
    pub fn new(stage: &'a Stage, options: Options) -> Self {
        Self {
            stage,
            next: AtomicU64::new(options.seed),
            options,
            machine: RwLock::default(),
            is_over: AtomicBool::new(false),
            tally: Mutex::default(),
        }
    }

    /// Plays plans of all seeds. `found` hears of each finding as it is made.
    ///
    /// # Errors
    /// A play cannot begin.
    pub fn run(self, found: impl Fn(&Finding) + Sync) -> io::Result<Tally> {
        let begin = Instant::now();
        let end = self.options.seed.saturating_add(self.options.programs);
        let one = || -> io::Result<()> {
            loop {
                let seed = self.next.fetch_add(1, Ordering::Relaxed);
                let is_late = self.options.most.is_some_and(|most| begin.elapsed() >= most);
                if seed >= end || is_late || self.is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let mut plan = Plan::draw(seed);
                if !self.options.known {
                    // Half of the plans have nothing that differs anywhere, the others what
                    // differs in some of the modes, and are played in the rest.
                    let modes = &self.options.modes;
                    plan = if seed.is_multiple_of(2) {
                        modes.iter().fold(plan, |plan, mode| plan.without_known(&[*mode]))
                    } else {
                        plan.without_known(modes)
                    };
                }
                self.examine(&plan, Some(seed), &found)?;
            }
        };
        let results: Vec<io::Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.options.at_a_time.max(1)).map(|_| scope.spawn(one)).collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        results.into_iter().collect::<io::Result<Vec<()>>>()?;
        Ok(self.tally.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Plays one plan that was given as text.
    ///
    /// # Errors
    /// A play cannot begin.
    pub fn run_plan(self, plan: &Plan, found: impl Fn(&Finding) + Sync) -> io::Result<Tally> {
        self.examine(plan, None, &found)?;
        Ok(self.tally.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn play(&self, plan: &Plan, mode: Option<Mode>, limit: Duration) -> io::Result<Outcome> {
        let _shared = self.machine.read().unwrap_or_else(PoisonError::into_inner);
        play(self.stage, plan, mode, limit)
    }

    /// Plays a plan alone and in each mode.
    fn examine(
        &self,
        plan: &Plan,
        seed: Option<u64>,
        found: &(impl Fn(&Finding) + Sync),
    ) -> io::Result<()> {
        let alone = self.play(plan, None, self.options.limit)?;
        if let Some(difference) = is_sound(&alone) {
            if difference.may_be_slow {
                self.tally().slow += 1;
                return Ok(());
            }
            self.add(Finding { seed, mode: None, plan: plan.clone(), difference, again: 0 }, found);
            return Ok(());
        }
        let mut was_played = false;
        for mode in self.options.modes.clone() {
            let is_known = !self.options.known && plan.known_in(mode).is_some();
            if seed.is_some() && is_known || self.is_over.load(Ordering::Relaxed) {
                continue;
            }
            let with = self.play(plan, Some(mode), self.options.limit)?;
            was_played = true;
            let difference = compare(plan, &alone, &with);
            {
                let mut tally = self.tally();
                *tally.plays.entry(mode.name()).or_default() += 1;
                tally.moved.evicted += with.moved.evicted;
                tally.moved.refaulted += with.moved.refaulted;
            }
            if let Some(difference) = difference {
                self.look_closer(plan, mode, difference, seed, found)?;
            }
        }
        let mut tally = self.tally();
        tally.programs += 1;
        if was_played {
            for op in plan.ops() {
                *tally.operations.entry(op.name.clone()).or_default() += 1;
            }
        }
        Ok(())
    }

    /// How a plan differs now, if it does: by itself on the machine, or beside others.
    fn differs(
        &self,
        plan: &Plan,
        mode: Mode,
        limit: Duration,
        is_by_itself: bool,
    ) -> io::Result<Option<Difference>> {
        let both = || -> io::Result<_> {
            let alone = play(self.stage, plan, None, limit)?;
            let with = play(self.stage, plan, Some(mode), limit)?;
            Ok(if is_sound(&alone).is_some() { None } else { compare(plan, &alone, &with) })
        };
        if is_by_itself {
            let _own = self.machine.write().unwrap_or_else(PoisonError::into_inner);
            both()
        } else {
            let _shared = self.machine.read().unwrap_or_else(PoisonError::into_inner);
            both()
        }
    }

    fn look_closer(
        &self,
        plan: &Plan,
        mode: Mode,
        difference: Difference,
        seed: Option<u64>,
        found: &(impl Fn(&Finding) + Sync),
    ) -> io::Result<()> {
        let respect = difference.respect;
        let is_hang = respect == Respect::Hang;
        let limit = if is_hang { SHORT } else { self.options.limit };
        let mut again = 0;
        for _ in 0..AGAIN {
            let limit = if is_hang { self.options.limit / 2 } else { limit };
            let now = self.differs(plan, mode, limit, is_hang)?;
            again += u32::from(now.is_some_and(|now| now.respect == respect));
            if is_hang && again > 0 {
                break;
            }
        }
        if again == 0 && difference.may_be_slow {
            self.tally().slow += 1;
            return Ok(());
        }
        let mut best = (plan.clone(), difference);
        if again > 0 && seed.is_some() {
            let mut failure = None;
            let small = shrink(plan, |candidate| {
                for _ in 0..PATIENCE {
                    match self.differs(candidate, mode, limit, false) {
                        Ok(Some(now)) if now.respect == respect => {
                            best = (candidate.clone(), now);
                            return true;
                        }
                        Ok(_) => {}
                        Err(error) => {
                            failure.get_or_insert(error);
                        }
                    }
                }
                false
            });
            debug_assert!(again == 0 || small == best.0 || small == *plan);
            if let Some(error) = failure {
                return Err(error);
            }
        }
        let (plan, difference) = best;
        self.add(Finding { seed, mode: Some(mode), plan, difference, again }, found);
        Ok(())
    }

    fn add(&self, finding: Finding, found: &(impl Fn(&Finding) + Sync)) {
        found(&finding);
        let mut tally = self.tally();
        tally.findings.push(finding);
        if tally.findings.len() as u64 >= self.options.findings {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }
}
