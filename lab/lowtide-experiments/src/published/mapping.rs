//! What was published about the retry storm and about fio's mmap engine, and when a simulation has
//! reproduced it. Source: `docs/kernel/workloads.md` §6(c), (d), §9(c), (d).

use lowtide_sim::spec::FaultPath;

use super::figures::{self, Arm};
use super::verdict::{Criterion, agreement, apart, effect, unpublished};

/// One published run of the retry storm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PublishedStorm {
    /// Rounds, if they were published.
    pub rounds: Option<f64>,
    /// Rounds per second.
    pub rounds_per_s: Option<f64>,
    /// Retries that missed, in percent of the locks given up.
    pub miss_per_drop_pct: f64,
    /// Locks given up.
    pub drops: f64,
    /// Retries that missed.
    pub misses: f64,
}

/// The published runs of the retry storm with a fault path, without the noise or with it; none for
/// paths that were not measured.
#[must_use]
pub fn published_storm(path: FaultPath, noise: bool) -> Vec<PublishedStorm> {
    let arm = match path {
        FaultPath::MmapLockRetry => Arm::Before,
        FaultPath::VmaLockRetry => Arm::After,
        _ => return Vec::new(),
    };
    let variants: &[&'static str] =
        if noise { &["500x16M_noise"] } else { &["500x16M_run1_runA", "500x16M_run2_runB"] };
    let run = |&variant: &&'static str| {
        let mut run = PublishedStorm::default();
        for (metric, value) in figures::lines_of("fault_retry", variant, arm) {
            match metric {
                "rounds" => run.rounds = Some(value),
                "throughput" => run.rounds_per_s = Some(value),
                "miss_per_drop" => run.miss_per_drop_pct = value,
                "retry_mmap_drop" => run.drops = value,
                "retry_io_miss" => run.misses = value,
                _ => {}
            }
        }
        run
    };
    variants.iter().map(run).collect()
}

/// What was measured of the retry storm with one fault path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredStorm {
    /// Rounds per second.
    pub rounds_per_s: f64,
    /// Retries that missed, in percent of the locks given up; 0 without drops.
    pub miss_per_drop_pct: f64,
}

/// Every criterion that can be decided: of the kernel's fault path, of the series, of `hold`.
#[must_use]
pub fn storm_verdict(
    base: Option<MeasuredStorm>,
    series: Option<MeasuredStorm>,
    hold: Option<MeasuredStorm>,
) -> Vec<Criterion> {
    apart([base, series, hold], |[base, series, hold]| {
        let mut criteria = Vec::new();
        let miss = |arm: MeasuredStorm| arm.miss_per_drop_pct;
        if let (Some(base), Some(series)) = (base, series) {
            let what = "miss / drop, mmap-lock-retry less vma-lock-retry, points";
            let less = miss(base) - miss(series);
            criteria.push(effect(what, less, (25.0, 60.0), "43.3, 44.9"));
            let ratio = series.rounds_per_s / base.rounds_per_s;
            let what = "rounds/s, vma-lock-retry / mmap-lock-retry";
            criteria.push(effect(what, ratio, (1.3, 3.0), "1.53 to 2.40"));
        }
        if let Some(series) = series {
            let what = "vma-lock-retry: miss / drop, %";
            criteria.push(agreement(what, miss(series), (0.0, 3.0), "1.69, 0.03"));
        }
        if let Some(hold) = hold {
            let what = "hold: miss / drop, %";
            criteria.push(unpublished(what, miss(hold), (0.0, 0.0), "-"));
        }
        criteria
    })
}

/// A published bandwidth of fio: the posting, and MB/s (10^6 bytes).
#[must_use]
pub fn published_fio(zipf: bool, arm: Arm) -> Vec<(&'static str, f64)> {
    let postings: &[&str] = if zipf { &["v2"] } else { &["v3", "v7"] };
    let rows = figures::lines("fio_mmap_randread", arm);
    rows.filter(|(posting, ..)| postings.contains(posting))
        .map(|(p, _, value)| (p, value))
        .collect()
}

