//! Read-ahead: which pages to read beside the missing one, and when to read further pages before
//! they are requested.
//!
//! ```text
//!   window     start ............ start+size-async ............ start+size
//!                                 ▲
//!                                 carries the mark: a read of it starts the next window in time
//! ```
//!
//! This is arithmetic only; the reading is in `window.rs`. Source:
//! `docs/kernel/fault-and-writeback.md` A6.

use crate::frames::ORDERS;

/// A window of pages from `start`, and the place of its mark, if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    pub start: u64,
    pub size: u64,
    pub mark: Option<u64>,
    /// log2 of the pages of its folios, where the file has large ones.
    pub order: u32,
}

impl Window {
    /// A single page.
    pub const fn page(page: u64) -> Self {
        Self { start: page, size: 1, mark: None, order: 0 }
    }

    /// log2 of the pages of the folio that begins at a page of the window, of which only the pages
    /// before `end` are read: aligned, and smaller at the ends.
    /// Source: `docs/kernel/fault-and-writeback.md` A6.6.
    pub fn folio_order(&self, page: u64, end: u64) -> u8 {
        let left = end - page;
        let most = self.order.min(self.size.ilog2()).min(page.trailing_zeros()).min(left.ilog2());
        most.min(ORDERS as u32 - 1) as u8
    }
}

/// The state of one open file description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readahead {
    /// Largest window in pages; 0 switches read-ahead off.
    max: u64,
    start: u64,
    size: u64,
    async_size: u64,
    order: u32,
    /// The page of the last byte read.
    prev: Option<u64>,
    /// Faults that missed, less those that hit.
    misses: u32,
    /// What a fault that finds its page takes back of the misses.
    rule: MissRule,
}

/// What of the misses a fault that finds its page takes back. Source:
/// `docs/kernel/fault-and-writeback.md` A6.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissRule {
    /// One. Since Linux 7.
    #[default]
    Faults,
    /// One for each page that it maps and that is not of the workingset. Until then.
    MappedPages,
}

/// Misses counted at most, and those above which a mapping is taken for random.
const MISSES_MAX: u32 = 1000;
const MISSES_RANDOM: u32 = 100;

impl Readahead {
    pub const fn new(max: u64) -> Self {
        Self {
            max,
            start: 0,
            size: 0,
            async_size: 0,
            order: 0,
            prev: None,
            misses: 0,
            rule: MissRule::Faults,
        }
    }

    /// The first window of a run that begins with a request for `r` pages.
    const fn initial(&self, r: u64) -> u64 {
        let n = r.next_power_of_two();
        if n <= self.max / 32 {
            4 * n
        } else if n <= self.max / 4 {
            2 * n
        } else {
            self.max
        }
    }

    /// The window after one of `c` pages.
    const fn next(&self, c: u64) -> u64 {
        if c < self.max / 16 {
            4 * c
        } else if c <= self.max / 2 {
            2 * c
        } else {
            self.max
        }
    }

    const fn window(&self) -> Window {
        let mark =
            if self.async_size > 0 { Some(self.start + self.size - self.async_size) } else { None };
        Window { start: self.start, size: self.size, mark, order: self.order }
    }

    /// Page `idx` of a read is missing, and `r` pages from there on are wanted. `cached_before(n)`
    /// counts the cached pages directly before `idx`, `n` at most.
    pub fn missing(&mut self, idx: u64, r: u64, cached_before: impl FnOnce(u64) -> u64) -> Window {
        if self.max == 0 {
            return Window { start: idx, size: r, mark: None, order: 0 };
        }
        let follows = self.prev.is_some_and(|prev| idx == prev || idx == prev + 1);
        if idx == 0 || r > self.max || follows {
            self.size = self.initial(r);
            self.async_size = if self.size > r { self.size - r } else { self.size / 2 };
        } else {
            let mut before = cached_before(self.max);
            if before <= r {
                return Window { start: idx, size: r, mark: None, order: 0 };
            }
            if before >= idx {
                before *= 2;
            }
            self.size = (before + r).min(self.max);
            self.async_size = 1;
        }
        self.start = idx;
        self.order = 0;
        self.window()
    }

