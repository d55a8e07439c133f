//! What was published about the thrash above `memory.high`, and when a simulation has reproduced
//! it.
//!
//! Three sets of samples of `sar`, a second each: the kernel as it was, the patch, and the patch
//! with the mapping advised to be random. What is *ours* in the verdict has no published figure to
//! compare with, but the patch's own row. Source: `docs/kernel/workloads.md` §10(c), (d).

use super::figures::{self, Arm};
use super::verdict::{Criterion, agreement, apart, effect, unpublished};

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
    let ThrashArms { before, patched, patched_random, ours, ours_random } = arms;
    let all = [before, patched, patched_random, ours, ours_random].map(Option::as_ref);
    apart(all, of_the_arms)
}

/// The same for the arms in their order.
fn of_the_arms(arms: [Option<&MeasuredThrash>; 5]) -> Vec<Criterion> {
    const ANY: f64 = f64::INFINITY;
    let [before, patched, patched_random, ours, ours_random] = arms;
    let read = |arm: &MeasuredThrash| arm.mean(|sample| sample.read_kib);
    let busy = |arm: &MeasuredThrash| arm.mean(|sample| sample.util_pct);
    let mut criteria = Vec::new();
    if let (Some(before), Some(patched)) = (before, patched) {
        let what = "device busy, before less patch, points";
        let less = busy(before) - busy(patched);
        criteria.push(effect(what, less, (75.0, 100.5), "90.7"));
        let (what, times) = ("read a second, before / patch", read(before) / read(patched));
        criteria.push(effect(what, times, (20.0, 80.0), "40.5"));
    }
    if let Some(before) = before {
        let what = "before: device busy, %";
        criteria.push(agreement(what, busy(before), (85.0, 100.5), "90.7"));
    }
    if let Some(patched) = patched {
        let megabytes = read(patched) * 1024.0 / 1e6;
        criteria.push(agreement("patch: MB/s", megabytes, (3.0, 10.0), "6.2"));
    }
    if let Some(random) = patched_random {
        let tps = random.mean(|sample| sample.tps);
        let kib = read(random) / tps;
        let whole = |sample: &&SarSample| (sample.tps as u64).is_multiple_of(BATCH);
        let share =
            random.samples.iter().filter(whole).count() as f64 / random.samples.len() as f64;
        criteria.extend([
            agreement("patch, random: KiB a request", kib, (4.0, 4.0), "4.0"),
            agreement("patch, random: requests a second", tps, (400.0, 700.0), "533"),
            agreement("patch, random: seconds of whole batches of 64", share, (0.5, 1.0), "0.67"),
        ]);
    }
    for (ours, patched, words) in [
        (
            ours,
            patched,
            [
                "ours: device busy, %",
                "iterations for a KiB read, ours / patch",
                "neighbour's reads, ours / patch",
                "neighbour's reads, ours / before",
            ],
        ),
        (
            ours_random,
            patched_random,
            [
                "ours, random: device busy, %",
                "random: iterations for a KiB read, ours / patch",
                "random: neighbour's reads, ours / patch",
                "",
            ],
        ),
    ] {
        let Some(ours) = ours else { continue };
        let range = (0.0, 11.0);
        criteria.push(unpublished(words[0], busy(ours), range, "(patch 0 to 7)"));
        if let Some(patched) = patched {
            let progress = ours.ops_per_kib() / patched.ops_per_kib();
            criteria.push(unpublished(words[1], progress, (1.0, ANY), "-"));
            let neighbour = ours.neighbour_per_s / patched.neighbour_per_s;
            criteria.push(unpublished(words[2], neighbour, (1.0, ANY), "-"));
        }
        if let (Some(before), false) = (before, words[3].is_empty()) {
            let neighbour = ours.neighbour_per_s / before.neighbour_per_s;
            criteria.push(unpublished(words[3], neighbour, (1.0, ANY), "-"));
        }
    }
    criteria
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Outcome};
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
        assert_eq!(found.len(), 7);
        for criterion in found {
            assert_eq!(criterion.outcome, Outcome::Reproduced, "{criterion:?}");
        }
        assert!(thrash_verdict(&ThrashArms::default()).is_empty());
    }

    #[test]
    fn ours_is_shown_beside_the_patch_and_counts_for_nothing() {
        let (before, patched) = (posted(Arm::Before, true), posted(Arm::After, true));
        let arms = ThrashArms { before, ours: patched.clone(), patched, ..ThrashArms::default() };
        let found = thrash_verdict(&arms);
        let ours: Vec<_> = found.iter().filter(|c| c.kind == Kind::Unpublished).collect();
        assert_eq!(ours.len(), 4);
        assert!(ours.iter().all(|c| c.outcome == Outcome::NotPublished), "{ours:?}");
        assert!(ours[1..3].iter().all(|c| (c.value - 1.0).abs() < 1e-9), "{ours:?}");
    }
}
