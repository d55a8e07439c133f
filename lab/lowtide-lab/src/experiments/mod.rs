//! Experiments that run in both worlds: `lowtide-lab bench NAME` on real files and real memory,
//! `lowtide-lab sim NAME` on a simulated machine.
//!
//! ```text
//!   experiment ──► plays (policy, script, throttle) ─► a player ─► played ──► experiment ──► rows,
//!   (its options)                               real or simulated                        verdict
//! ```
//!
//! An experiment is one file: its own options, its sizes, its scripts, its rows with their columns,
//! and the lines below them. It does not depend on its world, except for the times that the world
//! allows.
//!
//! | file | concept |
//! |---|---|
//! | `android` | apps that are started cold, one after another |
//! | `anon_zipf` | loads and stores of one heap of several budgets |
//! | `circles` | tenants that each read a file in circles, together more than the budget |
//! | `dd_oom` | a writer to a device whose writes take a second |
//! | `file_anon_mix` | readers of a file beside threads that allocate: the aging OOM |
//! | `fill` | a file written from start to end, beside other programs |
//! | `fio_mmap` | jobs that read blocks of mapped files at random |
//! | `heap` | the player of programs most of whose memory is heap, and its command line |
//! | `high_thrash` | threads above `high`, each throttle policy, and a neighbour on their device |
//! | `kernel_build` | compilers that start, fill a heap and exit |
//! | `mapping` | the player of `mmap-thrash` and `fio-mmap`, and its command line |
//! | `mixed` | reads and a few updates, and what checkpoints do to the reads |
//! | `mmap_thrash` | threads that map, read and unmap files: retries of faults |
//! | `noisy` | tenants with working sets beside a scanner, with and without `low` |
//! | `real` | the player on real memory, and its command line |
//! | `real_mapping` | the player of `mmap-thrash` and `fio-mmap` on real memory |
//! | `simulated` | the command line of the player on a simulated machine |
//! | `sysbench` | a database whose buffer pool is twelve times its memory |
//! | `tenants` | what servers and browsers of equal demand have, in both worlds |
//! | `writing` | the players of `fill` and `dd-oom`, whose runs end by themselves |

pub(crate) mod android;
pub(crate) mod anon_zipf;
pub(crate) mod circles;
pub(crate) mod dd_oom;
pub(crate) mod file_anon_mix;
pub(crate) mod fill;
pub(crate) mod fio_mmap;
pub(crate) mod heap;
pub(crate) mod high_thrash;
pub(crate) mod kernel_build;
pub(crate) mod mapping;
pub(crate) mod mixed;
pub(crate) mod mmap_thrash;
pub(crate) mod noisy;
pub(crate) mod real;
pub(crate) mod real_mapping;
pub(crate) mod simulated;
pub(crate) mod sysbench;
pub(crate) mod tenants;
pub(crate) mod writing;

use serde::Serialize;
use std::fmt;
use std::time::Duration;

use clap::Args;
use lowtide::Policy;
use lowtide_experiments::client::script::Done;
use lowtide_experiments::programs::script::Script;
use lowtide_report::columns::Columns;
use lowtide_report::row::{DeviceSample, Row};
use lowtide_report::values::{budget, grain, scale, scaled, size};
use lowtide_report::verdict::Closing;

use crate::bench::tenancy::loaders::WINDOW_PAGES;
use crate::throttle::{ProgramError, ThrottlePolicy};

/// How well tenants were served.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SharingRow {
    /// The share of the tenants' accesses that found their page.
    pub(crate) hit_ratio: Option<f64>,
    /// The share for each tenant.
    pub(crate) tenant_hit_ratios: Option<Vec<f64>>,
}

/// An experiment. The value has its own options.
pub(crate) trait Experiment: Args + fmt::Debug {
    const NAME: &str;
    /// One line for listings.
    const ABOUT: &str;
    /// The text below the options in its help.
    const HELP: &str;
    /// The defaults of a simulation.
    const SIMULATED: simulated::Defaults;
    /// Default of the measured seconds on real memory.
    const REAL_SECONDS: &str;
    /// The table.
    const COLUMNS: Columns;

