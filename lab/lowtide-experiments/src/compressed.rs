//! What pages that stay compressed are worth: with and without them, over what decides it.
//!
//! A *cell* is a stream of accesses to one file, with contents that compress so well, within a part
//! of its pages as the budget, on a device whose reads take so long. It is played on the plain
//! machine with and without compressed pages, and the virtual time of both is compared. What a
//! governor gains where compressing pays is one half of the question; the other is that it loses
//! nowhere, [`TOLERANCE`] at most, what it tried and gave up included.
//!
//! Costs of compressing are those of zstd in `sim/costs.rs`, [`Codec::Fast`], and those that
//! `docs/compressed.md` has measured in the runtime, [`Codec::Slow`]. An access that hits takes 100
//! ns and reclaim what the plain machine says; a fault takes nothing besides its read or its
//! decompression, so differences are as large as they can be.

use lowtide_core::{ConfigError, Policy};
use lowtide_sim::{Plain, PlainConfig, PlainZcache, PlayError};
use lowtide_workload::zipf::{ZipfTable, permutation};
use lowtide_workload::{OpKind, SpaceId, SpaceKind, SplitMix64};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use thiserror::Error;

/// The part of its time that a cell may lose.
pub const TOLERANCE: f64 = 0.02;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// Phases of [`Skew::Phases`].
const PHASES: usize = 8;

/// Which page comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Skew {
    /// All alike.
    Uniform,
    /// Zipf with an exponent in hundredths, scattered.
    Zipf(u32),
    /// From start to end, over and over.
    Loop,
    /// Zipf with exponent .99, and every fourth access the next one of a scan of all pages.
    Mixed,
    /// Eighths, one after the other: zipf with exponent .99, all alike, a scan, zipf with other
    /// popular pages, a loop over a half, zipf over an eighth, all alike, zipf.
    Phases,
}

impl Skew {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Uniform,
        Self::Zipf(80),
        Self::Zipf(99),
        Self::Zipf(120),
        Self::Loop,
        Self::Mixed,
        Self::Phases,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Uniform => "uniform".into(),
            Self::Zipf(exponent) => format!("zipf {:.2}", f64::from(exponent) / 100.0),
            Self::Loop => "loop".into(),
            Self::Mixed => "zipf and scan".into(),
            Self::Phases => "phases".into(),
        }
    }

    /// The pages accessed, of so many.
    #[must_use]
    pub fn stream(self, pages: u32, accesses: usize, seed: u64) -> Vec<u32> {
        let mut rng = SplitMix64::new(seed);
        let pages = pages.max(8);
        let all = 0..accesses as u32;
        match self {
            Self::Uniform => all.map(|_| rng.below(pages.into()) as u32).collect(),
            Self::Zipf(exponent) => {
                let table = ZipfTable::new(pages, f64::from(exponent) / 100.0);
                let place = permutation(pages, rng.fork(1));
                all.map(|_| place[table.draw(&mut rng)]).collect()
            }
            Self::Loop => all.map(|at| at % pages).collect(),
            Self::Mixed => {
                let popular = Self::Zipf(99).stream(pages, accesses, seed);
                let next = |(at, page): (u32, u32)| if at % 4 == 3 { at / 4 % pages } else { page };
                (0..).zip(popular).map(next).collect()
            }
            Self::Phases => {
                let each = accesses / PHASES;
                let phase = |(number, skew, part): (u64, Self, u32)| {
                    skew.stream(pages / part, each, seed ^ number)
                };
                let zipf = Self::Zipf(99);
                let phases = [
                    (0, zipf, 1),
                    (1, Self::Uniform, 1),
                    (2, Self::Loop, 1),
                    (3, zipf, 1),
                    (4, Self::Loop, 2),
                    (5, zipf, 8),
                    (6, Self::Uniform, 1),
                    (7, zipf, 1),
                ];
                phases.into_iter().flat_map(phase).collect()
            }
        }
    }
}

/// How well pages compress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents {
    /// How many times larger a page is than what is left of it, in tenths.
    pub tenths: u32,
    /// Of a hundred pages, those that do not compress, anywhere in the file.
    pub incompressible: u32,
}

impl Contents {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::of(10, 0),
        Self::of(15, 0),
        Self::of(20, 0),
        Self::of(25, 0),
        Self::of(35, 0),
        Self::of(25, 50),
    ];

    const fn of(tenths: u32, incompressible: u32) -> Self {
        Self { tenths, incompressible }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        let times = f64::from(self.tenths) / 10.0;
        match self.incompressible {
            0 => format!("{times:.1}"),
            part => format!("{times:.1}, {part} % not"),
        }
    }
}

/// What compresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// Zstd on the machines of the simulator.
    Fast,
    /// As it was measured in the runtime, on a virtual machine with two cores.
    Slow,
}

impl Codec {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
        }
    }

    fn of(self, contents: Contents) -> PlainZcache {
        let bytes = PAGE * 10 / u64::from(contents.tenths);
        let fast = PlainZcache::zstd(bytes);
        let fast = PlainZcache { incompressible: contents.incompressible, ..fast };
        match self {
            Self::Fast => fast,
            // Decompressing 4 KiB takes 8 µs, and compressing as many times as long as with the
            // other.
            Self::Slow => {
                let load_ns = 8_000;
                PlainZcache { store_ns: fast.store_ns * load_ns / fast.load_ns, load_ns, ..fast }
            }
        }
    }
}

