//! When a simulation has reproduced the aging OOM, whose outcome differs from seed to seed.
//!
//! The postings give one run of each arm. Which task is preempted when decides about a kill, so the
//! rule counts seeds: before, at least half of them are killed, early, with much of the budget in
//! clean pages, which a reclaimer that had gone on would have freed. Source:
//! `docs/kernel/workloads.md` §3(d).

use super::verdict::Criterion;

/// Rounds within which a kill counts.
const EARLY: f64 = 40.0;
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
        self.killed_with_clean.is_some_and(|clean| clean >= CLEAN) && self.rounds <= EARLY
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
    let share = |runs: &[MixOutcome], of: fn(&MixOutcome) -> bool| {
        runs.iter().filter(|run| of(run)).count() as f64 / runs.len() as f64
    };
    let mut criteria = Vec::new();
    if !before.is_empty() {
        let killed = share(before, MixOutcome::is_published);
        let what = "before: seeds killed early, a quarter clean";
        criteria.push(Criterion::within(what, killed, (0.5, 1.0), "killed in round 10 to 20"));
    }
    for (what, runs) in [("after: seeds killed", after), ("classical: seeds killed", classical)] {
        if !runs.is_empty() {
            let killed = share(runs, |run| run.killed_with_clean.is_some());
            criteria.push(Criterion::within(what, killed, (0.0, 0.0), "none"));
        }
    }
    criteria
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
        assert_eq!(wrong(&[KILLED], &[WHOLE, KILLED], &[KILLED]), [1, 2]);
        assert!(mix_verdict(&[], &[], &[]).is_empty());
    }

    #[test]
    fn a_late_kill_or_one_without_clean_pages_is_another_one() {
        let late = MixOutcome { rounds: 41.0, ..KILLED };
        let full = MixOutcome { killed_with_clean: Some(0.2), ..KILLED };
        assert_eq!(wrong(&[late], &[], &[]), [0]);
        assert_eq!(wrong(&[full], &[], &[]), [0]);
        assert_eq!(wrong(&[WHOLE], &[full], &[]), [0, 1], "after, any kill is one too many");
    }
}
