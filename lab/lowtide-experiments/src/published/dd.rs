//! What was published about the throttling OOM, and when a simulation has reproduced it.
//!
//! The postings give outcomes and no figures: before, the writer was killed at once; after, and
//! with the classical lists, it finished. The verdict is that page's. Source:
//! `docs/kernel/workloads.md` §4(c), (d).

use super::figures::Arm;
use super::verdict::{Criterion, agreement, apart, effect};

/// What was published of an arm: which postings, and the outcome in words.
#[must_use]
pub const fn published_dd(arm: Arm) -> (&'static str, &'static str) {
    match arm {
        Arm::Before => ("v2_v3_v7", "killed immediately"),
        Arm::After => ("v2_v3_v7", "finished, no spinning"),
        Arm::Classical => ("v2_v3_v7", "finished"),
    }
}

/// What was measured of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredDd {
    /// The part of the file that was written, 0 to 1.
    pub written: f64,
    /// Charges that failed.
    pub oom: f64,
}

/// Every criterion that can be decided from these arms. Those of the classical lists are left out
/// without them.
#[must_use]
pub fn dd_verdict(
    before: &MeasuredDd,
    after: &MeasuredDd,
    classical: Option<&MeasuredDd>,
) -> Vec<Criterion> {
    apart([Some(before), Some(after), classical], |arms| {
        let [Some(before), Some(after), classical] = arms else { return Vec::new() };
        let kills = |arm: &MeasuredDd| before.oom - arm.oom;
        let written = |arm: &MeasuredDd| before.written / arm.written;
        let least = classical.map_or(after.written, |arm| arm.written.min(after.written));
        let [part, others, last] = [
            "part of the file written, before / after",
            "part of the file written, least of the others",
            "killed, before less classical",
        ];
        let mut criteria = vec![
            effect("killed, before less after", kills(after), (1.0, 1.0), "1, 0"),
            effect(part, written(after), (0.0, 0.999), "killed, all"),
            agreement(others, least, (1.0, 1.0), "all"),
        ];
        criteria.extend(classical.map(|arm| effect(last, kills(arm), (1.0, 1.0), "1, 0")));
        criteria
    })
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    const KILLED: MeasuredDd = MeasuredDd { written: 0.66, oom: 1.0 };
    const FINISHED: MeasuredDd = MeasuredDd { written: 1.0, oom: 0.0 };

    fn wrong(
        before: &MeasuredDd,
        after: &MeasuredDd,
        classical: Option<&MeasuredDd>,
    ) -> Vec<usize> {
        let found = dd_verdict(before, after, classical);
        (0..found.len()).filter(|&at| found[at].outcome != Outcome::Reproduced).collect()
    }

    #[test]
    fn a_kill_before_and_none_after_reproduce_it() {
        assert!(wrong(&KILLED, &FINISHED, Some(&FINISHED)).is_empty());
        assert_eq!(dd_verdict(&KILLED, &FINISHED, None).len(), 3);
    }

    #[test]
    fn each_condition_counts() {
        assert_eq!(wrong(&FINISHED, &FINISHED, None), [0, 1]);
        assert_eq!(wrong(&KILLED, &KILLED, None), [0, 1, 2]);
        assert_eq!(wrong(&KILLED, &FINISHED, Some(&KILLED)), [2, 3]);
    }
}
