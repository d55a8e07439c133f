//! Apps that are started one after another, beside a service: the job *cold*.
//!
//! ```text
//!   a launch  the service reads its heap 1,000 times ─ 200 tiles of file b ─ writes 64 pages of a
//!             log ─ kills the app that was started three launches ago ─ starts the next
//!   an app    188 times: 16 pages of its part of file a, in an order of its own ─ seven new pages
//!             of its heap, each with a read of an older one ─ five reads of the libraries in b
//! ```
//!
//! Files have read-ahead and fault-around; an app's text is a mapping of b that all share.

use lowtide_workload::SplitMix64;
use lowtide_workload::zipf::permutation;

use super::{ANON, FILE, Popular, continued, numbered};
use crate::programs::heap::{Content, HeapProgram, PAGE, Region, Step, Steps, Work};

/// Files.
const A: u32 = 0;
const B: u32 = 1;
const LOG: u32 = 2;
/// The region of the service, then three for each app that runs: its files, the libraries, a heap.
const SERVICE: u32 = 0;
const EACH: u32 = 3;

const APPS: u64 = 12;
const ROUNDS: u64 = 4;
/// Apps that run at a time: the one that starts, and three in the background.
const RUNNING: u64 = 4;
const SERVICE_PAGES: u32 = 8_192;
const APP_FILES: u64 = 3_008;
const APP_PLACE: u64 = 8_192;
const APP_HEAP: u64 = 1_500;
const LIBRARIES: u32 = 4_096;
const FILE_B: u64 = 65_536;
const TILES: u64 = 200;
const LOGGED: u64 = 64;
const LOG_PAGES: u64 = 4_096;
const READS: u64 = 1_000;
const RUN: u64 = 16;
/// Between two runs of files: new pages of the heap, and reads of libraries.
const GROWTH: u64 = 7;
const CALLS: u64 = 5;

/// The job. See the module documentation.
#[derive(Clone, Debug)]
pub struct Cold {
    /// Budget of the group, in bytes.
    pub max: u64,
    seed: u64,
    service: Popular,
    libraries: Popular,
}

impl Cold {
    /// The job as kernels performed it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            max: 40_960 * PAGE,
            seed,
            service: Popular::new(seed, ANON, SERVICE_PAGES, SERVICE_PAGES),
            libraries: Popular::new(seed, FILE, LIBRARIES, LIBRARIES),
        }
    }

    /// The process, after the service's, in which a launch's app runs.
    const fn process(launch: u64) -> u32 {
        1 + (launch % RUNNING) as u32
    }

    const fn region(process: u32) -> u32 {
        1 + EACH * (process - 1)
    }

    /// What the service does for a launch. It has one generator for all of them.
    fn serve(&self, launch: u64, steps: &mut Vec<Step>) {
        let mut rng = continued(self.seed, (READS + TILES) * launch);
        let mut page = |region, first| steps.push(touch(region, first, 1, false));
        (0..READS).for_each(|_| page(SERVICE, self.service.draw(&mut rng)));
        for _ in 0..TILES {
            let first = u64::from(LIBRARIES) + rng.below(FILE_B - u64::from(LIBRARIES));
            steps.push(Step::Read { file: B, first, pages: 1 });
        }
        for i in 0..LOGGED {
            let first = (LOGGED * launch + i) % LOG_PAGES;
            steps.push(Step::Write { file: LOG, first, pages: 1 });
        }
    }

    /// What the app does until it has started.
    fn start(&self, launch: u64, steps: &mut Vec<Step>) {
        let (app, mut rng) = (launch % APPS, numbered(self.seed, launch));
        let files = Self::region(Self::process(launch));
        let order = SplitMix64::new(self.seed + 77 * (app + 1) + (1 << 32));
        let mut grown = 0;
        for run in permutation((APP_FILES / RUN) as u32, order) {
            let first = APP_PLACE * app + RUN * u64::from(run);
            steps.extend((first..first + RUN).map(|page| touch(files, page, 1, false)));
            for _ in 0..GROWTH {
                steps.push(touch(files + 2, grown, 1, true));
                grown += 1;
                steps.push(touch(files + 2, rng.below(grown), 1, false));
            }
            let call = |_| touch(files + 1, self.libraries.draw(&mut rng), 1, false);
            steps.extend((0..CALLS).map(call));
        }
    }
}

const fn touch(region: u32, first: u64, pages: u64, store: bool) -> Step {
    Step::Touch { region, first, pages, store }
}

impl HeapProgram for Cold {
    fn max(&self) -> Option<u64> {
        Some(self.max)
    }

    fn processes(&self) -> u32 {
        1 + RUNNING as u32
    }

    fn regions(&self) -> Vec<Region> {
        let heap = |pages, process| Region { content: Content::Heap, pages, process };
        let apps = (1..=RUNNING as u32).flat_map(|process| {
            let (file, pages) = (Content::File { file: A }, APP_PLACE * APPS);
            let libraries = Content::Text { file: B };
            [
                Region { content: file, pages, process },
                Region { content: libraries, pages: LIBRARIES.into(), process },
                heap(APP_HEAP, process),
            ]
        });
        std::iter::once(heap(SERVICE_PAGES.into(), 0)).chain(apps).collect()
    }

    fn files(&self) -> Vec<u64> {
        vec![APP_PLACE * APPS, FILE_B, LOG_PAGES]
    }

    fn workers(&self) -> u32 {
        1
    }

    fn work(&self) -> Work {
        Work::Queue { pieces: ROUNDS * APPS, warm: APPS }
    }

    fn fill(&self, _worker: u32) -> Steps {
        Box::new(std::iter::once(touch(SERVICE, 0, SERVICE_PAGES.into(), true)))
    }

    fn piece(&self, number: u64, _worker: u32) -> Steps {
        let mut steps = vec![Step::Begin];
        self.serve(number, &mut steps);
        // The process of the app that was started three launches ago is that of the next launch.
        if number + 1 >= RUNNING {
            steps.push(Step::Exit { process: Self::process(number + 1) });
        }
        self.start(number, &mut steps);
        steps.push(Step::End);
        Box::new(steps.into_iter())
    }

    fn heap_bytes(&self) -> u64 {
        (u64::from(SERVICE_PAGES) + RUNNING * APP_HEAP) * PAGE
    }
}
