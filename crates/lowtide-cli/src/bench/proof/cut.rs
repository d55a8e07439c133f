//! `bench power-cut`: pagers whose power is cut.
//!
//! Each cycle puts a pager on a disk that fails as the weather says (`lowtide::faults`), lets
//! threads write, read and flush, and cuts the power at a random request. One of the states that
//! the disk may be in afterwards becomes the file of the next cycle, after it was compared with
//! what flushes had promised.
//!
//! Everything is in this process and in files of half a megabyte; syncs are played, because on this
//! disk its log decides what is durable. So a cycle takes some milliseconds.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lowtide::faults::FaultyDisk;
use lowtide::{Error, Inject, IoEngine, Pager, Policy, Size, View};
use lowtide_sys::file as facts;
use lowtide_workload::SplitMix64;

use super::coverage::Coverage;
use super::files::Files;
use super::layout::Layout;
use super::ledger::Ledger;
use super::shape::Shape;
use super::writer::{Part, Step, Writer};
use super::{Proof, Setting, Sizes, Tally, conclude, weather};
use crate::bench::args::{BenchArgs, Engine};
use crate::bench::datafile::Depot;
use crate::bench::error::BenchError;
use crate::bench::options;
use crate::progress::{Patient, Unit};
use crate::{interrupt, out};

/// Cuts when nothing is said.
const CUTS: u64 = 10_000;
/// A proof of so many cuts must have reached everything.
const CUTS_FOR_COVERAGE: u64 = 2000;
/// Threads when nothing is said.
const THREADS: u32 = 4;
/// The budget when nothing is said: the least.
const MAX_BYTES: u64 = 128 << 10;
/// The power is cut after so many requests at most.
const REQUESTS_MAX: u64 = 250;
/// Steps of a thread in a cycle, at most.
const STEPS_MAX: u32 = 2000;
/// Steps of a thread before the file is closed and opened again, if it is.
const STEPS_BEFORE_REOPENING: u32 = 60;
/// Cycles that one file lives for, until the next begins short and empty.
const CYCLES_OF_A_FILE: u64 = 16;
/// How long a store waits for memory that cannot be had.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long a flush waits for a disk that does not answer.
const DEADLINE: Duration = Duration::from_millis(50);
/// Nothing has moved for so long: what hangs is let go.
const STANDSTILL: Duration = Duration::from_millis(80);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Runs the proof.
///
/// # Errors
/// Any [`BenchError`]; [`BenchError::Broken`] for a promise that was not kept,
/// [`BenchError::Uncovered`] when something that a long proof should have seen never happened.
pub(super) fn run(args: &BenchArgs) -> Result<(), BenchError> {
    let Sizes { max_bytes, bytes, threads, layout } = Sizes::of(args, MAX_BYTES, THREADS)?;
    let policies = options::policies(args);
    let depot = Depot::open(args.dir.as_deref(), false, args.locking())?;
    let scratch = depot.scratch("power-cut")?;
    let files = Files::beside(scratch.path());
    let setting = Setting {
        proof: Proof::PowerCut,
        policy: policies.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        max_bytes,
        data_bytes: bytes,
        threads,
        seed: args.seed,
        file_system: facts::fs_name(scratch.path()).unwrap_or_else(|_| "unknown".into()),
        io: format!("{:?}", args.io).to_lowercase(),
    };
    let cuts = args.cuts.unwrap_or(CUTS);
    out::line(format_args!(
        "power-cut: {threads} threads write records to {} of file under a budget of {}; {cuts} cuts; seed {}",
        Size::new(bytes),
        Size::new(max_bytes),
        args.seed
    ));
    let mut proof = Run {
        args,
        layout: &layout,
        files,
        policies,
        max_bytes,
        threads: threads as usize,
        ledger: Ledger::new(&layout),
        tally: Tally::default(),
        coverage: Coverage::default(),
    };
    let began = Instant::now();
    let mut progress = Patient::new("cutting", Unit::Steps, cuts);
    let mut rng = SplitMix64::new(args.seed);
    for cycle in 0..cuts {
        interrupt::check(|| format!("cutting the power ({cycle} times so far)"))?;
        progress.set(cycle);
        proof.cycle(cycle, SplitMix64::new(rng.next_u64()))?;
    }
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    for text in proof.coverage.tables() {
        out::line(format_args!("{text}\n"));
    }
    conclude(args, &setting, &proof.tally, seconds, &proof.coverage)?;
    let long = cuts >= CUTS_FOR_COVERAGE && args.sabotage.is_none();
    Coverage::must_have(long, &proof.coverage.missing())
}

