//! Compilers that start, fill a heap and exit: `kernel-build`, a kernel's `make -j96` in less than
//! half the memory that its compilers want.
//!
//! ```text
//!   queue of units ──► 96 jobs, each a process at a time:
//!     start      ─ the compiler's text in order, 23 MiB ─ 300 pages of its data
//!     headers    ─ 692 files, 1,190 pages, out of the page cache of others
//!     compile    ─ N × { 64 new pages ─ touches of the heap ─ of the text ─ compute }
//!     last pass  ─ the newest 60 % of the heap
//!     exit       ─ the assembler: 15 MiB, a twentieth of the time ─ the object file ─ exit
//! ```
//!
//! A heap grows to its end and dies: nothing that is swapped out at exit was worth it. Heaps and
//! times are those of real translation units, measured (`docs/kernel/workloads.md` §7). Sources and
//! headers lie in tmpfs and are charged to the process that unpacked them, outside of the group;
//! object files are written into tmpfs by the build, so the group pays for them, as for heaps, and
//! they can be swapped. What counts is the system's processor time.

use lowtide_workload::SplitMix64;

use super::{Content, HeapProgram, PAGE, Region, Step, Steps, Work, pages_of, quantile};

/// Shared memory with the object files.
const OBJECTS: u32 = 0;
/// Regions of a job: the compiler's text, its heap.
const EACH: u32 = 2;

/// Pages of the compiler's text that a unit uses, and pages of data that a process has before it
/// does anything.
const TEXT: u64 = 6_000;
const DATA: u64 = 300;
/// Headers and sources of a unit.
const HEADERS: u64 = 692;
const HEADER_PAGES: u64 = 1_190;
/// Pages by which the heap grows.
const GROWTH: u64 = 64;
/// Touches of older pages of the heap for each new one, and of the text; assumed.
const TOUCHES: u64 = 4;
const TEXT_TOUCHES: u64 = 32;
/// The assembler: its heap, in MiB, and its part of the processor time.
const ASSEMBLER_MIB: (f64, f64) = (10.0, 20.0);
const ASSEMBLER_PART: f64 = 0.05;
/// Text in a peak RSS, in MiB.
const RSS_TEXT_MIB: f64 = 25.0;

/// Peak RSS in MiB at shares of the measured units.
const RSS_MIB: [(f64, f64); 9] = [
    (0.0, 50.0),
    (0.05, 58.0),
    (0.25, 75.0),
    (0.50, 91.0),
    (0.75, 109.0),
    (0.90, 121.0),
    (0.99, 152.0),
    (0.999, 200.0),
    (1.0, 247.0),
];
/// The same of the object file, in KiB.
const OBJECT_KIB: [(f64, f64); 8] = [
    (0.0, 1.0),
    (0.05, 2.3),
    (0.25, 5.7),
    (0.50, 11.8),
    (0.75, 29.0),
    (0.90, 54.0),
    (0.99, 161.0),
    (1.0, 981.0),
];

/// A translation unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Pages of the compiler's heap at its end.
    pub heap: u64,
    /// Pages of the assembler's.
    pub assembler: u64,
    /// Processor time in user mode, in nanoseconds.
    pub user_ns: u64,
    /// Pages of the object file.
    pub object: u64,
}

/// The program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelBuild {
    /// Budget of the group, in bytes.
    pub max: u64,
    /// Compilers at a time.
    pub jobs: u32,
    /// Translation units.
    pub units: u64,
    /// Pages of the compiler's text that a unit uses. All processes share them, so fewer jobs with
    /// less memory need less of it for the same part of their memory.
    pub text: u64,
    /// Seed of the units.
    pub seed: u64,
}

impl KernelBuild {
    /// The published setup at a scale: a part of the jobs, of the memory and of the units.
    #[must_use]
    pub fn published(scale: f64) -> Self {
        let jobs = (96.0 * scale).round().max(1.0);
        Self {
            max: (3.0 * f64::from(1 << 30) * jobs / 96.0) as u64 / PAGE * PAGE,
            jobs: jobs as u32,
            units: (3_000.0 * jobs / 96.0).round() as u64,
            text: (TEXT as f64 * jobs / 96.0).round() as u64,
            seed: 1,
        }
    }

