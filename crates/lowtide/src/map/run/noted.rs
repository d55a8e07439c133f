//! Files that a program reads through descriptors, under the budget of their mappings.
//!
//! The kernel brings the pages in, as in `pagecache` mode, and no page table says which: a read
//! leaves no mark that a process can see. So reads are *noted* by the thread that makes them, and
//! the thread that watches mappings takes the notes:
//!
//! ```text
//!   read(2) returns ──note──► queue ──the thread──► page is absent:   charge it, evict another
//!                                                   page is resident: count an access
//! ```
//!
//! An access of a descriptor is what it is in a view: it is counted for the policy, which may
//! protect pages that are read often from those that are read once.
//!
//! **Mappings** of the same file for the same tenant share its pages. A page is charged once,
//! whichever way it is used.
//!
//! **What is not noted** (read-ahead of the kernel, calls past the notes, other processes) is in
//! the page cache without a charge. `watch.rs` compares the two numbers and drops such pages when
//! there are many. So a note that is lost, or wrong, costs a read of the device and never a byte.
//!
//! **Folios.** The kernel's read-ahead, and writes, make folios of many pages, and a cache drops a
//! folio as a whole. Where single pages of such folios are charged, the others around them stay. If
//! dropping what lies between charged pages does not help, all that is cached of the file is
//! dropped. Pages that are read again come back alone, and are charged still.
//!
//! **Read-ahead** is that of `streams.rs`: a place where one read goes on behind another is a
//! stream, and what lies ahead of it is charged and requested.

use crate::ahead::readahead::{budget_of, first_use};
use crate::map::streams::{AHEAD_PART, Bounds, Streams};
use crate::map::watched::Watched;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::{FolioId, Task};
use lowtide_pin::translation::State;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Notes of a file that wait at most. Older ones are lost.
const NOTES: usize = 1 << 16;
/// Pages that are charged together.
const STEP: u64 = 64;
/// Ends of reads that are remembered, to see which read goes on behind another.
const TAILS: usize = 8;
/// Reads behind each other that make a stream, and the pages that they have at the least.
const STEPS: u32 = 3;
const RUN: u64 = 16;

/// What is noted of one file.
#[derive(Debug, Default)]
pub(in crate::map) struct Noted {
    /// It is read through descriptors.
    is_read: AtomicBool,
    /// Pages that were read, in this order.
    notes: Mutex<Vec<Range<u64>>>,
    lost: AtomicU64,
    /// Where it is read in order. Only the thread that watches uses it.
    order: Mutex<Order>,
}

impl Noted {
    /// Notes of reads come from now on. Windows that are read ahead have at most this number of
    /// pages, if they may not have more already; none is for the kernel's own read-ahead.
    pub(in crate::map) fn begin(&self, largest: Option<u64>) {
        self.is_read.store(true, Relaxed);
        if let Some(largest) = largest {
            lowtide_pin::sync::lock(&self.order).streams.allow(largest);
        }
    }

    /// Whether notes of reads come, or came.
    pub(in crate::map) fn is_read(&self) -> bool {
        self.is_read.load(Relaxed)
    }

    /// Adds notes, each of the pages of one read.
    pub(in crate::map) fn add(&self, reads: impl Iterator<Item = Range<u64>>) {
        let mut notes = lowtide_pin::sync::lock(&self.notes);
        notes.extend(reads.filter(|pages| !pages.is_empty()));
        let excess = notes.len().saturating_sub(NOTES);
        if excess > 0 {
            notes.drain(..excess);
            self.lost.fetch_add(excess as u64, Relaxed);
        }
    }

    /// Notes that were lost because too many waited.
    pub(in crate::map) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Reads of one file that are in order.
#[derive(Debug, Default)]
struct Order {
    tails: Vec<Tail>,
    streams: Streams,
}

/// Reads that went on behind each other.
#[derive(Clone, Debug)]
struct Tail {
    pages: Range<u64>,
    steps: u32,
}

impl Order {
    /// A read. Returns the pages of which it is the last, if they are long enough for a stream.
    fn step(&mut self, read: &Range<u64>) -> Option<Range<u64>> {
        // The last page of a read may be the first of the next one.
        let goes_on = |tail: &Tail| {
            (tail.pages.end..=tail.pages.end + 1).contains(&(read.start + 1))
                && read.end >= tail.pages.end
        };
        let mut tail = match self.tails.iter().position(goes_on) {
            Some(at) => self.tails.remove(at),
            None => Tail { pages: read.clone(), steps: 0 },
        };
        tail.pages.end = read.end;
        tail.steps += 1;
        if self.tails.len() == TAILS {
            self.tails.remove(0);
        }
        let is_stream = tail.steps >= STEPS && tail.pages.end - tail.pages.start >= RUN;
        self.tails.push(tail.clone());
        is_stream.then_some(tail.pages)
    }
}

/// What is done for the pages of a file, up to the page that is returned.
pub(in crate::map) struct Hands<'a> {
    /// Charges those that are absent.
    pub(in crate::map) charge: &'a dyn Fn(Range<u64>) -> u64,
    /// Charges them, and requests them.
    pub(in crate::map) read_ahead: &'a dyn Fn(Range<u64>) -> u64,
}

