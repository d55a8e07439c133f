//! A worker of a program, on memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use lowtide_bench::thread_pool::Player;
use lowtide_experiments::programs::heap::{HeapProgram, PAGE, Step, Steps};
use lowtide_report::tally::Tally;
use lowtide_workload::SplitMix64;

use super::content::{CHECKED, WORDS};
use super::memory::Heap;

/// How often each page was stored to, outside of the heap: after the store.
#[derive(Clone, Debug)]
pub(crate) struct Counts(Arc<[AtomicU32]>);

impl Counts {
    /// Of a heap that was not stored to.
    pub(crate) fn new(heap_bytes: u64) -> Self {
        Self((0..heap_bytes / PAGE).map(|_| AtomicU32::new(0)).collect())
    }

    fn of(&self, page: u64) -> u64 {
        u64::from(self.0[page as usize].load(Acquire))
    }

    fn stored(&self, page: u64) {
        self.0[page as usize].fetch_add(1, Release);
    }
}

/// Fills a heap, page by page.
///
/// # Errors
/// Those of the memory.
pub(crate) fn fill(program: &dyn HeapProgram, heap: &impl Heap) -> Result<(), String> {
    for step in (0..program.workers()).flat_map(|worker| program.fill(worker)) {
        if let Step::Touch { first, pages, .. } = step {
            (first..first + pages).try_for_each(|page| heap.fill(page))?;
        }
    }
    Ok(())
}

/// The workers of a program with one heap and endless pieces.
pub(crate) fn players(
    program: &dyn HeapProgram,
    heap: &impl Heap,
    counts: &Counts,
) -> Vec<Box<dyn Player>> {
    let worker = |worker: u32| Worker {
        steps: program.piece(u64::from(worker), worker),
        heap: heap.clone(),
        counts: counts.clone(),
        threads: u64::from(program.workers()),
        rng: SplitMix64::new(u64::from(worker)),
    };
    (0..program.workers()).map(|n| Box::new(worker(n)) as Box<dyn Player>).collect()
}

struct Worker<H> {
    steps: Steps,
    heap: H,
    counts: Counts,
    threads: u64,
    /// Of the words that are checked.
    rng: SplitMix64,
}

impl<H: Heap> Worker<H> {
    fn touch(&mut self, page: u64, store: bool) -> Result<(), String> {
        let least = self.counts.of(page);
        let count = if store {
            let before = self.heap.store(page)?;
            self.counts.stored(page);
            before
        } else {
            let indexes = [(); CHECKED].map(|()| 1 + self.rng.below(WORDS as u64 - 1) as usize);
            self.heap.load(page, indexes)?
        };
        // Each thread may have stored, and not have counted it yet.
        let most = self.counts.of(page) + self.threads;
        if (least..=most).contains(&count) {
            return Ok(());
        }
        Err(format!("page {page} was stored to {least} times or more, and says {count}"))
    }
}

impl<H: Heap> Player for Worker<H> {
    /// One operation. What the program computes besides is left out: the checks are instead.
    fn step(&mut self, _most: u64, tally: &mut Tally) -> u64 {
        loop {
            match self.steps.next() {
                None => return 0,
                Some(Step::End) => return 1,
                Some(Step::Touch { first, pages, store, .. }) => {
                    tally.asked_bytes += pages * PAGE;
                    for page in first..first + pages {
                        let result = self.touch(page, store);
                        tally.check(result);
                    }
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::heap::Plain;
    use crate::bench::heap::content::word;
    use crate::bench::heap::memory::Words;
    use lowtide_experiments::programs::heap::AnonZipf;

    fn played(spoil: impl FnOnce(&Plain)) -> Tally {
        let program = AnonZipf { threads: 1, ..AnonZipf::new(64 << 10, 2.0) };
        let heap = Plain::new(program.heap);
        fill(&program, &heap).unwrap();
        let counts = Counts::new(program.heap);
        let mut player = players(&program, &heap, &counts).remove(0);
        let mut tally = Tally::new();
        (0..2_000).for_each(|_| assert_eq!(player.step(1, &mut tally), 1));
        spoil(&heap);
        (0..2_000).for_each(|_| assert_eq!(player.step(1, &mut tally), 1));
        tally
    }

    #[test]
    fn a_sound_heap_is_found_sound() {
        let tally = played(|_| ());
        assert_eq!((tally.verified, tally.errors), (4_000, 0), "{:?}", tally.first_error);
        assert_eq!(tally.asked_bytes, 4_000 * PAGE);
    }

    #[test]
    fn a_page_that_comes_back_as_it_was_before_a_store_is_found() {
        // One store less than there was.
        let tally = played(|heap| {
            (0..32)
                .for_each(|page| heap.page(page)[0].store(0, std::sync::atomic::Ordering::SeqCst));
        });
        assert!(tally.errors > 500, "{}", tally.errors);
        assert!(tally.first_error.unwrap().contains("times or more"));
    }

    #[test]
    fn another_pages_bytes_are_found() {
        let tally = played(|heap| {
            for index in 1..WORDS {
                let others = word(31, index);
                (0..31).for_each(|page| {
                    heap.page(page)[index].store(others, std::sync::atomic::Ordering::SeqCst);
                });
            }
        });
        assert!(tally.errors > 1_000, "{}", tally.errors);
    }
}
