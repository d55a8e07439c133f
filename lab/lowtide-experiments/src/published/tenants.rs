//! What was published about tenants of equal demand, and when a simulation has reproduced it:
//! Chrome & Node.js, 64 workers in 32 groups.
//!
//! Figures that the last posting leaves out are left out here. The first posting is known at second
//! hand. Source: `docs/kernel/workloads.md` §2(c), (d).

use super::figures::{self, Arm};
use super::verdict::{Criterion, agreement, apart, effect};

/// The name of the experiment in the table.
const EXPERIMENT: &str = "chrome_node";

/// What one posting says about one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PublishedTenants {
    /// The posting, as in `v7`.
    pub posting: &'static str,
    /// Requests of all workers.
    pub total: Option<u64>,
    /// Requests of a worker, on average.
    pub mean: Option<f64>,
    /// The 95 % confidence interval of the mean.
    pub ci95: Option<(f64, f64)>,
    /// Standard deviation of a worker's requests.
    pub stdev: Option<f64>,
    /// Jain's index of fairness.
    pub jain: Option<f64>,
    /// Requests that took 0 to 1 s, 1 to 2, 2 to 4, 4 to 8 and 8 to 16; a posting may omit the last
    /// if it is empty.
    pub buckets: Option<[u64; 5]>,
}

/// What was published about an arm, the earliest posting first; postings that say nothing of it are
/// left out.
#[must_use]
pub fn published_tenants(arm: Arm) -> Vec<PublishedTenants> {
    let mut rows: Vec<PublishedTenants> = Vec::new();
    for (posting, metric, value) in figures::lines(EXPERIMENT, arm) {
        if rows.last().is_none_or(|row| row.posting != posting) {
            rows.push(PublishedTenants { posting, ..PublishedTenants::default() });
        }
        let Some(row) = rows.last_mut() else { continue };
        let mut slower_than =
            |bucket: usize| row.buckets.get_or_insert_default()[bucket] = value as u64;
        match metric {
            "total_requests" => row.total = Some(value as u64),
            "mean_per_worker" => row.mean = Some(value),
            "ci95_low" => row.ci95.get_or_insert_default().0 = value,
            "ci95_high" => row.ci95.get_or_insert_default().1 = value,
            "stdev" => row.stdev = Some(value),
            "jain" => row.jain = Some(value),
            "lat_0_1s" => slower_than(0),
            "lat_1_2s" => slower_than(1),
            "lat_2_4s" => slower_than(2),
            "lat_4_8s" => slower_than(3),
            "lat_8_16s" => slower_than(4),
            other => unreachable!("the table says nothing else about {EXPERIMENT}: {other}"),
        }
    }
    rows
}

/// What was measured of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredTenants {
    /// Requests of all workers.
    pub total: f64,
    /// Requests of a worker, on average.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean.
    pub ci95: f64,
    /// Jain's index.
    pub jain: f64,
    /// Requests that took less than a second.
    pub below_1s: f64,
    /// Requests that took 4 to 8 seconds.
    pub from_4s_to_8s: f64,
    /// Requests that took 8 seconds or more.
    pub from_8s: f64,
}

/// Every criterion that can be decided from these arms. Those of the classical lists are left out
/// without them.
#[must_use]
pub fn tenants_verdict(
    before: &MeasuredTenants,
    after: &MeasuredTenants,
    classical: Option<&MeasuredTenants>,
) -> Vec<Criterion> {
    apart([Some(before), Some(after), classical], |arms| {
        let [Some(before), Some(after), classical] = arms else { return Vec::new() };
        let mut criteria = of_all_arms(&arms.into_iter().flatten().collect::<Vec<_>>());
        let what = "requests, after / before";
        let ratio = after.total / before.total;
        criteria.push(agreement(what, ratio, (0.97, 1.05), "1.007 to 1.021"));
        if let Some(classical) = classical {
            let what = "requests, classical / before";
            let ratio = classical.total / before.total;
            criteria.push(effect(what, ratio, (0.60, 0.90), "0.762"));
            let late = |arm: &MeasuredTenants| 1e6 * arm.from_8s / arm.total;
            let what = "of a million requests 8 s and more, classical less before";
            let less = late(classical) - late(before);
            criteria.push(effect(what, less, (135.0, 545.0), "272, 0"));
        }
        criteria
    })
}

