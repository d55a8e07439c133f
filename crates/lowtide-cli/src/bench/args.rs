//! The options of `lowtide bench`.
//!
//! What is left out has a default that depends on the workload; `plan.rs` fills those in.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use lowtide::{HighPolicy, IoEngine, IoMode, Policy, Size};
use lowtide_workload::trace::Format;
use lowtide_workload::{Distribution, UnknownWorkload, Workload};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::datafile::Locking;
use super::proof::Proof;
use super::slow::For;
use super::tenancy::Tenancy;
use super::write::Writing;
use crate::names::policy;
use crate::span::Span;

/// What to run and how.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// ycsb-a, ycsb-b, ycsb-c, mixed, random-read, scan, replay, hit, fill, dd-oom, high-thrash,
    /// noisy-neighbour, tenants, file-anon-mix, program-cost, crash or power-cut (see `lowtide list
    /// workloads`)
    pub(crate) workload: Target,
    /// Where the data files are made and kept for the next run [default: lowtide-bench-UID in the
    /// temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Size of the data as a multiple of the budget; with tenants, as a part of the published size
    /// [default: 4; 16 with --depth; 1.5 for dd-oom; 1/1024 with tenants]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub(crate) scale: Option<f64>,
    /// Memory budget of each system; with high-thrash and program-cost, high of the tenant
    /// [default: 256M; 64M with --depth; 128M for dd-oom; data / scale for replay; 150M for
    /// high-thrash, 72M for noisy-neighbour, 128M for file-anon-mix, 64M for program-cost, 47 % of
    /// the data for tenants]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) max: Option<Size>,
    /// Reclaim policies of lowtide, one row each [default: mglru,mglru-7.1,lru]
    #[arg(long, value_name = "P,P", value_delimiter = ',', value_parser = policy)]
    pub(crate) policy: Option<Vec<Policy>>,
    /// Threads of each system; with high-thrash, a list for a row of each [default: 1; 8 for crash,
    /// 4 for power-cut]
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Vec<u32>,
    /// What threads pay for being over high: overage, refault-recency or stall-debt [high-thrash;
    /// default: all]
    #[arg(long, value_name = "P,P", value_delimiter = ',')]
    pub(crate) high_policy: Option<Vec<HighPolicy>>,
    /// A program that decides what threads pay, an object file for eBPF; one more row for each
    /// [high-thrash, program-cost]
    #[arg(long, value_name = "FILE")]
    pub(crate) bpf: Vec<PathBuf>,
    /// Only the rows without read-ahead [high-thrash]
    #[arg(long)]
    pub(crate) no_readahead: bool,
    /// Records or pages per call: 1 reads through a guard, more through get_many [default: 1; 128
    /// KiB for scan]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) batch: Option<u32>,
    /// Measured seconds of each system, over all rounds; of each row with tenants, and the most
    /// that file-anon-mix takes [default: 5; one and a half checkpoints a round for mixed, 24 for
    /// high-thrash, half of it alone, where stall debt needs some ten seconds to settle, 4 for
    /// noisy-neighbour, 6 for tenants, 30 for file-anon-mix, 10 for program-cost]
    #[arg(long, value_name = "S", conflicts_with = "ops", allow_negative_numbers = true)]
    pub(crate) seconds: Option<f64>,
    /// Measured operations of each system, over all rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub(crate) ops: Option<u64>,
    /// Slices that each system's measurement is cut into; systems take turns slice by slice; with
    /// file-anon-mix, rounds of the workers; with program-cost, pairs [default: 5; 3 for mixed and
    /// fill, 1 for dd-oom, 16 for file-anon-mix, 200 for program-cost]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// What else to run beside lowtide [default: mmap,mmap-random where a memory cgroup can be
    /// made; dd,pwrite,mmap for fill; none with --depth]
    #[arg(long, value_name = "PEER,PEER", value_delimiter = ',')]
    pub(crate) against: Option<Vec<Against>>,
    /// lowtide's base page [default: 1K, one record, for ycsb where the device allows it; else 4K]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) page: Option<Size>,
    /// Read this file instead of making one (ycsb-c, random-read, scan)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["dir", "scale", "no_keep"])]
    pub(crate) file: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 42, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Popularity of records [default: zipf]
    #[arg(long, value_name = "D", value_enum)]
    pub(crate) distribution: Option<Popularity>,
    /// The trace to replay
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Format of the trace: csv, compact, oracle-general, object-csv, msr, lackey or filemap
    /// [default: told by its content]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<Format>,
    /// Also record an extra turn of the first lowtide row, which is not measured, to FILE (.csv or
    /// .lt, and .gz or .zst behind it) [ycsb, random-read, scan]
    #[arg(
        long,
        value_name = "FILE",
        long_help = "Also record what the threads do to FILE, as a trace\n\n\
        Recording costs time, so it has a turn of its own: after the last round, the first \
        lowtide row plays as many \
        seconds or operations again as it was measured for, and this turn counts nowhere. Its \
        threads begin their streams \
        anew, on the memory as the rounds left it. The trace has every access in order of time, \
        with time_ns (its begin) and \
        thread; the space is file:data, a page is one of lowtide's base pages (see --page). An \
        update is a load and a \
        store, and the closing flush is a sync. The name says the format: .csv, or .lt for the \
        compact one; .gz or .zst behind \
        it compresses."
    )]
    pub(crate) record: Option<PathBuf>,
    /// Reads in flight from one thread: measures random-read cold, one row each [with random-read]
    #[arg(long, value_name = "N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) depth: Option<Vec<u32>>,
    /// Ways to read a file in order, cold, one row each, beside pread and fio [with scan]
    #[arg(long, value_name = "OP,OP", value_delimiter = ',')]
    pub(crate) op: Option<Vec<ScanOp>>,
    /// Bytes of a request, one group of rows each [with scan --op; default: 64K,1M]
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',')]
    pub(crate) io_size: Option<Vec<Size>>,
    /// Bytes that stay in memory, one pair of rows each [with hit; default: 256M,2G]
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',')]
    pub(crate) size: Option<Vec<Size>>,
    /// How lowtide reads and writes its file
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub(crate) io: Engine,
    /// Whether lowtide goes past the kernel's page cache
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    pub(crate) direct: Mode,
    /// Take the access that brings a page in for two, as a processor's page tables do [always with
    /// replay]
    #[arg(long)]
    pub(crate) young_faults: bool,
    /// Slow the device down for lowtide: each request of a kind takes so much longer, as many as
    /// there are side by side; peers are left out [default: write=1s for dd-oom, else none]
    #[arg(long, value_name = "KIND=TIME,...", value_delimiter = ',')]
    pub(crate) device_delay: Vec<For<Span>>,
    /// Slow the device down for lowtide: bytes a second of all reads, or of all writes; peers are
    /// left out
    #[arg(long, value_name = "KIND=SIZE,...", value_delimiter = ',')]
    pub(crate) device_bandwidth: Vec<For<Size>>,
    /// How often everything is made durable while operations go on [mixed; default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) checkpoint: Option<Span>,
    /// How often writers are killed [crash; default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) cycles: Option<u64>,
    /// How often the power is cut [power-cut; default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) cuts: Option<u64>,
    /// Give the runtime a disk that lies, so that the proof must fail
    #[arg(long, value_enum, hide = true)]
    pub(crate) sabotage: Option<Sabotage>,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Remove the data files at the end instead of keeping them for the next run
    #[arg(long)]
    pub(crate) no_keep: bool,
    /// Take no lock on the data files: for file systems that have none, or a file that another
    /// program has open for writing
    #[arg(long)]
    pub(crate) no_lock: bool,
}

