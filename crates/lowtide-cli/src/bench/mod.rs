//! `lowtide bench`: real files, real memory, a real device, and every byte verified.
//!
//! The file of a workload defines its options and their defaults; only this file lists all
//! workloads.
//!
//! | file | concept |
//! |---|---|
//! | `options` | options that several workloads share |
//! | `content`, `datafile` | the content of data files; creating, locking and keeping them |
//! | `access`, `play`, `thread_pool` | access to data; operations; threads |
//! | `system`, `map`, `peer` | lowtide under a policy; its maps; the systems it is compared with |
//! | `record` | an extra turn whose accesses become a trace |
//! | `tally`, `rounds` | counts; turns and ratios |
//! | `compare` | ycsb, random reads, scans, traces: lowtide beside mappings |
//! | `depth`, `in_order` | reads at a depth; each way to read a file in order |
//! | `hit` | hits beside a raw pointer |
//! | `map_fault` | what a page of a map costs, without a device |
//! | `write` | files written from start to end, by lowtide and its peers |
//! | `slow` | an artificially slow device |
//! | `mapped` | programs that read files through mappings, lowtide's and the kernel's |
//! | `storm`, `blocks` | such programs: threads that map, read and unmap files; that copy blocks |
//! | `tenancy` | benchmarks with tenants: limits, throttle policies, programs, protection |
//! | `proof` | killed, cut off and lied to, without losing a flushed byte |
//! | `machine`, `table`, `json`, `error` | output |

pub mod access;
pub mod blocks;
pub mod compare;
pub mod content;
pub mod datafile;
pub mod depth;
pub mod error;
pub mod heap;
pub mod hit;
pub mod in_order;
pub mod machine;
pub mod map;
pub mod map_fault;
pub mod mapped;
pub mod options;
pub mod peer;
pub mod play;
pub mod proof;
pub mod record;
pub mod rounds;
pub mod slow;
pub mod storm;
pub mod system;
pub mod tenancy;
pub mod thread_pool;
pub mod write;

use clap::{Command, Subcommand};
use lowtide_workload::Workload;

use crate::lab::Experiment;
use crate::lab::anon_zipf::RealAnonZipf;
use crate::lab::circles::Circles;
use crate::lab::dd_oom::DdOom;
use crate::lab::fill::Fill;
use crate::lab::high_thrash::HighThrash;
use crate::lab::mixed::RealMixed;
use crate::lab::noisy::Noisy;
use crate::lab::real::Real;
use crate::lab::real_mapping::{Fio, RealMapping, RealProgram, Thrash};
use crate::lab::writing::Writing;
use crate::lab::writing::real::RealWriting;
use compare::{random_read, replay, scan, ycsb};
use error::BenchError;
use proof::{crash, cut};
use tenancy::{cost, equals, mix};

/// The benchmarks and proofs, in the order of the listing.
#[derive(Debug, Subcommand)]
pub enum Bench {
    #[command(name = "ycsb-a", about = Workload::YcsbA.description())]
    YcsbA(Box<ycsb::YcsbArgs>),
    #[command(name = "ycsb-b", about = Workload::YcsbB.description())]
    YcsbB(Box<ycsb::YcsbArgs>),
    #[command(name = "ycsb-c", about = Workload::YcsbC.description())]
    YcsbC(Box<ycsb::YcsbCArgs>),
    #[command(name = "mixed", about = Workload::Mixed.description())]
    Mixed(Box<RealMixed>),
    #[command(name = "random-read", about = Workload::RandomRead.description())]
    RandomRead(Box<random_read::RandomReadArgs>),
    #[command(name = "scan", about = Workload::Scan.description())]
    Scan(Box<scan::ScanArgs>),
    #[command(name = "replay", about = Workload::Replay.description())]
    Replay(Box<replay::ReplayArgs>),
    #[command(name = hit::NAME, about = hit::ABOUT)]
    Hit(Box<hit::HitArgs>),
    #[command(name = map_fault::NAME, about = map_fault::ABOUT)]
    MapFault(Box<map_fault::MapFaultArgs>),
    #[command(name = Fill::NAME, about = Fill::ABOUT)]
    Fill(Box<RealWriting<Fill>>),
    #[command(name = DdOom::NAME, about = DdOom::ABOUT)]
    DdOom(Box<RealWriting<DdOom>>),
    #[command(name = RealAnonZipf::NAME, about = RealAnonZipf::ABOUT)]
    AnonZipf(Box<RealAnonZipf>),
    #[command(name = HighThrash::NAME, about = HighThrash::ABOUT)]
    HighThrash(Box<Real<HighThrash>>),
    #[command(name = Thrash::NAME, about = Thrash::ABOUT)]
    MmapThrash(Box<RealMapping<Thrash>>),
    #[command(name = Fio::NAME, about = Fio::ABOUT)]
    FioMmap(Box<RealMapping<Fio>>),
    #[command(name = Circles::NAME, about = Circles::ABOUT)]
    Circles(Box<Real<Circles>>),
    #[command(name = Noisy::NAME, about = Noisy::ABOUT)]
    NoisyNeighbour(Box<Real<Noisy>>),
    #[command(name = equals::NAME, about = equals::ABOUT)]
    Tenants(Box<equals::TenantsArgs>),
    #[command(name = mix::NAME, about = mix::ABOUT)]
    FileAnonMix(Box<mix::MixArgs>),
    #[command(name = cost::NAME, about = cost::ABOUT)]
    ProgramCost(Box<cost::CostArgs>),
    #[command(name = crash::NAME, about = crash::ABOUT)]
    Crash(Box<crash::CrashArgs>),
    #[command(name = cut::NAME, about = cut::ABOUT)]
    PowerCut(Box<cut::CutArgs>),
}

/// Runs the selected workload.
///
/// # Errors
/// The reason why there is no trustworthy result.
pub fn run(bench: &Bench) -> Result<(), BenchError> {
    match bench {
        Bench::YcsbA(args) => args.run(Workload::YcsbA),
        Bench::YcsbB(args) => args.run(Workload::YcsbB),
        Bench::YcsbC(args) => args.run(),
        Bench::Mixed(args) => args.run(),
        Bench::RandomRead(args) if args.depth.is_empty() => args.run(),
        Bench::RandomRead(args) => depth::run(args),
        Bench::Scan(args) if args.op.is_empty() => args.run(),
        Bench::Scan(args) => in_order::run(args),
        Bench::Replay(args) => args.run(),
        Bench::Hit(args) => hit::run(args),
        Bench::MapFault(args) => map_fault::run(args),
        Bench::Fill(args) => args.run(),
        Bench::DdOom(args) => args.run(),
        Bench::AnonZipf(args) => args.run(),
        Bench::HighThrash(args) => args.run(),
        Bench::MmapThrash(args) => args.run(),
        Bench::FioMmap(args) => args.run(),
        Bench::Circles(args) => args.run(),
        Bench::NoisyNeighbour(args) => args.run(),
        Bench::Tenants(args) => equals::run(args),
        Bench::FileAnonMix(args) => mix::run(args),
        Bench::ProgramCost(args) => cost::run(args),
        Bench::Crash(args) => crash::run(args),
        Bench::PowerCut(args) => cut::run(args),
    }
}

/// The workloads: names, each with a line about it, as `lowtide bench --help` lists them.
pub fn workloads() -> Vec<(String, String)> {
    let all = Bench::augment_subcommands(Command::new("bench"));
    let about = |of: &Command| of.get_about().map_or_else(String::new, ToString::to_string);
    all.get_subcommands().map(|of| (of.get_name().to_owned(), about(of))).collect()
}
