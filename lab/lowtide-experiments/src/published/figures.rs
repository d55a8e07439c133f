//! The published figures, a row for each posting and arm: the table, and what it says about the
//! database.

use std::collections::BTreeMap;

use lowtide_core::Policy;

use crate::client::mix::Posting;

const TABLE: &str = include_str!("../../data/published.csv");
/// The name of the database's experiment in it.
const EXPERIMENT: &str = "mongodb_ycsb_b";

/// A policy as the evaluation had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The multi-gen LRU without the series: `mglru-7.1`.
    Before,
    /// The same kernel with the series and nothing else: `mglru-7.1+series`. The changes that came
    /// later (`mglru` has them) were posted after the series was measured.
    After,
    /// The classical lists: `lru`.
    Classical,
}

impl Arm {
    /// The arm that a policy stands for; `None` for mixtures.
    #[must_use]
    pub fn of(policy: Policy) -> Option<Self> {
        match policy {
            Policy::MGLRU_7_1 => Some(Self::Before),
            Policy::MGLRU_7_1_SERIES => Some(Self::After),
            Policy::LRU => Some(Self::Classical),
            _ => None,
        }
    }

    /// The column of the table.
    const fn column(self) -> usize {
        match self {
            Self::Before => 5,
            Self::After => 6,
            Self::Classical => 7,
        }
    }
}

/// What one posting says about one arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// The posting, as in `v7`.
    pub posting: &'static str,
    /// Operations per second.
    pub ops_per_s: Option<f64>,
    /// Mean latency in microseconds.
    pub mean_us: Option<f64>,
    /// Counters by the kernel's names: `pgpgin` and `pgpgout` in KiB, refaults in pages.
    pub stat: BTreeMap<&'static str, u64>,
}

/// A line of the table, as it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedLine {
    /// The workload.
    pub workload: &'static str,
    /// Its sizes, or another difference.
    pub variant: &'static str,
    /// The posting.
    pub source: &'static str,
    /// What was measured.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    arms: [&'static str; 3],
}

impl PublishedLine {
    /// What was posted of an arm: a number, or words; nothing if it was not measured.
    #[must_use]
    pub const fn text(&self, arm: Arm) -> &'static str {
        self.arms[arm.column() - Arm::Before.column()]
    }
}

/// All lines of the table.
pub fn published_lines() -> impl Iterator<Item = PublishedLine> {
    TABLE.lines().skip(1).filter_map(|line| {
        let fields: Vec<&'static str> = line.split(',').collect();
        let &[workload, variant, source, metric, unit, before, after, classical, ..] = &fields[..]
        else {
            return None;
        };
        let arms = [before, after, classical];
        Some(PublishedLine { workload, variant, source, metric, unit, arms })
    })
}

/// The lines about an experiment, as fields.
fn fields(experiment: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = TABLE.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    lines.filter(move |fields| fields[0] == experiment)
}

/// What the table says about an arm of an experiment: posting, metric, value. An arm that was not
/// measured has an empty field, which is left out.
pub(super) fn lines(
    experiment: &'static str,
    arm: Arm,
) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
    fields(experiment).filter_map(move |fields| {
        let value = fields.get(arm.column())?.parse().ok()?;
        Some((fields[2], fields[3], value))
    })
}

/// What the table says about an arm of a variant of an experiment: metric, value.
pub(super) fn lines_of(
    experiment: &'static str,
    variant: &'static str,
    arm: Arm,
) -> impl Iterator<Item = (&'static str, f64)> {
    fields(experiment).filter(move |fields| fields[1] == variant).filter_map(move |fields| {
        let value = fields.get(arm.column())?.parse().ok()?;
        Some((fields[3], value))
    })
}

/// What was published about an arm of the database, the earliest posting first; postings that say
/// nothing of it are left out.
#[must_use]
pub fn published(arm: Arm) -> Vec<Published> {
    let mut rows: Vec<Published> = Vec::new();
    for (posting, metric, value) in lines(EXPERIMENT, arm) {
        if rows.last().is_none_or(|row| row.posting != posting) {
            rows.push(Published { posting, ..Published::default() });
        }
        let Some(row) = rows.last_mut() else { continue };
        match metric {
            "throughput" => row.ops_per_s = Some(value),
            "avg_latency" => row.mean_us = Some(value),
            counter => {
                row.stat.insert(counter, value as u64);
            }
        }
    }
    rows
}

