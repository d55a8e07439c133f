//! Apps that are started cold, one after another, beside services: `android`.
//!
//! ```text
//!   a launch  ─ kill the app that has been in the background longest; the app's last process too
//!             ─ N runs of 16 to 128 KiB of its files, in its own order ─ compute, heap grows
//!             ─ drawn: the launch is over
//!             ─ 2 to 5 s of use: 30 % of the heap, 20 MiB of files ─ into the background
//!   a round   ─ every app once
//!   services  ─ a heap of which a third is hot ─ map tiles, streamed ─ a log, written
//! ```
//!
//! Runs of a launch come in an order that an app always has, but for one in twenty. A half of an
//! app's files is the framework that all share. Almost everything here is assumed, as little was
//! published (`docs/kernel/workloads.md` §8): sizes and times are the parameters of that page, so
//! only ratios of policies mean something.

use lowtide_workload::SplitMix64;

use super::{Content, HeapProgram, PAGE, Region, Step, Steps, Work};

const MIB: u64 = (1 << 20) / PAGE;

/// Files: the framework, map tiles, the log, then one for each app.
const FRAMEWORK: u32 = 0;
const TILES: u32 = 1;
const LOG: u32 = 2;
const APPS: u32 = 3;
/// Regions before those of the apps: the heap of the services.
const SERVICES: u32 = 0;
/// Regions of an app: the framework, its own files, its heap.
const EACH: u32 = 3;
/// The process of the services comes first.
const FIRST_APP: u32 = 1;

/// Nanoseconds of a service between two looks at its work.
const TICK_NS: u64 = 100_000_000;
/// The most pages of an app's own files, with those that it uses after the launch.
const USE_MIB: u64 = 20;

/// The sizes of an app, in pages, and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its own files, as far as a launch reads them.
    pub own: u64,
    /// The framework's pages.
    pub framework: u64,
    /// Its heap.
    pub heap: u64,
    /// Runs in which files are read.
    pub runs: u64,
    /// Processor time of the launch on its longest path, in nanoseconds.
    pub cpu_ns: u64,
    /// Time of use, in nanoseconds.
    pub use_ns: u64,
}

/// The program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Android {
    /// Apps.
    pub apps: u32,
    /// Apps that stay in the background until others take their place.
    pub cached: u32,
    /// Rounds measured; one more warms up.
    pub rounds: u64,
    /// Sizes relative to those of the page.
    pub scale: f64,
    /// Seed of apps and choices.
    pub seed: u64,
}

impl Android {
    /// The described setup at a scale: all sizes are a part, numbers and times are not.
    #[must_use]
    pub const fn published(scale: f64) -> Self {
        Self { apps: 20, cached: 5, rounds: 10, scale, seed: 1 }
    }

    fn scaled(&self, pages: u64) -> u64 {
        ((pages as f64 * self.scale).round() as u64).max(1)
    }

    /// An app, the same in each round.
    #[must_use]
    pub fn app(&self, app: u32) -> Launch {
        let mut rng = SplitMix64::new(self.seed).fork(u64::from(app));
        let mut between = |least: u64, most: u64| least + rng.below(most - least + 1);
        let heap = between(120 * MIB, 250 * MIB);
        let (runs, cpu_ns) = (between(150, 400), between(450_000_000, 900_000_000));
        let use_ns = between(2_000_000_000, 5_000_000_000);
        // Lognormal around 85 MiB with a spread of .4: a sum of twelve draws is a bell.
        let bell = (0..12).map(|_| rng.unit_f64()).sum::<f64>() - 6.0;
        let files = (85.0 * (0.4 * bell).exp()).clamp(60.0, 120.0);
        let own = ((files - 45.0) * MIB as f64) as u64;
        let [own, framework, heap] = [own, 45 * MIB, heap].map(|pages| self.scaled(pages));
        // Two CPUs share the work.
        Launch { own, framework, heap, runs, cpu_ns: cpu_ns / 2, use_ns }
    }

