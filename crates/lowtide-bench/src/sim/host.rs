//! The host: the number of simulations that it can run in parallel.
//!
//! A simulation is one thread, and its memory is known in advance, within a small factor: a record
//! for every frame of the budget, and an entry in page cache and page tables for every touched
//! page.

use std::num::NonZeroUsize;
use std::thread;

use lowtide_host::probe::Probe;

use super::error::SimError;

/// Bytes per frame: the engine's record, its access note, the list of free frames.
const FRAME_BYTES: u64 = 32;
/// Bytes per page of data: page cache (4 or 8), page table entry, and the workload's record.
const PAGE_BYTES: u64 = 16;

/// The resources of the host.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    cores: usize,
    /// Bytes available; `u64::MAX` if unknown.
    available: u64,
}

impl Host {
    /// Queries the host.
    pub fn ask() -> Self {
        let available = match Probe::ask().memory_available {
            0 => u64::MAX,
            bytes => bytes,
        };
        Self { cores: thread::available_parallelism().map_or(1, NonZeroUsize::get), available }
    }

    /// The number of simulations of this size that can run in parallel: one for each core, as far
    /// as memory suffices.
    ///
    /// # Errors
    /// [`SimError::HostMemory`] when there is not enough for one.
    pub fn parallel(&self, frames: u64, pages: u64) -> Result<usize, SimError> {
        let each = needed(frames, pages);
        self.check(each)?;
        let fit = usize::try_from(self.available / each.max(1)).unwrap_or(usize::MAX);
        Ok(self.cores.min(fit).max(1))
    }

    /// Fails if there is less memory available than needed.
    ///
    /// # Errors
    /// [`SimError::HostMemory`].
    pub const fn check(&self, needed: u64) -> Result<(), SimError> {
        if needed > self.available {
            return Err(SimError::HostMemory { needed, available: self.available });
        }
        Ok(())
    }
}

/// Bytes of a simulation with a number of frames and of pages of data.
pub const fn needed(frames: u64, pages: u64) -> u64 {
    frames.saturating_mul(FRAME_BYTES).saturating_add(pages.saturating_mul(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_report::exit::Failure;

    #[test]
    fn as_many_run_at_once_as_cores_and_memory_allow() {
        let host = Host { cores: 4, available: 3 * needed(1000, 1000) };
        assert_eq!(host.parallel(1, 1).unwrap(), 4);
        assert_eq!(host.parallel(1000, 1000).unwrap(), 3);
        assert_eq!(host.parallel(2000, 2000).unwrap(), 1);
        let error = host.parallel(u64::MAX, 1).unwrap_err();
        assert!(matches!(error, SimError::HostMemory { .. }) && error.exit_code() == 1);
    }
}