/// How alike workers are in any arm, and the two modes of what a request takes.
fn of_all_arms(arms: &[&MeasuredTenants]) -> Vec<Criterion> {
    // What is no number (nothing divided by nothing) stays so, and meets no criterion.
    let extreme = |of: fn(&MeasuredTenants) -> f64, better: fn(f64, f64) -> bool| {
        arms.iter().map(|arm| of(arm)).reduce(|a, b| if b.is_nan() || better(b, a) { b } else { a })
    };
    let least = |of| extreme(of, |b, a| b < a).unwrap_or(f64::NAN);
    let most = |of| extreme(of, |b, a| b > a).unwrap_or(f64::NAN);
    let least_of_all = "Jain's index, least of any arm";
    let widest = "confidence interval / mean, most of any arm";
    let [quick, slow] =
        ["requests below 1 s, least share of any arm", "requests of 4 to 8 s, the same"];
    vec![
        agreement(least_of_all, least(|arm| arm.jain), (0.98, 1.0), "0.980 to 0.998"),
        agreement(widest, most(|arm| arm.ci95 / arm.mean), (0.0, 0.05), "0.012 to 0.036"),
        agreement(quick, least(|arm| arm.below_1s / arm.total), (0.2, 0.5), "0.32 to 0.35"),
        agreement(slow, least(|arm| arm.from_4s_to_8s / arm.total), (0.35, 0.65), "0.47 to 0.54"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    /// The figures of a posting.
    fn posted(arm: Arm, posting: &str) -> MeasuredTenants {
        let row = published_tenants(arm).into_iter().find(|row| row.posting == posting).unwrap();
        let (low, high) = row.ci95.unwrap();
        let [below_1s, _, _, from_4s_to_8s, from_8s] =
            row.buckets.unwrap().map(|count| count as f64);
        let mean = low.midpoint(high);
        let total = row.total.unwrap() as f64;
        let ci95 = (high - low) / 2.0;
        let jain = row.jain.unwrap();
        MeasuredTenants { total, mean, ci95, jain, below_1s, from_4s_to_8s, from_8s }
    }

    #[test]
    fn arms_have_the_figures_that_were_posted_for_them() {
        let before = published_tenants(Arm::Before);
        assert_eq!(
            before.iter().map(|row| row.posting).collect::<Vec<_>>(),
            ["v1_secondary", "v2", "v3", "v7"]
        );
        assert_eq!((before[0].buckets, before[0].stdev), (None, Some(70.5)));
        assert_eq!(before[1].ci95, Some((1248.8, 1308.4)));
        let classical = published_tenants(Arm::Classical);
        assert_eq!(classical.len(), 1, "only the last posting has it");
        assert_eq!((classical[0].total, classical[0].mean), (Some(62_399), Some(975.0)));
        let buckets = classical[0].buckets.unwrap();
        assert_eq!(
            (buckets, buckets.iter().sum()),
            ([20_051, 2_255, 6_149, 33_927, 17], 62_399_u64)
        );
    }

    #[test]
    fn the_published_figures_reproduce_themselves() {
        for posting in ["v2", "v3", "v7"] {
            let [before, after] = [Arm::Before, Arm::After].map(|arm| posted(arm, posting));
            let classical = (posting == "v7").then(|| posted(Arm::Classical, posting));
            let found = tenants_verdict(&before, &after, classical.as_ref());
            for criterion in found {
                assert_eq!(criterion.outcome, Outcome::Reproduced, "{posting}: {criterion:?}");
            }
        }
    }

    #[test]
    fn each_condition_counts() {
        let [before, good, classical] =
            [Arm::Before, Arm::After, Arm::Classical].map(|arm| posted(arm, "v7"));
        let wrong = |after: &MeasuredTenants, classical| -> Vec<usize> {
            let found = tenants_verdict(&before, after, Some(&classical));
            (0..found.len()).filter(|&i| found[i].outcome != Outcome::Reproduced).collect()
        };
        for (at, broken) in [
            (0, MeasuredTenants { jain: 0.979, ..good }),
            (1, MeasuredTenants { ci95: good.mean * 0.051, ..good }),
            (2, MeasuredTenants { below_1s: good.total * 0.1, ..good }),
            (3, MeasuredTenants { from_4s_to_8s: 0.0, ..good }),
            (4, MeasuredTenants { total: before.total * 0.96, ..good }),
        ] {
            assert_eq!(wrong(&broken, classical), [at]);
        }
        for (at, broken) in [
            (5, MeasuredTenants { total: before.total * 0.92, from_8s: 20.0, ..classical }),
            (6, MeasuredTenants { from_8s: 0.0, ..classical }),
        ] {
            let all = MeasuredTenants {
                below_1s: broken.total * 0.3,
                from_4s_to_8s: broken.total * 0.5,
                ..broken
            };
            assert_eq!(wrong(&good, all), [at]);
        }
        let nothing = MeasuredTenants::default();
        let of_nothing = tenants_verdict(&nothing, &nothing, None);
        assert!(of_nothing.iter().all(|criterion| criterion.outcome != Outcome::Reproduced));
    }
}
