//! What was published about the throttling OOM, and when a simulation has reproduced it.
//!
//! The postings give outcomes and no figures: before, the writer was killed at once; after, and
//! with the classical lists, it finished. The verdict is that page's. Source:
//! `docs/kernel/workloads.md` §4(c), (d).

use super::figures::Arm;
use super::verdict::Criterion;

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
    /// The part of the cached file pages that was dirty or being written at the end, 0 to 1.
    pub unclean: f64,
    /// Naps of reclaim and pauses of the writer.
    pub throttled: f64,
    /// Folios that reclaim took up for each page that it freed; infinite if it freed none.
    pub scanned_per_reclaimed: f64,
}

/// Every criterion that can be decided from these arms. That of the classical lists is left out
/// without them.
#[must_use]
pub fn dd_verdict(
    before: &MeasuredDd,
    after: &MeasuredDd,
    classical: Option<&MeasuredDd>,
) -> Vec<Criterion> {
    let mut criteria = vec![
        Criterion::within("before: out of memory", before.oom, (1.0, 1.0), "killed"),
        Criterion::within(
            "before: part of the file written",
            before.written,
            (0.0, 0.999),
            "not all",
        ),
        Criterion::within("before: part dirty or being written", before.unclean, (0.9, 1.0), "-"),
        Criterion::within("after: out of memory", after.oom, (0.0, 0.0), "none"),
        Criterion::within("after: part of the file written", after.written, (1.0, 1.0), "all"),
        Criterion::within("after: naps and pauses", after.throttled, (1.0, f64::INFINITY), "some"),
        // What freed nothing took up infinitely many for each page that it freed.
        Criterion::within(
            "scanned for each page freed, after / before",
            after.scanned_per_reclaimed / before.scanned_per_reclaimed,
            (0.0, 0.1),
            "no spinning",
        ),
    ];
    if let Some(classical) = classical {
        criteria.extend([
            Criterion::within("classical: out of memory", classical.oom, (0.0, 0.0), "none"),
            Criterion::within(
                "classical: part of the file written",
                classical.written,
                (1.0, 1.0),
                "all",
            ),
        ]);
    }
    criteria
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    const KILLED: MeasuredDd = MeasuredDd {
        written: 0.66,
        oom: 1.0,
        unclean: 1.0,
        throttled: 0.0,
        scanned_per_reclaimed: f64::INFINITY,
    };
    const FINISHED: MeasuredDd = MeasuredDd {
        written: 1.0,
        oom: 0.0,
        unclean: 0.5,
        throttled: 200.0,
        scanned_per_reclaimed: 60.0,
    };

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
        assert_eq!(dd_verdict(&KILLED, &FINISHED, None).len(), 7);
    }

    #[test]
    fn each_condition_counts() {
        assert_eq!(wrong(&FINISHED, &FINISHED, None), [0, 1, 2, 6]);
        assert_eq!(wrong(&KILLED, &KILLED, None), [3, 4, 5, 6]);
        assert_eq!(wrong(&KILLED, &FINISHED, Some(&KILLED)), [7, 8]);
        assert_eq!(wrong(&KILLED, &MeasuredDd { throttled: 0.0, ..FINISHED }, None), [5]);
        assert_eq!(
            wrong(&MeasuredDd { scanned_per_reclaimed: 599.0, ..KILLED }, &FINISHED, None),
            [6]
        );
    }
}
