//! `lowtide-lab sim`: experiments on simulated machines, in virtual time.
//!
//! | file | concept |
//! |---|---|
//! | `database` | a document store: the published experiment, and that of real kernels |
//! | `compare` | ratios, published rows, verdict |
//! | `options`, `head` | options of experiments; the lines above their tables |
//! | `corpus` | policies on the corpus of traces, against the best of eight |
//! | `compressed` | what pages that stay compressed are worth |
//! | `scaling` | random reads on more and more CPUs |
//! | `swarm` | random plans, every invariant checked |

pub(crate) mod compare;
mod compressed;
mod corpus;
mod database;
pub(crate) mod head;
pub(crate) mod options;
mod scaling;
mod swarm;

use clap::Subcommand;
use lowtide_bench::sim::error::SimError;
use lowtide_workload::{Letter, Workload};

use crate::experiments::android::Android;
use crate::experiments::anon_zipf::AnonZipf;
use crate::experiments::circles::Circles;
use crate::experiments::dd_oom::DdOom;
use crate::experiments::fill::Fill;
use crate::experiments::fio_mmap::FioMapped;
use crate::experiments::heap::{Heap, SimulatedHeap};
use crate::experiments::high_thrash::HighThrash;
use crate::experiments::kernel_build::KernelBuild;
use crate::experiments::mapping::{Mapping, SimulatedMapping};
use crate::experiments::mixed::SimulatedMixed;
use crate::experiments::mmap_thrash::MmapThrash;
use crate::experiments::noisy::Noisy;
use crate::experiments::simulated::Simulated;
use crate::experiments::sysbench::SysbenchRo;
use crate::experiments::writing::Writing;
use crate::experiments::writing::simulated::SimulatedWriting;
use crate::experiments::{Experiment, file_anon_mix, tenants};

/// The simulations. The file of each defines its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Simulation {
    #[command(name = database::ycsb::name(Letter::A), about = database::ycsb::about(Letter::A))]
    YcsbA(database::ycsb::Options),
    #[command(name = database::ycsb::name(Letter::B), about = database::ycsb::about(Letter::B))]
    YcsbB(database::ycsb::Options),
    #[command(name = database::ycsb::name(Letter::C), about = database::ycsb::about(Letter::C))]
    YcsbC(database::ycsb::Options),
    #[command(name = database::wt::NAME, about = database::wt::ABOUT)]
    Wt(database::wt::Options),
    #[command(name = tenants::NAME, about = tenants::ABOUT)]
    Tenants(tenants::SimOptions),
    #[command(name = HighThrash::NAME, about = HighThrash::ABOUT)]
    HighThrash(Simulated<HighThrash>),
    #[command(name = Circles::NAME, about = Circles::ABOUT)]
    Circles(Simulated<Circles>),
    #[command(name = Noisy::NAME, about = Noisy::ABOUT)]
    NoisyNeighbour(Simulated<Noisy>),
    #[command(name = file_anon_mix::NAME, about = file_anon_mix::ABOUT)]
    FileAnonMix(file_anon_mix::SimOptions),
    #[command(name = DdOom::NAME, about = DdOom::ABOUT)]
    DdOom(SimulatedWriting<DdOom>),
    #[command(name = Fill::NAME, about = Fill::ABOUT)]
    Fill(SimulatedWriting<Fill>),
    #[command(name = MmapThrash::NAME, about = MmapThrash::ABOUT)]
    MmapThrash(SimulatedMapping<MmapThrash>),
    #[command(name = FioMapped::NAME, about = FioMapped::ABOUT)]
    FioMmap(SimulatedMapping<FioMapped>),
    #[command(name = AnonZipf::NAME, about = AnonZipf::ABOUT)]
    AnonZipf(SimulatedHeap<AnonZipf>),
    #[command(name = SysbenchRo::NAME, about = SysbenchRo::ABOUT)]
    SysbenchRo(SimulatedHeap<SysbenchRo>),
    #[command(name = KernelBuild::NAME, about = KernelBuild::ABOUT)]
    KernelBuild(SimulatedHeap<KernelBuild>),
    #[command(name = Android::NAME, about = Android::ABOUT)]
    Android(SimulatedHeap<Android>),
    #[command(name = Workload::Mixed.name(), about = Workload::Mixed.description())]
    Mixed(SimulatedMixed),
    #[command(name = corpus::NAME, about = corpus::ABOUT)]
    Corpus(corpus::Options),
    #[command(name = compressed::NAME, about = compressed::ABOUT)]
    Compressed(compressed::Options),
    #[command(name = scaling::NAME, about = scaling::ABOUT)]
    Scaling(scaling::Options),
    #[command(name = swarm::NAME, about = swarm::ABOUT)]
    Swarm(swarm::Options),
}

impl Simulation {
    /// Runs it.
    ///
    /// # Errors
    /// The reason why there is no result, or an incomplete one.
    pub(crate) fn run(&self) -> Result<(), SimError> {
        match self {
            Self::YcsbA(options) => database::ycsb::run(options, Letter::A),
            Self::YcsbB(options) => database::ycsb::run(options, Letter::B),
            Self::YcsbC(options) => database::ycsb::run(options, Letter::C),
            Self::Wt(options) => database::wt::run(options),
            Self::Tenants(options) => tenants::simulate(options),
            Self::HighThrash(options) => options.run(),
            Self::Circles(options) => options.run(),
            Self::NoisyNeighbour(options) => options.run(),
            Self::FileAnonMix(options) => file_anon_mix::simulate(options),
            Self::DdOom(options) => options.run(),
            Self::Fill(options) => options.run(),
            Self::MmapThrash(options) => options.run(),
            Self::FioMmap(options) => options.run(),
            Self::AnonZipf(options) => options.run(),
            Self::SysbenchRo(options) => options.run(),
            Self::KernelBuild(options) => options.run(),
            Self::Android(options) => options.run(),
            Self::Mixed(options) => options.run(),
            Self::Corpus(options) => corpus::run(options),
            Self::Compressed(options) => compressed::run(options),
            Self::Scaling(options) => scaling::run(options),
            Self::Swarm(options) => swarm::run(options),
        }
    }
}
