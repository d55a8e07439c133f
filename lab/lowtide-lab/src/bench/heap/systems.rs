//! The rows that play in this process: lowtide, and memory without a limit.

use crate::bench::options::counted;
use lowtide::{Pager, Policy, Tenant};
use lowtide_bench::error::BenchError;
use lowtide_bench::system::System;
use lowtide_bench::thread_pool::{ThreadPool, Until};
use lowtide_experiments::programs::heap::HeapProgram;
use lowtide_report::tally::{Slice, SwapLevel};

use super::memory::{Heap, Plain};
use super::player::{Counts, fill, players};
use super::pointer::Pointer;

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

/// How a region is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// By guards.
    Guards,
    /// By a pointer.
    Pointer,
}

impl Access {
    /// The name of its row.
    const fn name(self) -> &'static str {
        match self {
            Self::Guards => "lowtide",
            Self::Pointer => "lowtide pointer",
        }
    }
}

/// A region of a pager. The workers keep it.
pub(crate) struct Lowtide {
    pager: Pager,
    policy: Policy,
    access: Access,
    tenant: Tenant,
    pool: ThreadPool,
}

impl Lowtide {
    /// Makes a region under `pager`, whose policy is `policy`, and fills it.
    ///
    /// # Errors
    /// [`BenchError::Map`] when this machine has no way to a pointer; [`BenchError::Wrong`] when
    /// there is no room for it; those of [`ThreadPool::start`].
    pub(crate) fn start(
        pager: Pager,
        policy: Policy,
        access: Access,
        program: &dyn HeapProgram,
    ) -> Result<Self, BenchError> {
        let (tenant, name, bytes) = (pager.root(), access.name(), program.heap_bytes());
        let counts = Counts::new(bytes);
        let pool = match access {
            Access::Guards => {
                let region =
                    tenant.region(bytes).map_err(|error| unfilled(name, error.to_string()))?;
                start(name, program, &region, &counts)?
            }
            Access::Pointer => {
                let memory = tenant.map_anon(bytes as usize)?;
                start(name, program, &Pointer::new(memory), &counts)?
            }
        };
        Ok(Self { pager, policy, access, tenant, pool })
    }
}

impl System for Lowtide {
    fn name(&self) -> &'static str {
        self.access.name()
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