/// The proof under way.
struct Run<'a> {
    args: &'a BenchArgs,
    layout: &'a Layout,
    files: Files,
    policies: Vec<Policy>,
    max_bytes: u64,
    threads: usize,
    ledger: Ledger,
    tally: Tally,
    coverage: Coverage,
}

/// What a thread counted, and what it was promised.
#[derive(Debug, Default)]
struct Played {
    writes: u64,
    reads: u64,
    flushes: u64,
    refused: u64,
    promises: Vec<(usize, u64)>,
    wrong: Option<(u64, String)>,
}

impl Run<'_> {
    /// A pager's life, from its beginning to the file that the next one finds.
    fn cycle(&mut self, cycle: u64, mut rng: SplitMix64) -> Result<(), BenchError> {
        if cycle.is_multiple_of(CYCLES_OF_A_FILE) {
            self.begin_file()?;
        }
        let disk = FaultyDisk::new(weather::plan(&mut rng, self.args.sabotage)).without_syncs();
        let disk = Arc::new(disk);
        disk.cut_after(1 + rng.below(REQUESTS_MAX));
        let shape = Shape::draw(&mut rng);
        self.coverage.add_shape(&shape);
        let pager = self.pager(cycle, &shape, &disk)?;
        let parts = (0..self.threads).map(|thread| Part {
            seed: self.args.seed,
            cycle,
            thread,
            threads: self.threads,
        });
        let parts: Vec<Part> = parts.collect();
        let acting = |part: &Part| (Writer::new(self.layout, *part), Played::default());
        let mut cast: Vec<_> = parts.iter().map(acting).collect();
        let mut views = shape.open(&pager, &self.files.now)?;
        if shape.reopens {
            play(&self.ledger, &views, &mut cast, &disk, STEPS_BEFORE_REOPENING)?;
            drop(views);
            views = shape.open(&pager, &self.files.now)?;
        }
        play(&self.ledger, &views, &mut cast, &disk, STEPS_MAX)?;
        disk.cut();
        drop(views);
        self.coverage.add_pager(&pager);
        drop(pager);
        self.coverage.add_disk(&disk);
        let broken = |error: lowtide::faults::PowerError| BenchError::Peer {
            peer: "power-cut",
            what: error.to_string(),
        };
        let cut = disk.image(&self.files.now, rng.next_u64(), &self.files.next).map_err(broken)?;
        self.coverage.add_cut(cut);
        let begun_by: Vec<u64> = cast.iter().map(|(writer, _)| writer.begun()).collect();
        for (writer, mut played) in cast {
            played.promises = writer.promises().collect();
            self.take(played);
        }
        let Files { now, next } = &self.files;
        let file = std::fs::read(next).map_err(|source| BenchError::file("read", next, source))?;
        std::fs::rename(next, now).map_err(|source| BenchError::file("rename", next, source))?;
        let begun = |slot: usize, number| parts[slot % self.threads].begun(self.layout, slot, number);
        let all_begun = |slot: usize| {
            let thread = slot % self.threads;
            parts[thread].numbers(self.layout, slot, begun_by[thread])
        };
        let mut found = self.ledger.settle(self.layout, &file, begun, all_begun);
        if let Some(first) = &mut found.first {
            *first = format!("cut {cycle}: {first}");
        }
        self.tally.findings.add(found);
        self.tally.cycles += 1;
        Ok(())
    }

    /// An empty file that will grow.
    fn begin_file(&mut self) -> Result<(), BenchError> {
        let path = &self.files.now;
        let all = self.layout.slot(self.layout.slots() - 1).end;
        let made = File::create(path).and_then(|file| file.set_len(self.layout.end_of_slot_at(all / 2)));
        made.map_err(|source| BenchError::file("make", path, source))?;
        self.ledger = Ledger::new(self.layout);
        Ok(())
    }

    /// Policies, engines and background threads take turns.
    fn pager(&self, cycle: u64, shape: &Shape, disk: &Arc<FaultyDisk>) -> Result<Pager, BenchError> {
        let engine = match self.args.io {
            Engine::Auto if cycle % 2 == 1 => IoEngine::Psync,
            engine => engine.into(),
        };
        let inject: Arc<dyn Inject> = disk.clone();
        let max = Size::new(shape.budget(self.max_bytes));
        let builder = Pager::builder()
            .max(max)
            .base_page(shape.page)
            .policy(self.policies[cycle as usize % self.policies.len()])
            .io_engine(engine)
            .direct(self.args.direct.into())
            .background(cycle % 4 != 3)
            .patience(PATIENCE)
            .io_deadline(DEADLINE)
            .inject(inject);
        builder.build().map_err(|source| {
            let page_bytes = shape.page as u64;
            BenchError::Setup { max, page_bytes, source }
        })
    }

    fn take(&mut self, played: Played) {
        self.tally.writes += played.writes;
        self.tally.reads += played.reads;
        self.tally.flushes += played.flushes;
        self.tally.refused += played.refused;
        for (slot, number) in played.promises {
            self.ledger.promise(self.layout, slot, number);
        }
        if let Some((bytes, what)) = played.wrong {
            let what = format!("before cut {}: {what}", self.tally.cycles);
            self.tally.findings.note_wrong(bytes, what);
        }
    }
}

