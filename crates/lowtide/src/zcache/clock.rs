//! What storing, loading and reading a page costs, measured as it happens.
//!
//! A read costs the processor's time for it, and the time that its thread waits, but not more of it
//! than processors were idle: where they are busy, other threads work in the meantime. So the
//! processor's time of some reads is measured, and that of the process from one decision to the
//! next. What one period says is noise to a part: costs follow it slowly.
//!
//! Accesses are counted as everywhere: misses as they are, hits by samples.

use lowtide_core::zcache::{Costs, Counts};
use lowtide_pin::sampling::SAMPLE;
use lowtide_sys::running;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Of sixteen waits for reads one is timed.
const SAMPLED: u64 = 16;
/// What the last period counts next to what a cost was before.
const NEW: f64 = 0.25;

/// Time, and pages in it.
#[derive(Debug, Default)]
pub(super) struct Sum {
    nanos: AtomicU64,
    pages: AtomicU64,
}

impl Sum {
    /// Does what may concern one page, and takes the processor's time for it if it did and is to be
    /// timed.
    pub(super) fn time<R>(
        &self,
        timed: bool,
        work: impl FnOnce() -> R,
        did: impl FnOnce(&R) -> bool,
    ) -> R {
        let begun = timed.then(running::of_thread);
        let result = work();
        if let Some(begun) = begun
            && did(&result)
        {
            self.add(running::of_thread().saturating_sub(begun), 1);
        }
        result
    }

    fn add(&self, time: Duration, pages: u64) {
        self.nanos.fetch_add(time.as_nanos() as u64, Relaxed);
        self.pages.fetch_add(pages, Relaxed);
    }

    /// Nanoseconds and pages since the last call.
    fn take(&self) -> (f64, f64) {
        (self.nanos.swap(0, Relaxed) as f64, self.pages.swap(0, Relaxed) as f64)
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Processors that this process has. They are counted once, since that opens files.
    processors: usize,
    pub(super) stores: Sum,
    pub(super) loads: Sum,
    reads: Sum,
    /// The processor's part of those that were timed.
    of_it_processor: Sum,
    /// Hits that samples stand for.
    hits: AtomicU64,
    misses: Apart,
}

/// A count that all threads write, apart from what they read for each miss.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(AtomicU64);

/// What was measured from one decision to the next; what was not is as before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) costs: Costs,
    /// Nanoseconds of waiting for reads, of all threads.
    pub(super) waited: f64,
    process: Duration,
}

impl Clock {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (stores, loads, reads, of_it_processor, hits, misses) = Default::default();
        Self { processors, stores, loads, reads, of_it_processor, hits, misses }
    }

    /// Does what reads some pages, and returns how many.
    pub(crate) fn read<R>(&self, work: impl FnOnce() -> (R, u64)) -> R {
        if !turn().is_multiple_of(SAMPLED) {
            return work().0;
        }
        let (processor, begun) = (running::of_thread(), Instant::now());
        let (result, pages) = work();
        self.reads.add(begun.elapsed(), pages);
        self.of_it_processor.add(running::of_thread().saturating_sub(processor), 1);
        result
    }

    /// Counts hits that a sample stands for.
    pub(crate) fn note_hits(&self, hits: u64) {
        self.hits.fetch_add(hits, Relaxed);
    }

    /// Counts a page that is loaded or read.
    pub(super) fn note_miss(&self) {
        self.misses.0.fetch_add(1, Relaxed);
    }

    /// What was done since the beginning, of which as many pages were loaded and compressed.
    /// `waiting`: threads that wait for a read, on average.
    pub(super) fn counts(&self, loads: u64, stores: u64, waiting: f64) -> Counts {
        let [hits, misses] = [&self.hits, &self.misses.0].map(|count| count.load(Relaxed) as f64);
        // Of each thread a part of a sample is missing at both ends, as much as chance will have.
        let threads = self.processors as f64 + waiting;
        let unsure = f64::from(SAMPLE) * (threads / 6.0).sqrt();
        let (loads, stores) = (loads as f64, stores as f64);
        Counts { accesses: hits + misses, unsure, misses, loads, stores }
    }

    /// What was measured since the last call, which was `nanos` ago.
    pub(super) fn take(&self, nanos: f64, before: &Times) -> Times {
        let process = running::of_process();
        let busy = process.saturating_sub(before.process).as_nanos() as f64;
        let idle = (nanos * self.processors as f64 - busy).max(0.0);
        let mean = |(nanos, pages): (f64, f64), before: f64| {
            let now = if pages > 0.0 { nanos / pages } else { before };
            if before > 0.0 { before + (now - before) * NEW } else { now }
        };
        let (waited, reads) = self.reads.take();
        let processor = self.of_it_processor.take().0.min(waited);
        let read = processor + (waited - processor).min(idle / SAMPLED as f64);
        let store = mean(self.stores.take(), before.costs.store);
        // A few loads of a part that was soon given up found nothing in the processor's caches. To
        // decompress a page takes no longer than to compress it.
        let load = mean(self.loads.take(), before.costs.load).min(store);
        let costs = Costs { store, load, read: mean((read, reads), before.costs.read) };
        Times { costs, waited: waited * SAMPLED as f64, process }
    }
}

/// Waits of this thread: no line of the cache is shared for that.
fn turn() -> u64 {
    thread_local! {
        static TURN: Cell<u64> = const { Cell::new(0) };
    }
    TURN.with(|turn| turn.replace(turn.get() + 1))
}
