//! What was published about programs that live in heap (a database, a kernel build, cold starts of
//! apps), and when a simulation has reproduced it.
//!
//! Three experiments with one shape: each arm has a few figures, and criteria are ratios between
//! arms. So a posting's figures are a list of names with values here, and the command puts them
//! into the fields of its rows. Source: `docs/kernel/workloads.md` §5, 7, 8 (c), (d).
//!
//! | experiment | figure | compared |
//! |---|---|---|
//! | [`SYSBENCH`] | transactions per second | before and after alike, classical 2 to 15 % slower |
//! | [`KERNEL_BUILD`] | system time | after a little less than before, classical 1.3 to 2.3 times |
//! | [`ANDROID`] | launch times, refaults | mean and slow launches gain, and less is read |

use super::figures::{self, Arm};
use super::verdict::{Criterion, agreement, apart, effect, unpublished};

/// The names of the experiments in the table.
pub const SYSBENCH: &str = "mysql_ro";
/// See [`SYSBENCH`].
pub const KERNEL_BUILD: &str = "kernel_build";
/// See [`SYSBENCH`].
pub const ANDROID: &str = "android_cold_start";

/// What a posting says about an arm: its name, and metrics by the names of the table.
#[must_use]
pub fn published_heap(
    experiment: &'static str,
    arm: Arm,
) -> Vec<(&'static str, Vec<(&'static str, f64)>)> {
    let mut postings: Vec<(&str, Vec<(&str, f64)>)> = Vec::new();
    // Single patches are no arm.
    let whole = |posting: &str| !posting.contains("patch");
    for (posting, metric, value) in figures::lines(experiment, arm).filter(|line| whole(line.0)) {
        if postings.last().is_none_or(|last| last.0 != posting) {
            postings.push((posting, Vec::new()));
        }
        postings.last_mut().expect("one was pushed").1.push((metric, value));
    }
    postings
}

/// What was measured of one arm of `sysbench-ro`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredSysbench {
    /// Transactions per second.
    pub per_s: f64,
    /// Pages swapped in for a transaction.
    pub swapped_in: f64,
    /// Charges that failed.
    pub oom: f64,
}

/// Every criterion that can be decided from these arms.
#[must_use]
pub fn sysbench_verdict(
    before: Option<MeasuredSysbench>,
    after: Option<MeasuredSysbench>,
    classical: Option<MeasuredSysbench>,
) -> Vec<Criterion> {
    apart([before, after, classical], |[before, after, classical]| {
        let mut criteria = Vec::new();
        if let (Some(before), Some(after)) = (before, after) {
            let (what, ratio) = ("transactions/s, after / before", after.per_s / before.per_s);
            criteria.push(agreement(what, ratio, (0.98, 1.02), "0.998 to 1.002"));
        }
        for (multi, gain, swaps) in [
            (before, "transactions/s, before / classical", "swap-ins each, classical / before"),
            (after, "transactions/s, after / classical", "swap-ins each, classical / after"),
        ] {
            let (Some(multi), Some(classical)) = (multi, classical) else { continue };
            let ratio = multi.per_s / classical.per_s;
            criteria.push(effect(gain, ratio, (1.02, 1.15), "1.064 to 1.066"));
            let ratio = classical.swapped_in / multi.swapped_in;
            criteria.push(unpublished(swaps, ratio, MORE, "more"));
        }
        criteria.extend(no_oom([before, after, classical].map(|arm| arm.map(|arm| arm.oom))));
        criteria
    })
}

/// What was measured of one arm of `kernel-build`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredBuild {
    /// Processor time of the system, in seconds.
    pub system_s: f64,
    /// Pages swapped out.
    pub swapped_out: f64,
    /// Charges that failed.
    pub oom: f64,
}

