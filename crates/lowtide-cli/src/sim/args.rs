//! The options of `lowtide sim`.
//!
//! What is left out has a default that depends on what is simulated.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgGroup, Args, ValueEnum};
use lowtide::{Policy, Size};
use lowtide_core::high::handler::HighPolicy;
use lowtide_mrc::baseline::Baseline;
use lowtide_sim::swarm::{Bug, Plan};
use lowtide_workload::trace::Format;
use lowtide_workload::{Access, Letter, nearest};
use thiserror::Error;

use super::count::Count;
use crate::names::policy;
use crate::span::Span;

/// What to simulate, and on what.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["workload", "trace", "swarm", "swarm_plan"]))]
pub(crate) struct SimArgs {
    /// ycsb-a, ycsb-b, ycsb-c, tenants, file-anon-mix, dd-oom, fill, mixed, high-thrash,
    /// noisy-neighbour, zipf, uniform or loop (see `lowtide list workloads`)
    pub(crate) workload: Option<Target>,
    /// Play this trace instead of a workload; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Format of the trace: csv, compact, oracle-general, object-csv, msr, lackey or filemap
    /// [default: told by its content]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Bytes of a page of the trace, for a trace that does not say [default: what the trace says,
    /// else 4K]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) page: Option<Size>,
    /// Simulated machine: a name (`lowtide list machines`) or a TOML file [default: xeon-96t for
    /// ycsb and tenants, ramdisk for file-anon-mix, delay-1s for dd-oom, thrash for high-thrash,
    /// laptop for fill, mixed and noisy-neighbour, else none: see below]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,
    /// Memory budget; `max` is all of the machine's memory [default: 10G x scale for ycsb, 16G x
    /// scale for file-anon-mix, 128M for dd-oom, 256M for fill, mixed, zipf, uniform and loop, a
    /// quarter of what a trace touches; on a machine, a trace has all of its memory, and so have
    /// tenants]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) max: Option<Size>,
    /// Reclaim policies, one row each, with any switches: mglru-7.1+S10 [default:
    /// mglru,mglru-7.1,lru; mglru,mglru-7.1 for high-thrash]
    #[arg(long, value_name = "P,P", value_delimiter = ',', value_parser = policy)]
    pub(crate) policy: Option<Vec<Policy>>,
    /// Threads of the workload, on a machine [default: 32 for ycsb, 8 for mixed, else 1; a trace
    /// has its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) threads: Option<u32>,
    /// Operations measured, of all threads together, as in 200k, 50M or 1G [default: 6M x scale for
    /// ycsb, else 20M]
    #[arg(long, value_name = "N", visible_alias = "accesses", allow_hyphen_values = true)]
    pub(crate) ops: Option<Count>,
    /// Records, operations, caches and budget of ycsb, the memory of the machine and of tenants, or
    /// the sizes of file-anon-mix, as a part of the published experiment's [default: 1 for ycsb,
    /// 0.0625 for tenants, 1/64 for file-anon-mix]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub(crate) scale: Option<f64>,
    /// Virtual seconds, for tenants, mixed, high-thrash and noisy-neighbour [default: 600; 30 for
    /// mixed and high-thrash, 10 for noisy-neighbour]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// What tasks pay for being over memory.high, for high-thrash: overage, refault-recency or
    /// stall-debt [default: all]
    #[arg(long, value_name = "P,P", value_delimiter = ',')]
    pub(crate) high_policy: Option<Vec<HighPolicy>>,
    /// A program that decides what tasks pay, one more row for each, for high-thrash: an object
    /// file for eBPF
    #[arg(long, value_name = "FILE")]
    pub(crate) bpf: Vec<PathBuf>,
    /// Only the runs without read-ahead, for high-thrash
    #[arg(long)]
    pub(crate) no_readahead: bool,
    /// Rounds of filling and unmapping, for file-anon-mix [default: 128, as published]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rounds: Option<u32>,
    /// Size of the data, for zipf, uniform and loop, or of the file, for dd-oom, fill and mixed
    /// [default: 1G; 192M for dd-oom, four budgets for fill and mixed]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) size: Option<Size>,
    /// How long the device takes to write, for dd-oom: as in 100ms or 5s [default: what the
    /// machine's device takes]
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<Span>,
    /// Time between two checkpoints, for mixed: as in 500ms or 10s [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) checkpoint: Option<Span>,
    /// Way to the pages, for zipf, uniform and loop [default: mapped]
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) access: Option<Way>,
    /// Accesses that write, in percent, for zipf, uniform, loop and mixed [default: 0; 5 for mixed]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) write: Option<u32>,
    /// Swap for heaps, without --machine: a size, 0 for none [default: as much as the heaps want]
    #[arg(long, value_name = "SIZE")]
    pub(crate) swap: Option<Size>,
    /// What swap is on, without --machine
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = SwapDevice::Disk)]
    pub(crate) swap_device: SwapDevice,
    /// How willingly heaps are swapped: 0 to 200, 201 for nothing but heaps, without --machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=201), default_value_t = 60)]
    pub(crate) swappiness: u32,
    /// Print the miss-ratio curve of each policy and baseline, with --trace
    #[arg(long)]
    pub(crate) mrc: bool,
    /// Sizes on each curve [default: 24]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    points: Option<u16>,
    /// Textbook policies beside the engine's on a curve: strict-lru, clock, sieve, s3-fifo, arc,
    /// opt, or none [default: all]
    #[arg(long, value_name = "B,B", value_delimiter = ',')]
    baseline: Option<Vec<BaselineName>>,
    /// Draw the curves into FILE: .svg for the chart, .html for a page with table and advice
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Find the smallest budget with at most this share of misses, as in 0.01, with --trace
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    pub(crate) advise: Option<f64>,
    /// Test the simulator and the engine themselves: play N random plans, from --seed on, and check
    /// every invariant
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) swarm: Option<u64>,
    /// Replay one plan of a swarm, as a failure prints it
    #[arg(long, value_name = "PLAN")]
    pub(crate) swarm_plan: Option<Plan>,
    /// Plant a bug into every plan of a swarm, which must find it
    #[arg(long, value_name = "BUG", requires = "swarm", hide = true)]
    pub(crate) swarm_canary: Option<Bug>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 42, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Print the results as JSON instead of a table, or write them to FILE, too
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) json: Option<Option<PathBuf>>,
    /// Whether rows say how fast the simulation itself was: host_seconds, accesses_per_s,
    /// bytes_per_page [default: on for zipf, uniform and loop without --machine, else off]
    #[arg(long, value_enum, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub(crate) timing: Option<Switch>,
}

