//! Programs that read files through the kernel's mappings, in a child under a memory cgroup.

use lowtide_bench::error::BenchError;
use lowtide_bench::peer::process::Process;
use lowtide_bench::thread_pool::Until;
use lowtide_report::tally::Slice;

use crate::bench::mapped::Mapped;
use crate::peer::Request;

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
        Ok(Self { process: Process::start(name, max_bytes, None::<&Request>)?, random })
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
