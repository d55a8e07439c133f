//! What rows have that a picture can show: a measure with its spread, a name that tells a row from
//! its neighbours, latencies, seconds of a device, points of a curve.

use serde_json::{Map, Value};

use super::number;
use crate::spread::Spread;

/// A row of a result, as JSON.
pub(super) type Fields = Map<String, Value>;

/// Pictures of measures for one result: more of them say nothing more.
const MOST: usize = 3;

/// A figure of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    /// Where it is in a row. A spread has its median there.
    path: &'static str,
    /// A list with a value for each round, if rows have that.
    rounds: Option<&'static str>,
    /// What it is, with its unit.
    pub(super) what: &'static str,
    /// What is better, in words.
    pub(super) better: &'static str,
    text: fn(f64) -> String,
}

const MORE: &str = "more is better";
const LESS: &str = "less is better";

const fn measure(path: &'static str, what: &'static str, better: &'static str) -> Measure {
    Measure { path, rounds: None, what, better, text: number::text }
}

/// All of them, the most telling first.
const MEASURES: [Measure; 19] = [
    Measure {
        rounds: Some("/round_ops_per_s"),
        ..measure("/ops_per_s", "Operations a second", MORE)
    },
    measure("/mib_per_s", "MiB written a second", MORE),
    measure("/iops", "Reads of the device a second", MORE),
    measure("/system_s", "Processor time of the system, s", LESS),
    measure("/launches/mean_ms", "Mean launch, ms", LESS),
    measure("/launches/p95_ms", "95th percentile of launches, ms", LESS),
    measure("/ops", "Operations", MORE),
    measure("/seeds/kills", "Seeds that were killed", LESS),
    Measure { text: memory, ..measure("/written_bytes", "Written to the file", MORE) },
    measure("/database/read_kib_per_op", "KiB read for an operation", LESS),
    measure("/stat/pgpgin", "KiB read", LESS),
    measure("/stat/workingset_refault_file", "Pages of files that came back", LESS),
    measure("/retries/miss_per_drop_pct", "Retries that miss, %", LESS),
    measure("/device_util_pct", "Device busy, %", LESS),
    measure("/neighbour/ops_per_s", "Reads of a neighbour a second", MORE),
    measure("/hit_ratio", "Hit ratio", MORE),
    measure("/miss_ratio", "Miss ratio", LESS),
    measure("/speed_ratio", "Speed relative to the first row", MORE),
    Measure { text: memory, ..measure("/peak_bytes", "Memory of files, at most", LESS) },
];

fn memory(bytes: f64) -> String {
    number::bytes(bytes)
}

impl Measure {
    /// The median and the extremes; one value for all three where nothing was repeated.
    pub(super) fn of(&self, row: &Fields) -> Option<Spread> {
        let value = at(row, self.path)?;
        if let Some(median) = value.get("median").and_then(Value::as_f64) {
            let end = |name| value.get(name).and_then(Value::as_f64).unwrap_or(median);
            return Some(Spread { median, min: end("min"), max: end("max") });
        }
        let value = value.as_f64()?;
        let rounds = self.rounds.and_then(|path| at(row, path)).and_then(Value::as_array);
        let rounds: Vec<f64> = rounds.into_iter().flatten().filter_map(Value::as_f64).collect();
        Some(match rounds.len() {
            0 | 1 => Spread { median: value, min: value, max: value },
            _ => Spread::of(rounds),
        })
    }

    /// A value as text.
    pub(super) fn text(&self, value: f64) -> String {
        (self.text)(value)
    }
}

/// The measures that tell these rows apart: first those that published rows have too, and only
/// those that two rows have and that are not the same for all.
pub(super) fn telling(rows: &[&Fields]) -> Vec<Measure> {
    let values = |measure: &Measure, published: bool| -> Vec<f64> {
        let rows = rows.iter().filter(|row| is_published(row) == published);
        rows.filter_map(|row| Some(measure.of(row)?.median)).collect()
    };
    let tells = |measure: &&Measure| {
        let ours = values(measure, false);
        let many = ours.len() + values(measure, true).len() > 1 || rows.len() == 1;
        many && ours.iter().any(|&value| value > 0.0)
    };
    let (both, ours): (Vec<Measure>, Vec<Measure>) =
        MEASURES.iter().filter(tells).partition(|measure| !values(measure, true).is_empty());
    // Operations are their rate times the seconds: shown only where they were published.
    let ours = ours.into_iter().filter(|measure| measure.path != "/ops");
    both.into_iter().chain(ours).take(MOST).collect()
}

/// A value at a path, which may go through objects.
pub(super) fn at<'a>(row: &'a Fields, path: &str) -> Option<&'a Value> {
    let mut parts = path.trim_start_matches('/').split('/');
    let first = row.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

pub(super) fn text_of<'a>(row: &'a Fields, name: &str) -> Option<&'a str> {
    row.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Whether others measured it.
pub(super) fn is_published(row: &Fields) -> bool {
    text_of(row, "system") == Some("published")
}

/// Whether lowtide is what was measured, or simulated.
pub(super) fn is_ours(row: &Fields) -> bool {
    text_of(row, "system")
        .is_none_or(|system| system.starts_with("lowtide") || ["view", "map"].contains(&system))
        || text_of(row, "workload") == Some("run")
}

