//! Every trace of the corpus.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use lowtide_workload::trace::{Format, read_from};
use lowtide_workload::{PageOp, SpaceKind};
use thiserror::Error;

use super::distance::Distances;
use super::generate::Model;
use crate::groundtruth::{Case, PublicCase};

/// A trace.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Its name.
    pub name: &'static str,
    /// What it is a case of.
    pub family: &'static str,
    /// What it is made from.
    pub source: Source,
}

/// What a trace is made from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A ground-truth sequence, as [`Case`] parses it.
    Sequence(&'static str),
    /// A sequence on which real kernels were measured, by name.
    Public(&'static str),
    /// A generator and its seed.
    Model(Model, u64),
    /// A program, recorded: a compact trace.
    Recorded(&'static [u8]),
}

/// Which traces may be looked at while a policy is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Those for experiments.
    Tuning,
    /// Those set aside, whose figures are reported.
    Aside,
}

impl Half {
    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tuning => "tuning",
            Self::Aside => "aside",
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not that of a half.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown half `{0}`; choose tuning or aside")]
pub struct UnknownHalf(pub String);

impl FromStr for Half {
    type Err = UnknownHalf;

    fn from_str(name: &str) -> Result<Self, UnknownHalf> {
        let found = [Self::Tuning, Self::Aside].into_iter().find(|half| half.name() == name);
        found.ok_or_else(|| UnknownHalf(name.to_owned()))
    }
}

/// A recorded trace, or a sequence, cannot be read: the program was built from damaged files.
#[derive(Debug, Error)]
#[error("the trace `{name}` of the corpus is damaged: {why}; build lowtide from a clean checkout")]
pub struct TraceDamaged {
    /// The trace.
    pub name: &'static str,
    /// The reason.
    pub why: String,
}

impl Trace {
    /// The trace called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        TRACES.iter().find(|trace| trace.name == name)
    }

    /// Its half: within each family, every second one is set aside.
    #[must_use]
    pub fn half(&self) -> Half {
        let family = TRACES.iter().filter(|other| other.family == self.family);
        let before = family.take_while(|other| other.name != self.name).count();
        if before % 2 == 0 { Half::Tuning } else { Half::Aside }
    }

    /// The operations, and the kind of each space. A `scale` below 1 makes pages and accesses of
    /// generated traces fewer, and cuts recorded ones.
    ///
    /// # Errors
    /// [`TraceDamaged`].
    pub fn ops(&self, scale: f64) -> Result<(Vec<PageOp>, Vec<SpaceKind>), TraceDamaged> {
        let damaged = |why: String| TraceDamaged { name: self.name, why };
        let case = |line: &str| -> Result<_, TraceDamaged> {
            let case: Case =
                scaled(line, scale).parse().map_err(|e| damaged(format!("{line}: {e}")))?;
            let spaces = case.spaces().iter().map(|space| space.kind).collect();
            Ok((case.page_ops().collect(), spaces))
        };
        match self.source {
            Source::Sequence(line) => case(line),
            Source::Public(name) => match PublicCase::find(name) {
                Some(public) => case(public.parameters),
                None => Err(damaged("there is no such published case".to_owned())),
            },
            Source::Model(model, seed) => Ok((model.ops(seed, scale), vec![SpaceKind::File])),
            Source::Recorded(bytes) => {
                let mut trace = read_from(bytes, Path::new(self.name), Some(Format::Compact))
                    .map_err(|e| damaged(e.to_string()))?;
                let mut ops = Vec::new();
                for record in trace.by_ref() {
                    ops.push(record.map_err(|e| damaged(e.to_string()))?.op);
                }
                ops.truncate((ops.len() as f64 * scale.min(1.0)).ceil() as usize);
                let kinds = trace.names().spaces().iter().map(|space| space.kind).collect();
                Ok((ops, kinds))
            }
        }
    }
}

/// The parameters of a case with fewer pages and accesses.
fn scaled(line: &str, scale: f64) -> String {
    let word = |word: &str| match word.split_once('=') {
        Some((key @ ("F" | "N" | "H" | "A" | "D"), n)) => match n.parse::<f64>() {
            Ok(n) => format!("{key}={}", ((n * scale) as u64).max(16)),
            Err(_) => word.to_owned(),
        },
        _ => word.to_owned(),
    };
    line.split(' ').filter(|w| !w.is_empty()).map(word).collect::<Vec<_>>().join(" ")
}

const fn sequence(family: &'static str, name: &'static str, line: &'static str) -> Trace {
    Trace { name, family, source: Source::Sequence(line) }
}

const fn model(family: &'static str, name: &'static str, seed: u64, model: Model) -> Trace {
    Trace { name, family, source: Source::Model(model, seed) }
}

const fn public(case: &'static str, name: &'static str) -> Trace {
    Trace { name, family: "public", source: Source::Public(case) }
}

const fn recorded(name: &'static str, bytes: &'static [u8]) -> Trace {
    Trace { name, family: "recorded", source: Source::Recorded(bytes) }
}

/// Regimes of a program that works near, then far.
const NEAR_AND_FAR: &[(f64, f64, f64)] = &[(0.01, 1.0, 0.0), (0.2, 0.8, 0.01)];
/// Regimes of a program that fills, works, and scans.
const FILL_AND_WORK: &[(f64, f64, f64)] = &[(0.03, 1.5, 0.02), (0.1, 0.4, 0.0), (0.5, 0.1, 0.3)];

/// The corpus. Within a family, traces for tuning and traces set aside alternate.
pub const TRACES: [Trace; 58] = [
    sequence("zipf", "zipf-0.6", "kind=zipf s=0.6 F=16384 N=300000 seed=101"),
    sequence("zipf", "zipf-0.7", "kind=zipf s=0.7 F=16384 N=300000 seed=102"),
    sequence("zipf", "zipf-0.8", "kind=zipf s=0.8 F=20000 N=400000 seed=103"),
    sequence("zipf", "zipf-0.9", "kind=zipf s=0.9 F=20000 N=400000 seed=104"),
    sequence("zipf", "zipf-0.99", "kind=zipf s=0.99 F=32768 N=500000 seed=105"),
    sequence("zipf", "zipf-1.0", "kind=zipf s=1.0 F=24000 N=500000 seed=106"),
    sequence("zipf", "zipf-1.1", "kind=zipf s=1.1 F=32768 N=500000 seed=107"),
    sequence("zipf", "zipf-1.2", "kind=zipf s=1.2 F=40000 N=600000 seed=108"),
    sequence("uniform", "uniform-20k", "kind=uniform F=20000 N=300000 seed=111"),
    sequence("uniform", "uniform-8k", "kind=uniform F=8000 N=300000 seed=112"),
    sequence("loop", "loop-8k", "kind=loop F=8000 N=200000 seed=121"),
    sequence("loop", "loop-20k", "kind=loop F=20000 N=300000 seed=122"),
    model("loop", "loops-2k-9k", 123, Model::TwoLoops { loops: [2_000, 9_000], accesses: 300_000 }),
    model(
        "loop",
        "loops-1k-16k",
        124,
        Model::TwoLoops { loops: [1_000, 16_000], accesses: 400_000 },
    ),
    model(
        "loop",
        "loop-beside-zipf-30",
        125,
        Model::LoopBesideZipf { length: 8_000, hot: 6_000, percent: 30, accesses: 400_000 },
    ),
    model(
        "loop",
        "loop-beside-zipf-70",
        126,
        Model::LoopBesideZipf { length: 6_000, hot: 10_000, percent: 70, accesses: 400_000 },
    ),
    sequence("scan", "mix-20", "kind=mix s=0.99 H=12000 F=60000 N=400000 scan=20 seed=131"),
    sequence("scan", "mix-50", "kind=mix s=0.9 H=10000 F=80000 N=400000 scan=50 seed=132"),
    sequence("scan", "twotouch-2k", "kind=twotouch s=0.9 H=10000 F=60000 N=400000 D=2000 seed=133"),
    sequence("scan", "twotouch-8k", "kind=twotouch s=0.8 H=8000 F=80000 N=400000 D=8000 seed=134"),
    model(
        "scan",
        "bursts-rare",
        135,
        Model::Bursts { hot: 12_000, scan: 8_000, every: 60_000, cold: 40_000, accesses: 500_000 },
    ),
    model(
        "scan",
        "bursts-often",
        136,
        Model::Bursts { hot: 10_000, scan: 1_500, every: 5_000, cold: 60_000, accesses: 500_000 },
    ),
    sequence("phase", "phases-4", "kind=zipf s=0.99 F=20000 N=400000 phases=4 seed=141"),
    sequence("phase", "phases-12", "kind=zipf s=0.9 F=16384 N=480000 phases=12 seed=142"),
    model(
        "phase",
        "seasons-8",
        143,
        Model::Seasons { pages: 16_000, seasons: 8, accesses: 400_000 },
    ),
    model(
        "phase",
        "seasons-12",
        144,
        Model::Seasons { pages: 12_000, seasons: 12, accesses: 480_000 },
    ),
    model("phase", "drift-slow", 145, Model::Drift { window: 8_000, step: 40, accesses: 400_000 }),
    model("phase", "drift-fast", 146, Model::Drift { window: 6_000, step: 10, accesses: 400_000 }),
    model(
        "writer",
        "hot-cold-90",
        151,
        Model::HotCold { pages: 20_000, percent: 90, accesses: 400_000 },
    ),
    model(
        "writer",
        "hot-cold-60",
        152,
        Model::HotCold { pages: 16_000, percent: 60, accesses: 400_000 },
    ),
    model("writer", "log-wide", 153, Model::Log { pages: 30_000, index: 8_000, accesses: 400_000 }),
    model(
        "writer",
        "log-narrow",
        154,
        Model::Log { pages: 60_000, index: 3_000, accesses: 400_000 },
    ),
    model(
        "nested",
        "join-wide",
        161,
        Model::Join { outer: 10_000, inner: 3_000, accesses: 300_000 },
    ),
    model("nested", "join-narrow", 162, Model::Join { outer: 8_000, inner: 40, accesses: 400_000 }),
    model("nested", "product-40", 163, Model::Product { row: 12, rows: 100, accesses: 400_000 }),
    model("nested", "product-80", 164, Model::Product { row: 4, rows: 260, accesses: 500_000 }),
    model(
        "tree",
        "tree-points",
        171,
        Model::Tree { leaves: 30_000, fanout: 64, exponent: 0.8, ranges: 0, accesses: 500_000 },
    ),
    model(
        "tree",
        "tree-ranges",
        172,
        Model::Tree { leaves: 24_000, fanout: 32, exponent: 0.9, ranges: 4, accesses: 500_000 },
    ),
    model(
        "distance",
        "distance-near-far",
        181,
        Model::Distances(Distances {
            pages: 16_000,
            accesses: 400_000,
            regimes: NEAR_AND_FAR,
            stay: 2_000,
        }),
    ),
    model(
        "distance",
        "distance-near-far-mixed",
        182,
        Model::Distances(Distances {
            pages: 20_000,
            accesses: 400_000,
            regimes: NEAR_AND_FAR,
            stay: 5,
        }),
    ),
    model(
        "distance",
        "distance-fill-work",
        183,
        Model::Distances(Distances {
            pages: 24_000,
            accesses: 400_000,
            regimes: FILL_AND_WORK,
            stay: 10_000,
        }),
    ),
    model(
        "distance",
        "distance-fill-work-mixed",
        184,
        Model::Distances(Distances {
            pages: 18_000,
            accesses: 400_000,
            regimes: FILL_AND_WORK,
            stay: 100,
        }),
    ),
    public("z1", "public-z1"),
    public("mix", "public-mix"),
    public("loop", "public-loop"),
    public("af60", "public-af60"),
    public("z3", "public-z3"),
    public("w5", "public-w5"),
    public("high", "public-high"),
    public("p0", "public-p0"),
    recorded("cc", include_bytes!("../../corpus/cc.lt.zst")),
    recorded("cxx", include_bytes!("../../corpus/cxx.lt.zst")),
    recorded("python-dict", include_bytes!("../../corpus/python-dict.lt.zst")),
    recorded("python-json", include_bytes!("../../corpus/python-json.lt.zst")),
    recorded("sqlite-join", include_bytes!("../../corpus/sqlite-join.lt.zst")),
    recorded("sqlite-point", include_bytes!("../../corpus/sqlite-point.lt.zst")),
    recorded("git-log", include_bytes!("../../corpus/git-log.lt.zst")),
    recorded("git-grep", include_bytes!("../../corpus/git-grep.lt.zst")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_family_has_traces_in_both_halves_and_no_name_twice() {
        let names: HashSet<_> = TRACES.iter().map(|trace| trace.name).collect();
        assert_eq!(names.len(), TRACES.len());
        for trace in &TRACES {
            let of = |half| TRACES.iter().any(|t| t.family == trace.family && t.half() == half);
            assert!(of(Half::Tuning) && of(Half::Aside), "{}", trace.family);
        }
    }

    #[test]
    fn every_trace_is_the_same_each_time_and_shrinks_with_the_scale() {
        for trace in &TRACES {
            let ops = |scale| trace.ops(scale).unwrap().0;
            let (small, smaller) = (ops(0.04), ops(0.02));
            assert_eq!(ops(0.04), small, "{}", trace.name);
            assert!(!smaller.is_empty() && smaller.len() < small.len(), "{}", trace.name);
        }
    }
}
