//! Pagers whose power is cut.
//!
//! Each cycle puts a pager on a disk that fails as a fault plan says (`schedule.rs`), lets threads
//! write, read and flush, and cuts the power at a random request. One of the states that the disk
//! may be in afterwards becomes the file of the next cycle, after it was compared with what flushes
//! had promised.
//!
//! Everything is in this process and in files of half a megabyte; syncs are played, because on this
//! disk its log decides what is durable. So a cycle takes some milliseconds.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lowtide::instruments::Inject;
use lowtide::map::MapMode;
use lowtide::{IoEngine, IoMode, OpenError, Pager, Policy, Size};
use lowtide_workload::SplitMix64;

use crate::access::Access;
use crate::coverage::{Coverage, Tally};
use crate::disk::FaultyDisk;
use crate::error::ProofError;
use crate::files::Files;
use crate::heap::Heap;
use crate::layout::Layout;
use crate::ledger::Ledger;
use crate::schedule::{Lie, plan};
use crate::script::{Part, Version};
use crate::shape::{Beginning, Opened, Shape};
use crate::writer::{Step, Writer};

/// Requests after which the power is cut, at most.
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
/// How long requests stand still until what hangs is released.
const STANDSTILL: Duration = Duration::from_millis(80);
/// How often the watching thread looks.
const LOOK: Duration = Duration::from_millis(1);

/// What a proof is made with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Policies, which take turns.
    pub policies: Vec<Policy>,
    /// The I/O engine; with [`IoEngine::Auto`] each other cycle has system calls.
    pub io: IoEngine,
    /// Whether I/O goes past the page cache.
    pub direct: IoMode,
    /// The budget of a pager, unless the pages and folios of a cycle need more.
    pub max_bytes: u64,
    /// Threads that write.
    pub threads: usize,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// What the disk claims to have done, so that the proof must fail.
    pub lie: Option<Lie>,
    /// Whether files can be mapped in `userfault` mode. In the other the kernel writes, past
    /// this disk.
    pub maps: bool,
}

impl Setting {
    /// The ways of maps.
    fn ways(&self) -> Vec<MapMode> {
        self.maps.then_some(MapMode::Userfault).into_iter().collect()
    }
}

/// The proof under way.
#[derive(Debug)]
pub struct PowerCuts<'a> {
    setting: Setting,
    layout: &'a Layout,
    files: Files,
    ledger: Ledger,
    /// Draws the seeds of cycles.
    rng: SplitMix64,
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

impl<'a> PowerCuts<'a> {
    /// A proof that has not begun.
    #[must_use]
    pub fn new(setting: Setting, layout: &'a Layout, files: Files) -> Self {
        Self {
            layout,
            files,
            ledger: Ledger::new(layout),
            rng: SplitMix64::new(setting.seed),
            tally: Tally::default(),
            coverage: Coverage { ways: setting.ways(), ..Coverage::default() },
            setting,
        }
    }

