//! `lowtide sim`: workloads and traces on simulated machines, in virtual time.
//!
//! Each workload is a subcommand. Its file has its name, its options with their defaults, and its
//! implementation.
//!
//! | file | concept |
//! |---|---|
//! | `options`, `count` | groups of options that workloads share; counts |
//! | `spelling` | older spellings of the command line |
//! | `database` | a document store: the published experiment, and that of real kernels |
//! | `compare` | ratios, published rows, verdict |
//! | `tenants` | programs of equal demand that share a machine |
//! | `mix` | the aging OOM |
//! | `pages`, `stream` | streams of single pages |
//! | `trace` | recorded streams |
//! | `corpus` | policies on the corpus of traces, against the best of eight |
//! | `scaling` | random reads on more and more CPUs |
//! | `swarm` | random plans, every invariant checked |
//! | `full` | operation streams on a full machine |
//! | `host`, `jobs`, `clock` | resources of the host; rows in parallel; their CPU time |
//! | `row`, `columns`, `show`, `error` | output |

pub mod clock;
pub mod compare;
pub mod corpus;
pub mod database;
pub mod error;
pub mod full;
pub mod host;
pub mod jobs;
pub mod mix;
pub mod options;
pub mod pages;
pub mod scaling;
pub mod show;
pub mod spelling;
pub mod stream;
pub mod swarm;
pub mod tenants;
pub mod trace;

use clap::{Command, Subcommand};
use lowtide_workload::{Letter, Workload};

use crate::lab::Experiment;
use crate::lab::android::Android;
use crate::lab::anon_zipf::AnonZipf;
use crate::lab::circles::Circles;
use crate::lab::dd_oom::DdOom;
use crate::lab::fill::Fill;
use crate::lab::fio_mmap::FioMapped;
use crate::lab::heap::{Heap, SimulatedHeap};
use crate::lab::high_thrash::HighThrash;
use crate::lab::kernel_build::KernelBuild;
use crate::lab::mapping::{Mapping, SimulatedMapping};
use crate::lab::mixed::SimulatedMixed;
use crate::lab::mmap_thrash::MmapThrash;
use crate::lab::noisy::Noisy;
use crate::lab::simulated::Simulated;
use crate::lab::sysbench::SysbenchRo;
use crate::lab::writing::Writing;
use crate::lab::writing::simulated::SimulatedWriting;
use error::SimError;
use stream::Pattern;

/// The simulations. The file of each defines its options.
#[derive(Debug, Subcommand)]
pub enum Simulation {
    #[command(name = database::ycsb::name(Letter::A), about = database::ycsb::about(Letter::A))]
    YcsbA(database::ycsb::Options),
    #[command(name = database::ycsb::name(Letter::B), about = database::ycsb::about(Letter::B))]
    YcsbB(database::ycsb::Options),
    #[command(name = database::ycsb::name(Letter::C), about = database::ycsb::about(Letter::C))]
    YcsbC(database::ycsb::Options),
    #[command(name = database::wt::NAME, about = database::wt::ABOUT)]
    Wt(database::wt::Options),
    #[command(name = tenants::NAME, about = tenants::ABOUT)]
    Tenants(tenants::Options),
    #[command(name = HighThrash::NAME, about = HighThrash::ABOUT)]
    HighThrash(Simulated<HighThrash>),
    #[command(name = Circles::NAME, about = Circles::ABOUT)]
    Circles(Simulated<Circles>),
    #[command(name = Noisy::NAME, about = Noisy::ABOUT)]
    NoisyNeighbour(Simulated<Noisy>),
    #[command(name = mix::NAME, about = mix::ABOUT)]
    FileAnonMix(mix::Options),
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
    #[command(name = Pattern::Zipf.name(), about = Pattern::Zipf.about())]
    Zipf(pages::Options),
    #[command(
        name = Pattern::Uniform.name(),
        about = Pattern::Uniform.about(),
        alias = "random-read"
    )]
    Uniform(pages::Options),
    #[command(name = Pattern::Loop.name(), about = Pattern::Loop.about(), alias = "scan")]
    Loop(pages::Options),
    #[command(name = trace::NAME, about = trace::ABOUT, alias = "replay")]
    Trace(trace::Options),
    #[command(name = corpus::NAME, about = corpus::ABOUT)]
    Corpus(corpus::Options),
    #[command(name = scaling::NAME, about = scaling::ABOUT)]
    Scaling(scaling::Options),
    #[command(name = swarm::NAME, about = swarm::ABOUT)]
    Swarm(swarm::Options),
}

impl Simulation {
    /// The subcommands of `lowtide sim`: names, each with one line of description.
    pub fn commands() -> Command {
        Self::augment_subcommands(Command::new("sim"))
    }

    /// Runs it.
    ///
    /// # Errors
    /// The reason why there is no result, or an incomplete one.
    pub fn run(&self) -> Result<(), SimError> {
        match self {
            Self::YcsbA(options) => database::ycsb::run(options, Letter::A),
            Self::YcsbB(options) => database::ycsb::run(options, Letter::B),
            Self::YcsbC(options) => database::ycsb::run(options, Letter::C),
            Self::Wt(options) => database::wt::run(options),
            Self::Tenants(options) => tenants::run(options),
            Self::HighThrash(options) => options.run(),
            Self::Circles(options) => options.run(),
            Self::NoisyNeighbour(options) => options.run(),
            Self::FileAnonMix(options) => mix::run(options),
            Self::DdOom(options) => options.run(),
            Self::Fill(options) => options.run(),
            Self::MmapThrash(options) => options.run(),
            Self::FioMmap(options) => options.run(),
            Self::AnonZipf(options) => options.run(),
            Self::SysbenchRo(options) => options.run(),
            Self::KernelBuild(options) => options.run(),
            Self::Android(options) => options.run(),
            Self::Mixed(options) => options.run(),
            Self::Zipf(options) => pages::run(options, Pattern::Zipf),
            Self::Uniform(options) => pages::run(options, Pattern::Uniform),
            Self::Loop(options) => pages::run(options, Pattern::Loop),
            Self::Trace(options) => trace::run(options),
            Self::Corpus(options) => corpus::run(options),
            Self::Scaling(options) => scaling::run(options),
            Self::Swarm(options) => swarm::run(options),
        }
    }
}
