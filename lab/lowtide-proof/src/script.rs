//! What the threads of a cycle change, from seed, cycle and thread alone.
//!
//! Slots belong to threads, so each knows exactly what its own must hold. The first half of them is
//! dealt out in turn; the second half, the *tail*, belongs to the first thread alone. Only it cuts
//! the file off, always within the tail, and only it discards pages, all of whose bytes are its
//! own. So the others may store all the while, and every thread knows what it has done away with.
//!
//! The `n`-th change that a thread makes in a cycle follows from `n`. So a process that knows that
//! `n` changes were flushed can tell which, also after the thread was killed. Not every cycle has
//! every kind of change: many bugs need that another kind keeps away.

use std::fmt;
use std::ops::Range;

use lowtide_workload::SplitMix64;
use lowtide_workload::prng::mix64;

use crate::layout::Layout;

/// Records that are punched or discarded at a time, at most.
const RANGE_MAX: u64 = 12;

/// Something that a thread does to its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A record is written.
    Write(usize),
    /// Zeroes where records were.
    Punch(Range<usize>),
    /// The file ends where this record began.
    Cut(usize),
    /// What is in memory of pages that lie within these records is forgotten.
    Discard(Range<usize>),
}

impl Change {
    /// The rows of the coverage table that count them.
    pub const ROWS: [&'static str; 3] = ["ranges punched", "files shrunk", "ranges discarded"];

    /// The records that it is about.
    pub fn slots(&self, layout: &Layout) -> Range<usize> {
        match self {
            Self::Write(slot) => *slot..slot + 1,
            Self::Punch(slots) | Self::Discard(slots) => slots.clone(),
            Self::Cut(slot) => *slot..layout.slots(),
        }
    }

    /// The row of the coverage table that counts it.
    pub const fn row(&self) -> Option<&'static str> {
        match self {
            Self::Write(_) => None,
            Self::Punch(_) => Some(Self::ROWS[0]),
            Self::Cut(_) => Some(Self::ROWS[1]),
            Self::Discard(_) => Some(Self::ROWS[2]),
        }
    }

    /// What it makes of its records; `None` if they are then as they were at some time.
    pub const fn makes(&self, number: u64) -> Option<Version> {
        match self {
            Self::Write(_) => Some(Version { number, zeroes: false }),
            Self::Punch(_) | Self::Cut(_) => Some(Version { number, zeroes: true }),
            Self::Discard(_) => None,
        }
    }
}

/// What a change made of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The number of the change; 0 for what was there before all of them.
    pub number: u64,
    /// Zeroes, and not a record of that number.
    pub zeroes: bool,
}

impl Version {
    /// What was never written.
    pub const NEVER: Self = Self { number: 0, zeroes: true };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.zeroes { "zeroes by change" } else { "record" };
        write!(f, "{what} {:#x}", self.number)
    }
}

/// Which thread of which cycle.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The seed of the proof.
    pub seed: u64,
    /// The cycle.
    pub cycle: u64,
    /// The thread.
    pub thread: usize,
    /// How many threads there are.
    pub threads: usize,
    /// The file is behind a pointer: nothing but records is written.
    pub mapped: bool,
}

impl Part {
    /// The thread that a slot belongs to.
    pub fn thread_of(layout: &Layout, slot: usize, threads: usize) -> usize {
        if threads == 1 || slot >= layout.tail() { 0 } else { 1 + slot % (threads - 1) }
    }

    /// The number of the `n`-th change (from 1 on). Later cycles have larger ones.
    pub const fn number(self, n: u64) -> u64 {
        (self.cycle + 1) << 32 | n
    }

    /// One of the slots of this thread.
    pub fn own_slot(self, layout: &Layout, rng: &mut SplitMix64) -> usize {
        let (first, step, end) = match self.thread {
            0 if self.threads == 1 => (0, 1, layout.slots()),
            0 => (layout.tail(), 1, layout.slots()),
            thread => (thread - 1, self.threads - 1, layout.tail()),
        };
        first + step * rng.below((end - first).div_ceil(step) as u64) as usize
    }

    /// The `n`-th change.
    pub fn change(self, layout: &Layout, n: u64) -> Change {
        let stream = mix64(self.seed ^ mix64(self.number(n)) ^ (self.thread as u64) << 56);
        let mut rng = SplitMix64::new(stream);
        let slot = self.own_slot(layout, &mut rng);
        if self.mapped {
            return Change::Write(slot);
        }
        let kinds = mix64(self.seed ^ mix64(self.cycle));
        let (cuts, punches, discards) = (kinds & 1 == 0, kinds & 2 == 0, kinds & 4 == 0);
        let tail = slot >= layout.tail() && self.thread == 0;
        let end = if tail {
            (slot + 1 + rng.below(RANGE_MAX) as usize).min(layout.slots())
        } else {
            slot + 1
        };
        match rng.below(32) {
            0..4 if punches => Change::Punch(slot..end),
            4..6 if tail && cuts => Change::Cut(slot),
            6..8 if tail && discards => Change::Discard(slot..end),
            _ => Change::Write(slot),
        }
    }

    /// By slot: what the first n changes made of it, in order.
    pub fn history(self, layout: &Layout, until: u64) -> Vec<Vec<Version>> {
        let mut history = vec![Vec::new(); layout.slots()];
        for n in 1..=until {
            let change = self.change(layout, n);
            let Some(version) = change.makes(self.number(n)) else { continue };
            history[change.slots(layout)].iter_mut().for_each(|slot| slot.push(version));
        }
        history
    }

    /// Whether a record of this number can have been begun in a slot by this part.
    pub fn begun(self, layout: &Layout, slot: usize, number: u64) -> bool {
        let n = number & 0xFFFF_FFFF;
        number >> 32 == self.cycle + 1 && n > 0 && self.change(layout, n) == Change::Write(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_thread_and_only_the_first_reaches_behind_its_slots() {
        let layout = Layout::new(512 << 10);
        for threads in [1, 2, 4, 8] {
            let mut written = vec![false; layout.slots()];
            for (cycle, thread) in
                (0..16).flat_map(|cycle| (0..threads).map(move |thread| (cycle, thread)))
            {
                let part = Part { seed: 3, cycle, thread, threads, mapped: false };
                for n in 1..600 {
                    let change = part.change(&layout, n);
                    for slot in change.slots(&layout) {
                        assert_eq!(Part::thread_of(&layout, slot, threads), thread, "{change:?}");
                        written[slot] |= change == Change::Write(slot);
                    }
                    let beyond = matches!(change, Change::Cut(_) | Change::Discard(_));
                    assert!(!beyond || change.slots(&layout).start >= layout.tail());
                    let number = part.number(n);
                    assert!(change.slots(&layout).all(|slot| {
                        part.begun(&layout, slot, number) == matches!(change, Change::Write(_))
                    }));
                }
            }
            assert!(written.into_iter().all(|written| written), "{threads} threads");
        }
    }

    #[test]
    fn a_history_has_every_change_but_discards() {
        let layout = Layout::new(512 << 10);
        let part = Part { seed: 3, cycle: 0, thread: 0, threads: 4, mapped: false };
        let history = part.history(&layout, 500);
        for n in 1..=500 {
            let change = part.change(&layout, n);
            let version = change.makes(part.number(n));
            for slot in change.slots(&layout) {
                assert_eq!(
                    history[slot].iter().any(|v| v.number == part.number(n)),
                    version.is_some()
                );
                assert!(version.is_none_or(|version| history[slot].contains(&version)));
            }
        }
    }
}