    /// A unit. Large heaps take more than their part of the time.
    #[must_use]
    pub fn unit(&self, number: u64) -> Unit {
        let mut rng = SplitMix64::new(self.seed).fork(number);
        let heap_mib = quantile(&RSS_MIB, rng.unit_f64()) - RSS_TEXT_MIB;
        let (least, most) = ASSEMBLER_MIB;
        let assembler_mib = least + (most - least) * rng.unit_f64();
        let mib = f64::from(1 << 20);
        Unit {
            heap: pages_of(heap_mib * mib),
            assembler: pages_of(assembler_mib * mib),
            user_ns: (0.48e9 * (heap_mib / 62.0).powf(1.8)) as u64,
            object: pages_of(quantile(&OBJECT_KIB, rng.unit_f64()) * 1024.0),
        }
    }

    /// Pages of object files for which there is room: those of a build of this many units, with the
    /// largest that there can be. A build overwrites none.
    const fn object_room(&self) -> u64 {
        self.units * OBJECT_ROOM
    }

    const fn text(worker: u32) -> u32 {
        1 + EACH * worker
    }
}

/// Room for an object file, in pages.
const OBJECT_ROOM: u64 = 256;
/// Pages of the largest heap.
const HEAP_ROOM: u64 = 57_600;

/// The steps of a compiler, a growth of the heap at a time.
#[derive(Debug)]
struct Compiler {
    unit: Unit,
    number: u64,
    worker: u32,
    text_pages: u64,
    rng: SplitMix64,
    /// Pages of the heap.
    grown: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Start,
    Compile,
    Assemble,
    Done,
}

impl Compiler {
    const fn touch(region: u32, first: u64, pages: u64, store: bool) -> Step {
        Step::Touch { region, first, pages, store }
    }

    fn text(&self) -> u32 {
        KernelBuild::text(self.worker)
    }

    fn heap(&self) -> u32 {
        self.text() + 1
    }

    /// Makes the process, reads the sources.
    fn start(&mut self) -> Vec<Step> {
        self.grown = DATA;
        vec![
            Step::Begin,
            Self::touch(self.text(), 0, self.text_pages, false),
            Self::touch(self.heap(), 0, DATA, true),
            Step::ReadElsewhere { files: HEADERS, pages: HEADER_PAGES },
        ]
    }

    /// The heap grows, and is used: what is new most.
    fn grow(&mut self) -> Vec<Step> {
        let (text, heap) = (self.text(), self.heap());
        let new = GROWTH.min(self.unit.heap - self.grown);
        let part = new as f64 / (self.unit.heap - DATA) as f64;
        let compute = (self.unit.user_ns as f64 * part) as u64;
        let mut steps = vec![Self::touch(heap, self.grown, new, true), Step::Compute(compute)];
        self.grown += new;
        for _ in 0..new * TOUCHES {
            let newest = self.rng.percent(70);
            let among = if newest { (self.grown / 5).max(1) } else { self.grown };
            let page = self.grown - 1 - self.rng.below(among);
            let store = self.rng.percent(30);
            steps.push(Self::touch(heap, page, 1, store));
        }
        for _ in 0..TEXT_TOUCHES {
            let page = self.rng.below(self.text_pages);
            steps.push(Self::touch(text, page, 1, false));
        }
        steps
    }

    /// What comes after the last growth: the last pass, the end of the process, and the next one,
    /// which assembles.
    fn assemble(&mut self) -> Vec<Step> {
        let heap = self.heap();
        let newest = self.unit.heap * 3 / 5;
        let exit = Step::Exit { process: self.worker };
        let first = self.number * OBJECT_ROOM;
        vec![
            Self::touch(heap, self.unit.heap - newest, newest, false),
            exit,
            Self::touch(heap, 0, self.unit.assembler, true),
            Step::Compute((self.unit.user_ns as f64 * ASSEMBLER_PART) as u64),
            Self::touch(OBJECTS, first, self.unit.object, true),
            exit,
            Step::End,
        ]
    }
}

impl Iterator for Compiler {
    type Item = Vec<Step>;

    fn next(&mut self) -> Option<Vec<Step>> {
        let steps = match self.stage {
            Stage::Start => self.start(),
            Stage::Compile => self.grow(),
            Stage::Assemble => self.assemble(),
            Stage::Done => return None,
        };
        self.stage = match self.stage {
            Stage::Start | Stage::Compile if self.grown < self.unit.heap => Stage::Compile,
            Stage::Start | Stage::Compile => Stage::Assemble,
            Stage::Assemble | Stage::Done => Stage::Done,
        };
        Some(steps)
    }
}

