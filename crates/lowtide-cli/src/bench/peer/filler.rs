//! A file written from its start to its end through the kernel's page cache, under a memory cgroup:
//! through the descriptor, or through a mapping.

use lowtide_report::tally::Slice;

use super::process::Process;
use super::protocol::Request;
use crate::bench::error::BenchError;
use crate::bench::write::Fill;

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
        Ok(Self { mapped, process: Process::start(name, max_bytes, None)? })
    }

    /// Fills one file.
    ///
    /// # Errors
    /// Those of [`Process::play`].
    pub(crate) fn fill(&mut self, fill: &Fill) -> Result<Slice, BenchError> {
        self.process.play(&Request::Fill { fill: fill.clone(), mapped: self.mapped })
    }
}
