//! A thread that writes, reads, flushes, and knows what it was promised.
//!
//! Slots belong to threads, so each knows exactly what its own must hold. The `n`-th record that a
//! thread writes in a cycle goes to a slot that follows from seed, cycle, thread and `n` alone:
//! whoever knows that `n` records were flushed can tell which, also after the thread was killed.

use lowtide::{Error, View};
use lowtide_workload::SplitMix64;
use lowtide_workload::prng::mix64;

use super::layout::{Layout, number_of};
use super::ledger::Ledger;

/// Which thread of which cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The seed of the proof.
    pub(super) seed: u64,
    /// The cycle.
    pub(super) cycle: u64,
    /// The thread.
    pub(super) thread: usize,
    /// How many threads there are.
    pub(super) threads: usize,
}

impl Part {
    /// The number of the `n`-th record (from 1 on). Later cycles have larger ones.
    pub(super) const fn number(self, n: u64) -> u64 {
        (self.cycle + 1) << 32 | n
    }

    /// Its slot.
    pub(super) fn slot(self, layout: &Layout, n: u64) -> usize {
        let stream = mix64(self.seed ^ mix64(self.number(n)) ^ (self.thread as u64) << 56);
        let mine = (layout.slots() - self.thread).div_ceil(self.threads);
        self.thread + self.threads * SplitMix64::new(stream).below(mine as u64) as usize
    }

    /// The numbers of a slot among the first so many records.
    pub(super) fn numbers(self, layout: &Layout, slot: usize, until: u64) -> Vec<u64> {
        let mine = (1..=until).filter(|n| self.slot(layout, *n) == slot);
        mine.map(|n| self.number(n)).collect()
    }

    /// Whether a record of this number can have been begun in a slot by this part.
    pub(super) fn begun(self, layout: &Layout, slot: usize, number: u64) -> bool {
        let n = number & 0xFFFF_FFFF;
        number >> 32 == self.cycle + 1 && n > 0 && self.slot(layout, n) == slot
    }
}

/// What came of a step.
#[derive(Debug)]
pub(super) enum Step {
    /// A record was written.
    Wrote,
    /// Records were read and right.
    Read,
    /// Everything written before the flush is promised: the first so many records.
    Flushed(u64),
    /// So is what was written to one slot, among the first so many records.
    FlushedSlot(usize, u64),
    /// The runtime refused: it may, if the disk failed.
    Refused(Error),
    /// Bytes that cannot be: how many, and what they are.
    Wrong(u64, String),
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    layout: &'a Layout,
    part: Part,
    rng: SplitMix64,
    /// Records begun.
    n: u64,
    /// By slot: the last record whose write returned well, in this cycle.
    whole: Vec<u64>,
    /// By slot: the last that was begun.
    begun: Vec<u64>,
    /// By slot: what a flush promised, in this cycle.
    promised: Vec<u64>,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// A writer that has not written.
    pub(super) fn new(layout: &'a Layout, part: Part) -> Self {
        let stream = part.seed ^ mix64(part.number(0)) ^ part.thread as u64;
        Self {
            layout,
            part,
            rng: SplitMix64::new(mix64(stream)),
            n: 0,
            whole: vec![0; layout.slots()],
            begun: vec![0; layout.slots()],
            promised: vec![0; layout.slots()],
            buffer: Vec::new(),
        }
    }

    /// Records begun.
    pub(super) fn begun(&self) -> u64 {
        self.n
    }

    /// Does something through a view. What must be there before the first record of the cycle,
    /// `before` says.
    pub(super) fn step(&mut self, view: &View, before: &Ledger) -> Step {
        match self.rng.below(64) {
            0..44 => self.write(view),
            44..58 => self.read(view, before),
            58..62 => self.flush(view),
            _ => self.flush_slot(view),
        }
    }

    /// What flushes have promised, by slot.
    pub(super) fn promises(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.promised.iter().copied().enumerate().filter(|(_, number)| *number > 0)
    }

    fn write(&mut self, view: &View) -> Step {
        self.n += 1;
        let (slot, number) = (self.part.slot(self.layout, self.n), self.part.number(self.n));
        self.begun[slot] = number;
        let record = self.layout.record(slot, number);
        match view.write_at(self.layout.slot(slot).start, &record) {
            Ok(()) => {
                self.whole[slot] = number;
                Step::Wrote
            }
            Err(error) => Step::Refused(error),
        }
    }

    fn own_slot(&mut self) -> usize {
        let mine = (self.layout.slots() - self.part.thread).div_ceil(self.part.threads);
        self.part.thread + self.part.threads * self.rng.below(mine as u64) as usize
    }

    fn read(&mut self, view: &View, before: &Ledger) -> Step {
        // Mostly one of its own, sometimes anybody's.
        let own = self.rng.below(4) > 0;
        let slot = if own { self.own_slot() } else { self.rng.below(self.layout.slots() as u64) as usize };
        let place = self.layout.slot(slot);
        if place.end > view.len() {
            return Step::Read;
        }
        self.buffer.resize((place.end - place.start) as usize, 0);
        if let Err(error) = view.read_at(place.start, &mut self.buffer) {
            return Step::Refused(error);
        }
        for (piece, at) in self.layout.pieces_of(slot) {
            let bytes = &self.buffer[(at.start - place.start) as usize..(at.end - place.start) as usize];
            let (least, most) = match self.begun[slot] {
                _ if !own => (before.promised(piece), u64::MAX),
                0 => (before.promised(piece), before.promised(piece)),
                begun => (before.promised(piece).max(self.whole[slot]), begun),
            };
            let found = number_of(piece, bytes);
            if found.is_none() && least == before.promised(piece) && before.mixture(piece) == Some(bytes) {
                continue;
            }
            if !found.is_some_and(|number| (least..=most).contains(&number)) {
                let found = found.map_or("something else".into(), |number| format!("record {number:#x}"));
                let what = format!("slot {slot}, byte {}: {found} was read, and {least:#x} is due", at.start);
                return Step::Wrong(bytes.len() as u64, what);
            }
        }
        Step::Read
    }

    fn flush(&mut self, view: &View) -> Step {
        match view.flush() {
            Ok(()) => {
                self.promised.copy_from_slice(&self.whole);
                Step::Flushed(self.n)
            }
            Err(error) => Step::Refused(error),
        }
    }

    fn flush_slot(&mut self, view: &View) -> Step {
        let slot = self.own_slot();
        let place = self.layout.slot(slot);
        match view.flush_range(place) {
            Ok(()) => {
                self.promised[slot] = self.whole[slot];
                Step::FlushedSlot(slot, self.n)
            }
            Err(error) => Step::Refused(error),
        }
    }
}