/// The fields that can tell rows of one result apart, and how each is written.
const APART: [(&str, &str); 16] = [
    ("workload", ""),
    ("trace", ""),
    ("threads", " threads"),
    ("batch", " a call"),
    ("depth", " in flight"),
    ("max_bytes", " budget"),
    ("data_bytes", " data"),
    ("high_bytes", " high"),
    ("page_bytes", " pages"),
    ("scale", " of the size"),
    ("nodes", " nodes"),
    ("seed", " seed"),
    ("fault_path", ""),
    ("high_policy", ""),
    ("memory", ""),
    ("company", ""),
];

/// A name for each row: system and policy, and what else differs between the rows.
pub(super) fn names(rows: &[&Fields]) -> Vec<String> {
    let ours: Vec<&&Fields> = rows.iter().filter(|row| !is_published(row)).collect();
    let differ = |name: &str| {
        let mut values = ours.iter().map(|row| row.get(name));
        values.next().is_some_and(|first| values.any(|value| value != first))
    };
    let apart: Vec<(&str, &str)> = APART.into_iter().filter(|(name, _)| differ(name)).collect();
    let readahead = differ("readahead");
    let several = differ("system");
    rows.iter()
        .map(|row| {
            let policy = text_of(row, "policy");
            let system = text_of(row, "system").unwrap_or("lowtide");
            let mut words = Vec::new();
            if is_published(row) {
                words.push(format!("published {}", text_of(row, "source").unwrap_or_default()));
            } else if policy.is_none() || several && system != "lowtide" {
                words.push(system.to_owned());
            }
            words.extend(policy.map(Into::into));
            for &(name, unit) in &apart {
                words.extend(row.get(name).and_then(|value| word(name, value, unit)));
            }
            if readahead {
                let on = row.get("readahead").and_then(Value::as_bool);
                words.extend(on.map(|on| if on { "read-ahead" } else { "no read-ahead" }.into()));
            }
            words.retain(|word| !word.trim().is_empty());
            words.join(", ").trim().to_owned()
        })
        .collect()
}

fn word(name: &str, value: &Value, unit: &str) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if name.ends_with("_bytes") => number::bytes(number.as_f64()?),
        Value::Number(number) if name == "seed" => return Some(format!("seed {number}")),
        Value::Number(number) => number::text(number.as_f64()?),
        _ => return None,
    };
    Some(text + unit)
}

/// Percentiles of a latency in microseconds: the names of those that a row has, and their values.
pub(super) fn latencies(row: &Fields) -> Vec<(&'static str, f64)> {
    const NAMES: [(&str, &str); 3] = [("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")];
    let value = |name: &str| at(row, "latency_us")?.get(name)?.as_f64().filter(|&us| us > 0.0);
    NAMES.into_iter().filter_map(|(name, shown)| Some((shown, value(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(values: &Value) -> Vec<&Fields> {
        values.as_array().unwrap().iter().map(|row| row.as_object().unwrap()).collect()
    }

    #[test]
    fn names_say_what_differs_and_nothing_else() {
        let values = json!([
            {"system": "lowtide", "policy": "lru", "threads": 4, "max_bytes": 65536, "seed": 1},
            {"system": "lowtide", "policy": "lru", "threads": 8, "max_bytes": 65536, "seed": 1},
            {"system": "mmap", "policy": null, "threads": 4, "max_bytes": 65536, "seed": 1},
            {"system": "published", "source": "v7", "policy": "lru", "threads": 4},
        ]);
        let found = names(&rows(&values));
        assert_eq!(
            found,
            ["lru, 4 threads", "lru, 8 threads", "mmap, 4 threads", "published v7, lru, 4 threads"]
        );
    }

    #[test]
    fn a_measure_has_the_spread_of_its_rounds() {
        let values = json!([
            {"ops_per_s": 10.0, "round_ops_per_s": [9.0, 10.5, 12.0]},
            {"ops_per_s": 7.0},
            {"mib_per_s": {"median": 2.0, "min": 1.0, "max": 3.0}},
        ]);
        let of = |measure: &Measure, row: usize| measure.of(rows(&values)[row]);
        let rate = &MEASURES[0];
        assert_eq!(of(rate, 0), Some(Spread { median: 10.5, min: 9.0, max: 12.0 }));
        assert_eq!(of(rate, 1), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
        assert_eq!(of(rate, 2), None);
        assert_eq!(of(&MEASURES[1], 2), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
    }

    #[test]
    fn what_was_published_comes_first_and_zeros_are_no_picture() {
        let values = json!([
            {"system": "lowtide", "ops_per_s": 1.0, "system_s": 4.0, "hit_ratio": 0.0},
            {"system": "published", "system_s": 5.0},
            {"system": "lowtide", "ops_per_s": 2.0, "system_s": 3.0, "hit_ratio": 0.0},
        ]);
        let found: Vec<&str> = telling(&rows(&values)).iter().map(|measure| measure.path).collect();
        assert_eq!(found, ["/system_s", "/ops_per_s"]);
    }
}
