//! A heap in the kernel's memory, under a memory cgroup that swaps to compressed memory.

use lowtide_bench::error::BenchError;
use lowtide_bench::peer::process::Process;
use lowtide_bench::system::System;
use lowtide_bench::thread_pool::Until;
use lowtide_report::tally::{Slice, SwapLevel};

use crate::bench::heap::Zram;
use crate::peer::{HeapJob, Request};

/// A child whose heap swaps to a zram device. Fields are dropped in this order: the device can only
/// be removed when nothing is in it.
pub(crate) struct Swapping {
    process: Process,
    zram: Zram,
}

impl Swapping {
    /// The name of its row.
    pub(crate) const NAME: &str = "kernel zram";

    /// Starts a child with a budget of `max_bytes`, which fills its heap.
    ///
    /// # Errors
    /// Those of [`Zram::start`] and [`Process::start`].
    pub(crate) fn start(job: HeapJob, max_bytes: u64) -> Result<Self, BenchError> {
        let zram = Zram::start(job.heap)?;
        let mut process =
            Process::start("kernel-zram", max_bytes, Some(&Request::PrepareHeap { job }))?;
        process.allow_swap()?;
        process.ask(&Request::FillHeap)?;
        Ok(Self { process, zram })
    }

    /// The algorithm that it compresses with.
    pub(crate) fn algorithm(&self) -> String {
        self.zram.algorithm()
    }
}

impl System for Swapping {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        let mut slice = self.process.play(&Request::RunHeap { until })?;
        let (orig_bytes, memory_bytes) = self.zram.bytes();
        slice.swap = Some(SwapLevel { orig_bytes, memory_bytes });
        Ok(slice)
    }
}