    /// What was done, and what was found.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What happened.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// A pager's life, from its beginning to the file that the next one finds.
    ///
    /// # Errors
    /// What keeps the proof from going on. A promise that was not kept is none: it is in the
    /// [`tally`](Self::tally).
    pub fn cycle(&mut self) -> Result<(), ProofError> {
        let cycle = self.tally.cycles;
        let mut rng = SplitMix64::new(self.rng.next_u64());
        let new = match cycle == 0 || rng.below(CYCLES_OF_A_FILE) == 0 {
            true => self.begin_file(Beginning::draw(&mut rng))?,
            false => None,
        };
        let disk = FaultyDisk::new(plan(&mut rng, self.setting.lie)).without_syncs();
        let disk = Arc::new(disk);
        disk.cut_after(1 + rng.below(REQUESTS_MAX));
        let shape = Shape::draw(&mut rng, &self.setting.ways());
        if shape.map.is_some() {
            // A page that cannot be read is SIGBUS.
            disk.spare_reads();
        }
        self.coverage.add_shape(&shape);
        let pager = self.pager(cycle, &shape, &disk)?;
        let parts = (0..self.setting.threads).map(|thread| Part {
            seed: self.setting.seed,
            cycle,
            thread,
            threads: self.setting.threads,
            mapped: shape.map.is_some(),
        });
        let parts: Vec<Part> = parts.collect();
        let writers = Writer::all(self.layout, &parts).into_iter();
        let mut cast: Vec<_> = writers.map(|writer| (writer, Played::default())).collect();
        if new.is_some() {
            disk.expect_new(&self.files.now);
        }
        let heap = self.heap(&shape, &pager, rng.next_u64())?;
        let ended = AtomicBool::new(false);
        let (opened, heap) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| watch(&disk, &ended));
            let heap = heap.map(|heap| scope.spawn(|| use_region(heap, &disk)));
            let lived = self.live(&shape, new, &pager, &mut cast, &disk);
            disk.cut();
            let heap = heap.map(|heap| heap.join().map_err(|_| ProofError::Worker)).transpose();
            ended.store(true, Relaxed);
            watch.thread().unpark();
            Ok::<_, ProofError>((lived?, heap?))
        })?;
        if let Some(row) = shape.mapped_row().filter(|_| opened) {
            self.coverage.count(&row, 1);
        }
        if let Some((heap, wrong)) = heap {
            heap.counts().for_each(|(row, times)| self.coverage.count(row, times));
            if let Some(what) = wrong {
                self.tally.findings.note_wrong(1, format!("before cut {cycle}: {what}"));
            }
        }
        self.coverage.add_pager(&pager);
        drop(pager);
        self.coverage.add_disk(&disk);
        let cut = disk.image(&self.files.now, rng.next_u64(), &self.files.next)?;
        self.coverage.add_cut(cut);
        let begun_by: Vec<u64> = cast.iter().map(|(writer, _)| writer.begun()).collect();
        for (writer, mut played) in cast {
            played.promises = writer.promises().collect();
            self.take(played);
        }
        let (now, next) = (&self.files.now, &self.files.next);
        let file = std::fs::read(next).map_err(|source| ProofError::file("read", next, source))?;
        std::fs::rename(next, now).map_err(|source| ProofError::file("rename", next, source))?;
        let thread_of = |slot| Part::thread_of(self.layout, slot, self.setting.threads);
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
    fn begin_file(&mut self, beginning: Beginning) -> Result<Option<u64>, ProofError> {
        let path = &self.files.now;
        beginning.rows().for_each(|row| self.coverage.count(row, 1));
        let (half, all) = (self.layout.slot(self.layout.tail()).start, self.bytes());
        let made = beginning.make(path, half, all);
        self.ledger = Ledger::new(self.layout);
        made.map_err(|source| ProofError::file("make", path, source))
    }

    /// Opens the file and lets the threads work until the power is cut. Returns whether it could be
    /// opened.
    fn live(
        &self,
        shape: &Shape,
        new: Option<u64>,
        pager: &Pager,
        cast: &mut [(Writer<'_>, Played)],
        disk: &FaultyDisk,
    ) -> Result<bool, ProofError> {
        let (path, bytes) = (&self.files.now, self.bytes());
        let open = || match shape.open(pager, path, new, bytes) {
            // The disk refused, or had none of it any more. A file that is to be mapped is too
            // short then, or not closed.
            Err(_) if shape.map.is_some() => Ok(None),
            // The file is there, and stays short.
            Err(OpenError::SetLen { .. }) => shape.open(pager, path, Some(0), bytes).map(Some),
            opened => opened.map(Some),
        };
        let Some(mut opened) = open()? else { return Ok(false) };
        if shape.reopens {
            play(&self.ledger, &opened, cast, disk, STEPS_BEFORE_REOPENING)?;
            drop(opened);
            let Some(again) = open()? else { return Ok(true) };
            opened = again;
        }
        play(&self.ledger, &opened, cast, disk, STEPS_MAX)?;
        Ok(true)
    }

    /// The region beside the file, if there is one.
    fn heap(&self, shape: &Shape, pager: &Pager, seed: u64) -> Result<Option<Heap>, ProofError> {
        let Some(swap) = shape.region else { return Ok(None) };
        let heap = Heap::new(pager, swap, self.setting.lie.is_some(), SplitMix64::new(seed));
        heap.map(Some).map_err(ProofError::Region)
    }

    /// Bytes of the file when it is whole.
    fn bytes(&self) -> u64 {
        self.layout.slot(self.layout.slots() - 1).end
    }

    /// Policies, engines and background threads take turns.
    fn pager(
        &self,
        cycle: u64,
        shape: &Shape,
        disk: &Arc<FaultyDisk>,
    ) -> Result<Pager, ProofError> {
        let engine = match self.setting.io {
            IoEngine::Auto if cycle % 2 == 1 => IoEngine::Psync,
            engine => engine,
        };
        let inject: Arc<dyn Inject> = disk.clone();
        // A load that finds no room, because nothing that is dirty can be written, is SIGBUS.
        let wanted = self.setting.max_bytes;
        let wanted = if shape.map.is_some() { wanted.max(2 * self.bytes()) } else { wanted };
        let dir = self.files.now.parent().unwrap_or(Path::new("."));
        let builder = shape
            .builder(wanted, dir)
            .policy(self.setting.policies[cycle as usize % self.setting.policies.len()])
            .io_engine(engine)
            .direct(self.setting.direct)
            .background(cycle % 4 != 3)
            .memory_timeout(shape.patience.unwrap_or(PATIENCE))
            .io_timeout(DEADLINE)
            .inject(inject);
        // Through a map a late read would be waited for, as without a deadline.
        let builder = if cycle % 3 == 1 { builder.read_timeout(DEADLINE) } else { builder };
        builder.build().map_err(|source| {
            let (max, page_bytes) = (Size::new(shape.budget(wanted)), shape.page as u64);
            ProofError::Setup { max, page_bytes, source }
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

/// Lets each thread do `steps` steps, or fewer if the power is cut.
fn play(
    ledger: &Ledger,
    opened: &Opened,
    cast: &mut [(Writer<'_>, Played)],
    disk: &FaultyDisk,
    steps: u32,
) -> Result<(), ProofError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = cast
            .iter_mut()
            .enumerate()
            .map(|(thread, (writer, played))| {
                let access = opened.access(thread);
                scope.spawn(move || play_one(writer, played, access, ledger, disk, steps))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| ProofError::Worker))
    })
}

/// Uses a region until the power is cut: the region, and bytes that cannot be.
fn use_region(mut heap: Heap, disk: &FaultyDisk) -> (Heap, Option<String>) {
    while !disk.is_cut() {
        if let Err(what) = heap.step() {
            return (heap, Some(what));
        }
    }
    (heap, None)
}

/// Releases what hangs when nothing has moved for long, until the cycle has ended.
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
    access: Access<'_>,
    ledger: &Ledger,
    disk: &FaultyDisk,
    steps: u32,
) {
    for _ in 0..steps {
        if disk.is_cut() {
            break;
        }
        match writer.step(access, ledger) {
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
                if error.kind() == io::ErrorKind::TimedOut {
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
