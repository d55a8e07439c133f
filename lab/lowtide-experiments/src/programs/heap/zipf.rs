//! Threads that load and store pages of one heap, some much more often than others: `anon-zipf`.
//!
//! ```text
//!   fill   each thread stores to its share of the heap
//!   then   a page by zipf popularity ── a load, or a store for `stores` percent ── forever
//! ```
//!
//! The question is what a budget does to a heap that is 2, 4 or 8 times as large. Popular pages are
//! scattered, so neighbours have nothing in common, and an ideal policy keeps those that are drawn
//! most often. Nothing was published about it: sizes and popularity are made up.

use std::time::Duration;

use lowtide_workload::distribution::DEFAULT_THETA;
use lowtide_workload::{Distribution, SplitMix64};

use super::{Content, HeapProgram, Region, Step, Steps, Work, pages_of};

/// The program. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnonZipf {
    /// Budget of the group.
    pub max: u64,
    /// The heap.
    pub heap: u64,
    /// Threads, all of one process.
    pub threads: u32,
    /// Operations that store, in percent; the others load.
    pub stores: u32,
    /// What an operation computes besides.
    pub work: Duration,
    /// Time before the measurement.
    pub warm: Duration,
    /// Time of the measurement.
    pub run: Duration,
    /// Seed of the choices.
    pub seed: u64,
}

impl AnonZipf {
    /// A heap of `ratio` times the budget.
    #[must_use]
    pub fn new(max: u64, ratio: f64) -> Self {
        Self {
            max,
            heap: pages_of(max as f64 * ratio) * super::PAGE,
            threads: 4,
            stores: 20,
            work: Duration::from_nanos(200),
            warm: Duration::from_secs(1),
            run: Duration::from_secs(5),
            seed: 1,
        }
    }

    const fn pages(&self) -> u64 {
        self.heap / super::PAGE
    }
}

impl HeapProgram for AnonZipf {
    fn max(&self) -> Option<u64> {
        Some(self.max)
    }

    fn processes(&self) -> u32 {
        1
    }

    fn regions(&self) -> Vec<Region> {
        vec![Region { content: Content::Heap, pages: self.pages(), process: 0 }]
    }

    fn workers(&self) -> u32 {
        self.threads
    }

    fn work(&self) -> Work {
        Work::Endless { warm: self.warm, run: self.run }
    }

    fn fill(&self, worker: u32) -> Steps {
        let share = self.pages().div_ceil(u64::from(self.threads));
        let first = (u64::from(worker) * share).min(self.pages());
        let pages = share.min(self.pages() - first);
        let fill = Step::Touch { region: 0, first, pages, store: true };
        Box::new(std::iter::once(fill).filter(move |_| pages > 0))
    }

    fn piece(&self, number: u64, _worker: u32) -> Steps {
        let sampler = Distribution::Zipfian(DEFAULT_THETA)
            .sampler(self.pages().max(1), self.seed)
            .expect("a heap has a page, and the exponent is below 1");
        let mut rng = SplitMix64::new(self.seed).fork(number);
        let (stores, work) = (self.stores, self.work.as_nanos() as u64);
        let operation = move || {
            let store = rng.percent(stores);
            let first = sampler.draw(&mut rng);
            let touch = Step::Touch { region: 0, first, pages: 1, store };
            [Step::Begin, Step::Compute(work), touch, Step::End]
        };
        Box::new(std::iter::repeat_with(operation).flatten())
    }

    fn heap_bytes(&self) -> u64 {
        self.heap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn threads_fill_each_page_once() {
        let program = AnonZipf { threads: 3, ..AnonZipf::new(1 << 20, 3.7) };
        let mut pages = vec![0; program.pages() as usize];
        for step in (0..3).flat_map(|worker| program.fill(worker)) {
            let Step::Touch { first, pages: count, store: true, .. } = step else {
                panic!("{step:?}")
            };
            (first..first + count).for_each(|page| pages[page as usize] += 1);
        }
        assert!(pages.len() == 947 && pages.iter().all(|&stored| stored == 1));
    }

    #[test]
    fn a_fifth_of_the_operations_store_and_some_pages_are_popular() {
        let program = AnonZipf::new(1 << 20, 4.0);
        let (mut stores, mut draws) = (0, BTreeMap::<u64, u32>::new());
        for step in program.piece(0, 0).take(400_000) {
            if let Step::Touch { first, store, .. } = step {
                stores += u32::from(store);
                *draws.entry(first).or_default() += 1;
            }
        }
        assert!((19_000..21_000).contains(&stores), "{stores}");
        let mut draws: Vec<u32> = draws.into_values().collect();
        draws.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = draws[..10].iter().sum();
        assert!((30_000..40_000).contains(&top), "{top} of 100,000 for ten of 1024 pages");
    }
}