/// What a posting says about an arm of `file-anon-mix`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedMix {
    /// The postings that say so.
    pub posting: &'static str,
    /// Rounds that were finished of 128, in the posting's words.
    pub rounds: &'static str,
    /// The group at the kill, if there was one: counters by the kernel's names, sizes in bytes.
    pub stat: BTreeMap<&'static str, u64>,
}

/// What a posting says about an arm of `file-anon-mix`.
#[must_use]
pub fn published_mix(posting: Posting, arm: Arm) -> PublishedMix {
    let mut row = PublishedMix { posting: posting.name(), ..PublishedMix::default() };
    for fields in fields("aging_oom").filter(|fields| fields[2] == posting.name()) {
        match (fields[3], fields[arm.column()]) {
            ("rounds_done", rounds) => row.rounds = rounds,
            (counter, value) => {
                row.stat.extend(value.parse::<u64>().ok().map(|value| (counter, value)));
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let read: usize = [Arm::Before, Arm::After, Arm::Classical]
            .into_iter()
            .flat_map(published)
            .map(|row| {
                usize::from(row.ops_per_s.is_some())
                    + usize::from(row.mean_us.is_some())
                    + row.stat.len()
            })
            .sum();
        let written = fields(EXPERIMENT).flat_map(|fields| fields[5..8].to_vec());
        assert_eq!(read, written.filter(|field| !field.is_empty()).count());
    }

    #[test]
    fn no_line_is_left_out() {
        let lines: Vec<PublishedLine> = published_lines().collect();
        assert_eq!(lines.len(), TABLE.lines().count() - 1);
        let is = |line: &&PublishedLine| (line.source, line.metric) == ("v7", "throughput");
        let line = lines.iter().find(is).unwrap();
        assert_eq!(line.text(Arm::Classical), "93713.640901");
        assert_eq!((line.workload, line.unit), (EXPERIMENT, "ops/s"));
    }

    #[test]
    fn arms_have_the_figures_that_were_posted_for_them() {
        let after = published(Arm::After);
        assert_eq!(after.iter().map(|row| row.posting).collect::<Vec<_>>(), ["v2", "v3", "v7"]);
        assert_eq!(after[2].ops_per_s, Some(82_384.354_760));
        assert_eq!(after[2].mean_us, None);
        assert_eq!(after[0].stat["workingset_refault_file"], 18_934_364);
        let classical = published(Arm::Classical);
        assert_eq!(classical.len(), 1, "only the last posting has it");
        assert_eq!(classical[0].stat["pgpgin"], 85_365_614);
        assert_eq!(published(Arm::Before)[1].mean_us, Some(500.974_696_333_010_7));
    }

    #[test]
    fn only_what_was_measured_is_an_arm() {
        assert_eq!(Arm::of("mglru-7.1".parse().unwrap()), Some(Arm::Before));
        assert_eq!(Arm::of("lru".parse().unwrap()), Some(Arm::Classical));
        assert_eq!(Arm::of("mglru-7.1+series".parse().unwrap()), Some(Arm::After));
        for other in ["mglru-7.1+S10", "mglru-7.1+series-S10", "mglru"] {
            assert_eq!(Arm::of(other.parse().unwrap()), None, "{other} was not measured");
        }
    }

    #[test]
    fn the_aging_oom_has_a_state_at_the_kill_and_two_arms_without_one() {
        let before = published_mix(Posting::V3, Arm::Before);
        assert_eq!((before.posting, before.rounds), ("v3_v7", "10-20 then OOM"));
        assert_eq!((before.stat["failcnt"], before.stat.len()), (24_460, 15));
        assert!(
            before.stat["usage"] - before.stat["anon"] - before.stat["file"] < 1 << 20,
            "nothing else is charged"
        );
        let older = published_mix(Posting::V2, Arm::Before);
        assert_eq!((older.posting, older.rounds), ("v2", "10-20 then OOM"));
        assert_eq!((older.stat["usage"], older.stat["failcnt"]), (Posting::V2.max(), 354_207));
        for posting in Posting::ALL {
            for arm in [Arm::After, Arm::Classical] {
                let (rounds, stat) = ("128", BTreeMap::new());
                let finished = PublishedMix { posting: posting.name(), rounds, stat };
                assert_eq!(published_mix(posting, arm), finished);
            }
        }
    }
}
