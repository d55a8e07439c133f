//! Published figures beside ours: each line of the table of what was posted, arm by arm, with the
//! same figure of an experiment's rows.
//!
//! A figure is found by its name in the JSON of the row that stands for the arm. What an experiment
//! does not measure, or not at the published size, has none: it is counted, and not guessed.

use lowtide_core::Policy;
use lowtide_experiments::published::{Arm, PublishedLine, published_lines};
use serde_json::{Value, json};

use super::plan::Experiment;

const ARMS: [(Arm, &str); 3] =
    [(Arm::Before, "before"), (Arm::After, "after"), (Arm::Classical, "classical")];

/// All published figures of an experiment as JSON, with ours from `rows`, which is `None` where
/// figures do not compare.
pub(super) fn beside(experiment: &Experiment, rows: Option<&[Value]>) -> Vec<Value> {
    let Some((workload, variant)) = experiment.published else { return Vec::new() };
    let lines = published_lines()
        .filter(|line| line.workload == workload && line.variant.starts_with(variant));
    lines.flat_map(|line| of_line(&line, rows)).collect()
}

/// How many figures were published of what none of these experiments plays.
pub(super) fn of_others(experiments: &[Experiment]) -> usize {
    let plays = |line: &PublishedLine| {
        experiments.iter().filter_map(|experiment| experiment.published).any(
            |(workload, variant)| line.workload == workload && line.variant.starts_with(variant),
        )
    };
    let lines = published_lines().filter(|line| !plays(line));
    lines.map(|line| ARMS.iter().filter(|(arm, _)| !line.text(*arm).is_empty()).count()).sum()
}

fn of_line(line: &PublishedLine, rows: Option<&[Value]>) -> Vec<Value> {
    let mut figures = Vec::new();
    for (arm, name) in ARMS {
        let text = line.text(arm);
        if text.is_empty() {
            continue;
        }
        let row = rows.and_then(|rows| rows.iter().find(|row| stands_for(row, line, arm)));
        let ours = row.and_then(|row| ours(row, line));
        figures.push(json!({
            "workload": line.workload,
            "variant": line.variant,
            "source": line.source,
            "metric": line.metric,
            "unit": line.unit,
            "arm": name,
            "published": text.parse::<f64>().map_or_else(|_| Value::from(text), Value::from),
            "ours": ours,
        }));
    }
    figures
}

/// Whether a row is the arm of a line.
fn stands_for(row: &Value, line: &PublishedLine, arm: Arm) -> bool {
    let is = |name: &str, text: &str| row[name] == text;
    if is("system", "published") {
        return false;
    }
    match line.workload {
        "fault_retry" => match arm {
            Arm::Before => is("fault_path", "mmap-lock-retry"),
            Arm::After => is("fault_path", "vma-lock-retry"),
            Arm::Classical => false,
        },
        "high_thrash" => {
            let readahead = row["readahead"] == (line.variant == "readahead");
            let throttle = match arm {
                Arm::Before => "overage",
                _ => "refault-recency",
            };
            readahead && is("high_policy", throttle) && is("memory", "hot")
        }
        // Single patches of the series are no arm.
        _ if line.source.contains("patch") && arm == Arm::After => false,
        _ => {
            let policy = row["policy"].as_str().and_then(|name| name.parse::<Policy>().ok());
            policy.and_then(Arm::of) == Some(arm)
        }
    }
}

