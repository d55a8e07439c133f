//! Programs that read files through the kernel's mappings, in a child under a memory cgroup.

use lowtide_report::tally::Slice;

use super::process::Process;
use super::protocol::Request;
use crate::bench::error::BenchError;
use crate::bench::mapped::Mapped;
use crate::bench::thread_pool::Until;

/// A child with the threads of such a program.
pub(crate) struct MappedPeer {
    process: Process,
    /// With `MADV_RANDOM`.
    random: bool,
}

impl MappedPeer {
    /// Starts a child with a budget of `max_bytes`.
    ///
    /// # Errors
    /// Those of [`Process::start`].
    pub(crate) fn start(
        name: &'static str,
        random: bool,
        max_bytes: u64,
    ) -> Result<Self, BenchError> {
        Ok(Self { process: Process::start(name, max_bytes, None)?, random })
    }

    /// Plays a slice.
    ///
    /// # Errors
    /// Those of [`Process::play`].
    pub(crate) fn play(&mut self, program: &Mapped, until: Until) -> Result<Slice, BenchError> {
        let (program, random) = (program.clone(), self.random);
        self.process.play(&Request::Mapped { program, random, until })
    }
}