/// Where results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output<'a> {
    /// A table.
    Table,
    /// JSON on standard output, and no table.
    Json,
    /// A table, and JSON in a file.
    Both(&'a Path),
}

/// A baseline, or the word for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BaselineName(Option<Baseline>);

impl FromStr for BaselineName {
    type Err = <Baseline as FromStr>::Err;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "none" {
            Ok(Self(None))
        } else {
            name.parse().map(|baseline| Self(Some(baseline)))
        }
    }
}

impl SimArgs {
    /// Whether curves are wanted, or advice, which is read off them.
    pub(crate) const fn wants_curves(&self) -> bool {
        self.mrc || self.advise.is_some()
    }

    /// Whether an option was given that is about curves.
    pub(crate) const fn about_curves(&self) -> bool {
        self.wants_curves()
            || self.points.is_some()
            || self.baseline.is_some()
            || self.plot.is_some()
    }

    /// How many sizes a curve has, if it was said.
    pub(crate) fn points(&self) -> Option<usize> {
        self.points.map(usize::from)
    }

    /// The baselines beside the policies, each once: all for curves, none for advice alone, unless
    /// said.
    pub(crate) fn baselines(&self) -> Vec<Baseline> {
        let Some(given) = &self.baseline else {
            return if self.mrc { Baseline::ALL.to_vec() } else { Vec::new() };
        };
        let mut baselines = Vec::new();
        for baseline in given.iter().filter_map(|name| name.0) {
            if !baselines.contains(&baseline) {
                baselines.push(baseline);
            }
        }
        baselines
    }

    /// Where results go.
    pub(crate) fn output(&self) -> Output<'_> {
        match &self.json {
            None => Output::Table,
            Some(None) => Output::Json,
            Some(Some(path)) if path == Path::new("-") => Output::Json,
            Some(Some(path)) => Output::Both(path),
        }
    }

    /// The policies of the rows, each once; the first is the one that ratios are against unless
    /// `mglru-7.1` is among them.
    pub(crate) fn policies(&self) -> Vec<Policy> {
        let given = self
            .policy
            .clone()
            .unwrap_or_else(|| Policy::builtin().map(|(policy, _)| policy).collect());
        let mut policies = Vec::with_capacity(given.len());
        for policy in given {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        policies
    }
}

/// A workload that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A database under YCSB.
    Database(Letter),
    /// Programs of equal demand.
    Tenants,
    /// A thrash above `memory.high`.
    HighThrash,
    /// Working sets beside a scanner.
    NoisyNeighbour,
    /// Readers of a mapped file beside threads that allocate and free.
    Mix,
    /// A writer to a slow device, in a group smaller than its file.
    DdOom,
    /// A writer of a file of several budgets.
    Fill,
    /// Readers and a few updates beside checkpoints.
    Mixed,
    /// Accesses to single pages.
    Pages(Pattern),
}

/// Which page comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Zipf over the pages, exponent 0.99, scattered.
    Zipf,
    /// All alike.
    Uniform,
    /// From start to end, over and over.
    Loop,
}

