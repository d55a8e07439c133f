//! Programs most of whose memory is heap: `anon-zipf`, `sysbench-ro`, `kernel-build` and `android`,
//! described once for both worlds.
//!
//! ```text
//!   program ──► regions (heaps, shared memory, mapped files), each of a process; files
//!           ──► workers:  fill(worker) ─► all have filled ─► pieces of work, each a list of steps
//!           ──► services: steps without an end, beside the workers
//!
//!   a piece    Begin ─ Compute ─ Touch ─ Touch ─ Read ─ … ─ End       an operation: Begin to End
//! ```
//!
//! A program is a deterministic description: the same seed and the same number of a piece give the
//! same steps, whatever plays them. Workers either have an endless piece each, for a measured time,
//! or take pieces from a queue until it is empty. A player performs a step, then the next: on a
//! simulated machine (`crate::client::heap`) in virtual time, on real memory with loads and
//! stores. Nothing here knows of either.
//!
//! All sizes in steps and regions are in pages of [`PAGE`] bytes, as the published machines have
//! them. Sources: `docs/kernel/workloads.md` §0.6, 5, 7, 8.
//!
//! | file | program |
//! |---|---|
//! | `zipf` | threads that load and store pages of one heap, some much more often than others |
//! | `sysbench` | a database with a buffer pool twelve times its memory: MySQL, read-only |
//! | `build` | compilers that start, fill a heap and exit: a kernel build |
//! | `android` | apps that are started cold, one after another, beside services |

mod android;
mod build;
mod sysbench;
mod zipf;

pub use android::{Android, Launch};
pub use build::{KernelBuild, Unit};
pub use sysbench::SysbenchRo;
pub use zipf::AnonZipf;

use std::fmt;
use std::time::Duration;

/// Bytes of a page in steps and regions.
pub const PAGE: u64 = 4096;

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes in user mode, for nanoseconds.
    Compute(u64),
    /// Sleeps, for nanoseconds.
    Sleep(u64),
    /// Loads from, or stores to, pages of a region, one after another.
    Touch {
        /// Index of the region.
        region: u32,
        /// The first page.
        first: u64,
        /// How many.
        pages: u64,
        /// A store.
        store: bool,
    },
    /// Reads pages of a file through its descriptor.
    Read {
        /// Index of the file.
        file: u32,
        /// The first page.
        first: u64,
        /// How many.
        pages: u64,
    },
    /// Writes pages of a file through its descriptor, each as a whole.
    Write {
        /// Index of the file.
        file: u32,
        /// The first page.
        first: u64,
        /// How many.
        pages: u64,
    },
    /// Opens, reads and closes files whose pages are in memory that others pay for, and that no one
    /// reclaims: a copy, and no more.
    ReadElsewhere {
        /// Files.
        files: u64,
        /// Pages of all of them.
        pages: u64,
    },
    /// A process ends, and another takes its place: its heaps are gone, its files are mapped again.
    Exit {
        /// Its number.
        process: u32,
    },
    /// An operation begins.
    Begin,
    /// It ends.
    End,
}

/// What is in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Private anonymous memory, gone with its process.
    Heap,
    /// Shared memory without a process: a file of tmpfs, which swap takes as it takes heaps.
    Shared,
    /// A program's text: a file, mapped to be executed.
    Text {
        /// Its index.
        file: u32,
    },
    /// A file, mapped.
    File {
        /// Its index.
        file: u32,
    },
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What is in it.
    pub content: Content,
    /// Its pages.
    pub pages: u64,
    /// The process that it belongs to, from 0; that of shared memory does not exit.
    pub process: u32,
}

/// What the workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Each has a piece without an end, of its own number.
    Endless {
        /// Time between the filling and the measurement.
        warm: Duration,
        /// Time of the measurement.
        run: Duration,
    },
    /// They take pieces from a queue until it is empty, and all is measured from a piece on.
    Queue {
        /// Pieces.
        pieces: u64,
        /// Pieces before the measurement.
        warm: u64,
    },
}

/// The steps of a piece.
pub type Steps = Box<dyn Iterator<Item = Step> + Send>;

/// A program. See the module documentation.
pub trait HeapProgram: fmt::Debug + Send + Sync {
    /// Budget of its group, in bytes; `None` for all of a machine's memory.
    fn max(&self) -> Option<u64>;

    /// Processes.
    fn processes(&self) -> u32;

    /// Its regions. Steps have their indexes.
    fn regions(&self) -> Vec<Region>;

