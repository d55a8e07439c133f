//! A thread that changes its slots (`script.rs`), reads, flushes, and knows what it was promised.
//!
//! It also reads slots of others. A call of a view stores all of a piece at once. Through a pointer
//! each byte is stored by itself: a thread that reads meanwhile sees some bytes of the record that
//! was there and some of the one that is being stored. Each byte must still be of a record that the
//! other thread has begun. So the threads of a cycle share how many changes each has begun.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use lowtide::Error;
use lowtide_workload::SplitMix64;
use lowtide_workload::prng::mix64;

use crate::access::Access;
use crate::layout::{Layout, number_of};
use crate::ledger::Ledger;
use crate::script::{Change, Part, Version};

/// What came of a step.
#[derive(Debug)]
pub enum Step {
    /// A change was made.
    Changed(Change),
    /// Records were read and right.
    Read,
    /// Everything changed before the flush is promised: the first n changes.
    Flushed(u64),
    /// So is what was done to one slot, among the first n changes.
    FlushedSlot(usize, u64),
    /// The runtime refused: it may, if the disk failed.
    Refused(io::Error),
    /// Bytes that cannot be: how many, and what they are.
    Wrong(u64, String),
}

/// See the module documentation.
#[derive(Debug)]
pub struct Writer<'a> {
    layout: &'a Layout,
    part: Part,
    rng: SplitMix64,
    /// Changes begun, by thread.
    begun: Arc<[AtomicU64]>,
    /// The change that was begun last was refused.
    is_refused: bool,
    /// By slot.
    known: Vec<Known>,
    buffer: Vec<u8>,
}

/// What a thread knows of a slot of its own, in this cycle. Versions of number 0 are of before.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The last change that returned well.
    whole: Version,
    /// The number of the last that was begun.
    begun: u64,
    /// The number of the last that was begun and makes zeroes.
    zeroes: u64,
    /// What a flush promised.
    promised: Version,
    /// It was forgotten since it was changed: what is in the file may be of several versions.
    forgotten: bool,
}

impl<'a> Writer<'a> {
    /// Writers that have not written: all threads of a cycle.
    pub fn all(layout: &'a Layout, parts: &[Part]) -> Vec<Self> {
        let begun: Arc<[AtomicU64]> = parts.iter().map(|_| AtomicU64::new(0)).collect();
        parts.iter().map(|part| Self::new(layout, *part, Arc::clone(&begun))).collect()
    }

    fn new(layout: &'a Layout, part: Part, begun: Arc<[AtomicU64]>) -> Self {
        let stream = part.seed ^ mix64(part.number(0)) ^ part.thread as u64;
        Self {
            layout,
            part,
            rng: SplitMix64::new(mix64(stream)),
            begun,
            is_refused: false,
            known: vec![Known::default(); layout.slots()],
            buffer: Vec::new(),
        }
    }

    /// Changes begun.
    pub fn begun(&self) -> u64 {
        self.begun[self.part.thread].load(Ordering::Relaxed)
    }

    /// Begins a change: its number among those of this thread.
    fn begin(&self) -> u64 {
        let n = self.begun() + 1;
        self.begun[self.part.thread].store(n, Ordering::Relaxed);
        // A thread that sees one of the bytes sees that the change was begun (`may_be_torn`).
        fence(Ordering::Release);
        n
    }

    /// Does something through a view or a map. What must be there before the first change of the
    /// cycle, `before` says.
    pub fn step(&mut self, access: Access<'_>, before: &Ledger) -> Step {
        match self.rng.below(64) {
            0..44 => self.change(access),
            44..58 => self.read(access, before),
            58..62 => self.flush(access),
            _ => self.flush_slot(access),
        }
    }