/// A file of which notes are taken, by the thread that watches.
pub(in crate::map) struct Taking<'a> {
    pub(in crate::map) pool: &'a Pool,
    pub(in crate::map) space: &'a Space,
    pub(in crate::map) watched: &'a Watched,
    pub(in crate::map) hands: Hands<'a>,
}

impl Taking<'_> {
    /// Takes the notes.
    pub(in crate::map) fn take(&self, noted: &Noted) {
        if !noted.is_read() {
            return;
        }
        let notes = std::mem::take(&mut *lowtide_pin::sync::lock(&noted.notes));
        if notes.is_empty() {
            return;
        }
        let mut order = lowtide_pin::sync::lock(&noted.order);
        let mut runs = Vec::new();
        for read in &notes {
            runs.extend(order.step(read));
            self.account(read);
        }
        order.streams.came_in(&runs);
        self.follow(&mut order.streams, &notes);
    }

    /// Charges what is new of a read, and counts an access of each page.
    fn account(&self, read: &Range<u64>) {
        let Self { pool, space, .. } = self;
        if read.end > space.table.pages() {
            // The file has grown. What there is no room for is not charged, and dropped by sweeps.
            drop(space.make_room(read.end << pool.page_shift));
        }
        let read = read.start..read.end.min(space.table.pages());
        let is_absent = |page: u64| matches!(space.table.entry(page).load(), State::Absent { .. });
        let mut first = read.start;
        while first < read.end {
            let step = first..(first + STEP).min(read.end);
            first = step.end;
            if step.clone().any(is_absent) && self.is_cached(&step) {
                let end = (self.hands.charge)(step.clone());
                if end < step.end {
                    self.watched.drop_uncharged(end..step.end);
                }
            }
            for page in step {
                let State::Resident { frame, .. } = space.table.entry(page).load() else {
                    continue;
                };
                first_use(pool, space, page, frame);
                pool.sample_marks.touch(frame);
                // A frame that is another page's by now has an access too many: no harm.
                if pool.accesses.record(FolioId(frame)) {
                    pool.lock().engine.mark_accessed(FolioId(frame), Task::DESCRIPTOR);
                }
            }
        }
    }

    /// Whether any of these pages is in memory: they may have been dropped since they were read.
    fn is_cached(&self, pages: &Range<u64>) -> bool {
        self.watched.cachestat(pages).map_or(true, |stat| stat.cached > 0)
    }

    /// Sees how far streams have come, and reads ahead of them.
    fn follow(&self, streams: &mut Streams, notes: &[Range<u64>]) {
        let windows: Vec<_> = streams.ahead().collect();
        if windows.is_empty() {
            return;
        }
        let reached: Vec<u64> = windows.iter().map(|window| reached(window, notes)).collect();
        let bounds = Bounds {
            pages: self.space.table.pages(),
            room: budget_of(self.pool, self.space) / AHEAD_PART,
            handed: 0,
            wasted: self.space.wasted_pages.load(Relaxed),
        };
        streams.went_on(&reached, bounds, |window| (self.hands.read_ahead)(window));
    }
}

/// The page up to which reads have come in a window.
fn reached(window: &Range<u64>, notes: &[Range<u64>]) -> u64 {
    let within = |at: u64, read: &Range<u64>| {
        let goes_on = read.start <= at.max(window.end) && read.end > at;
        if goes_on && read.start >= window.start.saturating_sub(1) { read.end } else { at }
    };
    notes.iter().fold(window.start, within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    #[test]
    fn reads_behind_each_other_make_a_stream_and_a_large_one_alone_does_not() {
        let mut order = Order::default();
        assert_eq!(order.step(&(100..1000)), None);
        assert_eq!(order.step(&(0..8)), None);
        assert_eq!(order.step(&(8..16)), None);
        assert_eq!(order.step(&(5000..5001)), None);
        assert_eq!(order.step(&(16..24)), Some(0..24), "another read between them does no harm");
        // Reads that end within a page go on within it.
        assert_eq!(order.step(&(23..30)), Some(0..30));
        assert_eq!(order.step(&(31..40)), None, "a page is left out");
    }

    #[test]
    fn only_so_many_places_are_remembered() {
        let mut order = Order::default();
        for place in 0..TAILS as u64 + 1 {
            order.step(&(place * 1000..place * 1000 + 10));
        }
        assert_eq!(order.tails.len(), TAILS);
        order.step(&(10..20));
        assert_eq!(order.step(&(20..30)), None, "the first place was forgotten");
        assert_eq!(order.step(&(30..40)), Some(10..40));
    }

    #[test]
    fn a_window_is_read_as_far_as_reads_go_on_in_it() {
        assert_eq!(reached(&(10..50), &[0..5, 10..20, 20..25, 70..90]), 25);
        assert_eq!(reached(&(10..50), slice::from_ref(&(9..12))), 12);
        assert_eq!(
            reached(&(10..50), slice::from_ref(&(0..90))),
            10,
            "from before: another reader"
        );
        assert_eq!(reached(&(10..50), &[]), 10);
        assert_eq!(reached(&(10..50), slice::from_ref(&(40..60))), 60, "a part was skipped");
    }
}