    /// The mark was met at `idx` with `r` pages still wanted. `next_missing(n)` finds the first
    /// page after `idx` that is not cached, `n` pages away at most.
    pub fn mark_met(
        &mut self,
        idx: u64,
        r: u64,
        next_missing: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<Window> {
        if self.max == 0 {
            return None;
        }
        if idx == self.start + self.size - self.async_size {
            self.start += self.size;
            self.size = self.size.max(self.next(self.size));
        } else {
            let start = next_missing(self.max)?;
            self.start = start;
            self.size = self.next(start - idx + r);
        }
        self.order += 2;
        let align = 1 << self.order.min(self.max.trailing_zeros());
        let end = (self.start + self.size) / align * align;
        if end > self.start {
            self.size = end - self.start;
        }
        self.async_size = self.size;
        Some(self.window())
    }

    /// A read has reached `page`.
    pub const fn read_to(&mut self, page: u64) {
        self.prev = Some(page);
    }

    /// The page that was read last.
    pub const fn last(&self) -> Option<u64> {
        self.prev
    }

    /// A fault found page `idx` missing: what to read around it.
    pub fn fault_missed(&mut self, idx: u64) -> Window {
        if self.max == 0 {
            return Window { start: idx, size: 1, mark: None, order: 0 };
        }
        self.misses = (self.misses + 1).min(MISSES_MAX);
        if self.misses > MISSES_RANDOM {
            return Window { start: idx, size: 1, mark: None, order: 0 };
        }
        self.start = idx.saturating_sub(self.max / 2);
        self.size = self.max;
        self.async_size = self.max / 4;
        self.order = 0;
        self.window()
    }

    /// Sets what a fault that finds its page takes back.
    pub const fn set_rule(&mut self, rule: MissRule) {
        self.rule = rule;
    }

    /// Whether pages that a fault maps are of interest.
    pub const fn counts_pages(&self) -> bool {
        matches!(self.rule, MissRule::MappedPages)
    }

    /// Takes misses back: that many faults found what they needed.
    pub const fn take_back(&mut self, hits: u32) {
        self.misses = self.misses.saturating_sub(hits);
    }

    /// Faults that missed, less those that hit.
    #[cfg(test)]
    pub const fn misses(&self) -> u32 {
        self.misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: u64) -> u64 {
        0
    }

    /// `docs/kernel/fault-and-writeback.md` A6.4: first windows for 32 pages.
    #[test]
    fn first_windows() {
        let ra = Readahead::new(32);
        let sizes = [1, 2, 3, 4, 5, 8, 9, 16, 32].map(|r| ra.initial(r));
        assert_eq!(sizes, [4, 4, 8, 8, 16, 16, 32, 32, 32]);
    }

    /// A6.5: windows of a sequential reader.
    #[test]
    fn windows_grow() {
        let grow = |max, from| {
            std::iter::successors(Some(from), move |&c| Some(Readahead::new(max).next(c)))
        };
        assert_eq!(grow(32, 4).take(5).collect::<Vec<_>>(), [4, 8, 16, 32, 32]);
        assert_eq!(grow(1024, 4).take(7).collect::<Vec<_>>(), [4, 16, 64, 128, 256, 512, 1024]);
    }

    #[test]
    fn a_sequential_reader_never_misses_after_the_first_page() {
        let mut ra = Readahead::new(32);
        let first = ra.missing(0, 1, none);
        assert_eq!(first, Window { start: 0, size: 4, mark: Some(1), order: 0 });
        let mut end = 4;
        let mut mark = 1;
        for page in 0..1000 {
            if page == mark {
                let window = ra.mark_met(page, 1, |_| None).unwrap();
                assert_eq!(window.start, end, "windows join");
                end += window.size;
                mark = window.mark.unwrap();
            }
            ra.read_to(page);
            assert!(page < end);
        }
        assert_eq!(ra.size, 32);
    }

    /// A6.4: a random read takes just what it needs, unless it looks like the continuation of
    /// something.
    #[test]
    fn random_reads_are_left_alone_unless_their_neighbours_are_cached() {
        let mut ra = Readahead::new(32);
        ra.read_to(5);
        assert_eq!(
            ra.missing(1000, 8, none),
            Window { start: 1000, size: 8, mark: None, order: 0 }
        );
        assert_eq!(
            ra.missing(1000, 8, |_| 8),
            Window { start: 1000, size: 8, mark: None, order: 0 }
        );
        assert_eq!(
            ra.missing(1000, 8, |_| 16),
            Window { start: 1000, size: 24, mark: Some(1023), order: 0 }
        );
        assert_eq!(
            ra.missing(1000, 8, |_| 32),
            Window { start: 1000, size: 32, mark: Some(1031), order: 0 }
        );
    }

    /// A6.2: read-around, and its end after a hundred misses.
    #[test]
    fn faults_read_around_until_they_look_random() {
        let mut ra = Readahead::new(32);
        assert_eq!(ra.fault_missed(100), Window { start: 84, size: 32, mark: Some(108), order: 0 });
        assert_eq!(ra.fault_missed(3).start, 0);
        for _ in 0..98 {
            assert_eq!(ra.fault_missed(5000).size, 32);
        }
        assert_eq!(ra.fault_missed(5000).size, 1);
        ra.take_back(2);
        assert_eq!(ra.fault_missed(5000).size, 32);
    }

    /// D5: the counter has bounds.
    #[test]
    fn misses_are_counted_up_to_a_thousand_and_never_below_none() {
        let mut ra = Readahead::new(32);
        ra.take_back(5);
        assert_eq!(ra.misses(), 0);
        for _ in 0..2_000 {
            ra.fault_missed(5000);
        }
        assert_eq!(ra.misses(), 1000);
    }
}