    /// The plays, in order.
    ///
    /// # Errors
    /// A program that cannot be used.
    fn plays(&self, setting: &Setting) -> Result<Vec<Play>, ProgramError>;

    /// Lines above the table: a name of up to nine letters, and its text.
    fn describe(&self, setting: &Setting, plays: &[Play]) -> Vec<(&'static str, String)>;

    /// The rows of the plays. After an interruption, some have no result.
    fn rows(&self, setting: &Setting, plays: &[Play], played: &[Option<Played>]) -> Vec<Row>;

    /// What follows from the rows.
    fn closing(&self, _setting: &Setting, _rows: &[Row]) -> Closing {
        Closing::default()
    }
}

/// Budget and data of an experiment. Each sets its own defaults.
#[derive(Debug, Args)]
pub(crate) struct Sizes {
    /// Memory budget
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the file, instead of --scale
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "scale",
          allow_hyphen_values = true)]
    size: Option<u64>,
    /// Size of the file as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          allow_negative_numbers = true)]
    scale: f64,
}

impl Sizes {
    /// Bytes of the file.
    fn bytes(&self) -> u64 {
        self.size.map_or_else(|| scaled(self.max, self.scale), grain)
    }
}

/// The parts of the world and of the common options that an experiment uses.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// `real` or `sim`.
    pub(crate) world: &'static str,
    /// The simulated machine's name; the head of the results describes the real one.
    pub(crate) machine: String,
    /// Whether that is the default machine of the experiment.
    pub(crate) is_default_machine: bool,
    /// Bytes of a page.
    pub(crate) page: u64,
    /// The policies, each once.
    pub(crate) policies: Vec<Policy>,
    pub(crate) seed: u64,
    /// Time before a measurement.
    pub(crate) warm: Duration,
    /// Time of a measurement.
    pub(crate) run: Duration,
}

impl Setting {
    /// A file's size: whole windows of read-around, with pages of any size.
    pub(crate) fn file(&self, bytes: u64) -> u64 {
        grain(bytes.next_multiple_of(WINDOW_PAGES * self.page))
    }

    /// A row of a play, with the counts of its world.
    pub(crate) fn row(&self, workload: &'static str, play: &Play, played: &Played) -> Row {
        Row {
            workload,
            world: self.world,
            system: "lowtide",
            policy: play.policy.to_string(),
            machine: self.machine.clone(),
            page_bytes: self.page,
            seed: Some(self.seed),
            ..played.row.clone()
        }
    }
}

/// One run of a script.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    /// The reclaim policy.
    pub(crate) policy: Policy,
    /// What is played.
    pub(crate) script: Script,
    /// The throttle policy of groups with `high`; a program decides for the group of all actors if
    /// the script has a budget.
    pub(crate) throttle: ThrottlePolicy,
    /// Its name in the progress bar.
    pub(crate) label: String,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    /// A row with nothing but the counters of the world.
    pub(crate) row: Row,
    /// The actors, in the script's order.
    pub(crate) actors: Vec<Done>,
    /// Seconds measured.
    pub(crate) seconds: f64,
    /// The device, second by second.
    pub(crate) samples: Vec<DeviceSample>,
    /// Requests of the device per second.
    pub(crate) device_tps: f64,
    /// Total time that threads above a limit slept.
    pub(crate) slept_ms: f64,
    /// Number of runs of a program, if known.
    pub(crate) program_runs: Option<u64>,
}

/// The share of the calls of some actors that found their page.
fn together(actors: &[Done]) -> f64 {
    let (hits, calls) =
        actors.iter().fold((0, 0), |sum, done| (sum.0 + done.hits, sum.1 + done.calls()));
    if calls == 0 { 0.0 } else { hits as f64 / calls as f64 }
}
