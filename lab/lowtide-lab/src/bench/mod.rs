//! `lowtide-lab bench`: measurements of parts of lowtide on real memory, and proofs.
//!
//! | file | concept |
//! |---|---|
//! | `cold`, `depth`, `in_order` | cold reads: at a depth, and each way to read in order |
//! | `hit` | hits beside a raw pointer |
//! | `map_fault` | what a page of a map costs, without a device |
//! | `write` | files written from start to end, by lowtide and its peers |
//! | `heap` | a heap behind a pointer, and its players |
//! | `compared`, `slow`, `record` | `lowtide bench` on a slow device, or recorded |
//! | `replay`, `checkpoint` | traces; records with checkpoints |
//! | `options` | options of these workloads alone |
//! | `script` | the operations of these, in each process |
//! | `mapped` | programs that read files through mappings, lowtide's and the kernel's |
//! | `storm`, `blocks` | such programs: threads that map, read and unmap files; that copy blocks |
//! | `auto` | a limit that sets itself, beside fixed budgets |
//! | `tenancy` | limits, throttle policies, programs: what workloads with tenants share |
//! | `peer` | systems that only experiments are compared with |
//! | `proof` | killed, cut off and lied to, without losing a flushed byte |

mod auto;
pub(crate) mod blocks;
pub(crate) mod checkpoint;
mod cold;
mod compared;
pub(crate) mod depth;
pub(crate) mod heap;
pub(crate) mod hit;
pub(crate) mod in_order;
pub(crate) mod map_fault;
pub(crate) mod mapped;
pub(crate) mod options;
pub(crate) mod peer;
pub(crate) mod proof;
mod record;
mod replay;
pub(crate) mod script;
pub(crate) mod slow;
pub(crate) mod storm;
pub(crate) mod tenancy;
pub(crate) mod write;

use clap::Subcommand;
use lowtide_bench::compare::{gather, random_read, scan, ycsb};
use lowtide_bench::error::BenchError;
use lowtide_workload::Workload;

use crate::experiments::anon_zipf::RealAnonZipf;
use crate::experiments::circles::Circles;
use crate::experiments::dd_oom::DdOom;
use crate::experiments::fill::Fill;
use crate::experiments::high_thrash::HighThrash;
use crate::experiments::mixed::RealMixed;
use crate::experiments::noisy::Noisy;
use crate::experiments::real::Real;
use crate::experiments::real_mapping::{Fio, RealMapping, RealProgram, Thrash};
use crate::experiments::writing::Writing;
use crate::experiments::writing::real::RealWriting;
use crate::experiments::{Experiment, file_anon_mix, tenants};
use compared::Compared;
use proof::{crash, cut};
use replay::ReplayArgs;
use tenancy::cost;

/// The measurements and proofs, in the order of the listing.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    #[command(name = "ycsb-a", about = Workload::YcsbA.description())]
    YcsbA(Box<Compared<ycsb::YcsbArgs>>),
    #[command(name = "ycsb-b", about = Workload::YcsbB.description())]
    YcsbB(Box<Compared<ycsb::YcsbArgs>>),
    #[command(name = "ycsb-c", about = Workload::YcsbC.description())]
    YcsbC(Box<Compared<ycsb::YcsbCArgs>>),
    #[command(name = "random-read", about = Workload::RandomRead.description())]
    RandomRead(Box<Compared<random_read::RandomReadArgs>>),
    #[command(name = "gather", about = Workload::Gather.description())]
    Gather(Box<Compared<gather::GatherArgs>>),
    #[command(name = "scan", about = Workload::Scan.description())]
    Scan(Box<Compared<scan::ScanArgs>>),
    #[command(name = "replay", about = Workload::Replay.description())]
    Replay(Box<ReplayArgs>),
    #[command(name = "mixed", about = Workload::Mixed.description())]
    Mixed(Box<RealMixed>),
    #[command(name = depth::NAME, about = depth::ABOUT)]
    Depth(Box<depth::DepthArgs>),
    #[command(name = in_order::NAME, about = in_order::ABOUT)]
    InOrder(Box<in_order::InOrderArgs>),
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
    #[command(name = tenants::NAME, about = tenants::ABOUT)]
    Tenants(Box<tenants::BenchOptions>),
    #[command(name = file_anon_mix::NAME, about = file_anon_mix::BENCH_ABOUT)]
    FileAnonMix(Box<file_anon_mix::BenchOptions>),
    #[command(name = auto::NAME, about = auto::ABOUT)]
    Auto(Box<auto::AutoArgs>),
    #[command(name = cost::NAME, about = cost::ABOUT)]
    ProgramCost(Box<cost::CostArgs>),
    #[command(name = crash::NAME, about = crash::ABOUT)]
    Crash(Box<crash::CrashArgs>),
    #[command(name = cut::NAME, about = cut::ABOUT)]
    PowerCut(Box<cut::CutArgs>),
}

impl Bench {
    /// Runs it.
    ///
    /// # Errors
    /// The reason why there is no trustworthy result.
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        match self {
            Self::YcsbA(args) => args.run(Workload::YcsbA),
            Self::YcsbB(args) => args.run(Workload::YcsbB),
            Self::YcsbC(args) => args.run(Workload::YcsbC),
            Self::RandomRead(args) => args.run(Workload::RandomRead),
            Self::Gather(args) => args.run(Workload::Gather),
            Self::Scan(args) => args.run(Workload::Scan),
            Self::Replay(args) => args.run(),
            Self::Mixed(args) => args.run(),
            Self::Depth(args) => depth::run(args),
            Self::InOrder(args) => in_order::run(args),
            Self::Hit(args) => hit::run(args),
            Self::MapFault(args) => map_fault::run(args),
            Self::Fill(args) => args.run(),
            Self::DdOom(args) => args.run(),
            Self::AnonZipf(args) => args.run(),
            Self::HighThrash(args) => args.run(),
            Self::MmapThrash(args) => args.run(),
            Self::FioMmap(args) => args.run(),
            Self::Circles(args) => args.run(),
            Self::NoisyNeighbour(args) => args.run(),
            Self::Tenants(args) => tenants::measure(args),
            Self::FileAnonMix(args) => file_anon_mix::measure(args),
            Self::Auto(args) => auto::run(args),
            Self::ProgramCost(args) => cost::run(args),
            Self::Crash(args) => crash::run(args),
            Self::PowerCut(args) => cut::run(args),
        }
    }
}