impl Target {
    /// All of them, in the order in which they are listed.
    pub(crate) const ALL: [Self; 13] = [
        Self::Database(Letter::A),
        Self::Database(Letter::B),
        Self::Database(Letter::C),
        Self::Tenants,
        Self::HighThrash,
        Self::NoisyNeighbour,
        Self::Mix,
        Self::DdOom,
        Self::Fill,
        Self::Mixed,
        Self::Pages(Pattern::Zipf),
        Self::Pages(Pattern::Uniform),
        Self::Pages(Pattern::Loop),
    ];

    /// The name on the command line and in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Database(Letter::A) => "ycsb-a",
            Self::Database(Letter::B) => "ycsb-b",
            Self::Database(Letter::C) => "ycsb-c",
            Self::Tenants => "tenants",
            Self::HighThrash => "high-thrash",
            Self::NoisyNeighbour => "noisy-neighbour",
            Self::Mix => "file-anon-mix",
            Self::DdOom => "dd-oom",
            Self::Fill => "fill",
            Self::Mixed => "mixed",
            Self::Pages(Pattern::Zipf) => "zipf",
            Self::Pages(Pattern::Uniform) => "uniform",
            Self::Pages(Pattern::Loop) => "loop",
        }
    }

    /// One line about it, for listings and above tables.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Database(Letter::A) => {
                "a document store with a cache of its own, half reads, half updates, YCSB's \
                 popularity"
            }
            Self::Database(Letter::B) => {
                "a document store with a cache of its own, 95 % reads, 5 % updates, YCSB's \
                 popularity"
            }
            Self::Database(Letter::C) => {
                "a document store with a cache of its own, reads, YCSB's popularity"
            }
            Self::Tenants => {
                "servers with large buffers and their browsers, 32 tenants alike, on zram"
            }
            Self::HighThrash => {
                "a task that thrashes above memory.high, and a neighbour on its disk"
            }
            Self::NoisyNeighbour => {
                "tenants with working sets beside one that scans, with and without memory.low"
            }
            Self::Mix => {
                "96 readers of a mapped file beside 96 threads that allocate and free: the aging \
                 OOM"
            }
            Self::DdOom => {
                "a writer to a device with a second of latency, in a group smaller than its file: \
                 the throttling OOM"
            }
            Self::Fill => "a file of four budgets written from start to end and made durable",
            Self::Mixed => {
                "zipf loads and a few stores of a mapped file, and what a checkpoint does to the \
                 loads"
            }
            Self::Pages(Pattern::Zipf) => {
                "single pages, zipf popularity with exponent 0.99, scattered"
            }
            Self::Pages(Pattern::Uniform) => "single pages, all alike (also called random-read)",
            Self::Pages(Pattern::Loop) => {
                "all pages from start to end, over and over (also called scan)"
            }
        }
    }
}

/// A name that no simulated workload has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no simulated workload is called `{given}`{hint}; there are {known}",
    hint = hint(given),
    known = Target::ALL.map(Target::name).join(", ")
)]
pub(crate) struct UnknownTarget {
    given: String,
}

fn hint(given: &str) -> String {
    match nearest(&given.to_ascii_lowercase(), Target::ALL.map(Target::name)) {
        _ if given == "replay" => ", a trace is played with --trace FILE".into(),
        Some(name) => format!(", did you mean `{name}`?"),
        None => String::new(),
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    /// Names are compared without regard to case, and `_` counts as `-`.
    fn from_str(given: &str) -> Result<Self, UnknownTarget> {
        let name = given.to_ascii_lowercase().replace('_', "-");
        let name = match name.as_str() {
            "random-read" => "uniform",
            "scan" => "loop",
            name => name,
        };
        Self::ALL
            .into_iter()
            .find(|target| target.name() == name)
            .ok_or_else(|| UnknownTarget { given: given.to_owned() })
    }
}

/// Which way an access takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Through a mapping: loads and stores
    Mapped,
    /// Through the descriptor: reads and writes
    Descriptor,
}

impl From<Way> for Access {
    fn from(way: Way) -> Self {
        match way {
            Way::Mapped => Self::Mapped,
            Way::Descriptor => Self::Descriptor,
        }
    }
}

/// What swap is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SwapDevice {
    /// A disk: writes end later
    Disk,
    /// Compressed memory: reads and writes end at once
    Zram,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_both_aliases_are_understood() {
        for target in Target::ALL {
            assert_eq!(target.name().parse(), Ok(target));
            assert!(!target.description().contains('\n'));
        }
        assert_eq!("YCSB_B".parse(), Ok(Target::Database(Letter::B)));
        assert_eq!("random-read".parse(), Ok(Target::Pages(Pattern::Uniform)));
        assert_eq!("scan".parse(), Ok(Target::Pages(Pattern::Loop)));
    }

    #[test]
    fn other_names_get_the_nearest_and_the_list() {
        let said = |name: &str| name.parse::<Target>().unwrap_err().to_string();
        assert!(said("zpif").contains("did you mean `zipf`") && said("zpif").contains("ycsb-b"));
        assert!(said("replay").contains("--trace FILE"));
        assert!(!said("postgresql").contains("did you mean"));
    }
}
