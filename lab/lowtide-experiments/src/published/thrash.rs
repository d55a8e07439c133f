//! What was published about the thrash above `memory.high`, and when a simulation has reproduced
//! it.
//!
//! Three sets of samples of `sar`, a second each: the kernel as it was, the patch, and the patch
//! with the mapping advised to be random. What is *ours* in the verdict has no published figure to
//! compare with, but the patch's own row. Source: `docs/kernel/workloads.md` §10(c), (d).

use super::figures::{self, Arm};
use super::verdict::Criterion;

/// The name of the experiment in the table.
const EXPERIMENT: &str = "high_thrash";
/// Pages of a charge batch: the patch makes a task sleep once for each.
const BATCH: u64 = 64;

/// One second of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SarSample {
    /// Commands.
    pub tps: f64,
    /// KiB read.
    pub read_kib: f64,
    /// Busy, in percent.
    pub util_pct: f64,
}

/// The published samples of an arm: [`Arm::Before`] is the kernel as it was, [`Arm::After`] the
/// patch. Empty for what was not measured.
#[must_use]
pub fn published_thrash(arm: Arm, readahead: bool) -> Vec<SarSample> {
    let variant = if readahead { "readahead" } else { "random" };
    let mut samples: Vec<SarSample> = Vec::new();
    for (metric, value) in figures::lines_of(EXPERIMENT, variant, arm) {
        let Some((what, number)) = metric.split_once('_') else { continue };
        let Some(at) = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) else {
            continue;
        };
        if at >= samples.len() {
            samples.resize(at + 1, SarSample::default());
        }
        let sample = &mut samples[at];
        match what {
            "tps" => sample.tps = value,
            "read" => sample.read_kib = value,
            _ => sample.util_pct = value,
        }
    }
    samples
}

/// What was measured of one throttle policy, with or without read-ahead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredThrash {
    /// The device, second by second.
    pub samples: Vec<SarSample>,
    /// Iterations of the thrasher per second.
    pub ops_per_s: f64,
    /// Reads of the neighbour per second, in a run with one.
    pub neighbour_per_s: f64,
}

impl MeasuredThrash {
    fn mean(&self, of: fn(&SarSample) -> f64) -> f64 {
        self.samples.iter().map(of).sum::<f64>() / self.samples.len() as f64
    }

    fn ops_per_kib(&self) -> f64 {
        self.ops_per_s / self.mean(|sample| sample.read_kib)
    }
}

/// The arms of a verdict; what was not run is left out.
#[derive(Clone, Debug, Default)]
pub struct ThrashArms {
    /// Overage alone, with read-ahead.
    pub before: Option<MeasuredThrash>,
    /// The patch, with read-ahead.
    pub patched: Option<MeasuredThrash>,
    /// The patch, without.
    pub patched_random: Option<MeasuredThrash>,
    /// Stall debt, with read-ahead.
    pub ours: Option<MeasuredThrash>,
    /// Stall debt, without.
    pub ours_random: Option<MeasuredThrash>,
}

