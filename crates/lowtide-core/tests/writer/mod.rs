//! One writer on a slow device: the smallest driver that can run out of memory because of dirty
//! pages.
//!
//! One CPU, one task that writes whole pages of a file through the descriptor; nothing is mapped.
//! Memory is charged, with direct reclaim when the charge meets the budget. A flusher begins to
//! write all dirty pages when more than a tenth of the budget is, or when reclaim wakes
//! it; a write ends a fixed latency after it began, in virtual time, which passes by 100 ns an
//! access, 1 µs a step of reclaim, and in sleeps. So writes end during an invocation of reclaim, as
//! they do in a kernel.
//!
//! The classical lists see group statistics as of the last publication, every 10,000 pages; so does
//! the flusher under them.

use lowtide_core::{
    Charge, Engine, EngineConfig, Facts, Folio, FolioId, FolioState, Lists, LruType, MemcgId, Next,
    Owner, Policy, Reclaim, References, SpaceId, Step, Task, Unmapped, Window,
};
use std::collections::VecDeque;

/// Pages between two publications of group statistics.
const PUBLISH_EVERY: u64 = 10_000;

/// A charge failed after all retries: in the kernel, the out-of-memory killer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfMemory;

/// What the engine made reclaim do, in numbers of steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Steps {
    /// Invocations of reclaim.
    pub(crate) invocations: u64,
    /// Wakings of the flusher.
    pub(crate) wakes: u64,
    /// Naps.
    pub(crate) naps: u64,
}

/// Nothing is mapped, so no folio is young.
#[derive(Debug)]
struct Unmappable;

impl Facts for Unmappable {
    fn state(&mut self, _: FolioId, _: &Folio) -> FolioState {
        FolioState { locked: false, mapped: false }
    }

    fn references(&mut self, _: FolioId, _: &Folio) -> References {
        References::default()
    }

    fn look_around(
        &mut self,
        _: FolioId,
        _: &Folio,
        _: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        None
    }
}

/// The machine. See the module documentation.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The engine under test.
    pub(crate) engine: Engine,
    /// What reclaim requested so far.
    pub(crate) steps: Steps,
    max: u64,
    latency: u64,
    now: u64,
    written: u64,
    free: Vec<u32>,
    dirty: Vec<FolioId>,
    published_dirty: u64,
    in_flight: VecDeque<(u64, FolioId)>,
}

impl Writer {
    /// A writer with memory for `max` pages, on a device that takes `latency` nanoseconds.
    pub(crate) fn new(policy: Policy, max: u32, latency: u64) -> Self {
        let config =
            EngineConfig { frames: max, max: max.into(), page_bytes: 4096, policy, cpus: 1 };
        Self {
            engine: Engine::new(&config).expect("the budget is big enough"),
            steps: Steps::default(),
            max: max.into(),
            latency,
            now: 0,
            written: 0,
            free: (0..max).rev().collect(),
            dirty: Vec::new(),
            published_dirty: 0,
            in_flight: VecDeque::new(),
        }
    }

    /// Writes the next page of the file.
    ///
    /// # Errors
    /// [`OutOfMemory`] when no room can be made for it.
    pub(crate) fn write(&mut self) -> Result<(), OutOfMemory> {
        self.pass_time(100);
        self.written += 1;
        if self.written.is_multiple_of(PUBLISH_EVERY) {
            self.engine.publish();
            self.published_dirty = self.engine.dirty();
        }
        self.charge()?;
        let folio = FolioId(self.free.pop().expect("what is charged has a frame"));
        let owner = Owner { space: SpaceId(0), page: self.written };
        self.engine.insert(folio, owner, 0, LruType::File, MemcgId::ROOT, None, Task::DESCRIPTOR);
        if self.engine.set_dirty(folio) {
            self.dirty.push(folio);
        }
        let classical = self.engine.policy().lists() == Lists::Classical;
        let seen = if classical { self.published_dirty } else { self.engine.dirty() };
        if seen > self.max / 10 {
            self.flush();
        }
        Ok(())
    }

    fn charge(&mut self) -> Result<(), OutOfMemory> {
        let mut charge = Charge::new(MemcgId::ROOT, 1);
        let mut reclaimed = None;
        loop {
            match charge.next(&mut self.engine, Task::DESCRIPTOR, reclaimed) {
                Next::Charged { .. } => return Ok(()),
                Next::Failed { .. } | Next::Gone => return Err(OutOfMemory),
                Next::Reclaim(reclaim) => reclaimed = Some(self.reclaim(*reclaim)),
            }
        }
    }

    /// Runs an invocation of reclaim to its end. Returns the pages reclaimed.
    fn reclaim(&mut self, mut reclaim: Reclaim) -> u64 {
        self.steps.invocations += 1;
        let mut flush = false;
        loop {
            let step = reclaim.step(&mut self.engine, &mut Unmappable, self.now);
            if step == Step::Yield {
                // On one CPU there is no other thread to let in.
                continue;
            }
            // A flusher that was woken runs when the batch that woke it has been put back.
            if std::mem::take(&mut flush) {
                self.flush();
            }
            self.pass_time(1_000);
            match step {
                Step::Unmap => {
                    reclaim.victims().iter_mut().for_each(|v| v.outcome = Unmapped::Done);
                }
                Step::Freed => self.free.extend(reclaim.freed().iter().map(|gone| gone.folio.0)),
                Step::WakeFlushers => {
                    self.steps.wakes += 1;
                    flush = true;
                }
                Step::Throttle(_, nanos) => {
                    self.steps.naps += 1;
                    self.pass_time(nanos);
                }
                // There are no page tables, so the walk is over when there is no further space.
                Step::Walk => while reclaim.age_job().next_space(&mut self.engine).is_some() {},
                Step::Yield => {}
                Step::Done => return reclaim.reclaimed(),
            }
        }
    }

    /// Begins to write everything that is dirty.
    fn flush(&mut self) {
        for folio in std::mem::take(&mut self.dirty) {
            assert!(self.engine.start_writeback(folio), "no page is written twice");
            self.in_flight.push_back((self.now + self.latency, folio));
        }
    }

    fn pass_time(&mut self, nanos: u64) {
        self.now += nanos;
        while let Some((_, folio)) = self.in_flight.pop_front_if(|&mut (end, _)| end <= self.now) {
            self.engine.end_writeback(folio, true, Task::DESCRIPTOR);
        }
    }
}