impl BenchArgs {
    /// Whether data files are locked.
    pub(crate) const fn locking(&self) -> Locking {
        if self.no_lock { Locking::Unlocked } else { Locking::Locked }
    }

    /// Threads, where only one number means something (the others are refused).
    pub(crate) fn threads(&self) -> u32 {
        self.threads.first().copied().unwrap_or(1)
    }

    /// Threads, where each number is for a row.
    pub(crate) fn threads_list(&self) -> Vec<u32> {
        if self.threads.is_empty() { vec![1] } else { self.threads.clone() }
    }

    /// Threads, where another number than one is usual.
    pub(crate) fn threads_or(&self, usual: u32) -> u32 {
        self.threads.first().copied().unwrap_or(usual)
    }
}

/// A workload of the catalog, the measurement of hits, sequential writing, or one with tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// From the catalog.
    Workload(Workload),
    /// View hits against a raw pointer.
    Hit,
    /// Sequential writing.
    Writing(Writing),
    /// Tenants.
    Tenancy(Tenancy),
    /// Killed, cut off and lied to.
    Proof(Proof),
}

impl Target {
    /// The name of [`Target::Hit`].
    pub(crate) const HIT: &str = "hit";
    /// One line about it, for listings.
    pub(crate) const HIT_DESCRIPTION: &str =
        "random 8-byte reads of resident pages, through a View and a raw pointer";
}