/// Lets threads work for so many steps, or until the power is cut.
fn play(
    ledger: &Ledger,
    views: &[View],
    cast: &mut [(Writer<'_>, Played)],
    disk: &FaultyDisk,
    steps: u32,
) -> Result<(), BenchError> {
    let working = AtomicUsize::new(cast.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = cast
            .iter_mut()
            .zip(views.iter().cycle())
            .map(|((writer, played), view)| {
                let working = &working;
                scope.spawn(move || {
                    let _leaves = Leaves(working);
                    play_one(writer, played, view, ledger, disk, steps);
                })
            })
            .collect();
        let mut moved = (Instant::now(), disk.requests());
        while working.load(Relaxed) > 0 {
            std::thread::sleep(LOOK);
            let requests = disk.requests();
            if requests != moved.1 {
                moved = (Instant::now(), requests);
            } else if moved.0.elapsed() > STANDSTILL {
                disk.release();
            }
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| BenchError::Worker))
    })
}

/// Counts a thread down when it ends, also by a panic.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn play_one(
    writer: &mut Writer<'_>,
    played: &mut Played,
    view: &View,
    ledger: &Ledger,
    disk: &FaultyDisk,
    steps: u32,
) {
    for _ in 0..steps {
        if disk.is_cut() {
            break;
        }
        match writer.step(view, ledger) {
            Step::Wrote => played.writes += 1,
            Step::Read => played.reads += 1,
            Step::Flushed(_) | Step::FlushedSlot(..) => played.flushes += 1,
            Step::Refused(error) => {
                played.refused += 1;
                if let Error::Timeout { .. } = error {
                    // It has been seen to hang; that is enough.
                    disk.release();
                }
            }
            Step::Wrong(bytes, what) => {
                played.wrong.get_or_insert((bytes, what));
            }
        }
    }
}
