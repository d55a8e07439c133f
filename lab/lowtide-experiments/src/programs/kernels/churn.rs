//! Processes that start, fill a heap and exit, eight at a time: the job *build*.
//!
//! ```text
//!   unit   512 reads of text ─ for each new page of the heap { store to it ─ four touches of the
//!          heap: half of the newest 64 pages, 40 % of the oldest quarter, 10 % of all, half of
//!          them stores } ─ every 4 pages a read of text, every 16 one of a header ─ an object file
//!          of 64 pages ─ exit
//! ```
//!
//! Text is a mapped file that all processes share and that their group pays for; its pages are
//! popular by zipf. Headers are in memory that others pay for.

use lowtide_workload::SplitMix64;

use super::{FILE, Popular, numbered};
use crate::programs::heap::{Content, HeapProgram, PAGE, Region, Step, Steps, Work};

/// Shared memory with the object files.
const OBJECTS: u32 = 0;
/// Regions of a slot: the text, and a heap.
const EACH: u32 = 2;

const SLOTS: u32 = 8;
const UNITS: u64 = 40;
const LEAST: u64 = 4_000;
const MOST: u64 = 12_000;
const TEXT: u32 = 4_096;
const HEADERS: u64 = 4_096;
const OBJECT: u64 = 64;
/// Reads of text when a process starts.
const START: u64 = 512;
/// Touches of the heap for each new page, and new pages between two reads of text and of headers.
const TOUCHES: u64 = 4;
const TEXT_EVERY: u64 = 4;
const HEADER_EVERY: u64 = 16;

/// The job. See the module documentation.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Budget of the group, in bytes.
    pub max: u64,
    /// Units of work.
    pub units: u64,
    seed: u64,
    text: Popular,
}

impl Churn {
    /// The job as kernels performed it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { max: 32_768 * PAGE, units: UNITS, seed, text: Popular::new(seed, FILE, TEXT, TEXT) }
    }

    const fn text(worker: u32) -> u32 {
        1 + EACH * worker
    }
}

const fn touch(region: u32, first: u64, pages: u64, store: bool) -> Step {
    Step::Touch { region, first, pages, store }
}

/// A page of a heap that has `n` pages, the newest being page `n - 1`.
fn touched(rng: &mut SplitMix64, n: u64) -> u64 {
    match rng.below(100) {
        0..50 => n - 1 - rng.below(n.min(64)),
        50..90 => rng.below((n / 4).max(1)),
        _ => rng.below(n),
    }
}

impl HeapProgram for Churn {
    fn max(&self) -> Option<u64> {
        Some(self.max)
    }

    fn processes(&self) -> u32 {
        SLOTS
    }

    fn regions(&self) -> Vec<Region> {
        let objects = Region { content: Content::Shared, pages: self.units * OBJECT, process: 0 };
        let slots = (0..SLOTS).flat_map(|process| {
            let text = Content::Text { file: 0 };
            [
                Region { content: text, pages: TEXT.into(), process },
                Region { content: Content::Heap, pages: MOST, process },
            ]
        });
        std::iter::once(objects).chain(slots).collect()
    }

    fn files(&self) -> Vec<u64> {
        vec![TEXT.into()]
    }

    fn workers(&self) -> u32 {
        SLOTS
    }

    fn work(&self) -> Work {
        Work::Queue { pieces: self.units, warm: 0 }
    }

    fn piece(&self, number: u64, worker: u32) -> Steps {
        let mut rng = numbered(self.seed, number);
        let pages = LEAST + rng.below(MOST - LEAST + 1);
        let popular = self.text.clone();
        let (text, heap) = (Self::text(worker), Self::text(worker) + 1);
        let read = move |rng: &mut SplitMix64| touch(text, popular.draw(rng), 1, false);
        let mut start = vec![Step::Begin];
        start.extend((0..START).map(|_| read(&mut rng)));
        let growth = (0..pages).flat_map(move |page| {
            let mut steps = vec![touch(heap, page, 1, true)];
            for _ in 0..TOUCHES {
                let old = touched(&mut rng, page + 1);
                steps.push(touch(heap, old, 1, rng.below(2) == 1));
            }
            if page % TEXT_EVERY == 0 {
                steps.push(read(&mut rng));
            }
            if page % HEADER_EVERY == 0 {
                // The group does not pay for them, so which one it is only costs a draw.
                rng.below(HEADERS);
                steps.push(Step::ReadElsewhere { files: 1, pages: 1 });
            }
            steps
        });
        let object = touch(OBJECTS, number * OBJECT, OBJECT, true);
        let end = [object, Step::Exit { process: worker }, Step::End];
        Box::new(start.into_iter().chain(growth).chain(end))
    }

    fn heap_bytes(&self) -> u64 {
        (u64::from(SLOTS) * (LEAST + MOST) / 2 + self.units * OBJECT) * PAGE
    }
}
