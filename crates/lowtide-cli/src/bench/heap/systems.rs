//! The rows that play in this process: lowtide, and memory without a limit.

use lowtide::{Anon, Pager, Policy, Tenant};
use lowtide_workload::heap::HeapProgram;

use super::memory::{Heap, Plain};
use super::player::{Counts, fill, players};
use crate::bench::error::BenchError;
use crate::bench::system::{System, counted};
use crate::bench::tally::{Slice, SwapLevel};
use crate::bench::thread_pool::{ThreadPool, Until};

/// The error of a heap that could not be filled.
fn unfilled(system: &str, why: String) -> BenchError {
    BenchError::Wrong { system: system.to_owned(), errors: 1, first: why }
}

/// Fills a heap and starts the workers.
fn start(
    name: &str,
    program: &dyn HeapProgram,
    heap: &impl Heap,
    counts: &Counts,
) -> Result<ThreadPool, BenchError> {
    fill(program, heap).map_err(|why| unfilled(name, why))?;
    Ok(ThreadPool::start(players(program, heap, counts))?)
}

/// A region of a pager.
pub(crate) struct Lowtide {
    pager: Pager,
    policy: Policy,
    tenant: Tenant,
    pool: ThreadPool,
    _region: Anon,
}

impl Lowtide {
    /// Makes a region under `pager`, whose policy is `policy`, and fills it.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] when there is no room for it, those of [`ThreadPool::start`].
    pub(crate) fn start(
        pager: Pager,
        policy: Policy,
        program: &dyn HeapProgram,
    ) -> Result<Self, BenchError> {
        let tenant = pager.root();
        let region = tenant
            .anon(program.heap_bytes())
            .map_err(|error| unfilled("lowtide", error.to_string()))?;
        let counts = Counts::new(program.heap_bytes());
        let pool = start("lowtide", program, &region, &counts)?;
        Ok(Self { pager, policy, tenant, pool, _region: region })
    }
}

impl System for Lowtide {
    fn name(&self) -> &'static str {
        "lowtide"
    }

    fn policy(&self) -> Option<String> {
        Some(self.policy.to_string())
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        let mut slice = counted(&mut self.pool, &self.pager, until)?;
        let (orig_bytes, compressed) = (self.tenant.swap_usage()?, self.tenant.swap_stat()?);
        slice.swap = Some(SwapLevel { orig_bytes, memory_bytes: compressed.memory_bytes });
        Ok(slice)
    }
}

/// Memory of this process, all of which stays.
pub(crate) struct Unlimited {
    pool: ThreadPool,
}

impl Unlimited {
    /// The name of its row.
    pub(crate) const NAME: &str = "no limit";

    /// Fills such memory.
    ///
    /// # Errors
    /// Those of [`ThreadPool::start`].
    pub(crate) fn start(program: &dyn HeapProgram) -> Result<Self, BenchError> {
        let heap = Plain::new(program.heap_bytes());
        let counts = Counts::new(program.heap_bytes());
        Ok(Self { pool: start(Self::NAME, program, &heap, &counts)? })
    }
}

impl System for Unlimited {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        Ok(self.pool.slice(until)?)
    }
}
