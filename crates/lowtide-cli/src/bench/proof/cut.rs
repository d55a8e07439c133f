//! `bench power-cut`: pagers whose power is cut.
//!
//! Each cycle puts a pager on a disk that fails as a fault plan says (`lowtide_proof::disk`), lets
//! threads write, read and flush, and cuts the power at a random request. One of the states that
//! the disk may be in afterwards becomes the file of the next cycle, after it was compared with
//! what flushes had promised.
//!
//! Everything is in this process and in files of half a megabyte; syncs are played, because on this
//! disk its log decides what is durable. So a cycle takes some milliseconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use lowtide::{Error, Inject, IoEngine, OpenError, Pager, Policy, Size, View};
use lowtide_host::file as facts;
use lowtide_proof::disk::FaultyDisk;
use lowtide_proof::layout::Layout;
use lowtide_proof::ledger::Ledger;
use lowtide_proof::script::{Part, Version};
use lowtide_proof::shape::{Beginning, Shape};
use lowtide_proof::writer::{Step, Writer};
use lowtide_workload::SplitMix64;

use super::coverage::Coverage;
use super::faults::{Sabotage, plan};
use super::files::Files;
use super::report::{Common, Setting, Sizes, Tally, conclude};
use crate::bench::error::BenchError;
use crate::bench::options::values::budget;
use crate::bench::options::{Engine, Io, Policies, threads};
use crate::interrupt::Cut;
use crate::progress::{Patient, Unit};
use crate::{interrupt, out};

/// The name.
pub(crate) const NAME: &str = "power-cut";
/// One line about it, for listings.
pub(crate) const ABOUT: &str =
    "a disk that fails, hangs and loses power: no flushed byte may be lost";

/// A proof of so many cuts must have reached everything.
const CUTS_FOR_COVERAGE: u64 = 2000;
/// The power is cut after so many requests at most.
const REQUESTS_MAX: u64 = 250;
/// Steps of a thread in a cycle, at most.
const STEPS_MAX: u32 = 2000;
/// Steps of a thread before the file is closed and opened again, if it is.
const STEPS_BEFORE_REOPENING: u32 = 60;
/// Cycles that a file lives for, on average, until the next begins.
const CYCLES_OF_A_FILE: u64 = 5;
/// How long a store waits for memory that cannot be had.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long a flush waits for a disk that does not answer.
const DEADLINE: Duration = Duration::from_millis(50);
/// Nothing has moved for so long: what hangs is let go.
const STANDSTILL: Duration = Duration::from_millis(80);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Options of `power-cut`.
#[derive(Debug, Args)]
pub(crate) struct CutArgs {
    /// How often the power is cut
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    cuts: u64,
    /// Threads that write
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 4)]
    threads: u32,
    /// Memory budget: the least that there is
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "128K",
          allow_hyphen_values = true)]
    max: u64,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    io: Io,
    #[command(flatten)]
    common: Common,
    /// Give the runtime a disk that lies, so that the proof must fail
    #[arg(long, value_enum, hide = true)]
    sabotage: Option<Sabotage>,
}