impl HeapProgram for KernelBuild {
    fn max(&self) -> Option<u64> {
        Some(self.max)
    }

    /// One for each job, and none for tmpfs.
    fn processes(&self) -> u32 {
        self.jobs
    }

    fn regions(&self) -> Vec<Region> {
        let objects = Region { content: Content::Shared, pages: self.object_room(), process: 0 };
        let jobs = (0..self.jobs).flat_map(|process| {
            let text = Region { content: Content::Text { file: 0 }, pages: self.text, process };
            [text, Region { content: Content::Heap, pages: HEAP_ROOM, process }]
        });
        std::iter::once(objects).chain(jobs).collect()
    }

    fn files(&self) -> Vec<u64> {
        vec![self.text]
    }

    fn workers(&self) -> u32 {
        self.jobs
    }

    fn work(&self) -> Work {
        Work::Queue { pieces: self.units, warm: 0 }
    }

    fn piece(&self, number: u64, worker: u32) -> Steps {
        let compiler = Compiler {
            unit: self.unit(number),
            number,
            worker,
            text_pages: self.text,
            rng: SplitMix64::new(self.seed).fork(number).fork(1),
            grown: 0,
            stage: Stage::Start,
        };
        Box::new(compiler.flatten())
    }

    fn heap_bytes(&self) -> u64 {
        // The mean compiler, and the object files.
        let units = 256.min(self.units);
        let heaps: u64 = (0..units).map(|unit| self.unit(unit).heap).sum();
        (heaps / units.max(1) * u64::from(self.jobs) + self.units * 6) * PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/kernel/workloads.md` §7(b): the profile of the measured units.
    #[test]
    fn units_have_the_measured_profile() {
        let build = KernelBuild::published(1.0);
        assert_eq!((build.jobs, build.units, build.max), (96, 3_000, 3 << 30));
        let units: Vec<Unit> = (0..build.units).map(|number| build.unit(number)).collect();
        let mean = |of: fn(&Unit) -> u64| units.iter().map(of).sum::<u64>() as f64 / 3_000.0;
        // 93 MiB of RSS, 25 of which are text; .59 s; 25 KiB.
        let heap = mean(|unit| unit.heap) / 256.0;
        assert!((66.0..71.0).contains(&heap), "{heap} MiB");
        let user = mean(|unit| unit.user_ns) / 1e9;
        assert!((0.54..0.68).contains(&user), "{user} s");
        let object = mean(|unit| unit.object) * 4.0;
        assert!((22.0..34.0).contains(&object), "{object} KiB, in whole pages");
        assert!(units.iter().all(|unit| unit.heap <= HEAP_ROOM && unit.object <= OBJECT_ROOM));
        let gib = build.heap_bytes() as f64 / f64::from(1 << 30);
        assert!((6.0..7.0).contains(&gib), "{gib} GiB wanted");
    }

    #[test]
    fn a_compiler_grows_its_heap_page_by_page_and_exits_twice() {
        let build = KernelBuild::published(0.1);
        let unit = build.unit(3);
        let (mut grown, mut compute, mut exits) = (0, 0, 0);
        for step in build.piece(3, 2) {
            match step {
                Step::Touch { region: 6, first, pages, .. } if exits == 0 => {
                    assert!(first <= grown, "no hole");
                    grown = grown.max(first + pages);
                }
                Step::Compute(ns) => compute += ns,
                Step::Exit { process } => {
                    assert_eq!((process, grown), (2, unit.heap));
                    exits += 1;
                }
                _ => {}
            }
        }
        assert_eq!(exits, 2);
        let wanted = unit.user_ns as f64 * (1.0 + ASSEMBLER_PART);
        assert!((compute as f64 / wanted - 1.0).abs() < 0.001, "{compute} of {wanted}");
    }

    #[test]
    fn a_unit_is_the_same_whichever_job_takes_it() {
        let build = KernelBuild::published(0.1);
        let of = |worker| -> Vec<Option<Step>> {
            let strip = |step| match step {
                Step::Touch { first, pages, store, .. } => {
                    Some(Step::Touch { region: 0, first, pages, store })
                }
                Step::Exit { .. } => None,
                step => Some(step),
            };
            build.piece(9, worker).map(strip).collect()
        };
        assert_eq!(of(0), of(5));
    }
}
