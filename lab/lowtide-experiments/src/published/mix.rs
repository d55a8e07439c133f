//! When a simulation has reproduced the aging OOM, whose outcome differs from seed to seed.
//!
//! The postings give one run of each arm. Which task is preempted when decides about a kill, so the
//! rule counts seeds: before, at least half of them are killed, neither at once nor late, with much
//! of the budget in clean pages, which a reclaimer that had gone on would have freed. Source:
//! `docs/kernel/workloads.md` §3(d).

use super::verdict::{Criterion, agreement, apart, effect};

/// Completed rounds at which a kill counts: half of the least that was published, to twice the
/// most.
const ROUNDS: (f64, f64) = (5.0, 40.0);
/// The share of the budget that was clean pages of the file at a kill that counts.
const CLEAN: f64 = 0.25;

/// A run of one seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixOutcome {
    /// Completed rounds, at the kill or in all.
    pub rounds: f64,
    /// The share of the budget that was clean at the kill; `None` for a run that was not killed.
    pub killed_with_clean: Option<f64>,
}

impl MixOutcome {
    fn is_published(&self) -> bool {
        let in_time = ROUNDS.0 <= self.rounds && self.rounds <= ROUNDS.1;
        in_time && self.killed_with_clean.is_some_and(|clean| clean >= CLEAN)
    }
}

/// Every criterion that can be decided from these arms, a list of seeds each; empty ones were not
/// simulated.
#[must_use]
pub fn mix_verdict(
    before: &[MixOutcome],
    after: &[MixOutcome],
    classical: &[MixOutcome],
) -> Vec<Criterion> {
    let arms = [before, after, classical].map(|runs| Some(runs).filter(|runs| !runs.is_empty()));
    apart(arms, |[before, after, classical]| {
        let share = |runs: &[MixOutcome], of: fn(&MixOutcome) -> bool| {
            runs.iter().filter(|run| of(run)).count() as f64 / runs.len() as f64
        };
        let Some(before) = before else { return Vec::new() };
        let in_time = share(before, MixOutcome::is_published);
        let mut criteria = Vec::new();
        for (what, none, runs) in [
            ("seeds killed in time, before less after", "after: seeds killed", after),
            ("seeds killed in time, before less classical", "classical: seeds killed", classical),
        ] {
            let Some(runs) = runs else { continue };
            let less = in_time - share(runs, MixOutcome::is_published);
            criteria.push(effect(what, less, (0.5, 1.0), "in round 10 to 20, none"));
            let killed = share(runs, |run| run.killed_with_clean.is_some());
            criteria.push(agreement(none, killed, (0.0, 0.0), "none"));
        }
        criteria
    })
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    const KILLED: MixOutcome = MixOutcome { rounds: 12.0, killed_with_clean: Some(0.38) };
    const WHOLE: MixOutcome = MixOutcome { rounds: 128.0, killed_with_clean: None };

    fn wrong(before: &[MixOutcome], after: &[MixOutcome], classical: &[MixOutcome]) -> Vec<usize> {
        let found = mix_verdict(before, after, classical);
        (0..found.len()).filter(|&at| found[at].outcome != Outcome::Reproduced).collect()
    }

    #[test]
    fn half_of_the_seeds_are_enough_before_and_none_after() {
        assert!(wrong(&[KILLED, WHOLE], &[WHOLE], &[WHOLE]).is_empty());
        assert_eq!(wrong(&[KILLED, WHOLE, WHOLE], &[WHOLE], &[]), [0]);
        assert_eq!(wrong(&[KILLED], &[WHOLE, KILLED], &[KILLED]), [1, 2, 3]);
        assert!(mix_verdict(&[], &[], &[]).is_empty());
    }

    #[test]
    fn a_kill_at_once_or_late_or_without_clean_pages_is_another_one() {
        let [soon, late] = [0.0, 41.0].map(|rounds| MixOutcome { rounds, ..KILLED });
        let full = MixOutcome { killed_with_clean: Some(0.2), ..KILLED };
        for other in [soon, late, full] {
            assert_eq!(wrong(&[other], &[WHOLE], &[]), [0]);
        }
        assert_eq!(wrong(&[KILLED], &[full], &[]), [1], "after, any kill is one too many");
    }
}