/// Every criterion that can be decided from these arms.
#[must_use]
pub fn build_verdict(
    before: Option<MeasuredBuild>,
    after: Option<MeasuredBuild>,
    classical: Option<MeasuredBuild>,
) -> Vec<Criterion> {
    apart([before, after, classical], |[before, after, classical]| {
        let mut criteria = Vec::new();
        if let (Some(before), Some(after)) = (before, after) {
            let (what, ratio) = ("system time, after / before", after.system_s / before.system_s);
            criteria.push(agreement(what, ratio, (0.93, 1.01), "0.975 to 0.992"));
        }
        if let (Some(before), Some(classical)) = (before, classical) {
            let ratio = classical.system_s / before.system_s;
            let what = "system time, classical / before";
            criteria.push(effect(what, ratio, (1.3, 2.3), "1.78"));
            let ratio = classical.swapped_out / before.swapped_out;
            criteria.push(unpublished("swapped out, classical / before", ratio, MORE, "more"));
        }
        criteria.extend(no_oom([before, after, classical].map(|arm| arm.map(|arm| arm.oom))));
        criteria
    })
}

/// What was measured of one arm of `android`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredAndroid {
    /// Mean launch, in any unit.
    pub mean: f64,
    /// Its 95th percentile, in the same.
    pub p95: f64,
    /// Refaulted pages of files.
    pub refault_file: f64,
    /// Refaulted pages of heaps.
    pub refault_anon: f64,
    /// KiB read.
    pub read: f64,
}

/// Every criterion, from both arms.
#[must_use]
pub fn android_verdict(before: MeasuredAndroid, after: MeasuredAndroid) -> Vec<Criterion> {
    apart([Some(before), Some(after)], |arms| {
        let [Some(before), Some(after)] = arms else { return Vec::new() };
        let ratio = |of: fn(&MeasuredAndroid) -> f64| of(&after) / of(&before);
        let anon = after.refault_anon / after.refault_file;
        let (mean, p95) = (ratio(|arm| arm.mean), ratio(|arm| arm.p95));
        let (file, read) = (ratio(|arm| arm.refault_file), ratio(|arm| arm.read));
        vec![
            effect("mean, after / before", mean, (0.96, 0.99), "0.980"),
            effect("P95, after / before", p95, (0.76, 0.94), "0.878"),
            effect("file refaults, after / before", file, (0.45, 0.85), "0.617"),
            effect("read, after / before", read, (0.70, 0.95), "0.831"),
            agreement("anon / file refaults, after", anon, (0.015, 0.058), "0.029"),
        ]
    })
}

/// Strictly more than the other.
const MORE: (f64, f64) = (1.000_001, f64::INFINITY);