    /// What flushes have promised, by slot.
    pub fn promises(&self) -> impl Iterator<Item = (usize, Version)> + '_ {
        let promised = self.known.iter().map(|known| known.promised);
        promised.enumerate().filter(|(_, version)| version.number > 0)
    }

    fn change(&mut self, access: Access<'_>) -> Step {
        let n = self.begin();
        self.make_whole(access, n)
    }

    /// Makes the last change again if it was refused: that the first n changes are promised means
    /// that all of them were made.
    pub fn try_again(&mut self, access: Access<'_>) -> Step {
        if self.is_refused { self.make_whole(access, self.begun()) } else { Step::Read }
    }

    fn make_whole(&mut self, access: Access<'_>, n: u64) -> Step {
        let (change, number) = (self.part.change(self.layout, n), self.part.number(n));
        let slots = change.slots(self.layout);
        let version = change.makes(number);
        for known in &mut self.known[slots.clone()] {
            match version {
                Some(version) => {
                    known.begun = number;
                    known.zeroes = if version.zeroes { number } else { known.zeroes };
                }
                // What was not flushed may be gone, in part.
                None => (known.whole, known.forgotten) = (known.promised, true),
            }
        }
        let made = self.make(access, &change, number);
        self.is_refused = made.is_err();
        if let Err(error) = made {
            return Step::Refused(error.into());
        }
        if let Some(version) = version {
            let known = self.known[slots].iter_mut();
            known.for_each(|known| (known.whole, known.forgotten) = (version, false));
        }
        Step::Changed(change)
    }

    fn make(&mut self, access: Access<'_>, change: &Change, number: u64) -> Result<(), Error> {
        let slots = change.slots(self.layout);
        let (first, last) = (self.layout.slot(slots.start), self.layout.slot(slots.end - 1));
        let bytes = first.start..last.end;
        if let Change::Write(slot) = change {
            return access.write_at(bytes.start, &self.layout.record(*slot, number));
        }
        let Access::View(view) = access else {
            unreachable!("a map is only stored to: {change:?}")
        };
        match change {
            Change::Write(_) => Ok(()),
            Change::Punch(_) => view.punch(bytes),
            Change::Cut(_) => {
                view.set_len(bytes.start)?;
                // Half of the time it grows again by its length, else by the next record.
                let longer = self.layout.slot(self.own_slot()).end;
                if self.rng.below(2) == 0 && longer > bytes.start {
                    view.set_len(longer)
                } else {
                    Ok(())
                }
            }
            Change::Discard(_) => {
                let page = view.page_size() as u64;
                let pages = bytes.start.div_ceil(page)..bytes.end / page;
                let whole = pages.start * page..pages.end * page;
                if whole.is_empty() { Ok(()) } else { view.revert(whole).map(drop) }
            }
        }
    }

    fn own_slot(&mut self) -> usize {
        self.part.own_slot(self.layout, &mut self.rng)
    }

    fn read(&mut self, access: Access<'_>, before: &Ledger) -> Step {
        // Mostly one of its own, sometimes that of another.
        let own = self.rng.below(4) > 0;
        let slot =
            if own { self.own_slot() } else { self.rng.below(self.layout.slots() as u64) as usize };
        let place = self.layout.slot(slot);
        if place.end > access.len() {
            return Step::Read;
        }
        self.buffer.resize((place.end - place.start) as usize, 0);
        match access.read_at(place.start, &mut self.buffer) {
            Ok(_) => {}
            // The first thread has cut it off since the length was looked at.
            Err(Error::OutOfRange { .. }) if !own => return Step::Read,
            Err(error) => return Step::Refused(error.into()),
        }
        for (piece, at) in self.layout.pieces_of(slot) {
            let bytes =
                &self.buffer[(at.start - place.start) as usize..(at.end - place.start) as usize];
            let promised = before.promised(piece);
            let known = self.known[slot];
            let least = if own && known.whole.number > 0 { known.whole } else { promised };
            let most = if own { known.begun.max(promised.number) } else { u64::MAX };
            let found = number_of(piece, bytes);
            if found.is_none() && least == promised && before.mixture(piece) == Some(bytes) {
                continue;
            }
            let right = match found {
                // The thread whose slot it is may have made zeroes since.
                Some(0) => !own || least.zeroes || known.zeroes > least.number,
                Some(number) => {
                    let oldest = least.number + u64::from(least.zeroes);
                    (oldest..=most).contains(&number)
                }
                None if own => known.forgotten,
                None => {
                    matches!(access, Access::Map(_)) && self.may_be_torn(slot, piece, bytes, before)
                }
            };
            if !right {
                let found =
                    found.map_or("something else".into(), |number| format!("record {number:#x}"));
                let what =
                    format!("slot {slot}, byte {}: {found} was read, and {least} is due", at.start);
                return Step::Wrong(bytes.len() as u64, what);
            }
        }
        Step::Read
    }

    /// Whether each byte of another thread's piece was there before the cycle, or is of a record
    /// that the thread has begun.
    fn may_be_torn(&self, slot: usize, piece: usize, bytes: &[u8], before: &Ledger) -> bool {
        let thread = Part::thread_of(self.layout, slot, self.part.threads);
        // Pairs with the fence of `begin`.
        fence(Ordering::Acquire);
        let until = self.begun[thread].load(Ordering::Relaxed);
        let history = Part { thread, ..self.part }.history(self.layout, until);
        before.is_mixture(self.layout, slot, piece, bytes, &history[slot])
    }

    fn flush(&mut self, access: Access<'_>) -> Step {
        match access.flush() {
            Ok(()) => {
                self.known.iter_mut().for_each(|known| known.promised = known.whole);
                Step::Flushed(self.begun())
            }
            Err(error) => Step::Refused(error),
        }
    }

    fn flush_slot(&mut self, access: Access<'_>) -> Step {
        let slot = self.own_slot();
        let place = self.layout.slot(slot);
        match access.flush_range(place) {
            Ok(()) => {
                self.known[slot].promised = self.known[slot].whole;
                Step::FlushedSlot(slot, self.begun())
            }
            Err(error) => Step::Refused(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_another_thread_is_storing_may_be_half_there_and_no_other_may() {
        let layout = Layout::new(1 << 16);
        let part = |thread| Part { seed: 3, cycle: 7, thread, threads: 2, mapped: true };
        let writers = Writer::all(&layout, &[part(0), part(1)]);
        let (reader, storer) = (&writers[0], &writers[1]);
        let before = Ledger::new(&layout);
        let Change::Write(slot) = part(1).change(&layout, 1) else { panic!("no record") };
        let (piece, place) = layout.pieces_of(slot).next().unwrap();
        let mut torn = vec![0; (place.end - place.start) as usize];
        let half = torn.len() / 2;
        torn[..half].copy_from_slice(&layout.piece(slot, piece, part(1).number(1))[..half]);
        let may = |bytes: &[u8]| reader.may_be_torn(slot, piece, bytes, &before);
        assert!(!may(&torn), "it was not begun");
        assert_eq!(storer.begin(), 1);
        assert!(may(&torn));
        torn[half] ^= 1;
        assert!(!may(&torn), "a byte that was never stored");
    }
}
