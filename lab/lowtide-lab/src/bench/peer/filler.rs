//! A file written from its start to its end through the kernel's page cache, under a memory cgroup:
//! through the descriptor, or through a mapping.

use lowtide_bench::error::BenchError;
use lowtide_bench::peer::process::Process;
use lowtide_report::tally::Slice;

use crate::bench::write::Fill;
use crate::peer::Request;

/// A child that fills files.
pub(crate) struct Filler {
    mapped: bool,
    process: Process,
}

impl Filler {
    /// Starts a peer with a budget of `max_bytes`.
    ///
    /// # Errors
    /// Those of [`Process::start`].
    pub(crate) fn start(
        name: &'static str,
        mapped: bool,
        max_bytes: u64,
    ) -> Result<Self, BenchError> {
        Ok(Self { mapped, process: Process::start(name, max_bytes, None::<&Request>)? })
    }

    /// Fills one file.
    ///
    /// # Errors
    /// Those of [`Process::play`].
    pub(crate) fn fill(&mut self, fill: &Fill) -> Result<Slice, BenchError> {
        self.process.play(&Request::Fill { fill: fill.clone(), mapped: self.mapped })
    }
}