    /// Pages of its files. Steps and regions have their indexes.
    fn files(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Workers.
    fn workers(&self) -> u32;

    /// What they do.
    fn work(&self) -> Work;

    /// What a worker does before its first piece.
    fn fill(&self, _worker: u32) -> Steps {
        Box::new(std::iter::empty())
    }

    /// A piece of work, for the worker that has it.
    fn piece(&self, number: u64, worker: u32) -> Steps;

    /// Services beside the workers, from the filling on.
    fn services(&self) -> u32 {
        0
    }

    /// The endless steps of a service.
    fn service(&self, _service: u32) -> Steps {
        Box::new(std::iter::empty())
    }

    /// Bytes of heaps and shared memory that are in use at once, about.
    fn heap_bytes(&self) -> u64;
}

/// Whole pages of a size, at least one.
fn pages_of(bytes: f64) -> u64 {
    (bytes / PAGE as f64).round().max(1.0) as u64
}

/// A value at a share of a distribution, between points of it that are given in order of both.
fn quantile(points: &[(f64, f64)], share: f64) -> f64 {
    let above = points.iter().position(|&(at, _)| at >= share).unwrap_or(points.len() - 1).max(1);
    let ((from, low), (to, high)) = (points[above - 1], points[above]);
    low + (high - low) * ((share - from) / (to - from)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every program, small.
    fn programs() -> Vec<Box<dyn HeapProgram>> {
        let s = Duration::from_secs(1);
        vec![
            Box::new(AnonZipf { run: s, ..AnonZipf::new(1 << 20, 4.0) }),
            Box::new(SysbenchRo { run: s, ..SysbenchRo::published(0.02) }),
            Box::new(KernelBuild { units: 5, ..KernelBuild::published(0.03) }),
            Box::new(Android { rounds: 2, ..Android::published(0.05) }),
        ]
    }

    /// Some first steps of all that a program plays.
    fn steps(program: &dyn HeapProgram) -> Vec<Step> {
        let (pieces, some) = match program.work() {
            Work::Endless { .. } => (u64::from(program.workers()), 10_000),
            Work::Queue { pieces, .. } => (pieces, usize::MAX),
        };
        let workers = u64::from(program.workers());
        let fills = (0..program.workers()).flat_map(|worker| program.fill(worker));
        let pieces =
            (0..pieces).flat_map(|piece| program.piece(piece, (piece % workers) as u32).take(some));
        let services = (0..program.services()).flat_map(|n| program.service(n).take(10_000));
        fills.chain(pieces).chain(services).collect()
    }

    #[test]
    fn steps_stay_within_their_regions_and_files() {
        for program in programs() {
            let (regions, files) = (program.regions(), program.files());
            let mut touched = vec![false; regions.len()];
            for step in steps(&*program) {
                match step {
                    Step::Touch { region, first, pages, .. } => {
                        touched[region as usize] = true;
                        let end = regions[region as usize].pages;
                        assert!(pages > 0 && first + pages <= end, "{program:?}: {step:?}, {end}");
                    }
                    Step::Read { file, first, pages } | Step::Write { file, first, pages } => {
                        let end = files[file as usize];
                        assert!(pages > 0 && first + pages <= end, "{program:?}: {step:?}, {end}");
                    }
                    Step::Exit { process } => assert!(process < program.processes()),
                    _ => {}
                }
            }
            assert!(touched.iter().all(|&touched| touched), "{program:?}: {touched:?}");
            for region in &regions {
                assert!(region.process < program.processes(), "{program:?}: {region:?}");
                if let Content::File { file } | Content::Text { file } = region.content {
                    assert!(region.pages <= files[file as usize], "{program:?}: {region:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_steps_and_operations_end() {
        for (one, two) in programs().into_iter().zip(programs()) {
            let steps = steps(&*one);
            assert_eq!(steps, self::steps(&*two), "{one:?}");
            let count = |wanted| steps.iter().filter(|&&step| step == wanted).count();
            let (begins, ends) = (count(Step::Begin), count(Step::End));
            assert!(
                ends > 0 && begins - ends <= one.workers() as usize,
                "{one:?}: {begins} {ends}"
            );
        }
    }

    #[test]
    fn a_quantile_lies_between_its_points() {
        let points = [(0.0, 10.0), (0.5, 20.0), (1.0, 100.0)];
        for (share, value) in [(0.0, 10.0), (0.25, 15.0), (0.5, 20.0), (0.75, 60.0), (1.0, 100.0)] {
            assert!((quantile(&points, share) - value).abs() < 1e-9, "{share}");
        }
    }
}