/// What was measured of fio under one policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredFio {
    /// Reads per second.
    pub reads_per_s: f64,
    /// The share of reads whose page was resident.
    pub hit_ratio: f64,
}

/// Every criterion that can be decided from these arms. `hits` are the steady hit ratios of first
/// in, first out and of least recently used ([`FioMmap::steady_hits`]).
///
/// [`FioMmap::steady_hits`]: crate::programs::mapping::FioMmap::steady_hits
#[must_use]
pub fn fio_verdict(
    zipf: bool,
    (fifo, lru): (f64, f64),
    before: Option<MeasuredFio>,
    after: Option<MeasuredFio>,
    classical: Option<MeasuredFio>,
) -> Vec<Criterion> {
    apart([before, after, classical], |[before, after, classical]| {
        let mut criteria = Vec::new();
        if let (Some(before), Some(after)) = (before, after) {
            let ratio = after.reads_per_s / before.reads_per_s;
            criteria.push(if zipf {
                agreement("MB/s, after / before", ratio, (0.99, 1.01), "1.000")
            } else {
                agreement("MB/s, after / before", ratio, (0.98, 1.02), "1.004, 1.006")
            });
        }
        if let (Some(after), Some(classical), false) = (after, classical, zipf) {
            let ratio = after.reads_per_s / classical.reads_per_s;
            criteria.push(effect("MB/s, after / lru", ratio, (1.03, 1.20), "1.098"));
        }
        for (what, arm) in [
            ("hit ratio, before", before),
            ("hit ratio, after", after),
            ("hit ratio, lru", classical),
        ] {
            let Some(arm) = arm else { continue };
            // All policies lie between the two; both are the budget's share where blocks are alike.
            let (margin, expected) =
                if zipf { (0.001, "(FIFO to LRU)") } else { (0.01, "(limit / data)") };
            let range = (fifo - margin, lru + margin);
            criteria.push(unpublished(what, arm.hit_ratio, range, expected));
        }
        criteria
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Outcome};
    use super::*;

    #[test]
    fn the_published_storms_reproduce_themselves() {
        for run in 0..2 {
            let of = |path| {
                let storm = published_storm(path, false)[run];
                assert_eq!(
                    (storm.misses * 1e4 / storm.drops).round() / 1e2,
                    storm.miss_per_drop_pct
                );
                let rounds_per_s = storm.rounds_per_s.unwrap();
                let miss_per_drop_pct = storm.miss_per_drop_pct;
                Some(MeasuredStorm { rounds_per_s, miss_per_drop_pct })
            };
            let (base, series) = (of(FaultPath::MmapLockRetry), of(FaultPath::VmaLockRetry));
            let found = storm_verdict(base, series, None);
            assert_eq!(found.len(), 3);
            assert!(found.iter().all(|c| c.outcome == Outcome::Reproduced), "{found:?}");
            let swapped = storm_verdict(series, base, None);
            assert!(swapped.iter().all(|c| c.outcome != Outcome::Reproduced), "{swapped:?}");
        }
        assert_eq!(published_storm(FaultPath::MmapLockRetry, true)[0].misses, 318_350.0);
        assert!(published_storm(FaultPath::Hold, false).is_empty());
    }

    #[test]
    fn the_published_bandwidths_reproduce_themselves() {
        let of = |zipf, arm| {
            let reads_per_s = published_fio(zipf, arm).last()?.1 * 1e6 / 4096.0;
            Some(MeasuredFio { reads_per_s, hit_ratio: if zipf { 0.97 } else { 0.208 } })
        };
        for (zipf, criteria, hits) in [(true, 3, (0.966, 0.973)), (false, 5, (0.2083, 0.2083))] {
            let [before, after, lru] =
                [Arm::Before, Arm::After, Arm::Classical].map(|arm| of(zipf, arm));
            let found = fio_verdict(zipf, hits, before, after, lru);
            assert_eq!(found.len(), criteria);
            let judged: Vec<_> = found.iter().filter(|c| c.kind != Kind::Unpublished).collect();
            assert!(judged.iter().all(|c| c.outcome == Outcome::Reproduced), "{found:?}");
        }
    }
}