/// Budgets: the data are this many tenths of one.
pub const BUDGETS: [u32; 6] = [160, 80, 40, 20, 15, 11];
/// Nanoseconds of a read.
pub const READS: [u64; 4] = [10_000, 25_000, 65_000, 1_000_000];

/// What is played: all combinations.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Pages of the file.
    pub pages: u32,
    /// Accesses of each cell.
    pub accesses: usize,
    /// Policies.
    pub policies: Vec<Policy>,
    /// Streams.
    pub skews: Vec<Skew>,
    /// Contents.
    pub contents: Vec<Contents>,
    /// Budgets, as in [`BUDGETS`].
    pub budgets: Vec<u32>,
    /// Nanoseconds of a read.
    pub reads: Vec<u64>,
    /// What compresses.
    pub codecs: Vec<Codec>,
    /// The seed of streams.
    pub seed: u64,
}

/// What a machine has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Played {
    /// Virtual nanoseconds.
    pub nanos: u64,
    /// Pages read.
    pub reads: u64,
    /// Pages compressed and stored.
    pub stored: u64,
    /// Misses that found a page compressed.
    pub loaded: u64,
}

/// One cell, with and without compressed pages.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The policy.
    pub policy: Policy,
    /// The stream.
    pub skew: Skew,
    /// How well pages compress.
    pub contents: Contents,
    /// The data are this many tenths of the budget.
    pub budget: u32,
    /// Nanoseconds of a read.
    pub read_ns: u64,
    /// What compresses.
    pub codec: Codec,
    /// Without.
    pub without: Played,
    /// With.
    pub with: Played,
}

impl Cell {
    /// How many times faster it is with compressed pages.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.without.nanos as f64 / self.with.nanos.max(1) as f64
    }
}

/// Why a grid was not played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum GridError {
    /// A machine cannot have this budget.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An access cannot be played.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// The stop flag was set.
    #[error("stopped before all cells were played")]
    Cancelled,
}

impl Grid {
    /// All of it.
    #[must_use]
    pub fn new(pages: u32, accesses: usize, policies: &[Policy]) -> Self {
        Self {
            pages,
            accesses,
            policies: policies.to_vec(),
            skews: Skew::ALL.to_vec(),
            contents: Contents::ALL.to_vec(),
            budgets: BUDGETS.to_vec(),
            reads: READS.to_vec(),
            codecs: vec![Codec::Fast, Codec::Slow],
            seed: 1,
        }
    }

    /// Rows of cells that are played together.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.policies.len() * self.skews.len() * self.budgets.len() * self.reads.len()
    }

    /// Plays it. `done` is called with the number of rows that have been.
    ///
    /// # Errors
    /// [`GridError`].
    pub fn play(
        &self,
        threads: NonZeroUsize,
        stop: &AtomicBool,
        done: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Cell>, GridError> {
        let mut cells = Vec::new();
        let mut rows = 0;
        for &skew in &self.skews {
            let stream = skew.stream(self.pages, self.accesses, self.seed);
            let plans: Vec<(Policy, u32, u64)> = self
                .policies
                .iter()
                .flat_map(|&policy| self.budgets.iter().map(move |&budget| (policy, budget)))
                .flat_map(|(policy, budget)| {
                    self.reads.iter().map(move |&read_ns| (policy, budget, read_ns))
                })
                .collect();
            let (next, ready) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
            let work = || {
                while let Some(&plan) = plans.get(next.fetch_add(1, Relaxed)) {
                    let row = self.row(&stream, skew, plan, stop);
                    let mut ready = ready.lock().expect("no thread panics with it");
                    ready.push((plan, row));
                    done(rows + ready.len());
                }
            };
            thread::scope(|scope| {
                for _ in 1..threads.get() {
                    scope.spawn(work);
                }
                work();
            });
            let mut ready = ready.into_inner().expect("no thread panics with it");
            ready.sort_by_key(|(plan, _)| plans.iter().position(|other| other == plan));
            rows += ready.len();
            for (_, row) in ready {
                cells.extend(row?);
            }
        }
        Ok(cells)
    }

    fn row(
        &self,
        stream: &[u32],
        skew: Skew,
        (policy, budget, read_ns): (Policy, u32, u64),
        stop: &AtomicBool,
    ) -> Result<Vec<Cell>, GridError> {
        let pages = u64::from(self.pages) * 10 / u64::from(budget);
        let config = PlainConfig { read_ns: Some(read_ns), ..PlainConfig::new(policy, pages) };
        let without = played(stream, &config, stop)?;
        let each = self
            .contents
            .iter()
            .flat_map(|&contents| self.codecs.iter().map(move |&codec| (contents, codec)));
        each.map(|(contents, codec)| {
            let zcache = Some(codec.of(contents));
            let with = played(stream, &PlainConfig { zcache, ..config }, stop)?;
            Ok(Cell { policy, skew, contents, budget, read_ns, codec, without, with })
        })
        .collect()
    }
}

fn played(stream: &[u32], config: &PlainConfig, stop: &AtomicBool) -> Result<Played, GridError> {
    let mut machine = Plain::new(config)?;
    let file = machine.add_space(SpaceKind::File, 0);
    for part in stream.chunks(1 << 16) {
        if stop.load(Relaxed) {
            return Err(GridError::Cancelled);
        }
        for &page in part {
            machine.access(OpKind::Load, SpaceId(file.0), page.into())?;
        }
    }
    let zswap = machine.stat().zswap_events;
    Ok(Played {
        nanos: machine.now(),
        reads: machine.counts().reads,
        stored: zswap.zswpout,
        loaded: zswap.zswpin,
    })
}