    /// Bytes of memory that apps and services have: nine tenths of what they would use.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let apps: Vec<Launch> = (0..self.apps).map(|app| self.app(app)).collect();
        let files: u64 = apps.iter().map(|app| app.own).sum();
        let heaps: u64 = apps.iter().map(|app| app.heap).sum();
        let cached = heaps * u64::from(self.cached) / u64::from(self.apps);
        let all = files + self.scaled(45 * MIB) + self.scaled(300 * MIB) + cached;
        all * PAGE * 9 / 10
    }

    const fn region(app: u32) -> u32 {
        1 + EACH * app
    }

    /// The runs of a launch: region, first page, pages. Framework and own files take turns.
    fn runs(&self, app: u32, launch: &Launch) -> Vec<(u32, u64, u64)> {
        let mut order = SplitMix64::new(self.seed).fork(u64::from(app)).fork(1);
        let region = Self::region(app);
        let all = launch.own + launch.framework;
        let mean = (all / launch.runs).max(1);
        let mut runs = Vec::new();
        for (region, pages) in [(region, launch.framework), (region + 1, launch.own)] {
            let mut first = 0;
            while first < pages {
                let run = (mean / 2 + order.below(mean) + 1).clamp(4, 32).min(pages - first);
                runs.push((region, first, run));
                first += run;
            }
        }
        for at in (1..runs.len()).rev() {
            runs.swap(at, order.below(at as u64 + 1) as usize);
        }
        runs
    }

    /// The launch, and the use after it.
    fn steps(&self, number: u64) -> Vec<Step> {
        let app = (number % u64::from(self.apps)) as u32;
        let mut rng = SplitMix64::new(self.seed).fork((1 << 32) | number);
        let launch = self.app(app);
        let process = FIRST_APP + app;
        let mut steps = Vec::new();
        // Whichever app was started `cached` launches ago goes; so does what is left of this one.
        let oldest = number.checked_sub(u64::from(self.cached));
        let oldest = oldest.map(|old| FIRST_APP + (old % u64::from(self.apps)) as u32);
        steps.extend(oldest.filter(|&old| old != process).map(|process| Step::Exit { process }));
        steps.extend([Step::Exit { process }, Step::Begin]);
        let mut runs = self.runs(app, &launch);
        for at in 0..runs.len() {
            if rng.percent(5) {
                let other = rng.below(runs.len() as u64) as usize;
                runs.swap(at, other);
            }
        }
        let heap = Self::region(app) + 2;
        let count = runs.len() as u64;
        let mut grown = 0;
        for (at, &(region, first, pages)) in (1..).zip(&runs) {
            steps.push(Step::Touch { region, first, pages, store: false });
            steps.push(Step::Compute(launch.cpu_ns / count));
            // Six tenths of the heap in the first half of the launch, the rest in the second.
            let half = count.div_ceil(2);
            let wanted = if at <= half {
                launch.heap * 3 * at / (5 * half)
            } else {
                launch.heap - launch.heap * 2 * (count - at) / (5 * (count - half))
            };
            if wanted > grown {
                let pages = wanted - grown;
                steps.push(Step::Touch { region: heap, first: grown, pages, store: true });
                grown = wanted;
            }
        }
        steps.push(Step::End);
        self.use_app(&launch, app, &mut rng, &mut steps);
        steps
    }

    /// Use of an app: a tenth of a second at a time.
    fn use_app(&self, launch: &Launch, app: u32, rng: &mut SplitMix64, steps: &mut Vec<Step>) {
        let ticks = launch.use_ns / TICK_NS;
        let heap = Self::region(app) + 2;
        let touched = (launch.heap * 3 / 10 / ticks).max(1);
        let read = (self.scaled(USE_MIB * MIB) / ticks).max(1);
        for tick in 0..ticks {
            let first = rng.below(launch.heap - touched + 1);
            let new = launch.own + (tick * read).min(self.scaled(USE_MIB * MIB) - read);
            let own = Self::region(app) + 1;
            steps.extend([
                Step::Touch { region: heap, first, pages: touched, store: true },
                Step::Touch { region: own, first: new, pages: read, store: false },
                Step::Sleep(TICK_NS),
            ]);
        }
    }

    /// Pages of map tiles and of the log, which are read and written in circles.
    fn tiles(&self) -> u64 {
        self.scaled(2_048 * MIB)
    }

    fn log(&self) -> u64 {
        self.scaled(64 * MIB)
    }
}

impl HeapProgram for Android {
    fn max(&self) -> Option<u64> {
        None
    }

    fn processes(&self) -> u32 {
        FIRST_APP + self.apps
    }

    fn regions(&self) -> Vec<Region> {
        let heap = |pages, process| Region { content: Content::Heap, pages, process };
        let file =
            |file, pages, process| Region { content: Content::File { file }, pages, process };
        let files = self.files();
        let apps = (0..self.apps).flat_map(|app| {
            let (process, own) = (FIRST_APP + app, APPS + app);
            [
                file(FRAMEWORK, files[FRAMEWORK as usize], process),
                file(own, files[own as usize], process),
                heap(self.app(app).heap, process),
            ]
        });
        std::iter::once(heap(self.scaled(300 * MIB), 0)).chain(apps).collect()
    }

    fn files(&self) -> Vec<u64> {
        let own = (0..self.apps).map(|app| self.app(app).own + self.scaled(USE_MIB * MIB));
        [self.scaled(45 * MIB), self.tiles(), self.log()].into_iter().chain(own).collect()
    }

