//! Threads that read a heap of twelve budgets, a small part of it often: the job *pool*.
//!
//! An operation reads three pages of an index, which are popular by zipf, and a leaf: three times
//! of four one of a window of 682, else any. All pages are stored to once before.

use super::{ANON, Popular, continued};
use crate::programs::heap::{Content, HeapProgram, PAGE, Region, Step, Steps, Work};

const POOL: u32 = 0;
const PAGES: u32 = 98_304;
const INDEX: u32 = 1_024;
const WINDOW: u64 = 682;
/// Operations whose leaf is one of the window, in percent.
const IN_WINDOW: u64 = 75;
const THREADS: u32 = 4;
const OPERATIONS: u64 = 160_000;
const WARM: u64 = 60_000;
const LOOKS: usize = 3;
/// Draws of an operation: its looks, whether its leaf is of the window, and which leaf it is.
const DRAWS: u64 = LOOKS as u64 + 2;

/// The job. See the module documentation.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Budget of the group, in bytes.
    pub max: u64,
    seed: u64,
    index: Popular,
}

impl Pool {
    /// The job as kernels performed it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { max: 8_192 * PAGE, seed, index: Popular::new(seed, ANON, PAGES, INDEX) }
    }
}

impl HeapProgram for Pool {
    fn max(&self) -> Option<u64> {
        Some(self.max)
    }

    fn processes(&self) -> u32 {
        1
    }

    fn regions(&self) -> Vec<Region> {
        vec![Region { content: Content::Heap, pages: PAGES.into(), process: 0 }]
    }

    fn workers(&self) -> u32 {
        THREADS
    }

    fn work(&self) -> Work {
        Work::Queue { pieces: WARM + OPERATIONS, warm: WARM }
    }

    fn fill(&self, worker: u32) -> Steps {
        let fill = Step::Touch { region: POOL, first: 0, pages: PAGES.into(), store: true };
        Box::new(std::iter::once(fill).filter(move |_| worker == 0))
    }

    fn piece(&self, number: u64, _worker: u32) -> Steps {
        let (thread, before) = (number % u64::from(THREADS), number / u64::from(THREADS));
        let mut rng = continued(self.seed + 1_000 * (thread + 1), DRAWS * before);
        let touch = |first| Step::Touch { region: POOL, first, pages: 1, store: false };
        let mut steps = vec![Step::Begin];
        steps.extend((0..LOOKS).map(|_| touch(self.index.draw(&mut rng))));
        let among = if rng.below(100) < IN_WINDOW { WINDOW } else { (PAGES - INDEX).into() };
        let leaf = self.index.page(u64::from(INDEX) + rng.below(among));
        steps.extend([touch(leaf), Step::End]);
        Box::new(steps.into_iter())
    }

    fn heap_bytes(&self) -> u64 {
        u64::from(PAGES) * PAGE
    }
}