/// No charge fails in any arm, if there is one.
fn no_oom(arms: [Option<f64>; 3]) -> Option<Criterion> {
    let failed = arms.into_iter().flatten().reduce(f64::max)?;
    Some(agreement("out of memory", failed, (0.0, 0.0), "none"))
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Outcome};
    use super::*;

    fn posted(experiment: &'static str, arm: Arm, posting: &str, metric: &str) -> Option<f64> {
        let postings = published_heap(experiment, arm);
        let figures = postings.into_iter().find(|(name, _)| *name == posting)?.1;
        figures.into_iter().find(|(name, _)| *name == metric).map(|(_, value)| value)
    }

    #[test]
    fn the_table_has_what_was_posted() {
        let names = |experiment, arm| -> Vec<&str> {
            published_heap(experiment, arm).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(SYSBENCH, Arm::After), ["v2", "v3", "v7"], "patches are left out");
        assert_eq!(names(KERNEL_BUILD, Arm::Classical), ["v7"]);
        assert_eq!(names(ANDROID, Arm::Before), ["v7", "v5_reply"]);
        assert!(names(ANDROID, Arm::Classical).is_empty());
        assert_eq!(posted(KERNEL_BUILD, Arm::Classical, "v7", "system_time"), Some(5_023.5));
        assert_eq!(posted(ANDROID, Arm::After, "v7", "p95"), Some(1_228.0));
        assert_eq!(posted(SYSBENCH, Arm::Before, "v7", "tps"), Some(17_313.688_333));
    }

    #[test]
    fn the_published_figures_reproduce_themselves() {
        let tps = |arm| MeasuredSysbench {
            per_s: posted(SYSBENCH, arm, "v7", "tps").unwrap(),
            swapped_in: if arm == Arm::Classical { 11.0 } else { 10.0 },
            oom: 0.0,
        };
        let arms = [Arm::Before, Arm::After, Arm::Classical];
        let [before, after, classical] = arms.map(|arm| Some(tps(arm)));
        let mut criteria = sysbench_verdict(before, after, classical);
        let system = |arm| MeasuredBuild {
            system_s: posted(KERNEL_BUILD, arm, "v7", "system_time").unwrap(),
            swapped_out: if arm == Arm::Classical { 11.0 } else { 10.0 },
            ..MeasuredBuild::default()
        };
        let [before, after, classical] = arms.map(|arm| Some(system(arm)));
        criteria.extend(build_verdict(before, after, classical));
        let launches = |arm| MeasuredAndroid {
            mean: posted(ANDROID, arm, "v7", "mean").unwrap(),
            p95: posted(ANDROID, arm, "v7", "p95").unwrap(),
            refault_file: posted(ANDROID, arm, "v5_reply", "workingset_refault_file").unwrap(),
            refault_anon: posted(ANDROID, arm, "v5_reply", "workingset_refault_anon").unwrap(),
            read: posted(ANDROID, arm, "v5_reply", "pgpgin").unwrap(),
        };
        criteria.extend(android_verdict(launches(Arm::Before), launches(Arm::After)));
        assert_eq!(criteria.len(), 6 + 4 + 5);
        for criterion in criteria.iter().filter(|one| one.kind != Kind::Unpublished) {
            assert_eq!(criterion.outcome, Outcome::Reproduced, "{criterion:?}");
        }
    }

    #[test]
    fn each_condition_counts() {
        let wrong = |criteria: &[Criterion]| -> Vec<usize> {
            let right = [Outcome::Reproduced, Outcome::NotPublished];
            let wrong = |&at: &usize| !right.contains(&criteria[at].outcome);
            (0..criteria.len()).filter(wrong).collect()
        };
        let good = MeasuredBuild { system_s: 100.0, swapped_out: 5.0, ..MeasuredBuild::default() };
        let slow = MeasuredBuild { system_s: 180.0, swapped_out: 6.0, ..good };
        let build =
            |after, classical| wrong(&build_verdict(Some(good), Some(after), Some(classical)));
        assert!(build(good, slow).is_empty());
        assert_eq!(build(MeasuredBuild { system_s: 102.0, ..good }, slow), [0]);
        assert_eq!(build(good, MeasuredBuild { system_s: 120.0, ..slow }), [1]);
        assert_eq!(build(MeasuredBuild { oom: 1.0, ..good }, slow), [3]);

        let fast = MeasuredSysbench { per_s: 107.0, swapped_in: 5.0, oom: 0.0 };
        let slow = MeasuredSysbench { per_s: 100.0, swapped_in: 6.0, oom: 0.0 };
        let sysbench =
            |after, classical| wrong(&sysbench_verdict(Some(fast), Some(after), Some(classical)));
        assert!(sysbench(fast, slow).is_empty());
        assert_eq!(sysbench(MeasuredSysbench { per_s: 110.0, ..fast }, slow), [0]);
        assert_eq!(sysbench(fast, MeasuredSysbench { per_s: 106.0, ..slow }), [1, 3]);
        assert_eq!(sysbench(fast, MeasuredSysbench { oom: 1.0, ..slow }), [5]);

        let before = MeasuredAndroid {
            mean: 868.0,
            p95: 1_399.0,
            refault_file: 27_689.0,
            refault_anon: 237.0,
            read: 269_224.0,
        };
        let after = MeasuredAndroid {
            mean: 850.5,
            p95: 1_228.0,
            refault_file: 17_075.0,
            refault_anon: 498.0,
            read: 223_801.0,
        };
        let android = |after| wrong(&android_verdict(before, after));
        assert!(android(after).is_empty());
        assert_eq!(android(MeasuredAndroid { mean: 867.9, ..after }), [0]);
        assert_eq!(android(MeasuredAndroid { p95: 1_390.0, ..after }), [1]);
        assert_eq!(android(MeasuredAndroid { refault_file: 27_000.0, ..after }), [2]);
        assert_eq!(android(MeasuredAndroid { read: 269_000.0, ..after }), [3]);
        assert_eq!(android(MeasuredAndroid { refault_anon: 1_000.0, ..after }), [4]);
    }
}