/// The figure of a line in a row.
fn ours(row: &Value, line: &PublishedLine) -> Option<f64> {
    let at = |path: &str| row.pointer(path).and_then(Value::as_f64);
    let bucket = |number: usize| at(&format!("/latency_buckets/{number}/ops"));
    match (line.workload, line.metric) {
        (_, "avg_latency") => at("/latency_us/mean"),
        (_, "throughput" | "tps") => at("/ops_per_s"),
        // Megabytes a second, of reads of 4 KiB.
        (_, "bandwidth") => at("/ops_per_s").map(|reads| reads * 4096.0 / 1e6),
        (_, "total_requests") => at("/ops"),
        (_, "mean_per_worker") => at("/workers/mean"),
        (_, "ci95_low") => at("/workers/ci95/0"),
        (_, "ci95_high") => at("/workers/ci95/1"),
        (_, "stdev") => at("/workers/stdev"),
        (_, "jain") => at("/jain"),
        (_, "lat_0_1s") => bucket(0),
        (_, "lat_1_2s") => bucket(1),
        (_, "lat_2_4s") => bucket(2),
        (_, "lat_4_8s") => bucket(3),
        (_, "lat_8_16s") => bucket(4),
        (_, "system_time") => at("/system_s"),
        ("android_cold_start", "mean" | "p50" | "p90" | "p95") => {
            at(&format!("/launches/{}_ms", line.metric))
        }
        // Rounds were published of ten minutes, their rate is compared.
        ("fault_retry", "rounds") => None,
        ("fault_retry", "miss_per_drop") => at("/retries/miss_per_drop_pct"),
        ("fault_retry", counter) => at(&format!("/{counter}")),
        ("high_thrash", sample) => {
            let (what, number) = sample.split_once('_')?;
            let name = match what {
                "tps" => "tps",
                "read" => "read_kib",
                _ => "util_pct",
            };
            let index = number.parse::<usize>().ok()?.checked_sub(1)?;
            at(&format!("/samples/{index}/{name}"))
        }
        (_, counter) => at(&format!("/stat/{counter}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::ALL;
    use super::*;

    fn experiment(name: &str) -> Experiment {
        ALL.into_iter().find(|experiment| experiment.name == name).unwrap()
    }

    fn found<'a>(figures: &'a [Value], source: &str, metric: &str, arm: &str) -> &'a Value {
        let is = |figure: &&Value| {
            figure["source"] == source && figure["metric"] == metric && figure["arm"] == arm
        };
        figures.iter().find(is).unwrap()
    }

    #[test]
    fn figures_stand_beside_those_of_their_arm() {
        let rows = [
            json!({"system": "lowtide", "policy": "mglru-7.1", "ops_per_s": 7.0,
                "stat": {"pgpgin": 9}, "latency_us": {"mean": 4.0}}),
            json!({"system": "published", "policy": "lru", "ops_per_s": 1.0}),
            json!({"system": "lowtide", "policy": "lru", "ops_per_s": 8.0}),
        ];
        let all = beside(&experiment("ycsb-b"), Some(&rows));
        assert_eq!(found(&all, "v7", "throughput", "before")["ours"], 7.0);
        assert_eq!(found(&all, "v7", "throughput", "classical")["ours"], 8.0);
        assert_eq!(found(&all, "v2", "pgpgin", "before")["ours"], 9.0);
        assert_eq!(found(&all, "v2", "avg_latency", "before")["ours"], 4.0);
        assert_eq!(found(&all, "v7", "throughput", "after")["ours"], Value::Null);
        assert_eq!(found(&all, "v7", "throughput", "before")["published"], 60_653.502_655);
    }

    #[test]
    fn seconds_of_a_device_stand_beside_seconds() {
        let samples = json!([{"tps": 1.0, "read_kib": 2.0, "util_pct": 3.0}]);
        let row = |throttle: &str, readahead: bool| {
            json!({"system": "lowtide", "memory": "hot", "high_policy": throttle,
                "readahead": readahead, "samples": samples})
        };
        let rows = [row("overage", true), row("refault-recency", false)];
        let all = beside(&experiment("high-thrash"), Some(&rows));
        let of = |variant: &str, metric: &str, arm: &str| {
            let is = |figure: &&Value| {
                figure["variant"] == variant && figure["metric"] == metric && figure["arm"] == arm
            };
            all.iter().find(is).unwrap()["ours"].clone()
        };
        assert_eq!(of("readahead", "util_1", "before"), 3.0);
        assert_eq!(of("random", "read_1", "after"), 2.0);
        assert_eq!(of("readahead", "tps_2", "before"), Value::Null, "there was one second");
        assert_eq!(of("readahead", "tps_1", "after"), Value::Null, "it was not played");
    }

    #[test]
    fn every_published_line_is_of_an_experiment_or_counted() {
        let all: usize = published_lines()
            .map(|line| ARMS.iter().filter(|(arm, _)| !line.text(*arm).is_empty()).count())
            .sum();
        let played: usize = ALL.iter().map(|experiment| beside(experiment, None).len()).sum();
        assert_eq!(played + of_others(&ALL), all);
        assert!(all > 200, "{all}");
    }
}
