//! `lowtide sim`: workloads and traces on simulated machines, in virtual time.
//!
//! Each workload is a subcommand. Its file has its name, its options with their defaults, and its
//! implementation. Published experiments and everything else that is played on a simulated machine
//! is in `lowtide-lab`. Both play with the parts of [`lowtide_bench::sim`].
//!
//! | file | concept |
//! |---|---|
//! | `pages`, `stream` | streams of single pages |
//! | `trace` | recorded streams |
//! | `full` | operation streams on a full machine |

pub(crate) mod full;
pub(crate) mod pages;
pub(crate) mod stream;
pub(crate) mod trace;

use clap::{Command, Subcommand};
use lowtide_bench::sim::error::SimError;
use stream::Pattern;

/// The simulations. The file of each defines its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Simulation {
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
}

impl Simulation {
    /// The subcommands of `lowtide sim`: names, each with one line of description.
    pub(crate) fn commands() -> Command {
        Self::augment_subcommands(Command::new("sim"))
    }

    /// Runs it.
    ///
    /// # Errors
    /// The reason why there is no result, or an incomplete one.
    pub(crate) fn run(&self) -> Result<(), SimError> {
        match self {
            Self::Zipf(options) => pages::run(options, Pattern::Zipf),
            Self::Uniform(options) => pages::run(options, Pattern::Uniform),
            Self::Loop(options) => pages::run(options, Pattern::Loop),
            Self::Trace(options) => trace::run(options),
        }
    }
}