/// Runs the proof.
///
/// # Errors
/// Any [`BenchError`]; [`BenchError::Broken`] for a promise that was not kept,
/// [`BenchError::Uncovered`] when something that a long proof should have seen never happened.
pub(crate) fn run(args: &CutArgs) -> Result<(), BenchError> {
    let Sizes { max_bytes, bytes, threads, layout } =
        Sizes::new(args.max, args.common.scale, args.threads)?;
    let (policies, seed) = (args.policies.rows(), args.common.seed.seed);
    let depot = args.common.place.depot()?;
    let scratch = depot.scratch("power-cut")?;
    let files = Files::beside(scratch.path());
    let setting = Setting {
        proof: NAME,
        cycles: "power cuts",
        in_process: true,
        policy: policies.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        max_bytes,
        data_bytes: bytes,
        threads,
        seed,
        file_system: facts::fs_name(scratch.path()).unwrap_or_else(|_| "unknown".into()),
        io: format!("{:?}", args.io.io).to_lowercase(),
    };
    let cuts = args.cuts;
    out::line(format_args!(
        "power-cut: {threads} threads write records to {} of file under a budget of {}; {cuts} \
         cuts; seed {}",
        Size::new(bytes),
        Size::new(max_bytes),
        seed
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
    let mut rng = SplitMix64::new(seed);
    let mut cut = Cut::default();
    for cycle in 0..cuts {
        let during = || format!("cutting the power ({cycle} times so far)");
        if cut.take(interrupt::check(during).map_err(BenchError::from))?.is_none() {
            break;
        }
        progress.set(cycle);
        proof.cycle(cycle, SplitMix64::new(rng.next_u64()))?;
    }
    cut.refuse_nothing(proof.tally.cycles == 0)?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    for text in proof.coverage.tables() {
        out::line(format_args!("{text}\n"));
    }
    conclude(&args.common.output, &setting, &proof.tally, seconds, &proof.coverage, cut)?;
    let long = cuts >= CUTS_FOR_COVERAGE && args.sabotage.is_none();
    Coverage::must_have(long, &proof.coverage.missing())
}

/// The proof under way.
struct Run<'a> {
    args: &'a CutArgs,
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
    /// What is counted by a row of the coverage table.
    counts: BTreeMap<&'static str, u64>,
    promises: Vec<(usize, Version)>,
    wrong: Option<(u64, String)>,
}

impl Run<'_> {
    /// A pager's life, from its beginning to the file that the next one finds.
    fn cycle(&mut self, cycle: u64, mut rng: SplitMix64) -> Result<(), BenchError> {
        let new = match cycle == 0 || rng.below(CYCLES_OF_A_FILE) == 0 {
            true => self.begin_file(Beginning::draw(&mut rng))?,
            false => None,
        };
        let disk = FaultyDisk::new(plan(&mut rng, self.args.sabotage)).without_syncs();
        let disk = Arc::new(disk);
        disk.cut_after(1 + rng.below(REQUESTS_MAX));
        let shape = Shape::draw(&mut rng);
        self.coverage.add_shape(&shape);
        let pager = self.pager(cycle, &shape, &disk)?;
        let parts = (0..self.threads).map(|thread| Part {
            seed: self.args.common.seed.seed,
            cycle,
            thread,
            threads: self.threads,
        });
        let parts: Vec<Part> = parts.collect();
        let acting = |part: &Part| (Writer::new(self.layout, *part), Played::default());
        let mut cast: Vec<_> = parts.iter().map(acting).collect();
        if new.is_some() {
            disk.expect_new(&self.files.now);
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| watch(&disk, &ended));
            let lived = self.live(&shape, new, &pager, &mut cast, &disk);
            disk.cut();
            ended.store(true, Relaxed);
            watch.thread().unpark();
            lived
        })?;
        self.coverage.add_pager(&pager);
        drop(pager);
        self.coverage.add_disk(&disk);
        let broken = |error: lowtide_proof::disk::PowerError| BenchError::Peer {
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
        let thread_of = |slot| Part::thread_of(self.layout, slot, self.threads);
        let begun = |slot, number| parts[thread_of(slot)].begun(self.layout, slot, number);
        let histories: Vec<_> = parts
            .iter()
            .zip(&begun_by)
            .map(|(part, until)| part.history(self.layout, *until))
            .collect();
        let all_begun = |slot: usize| histories[thread_of(slot)][slot].clone();
        let mut found = self.ledger.settle(self.layout, &file, begun, all_begun);
        if let Some(first) = &mut found.first {
            *first = format!("cut {cycle}: {first}");
        }
        self.tally.findings.add(found);
        self.tally.cycles += 1;
        Ok(())
    }

    /// A file without records, or none; then the length that the pager is to make it with.
    fn begin_file(&mut self, beginning: Beginning) -> Result<Option<u64>, BenchError> {
        let path = &self.files.now;
        beginning.rows().for_each(|row| self.coverage.count(row, 1));
        let (half, all) = (
            self.layout.slot(self.layout.tail()).start,
            self.layout.slot(self.layout.slots() - 1).end,
        );
        let made = beginning.make(path, half, all);
        self.ledger = Ledger::new(self.layout);
        made.map_err(|source| BenchError::file("make", path, source))
    }

    /// Opens the file and lets the threads work until the power is cut.
    fn live(
        &self,
        shape: &Shape,
        new: Option<u64>,
        pager: &Pager,
        cast: &mut [(Writer<'_>, Played)],
        disk: &FaultyDisk,
    ) -> Result<(), BenchError> {
        let open = || match shape.open(pager, &self.files.now, new) {
            // The disk refused, or had none of it any more. The file is there, and stays short.
            Err(OpenError::Grow { .. }) => shape.open(pager, &self.files.now, Some(0)),
            opened => opened,
        };
        let mut views = open()?;
        if shape.reopens {
            play(&self.ledger, &views, cast, disk, STEPS_BEFORE_REOPENING)?;
            drop(views);
            views = open()?;
        }
        play(&self.ledger, &views, cast, disk, STEPS_MAX)
    }

    /// Policies, engines and background threads take turns.
    fn pager(
        &self,
        cycle: u64,
        shape: &Shape,
        disk: &Arc<FaultyDisk>,
    ) -> Result<Pager, BenchError> {
        let engine = match self.args.io.io {
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
            .direct(self.args.io.direct.into())
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
        for (slot, version) in played.promises {
            self.ledger.promise(self.layout, slot, version);
        }
        for (row, times) in played.counts {
            self.coverage.count(row, times);
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
    std::thread::scope(|scope| {
        let threads: Vec<_> = cast
            .iter_mut()
            .zip(views.iter().cycle())
            .map(|((writer, played), view)| {
                scope.spawn(move || play_one(writer, played, view, ledger, disk, steps))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| BenchError::Worker))
    })
}

/// Lets go what hangs when nothing has moved for long, until the cycle has ended.
fn watch(disk: &FaultyDisk, ended: &AtomicBool) {
    let mut moved = (Instant::now(), disk.requests());
    while !ended.load(Relaxed) {
        std::thread::park_timeout(LOOK);
        let requests = disk.requests();
        if requests != moved.1 {
            moved = (Instant::now(), requests);
        } else if moved.0.elapsed() > STANDSTILL {
            disk.release();
        }
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
            Step::Changed(change) => {
                played.writes += 1;
                if let Some(row) = change.row() {
                    *played.counts.entry(row).or_default() += 1;
                }
            }
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