/// Every criterion that can be decided from these arms.
#[must_use]
pub fn thrash_verdict(arms: &ThrashArms) -> Vec<Criterion> {
    const ANY: f64 = f64::INFINITY;
    let mut criteria = Vec::new();
    if let Some(before) = &arms.before {
        let busy = before.mean(|sample| sample.util_pct);
        criteria.push(Criterion::within("before: device busy, %", busy, (85.0, 100.5), "90.7"));
    }
    if let (Some(before), Some(patched)) = (&arms.before, &arms.patched) {
        let read = |arm: &MeasuredThrash| arm.mean(|sample| sample.read_kib);
        criteria.push(Criterion::within(
            "read a second, before / patch",
            read(before) / read(patched),
            (20.0, ANY),
            "40.5",
        ));
    }
    if let Some(patched) = &arms.patched {
        let megabytes = patched.mean(|sample| sample.read_kib) * 1024.0 / 1e6;
        criteria.push(Criterion::within("patch: MB/s", megabytes, (0.0, 10.0), "6.2"));
    }
    if let Some(random) = &arms.patched_random {
        let tps = random.mean(|sample| sample.tps);
        let kib = random.mean(|sample| sample.read_kib) / tps;
        let whole = |sample: &&SarSample| (sample.tps as u64).is_multiple_of(BATCH);
        let share =
            random.samples.iter().filter(whole).count() as f64 / random.samples.len() as f64;
        criteria.extend([
            Criterion::within("patch, random: KiB a request", kib, (4.0, 4.0), "4.0"),
            Criterion::within("patch, random: requests a second", tps, (400.0, 700.0), "533"),
            Criterion::within(
                "patch, random: seconds of whole batches of 64",
                share,
                (0.5, 1.0),
                "0.67",
            ),
        ]);
    }
    for (ours, patched, words) in [
        (
            &arms.ours,
            &arms.patched,
            [
                "ours: device busy, %",
                "iterations for a KiB read, ours / patch",
                "neighbour's reads, ours / patch",
                "neighbour's reads, ours / before",
            ],
        ),
        (
            &arms.ours_random,
            &arms.patched_random,
            [
                "ours, random: device busy, %",
                "random: iterations for a KiB read, ours / patch",
                "random: neighbour's reads, ours / patch",
                "",
            ],
        ),
    ] {
        let Some(ours) = ours else { continue };
        let busy = ours.mean(|sample| sample.util_pct);
        criteria.push(Criterion::within(words[0], busy, (0.0, 11.0), "(patch 0 to 7)"));
        if let Some(patched) = patched {
            let progress = ours.ops_per_kib() / patched.ops_per_kib();
            criteria.push(Criterion::within(words[1], progress, (1.0, ANY), "-"));
            let neighbour = ours.neighbour_per_s / patched.neighbour_per_s;
            criteria.push(Criterion::within(words[2], neighbour, (1.0, ANY), "-"));
        }
        if let (Some(before), false) = (&arms.before, words[3].is_empty()) {
            let neighbour = ours.neighbour_per_s / before.neighbour_per_s;
            criteria.push(Criterion::within(words[3], neighbour, (1.0, ANY), "-"));
        }
    }
    criteria
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    fn posted(arm: Arm, readahead: bool) -> Option<MeasuredThrash> {
        let samples = published_thrash(arm, readahead);
        Some(MeasuredThrash { samples, ops_per_s: 1.0, neighbour_per_s: 1.0 })
    }

    /// `docs/kernel/workloads.md` §10(c): the means.
    #[test]
    fn arms_have_the_samples_that_were_posted_for_them() {
        let means = |arm, readahead| {
            let arm = posted(arm, readahead).unwrap();
            let round = |of: fn(&SarSample) -> f64| (arm.mean(of) * 10.0).round() / 10.0;
            (
                round(|s| s.tps),
                round(|s| s.read_kib).round(),
                round(|s| s.util_pct),
                arm.samples.len(),
            )
        };
        assert_eq!(means(Arm::Before, true), (3349.7, 243_839.0, 90.7, 6));
        assert_eq!(means(Arm::After, false), (533.3, 2133.0, 7.3, 6));
        assert_eq!(means(Arm::After, true), (39.8, 6027.0, 0.0, 5));
        assert!(published_thrash(Arm::Before, false).is_empty(), "there is no such sample");
    }

    #[test]
    fn the_published_samples_reproduce_themselves() {
        let arms = ThrashArms {
            before: posted(Arm::Before, true),
            patched: posted(Arm::After, true),
            patched_random: posted(Arm::After, false),
            ..ThrashArms::default()
        };
        let found = thrash_verdict(&arms);
        assert_eq!(found.len(), 6);
        for criterion in found {
            assert_eq!(criterion.outcome, Outcome::Reproduced, "{criterion:?}");
        }
        assert!(thrash_verdict(&ThrashArms::default()).is_empty());
    }

    #[test]
    fn each_condition_on_ours_counts() {
        let patched = posted(Arm::After, true);
        let mut ours = patched.clone().unwrap();
        let arms = |ours: &MeasuredThrash| ThrashArms {
            before: posted(Arm::Before, true),
            patched: patched.clone(),
            ours: Some(ours.clone()),
            ..ThrashArms::default()
        };
        let failed = |arms: &ThrashArms| {
            let of = |c: &Criterion| c.outcome != Outcome::Reproduced;
            thrash_verdict(arms).iter().filter(|c| of(c)).count()
        };
        assert_eq!(failed(&arms(&ours)), 0);
        ours.ops_per_s = 0.9;
        assert_eq!(failed(&arms(&ours)), 1, "less progress for what is read");
        ours.neighbour_per_s = 0.9;
        assert_eq!(
            failed(&arms(&ours)),
            3,
            "and the neighbour has less than before, and than with the patch"
        );
        ours.samples.iter_mut().for_each(|sample| sample.util_pct = 12.0);
        assert_eq!(failed(&arms(&ours)), 4);
    }
}