    /// The person who uses the phone.
    fn workers(&self) -> u32 {
        1
    }

    fn work(&self) -> Work {
        let round = u64::from(self.apps);
        Work::Queue { pieces: (self.rounds + 1) * round, warm: round }
    }

    fn fill(&self, _worker: u32) -> Steps {
        let pages = self.scaled(300 * MIB);
        Box::new(std::iter::once(Step::Touch { region: SERVICES, first: 0, pages, store: true }))
    }

    fn piece(&self, number: u64, _worker: u32) -> Steps {
        Box::new(self.steps(number).into_iter())
    }

    /// The hot heap, the map, the log.
    fn services(&self) -> u32 {
        3
    }

    fn service(&self, service: u32) -> Steps {
        let mut rng = SplitMix64::new(self.seed).fork((2 << 32) | u64::from(service));
        let a_tick = |pages: u64| (self.scaled(pages) / 10).max(1);
        let sleep = Step::Sleep(TICK_NS);
        match service {
            // A hundredth of the hot third at a time, so that all of it is used every few seconds.
            0 => {
                let hot = self.scaled(100 * MIB);
                let some = hot.div_ceil(100);
                let tick = move || {
                    let first = rng.below(hot - some + 1);
                    [Step::Touch { region: SERVICES, first, pages: some, store: true }, sleep]
                };
                Box::new(std::iter::repeat_with(tick).flatten())
            }
            1 => {
                let (tiles, pages) = (self.tiles(), a_tick(5 * MIB));
                let tick = move |n: u64| {
                    let first = n * pages % (tiles - pages + 1);
                    [Step::Read { file: TILES, first, pages }, sleep]
                };
                Box::new((0..).flat_map(tick))
            }
            _ => {
                let (log, pages) = (self.log(), a_tick(MIB / 2));
                let tick = move |n: u64| {
                    let first = n * pages % (log - pages + 1);
                    [Step::Write { file: LOG, first, pages }, sleep]
                };
                Box::new((0..).flat_map(tick))
            }
        }
    }

    fn heap_bytes(&self) -> u64 {
        let heaps: u64 = (0..self.apps).map(|app| self.app(app).heap).sum();
        let cached = heaps * u64::from(self.cached + 1) / u64::from(self.apps);
        (cached + self.scaled(300 * MIB)) * PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/kernel/workloads.md` §8(b).
    #[test]
    fn apps_have_the_sizes_of_the_page() {
        let android = Android::published(1.0);
        for app in 0..android.apps {
            let launch = android.app(app);
            let files = (launch.own + launch.framework) / MIB;
            assert!((59..=120).contains(&files), "{launch:?}");
            assert!((120..=250).contains(&(launch.heap / MIB)), "{launch:?}");
            assert_eq!(launch, android.app(app), "the same in each round");
        }
        let memory = android.memory() >> 20;
        assert!((1_700..2_500).contains(&memory), "{memory} MiB");
    }

    #[test]
    fn a_launch_reads_all_of_its_files_and_fills_its_heap_before_it_ends() {
        let android = Android::published(0.25);
        let (launch, number) = (android.app(4), 24);
        let (mut files, mut heap, mut computed) = (0, 0, 0);
        for step in android.piece(number, 0).take_while(|&step| step != Step::End) {
            match step {
                Step::Touch { region, pages, .. } if region == Android::region(4) + 2 => {
                    heap += pages;
                }
                Step::Touch { pages, .. } => files += pages,
                Step::Compute(ns) => computed += ns,
                _ => {}
            }
        }
        assert_eq!((files, heap), (launch.own + launch.framework, launch.heap));
        assert!(launch.cpu_ns - computed < 1_000, "{computed} of {}", launch.cpu_ns);
    }

    #[test]
    fn rounds_differ_a_little_and_old_apps_are_killed() {
        let android = Android::published(0.25);
        let files = |number| -> Vec<Step> {
            let heap = Android::region(3) + 2;
            let steps = android.piece(number, 0).take_while(|&step| step != Step::End);
            steps
                .filter(|step| matches!(step, Step::Touch { region, .. } if *region != heap))
                .collect()
        };
        let (one, two) = (files(3), files(23));
        let same = one.iter().zip(&two).filter(|(a, b)| a == b).count();
        assert!(same < one.len() && same * 100 > one.len() * 70, "{same} of {}", one.len());
        let killed: Vec<Step> =
            android.piece(23, 0).filter(|step| matches!(step, Step::Exit { .. })).collect();
        let exit = |app| Step::Exit { process: FIRST_APP + app };
        assert_eq!(killed, [exit(18), exit(3)], "the fifth before it, and its own last process");
    }
}