/// A workload that is not there.
#[derive(Debug, Error)]
#[error("{0}, {hit}, {writing}, {tenancy}, {proof}", hit = Target::HIT, writing = Writing::ALL.map(Writing::name).join(", "), tenancy = Tenancy::ALL.map(Tenancy::name).join(", "), proof = Proof::ALL.map(Proof::name).join(", "))]
pub(crate) struct UnknownTarget(#[from] UnknownWorkload);

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Self, UnknownTarget> {
        if text.eq_ignore_ascii_case(Self::HIT) {
            return Ok(Self::Hit);
        }
        if let Some(writing) =
            Writing::ALL.into_iter().find(|writing| text.eq_ignore_ascii_case(writing.name()))
        {
            return Ok(Self::Writing(writing));
        }
        if let Some(proof) =
            Proof::ALL.into_iter().find(|proof| text.eq_ignore_ascii_case(proof.name()))
        {
            return Ok(Self::Proof(proof));
        }
        match Tenancy::ALL.into_iter().find(|tenancy| text.eq_ignore_ascii_case(tenancy.name())) {
            Some(tenancy) => Ok(Self::Tenancy(tenancy)),
            None => Ok(Self::Workload(text.parse()?)),
        }
    }
}

/// What a disk can claim to have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "they are the values of the option")]
pub(crate) enum Sabotage {
    /// Some syncs
    LostSync,
    /// Some writes
    LostWrite,
    /// Cutting files off
    LostShrink,
    /// Zeroes between a new end and the next sector
    LostTail,
    /// Holes
    LostPunch,
    /// Making names durable
    LostName,
}

/// A way to read a file in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ScanOp {
    /// Page by page, by guards
    Read,
    /// Copies of ranges
    ReadAt,
    /// Lists of neighbouring pages
    GetMany,
}

/// Systems to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Against {
    /// Kernel mmap in a memory cgroup of the same budget
    Mmap,
    /// The same with MADV_RANDOM
    MmapRandom,
    /// fio with direct I/O (only with --depth)
    Fio,
    /// dd with direct I/O (only with fill)
    Dd,
    /// Buffered writes in a memory cgroup of the same budget (only with fill)
    Pwrite,
    /// Nothing
    None,
}

impl Against {
    /// The name.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Popularity of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Popularity {
    /// Zipf over the records, exponent 0.99, scattered
    Zipf,
    /// YCSB's own chooser: 10^10 ranks hashed into the records, which is flatter
    Ycsb,
    /// All alike
    Uniform,
}

impl From<Popularity> for Distribution {
    fn from(popularity: Popularity) -> Self {
        match popularity {
            Popularity::Zipf => Self::default(),
            Popularity::Ycsb => Self::YcsbScrambled,
            Popularity::Uniform => Self::Uniform,
        }
    }
}

/// The runtime's I/O engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// io_uring where it is allowed, else psync
    Auto,
    /// io_uring
    Uring,
    /// Positioned reads and writes
    Psync,
}

impl From<Engine> for IoEngine {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Auto => Self::Auto,
            Engine::Uring => Self::Uring,
            Engine::Psync => Self::Psync,
        }
    }
}

/// The runtime's I/O modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Direct where the file system allows it, else buffered
    Auto,
    /// O_DIRECT
    Direct,
    /// Through the page cache
    Buffered,
}

impl From<Mode> for IoMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::Direct => Self::Direct,
            Mode::Buffered => Self::Buffered,
        }
    }
}
