//! Which addresses belong to mappings that were adopted: a sorted table of ranges.
//!
//! Every `munmap`, `mprotect` and `mmap` at a fixed address asks whether it touches one of them,
//! also those of the program's allocator, which calls them under its locks. So asking must be
//! cheap and must not allocate: first a comparison with the hull of all ranges, without the lock;
//! then a binary search under it. The table has a fixed place in address space, of which only what
//! was used takes memory; the kernel's default limit of mappings in a process is far below it.
//!
//! # Safety
//!
//! The table is touched only while the lock is held, and its first `count` entries were written.

#![allow(unsafe_code)]

use crate::lock::Lock;
use crate::wiped::{self, Zeroed};
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Ranges that can be remembered: eight times the kernel's default limit of mappings.
const CAPACITY: usize = 1 << 19;

/// One adopted range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) private: bool,
}

// SAFETY: numbers.
unsafe impl Zeroed for Entry {}

/// The table. All zeroes is an empty one.
#[derive(Debug)]
pub(crate) struct Ranges {
    lock: Lock,
    /// Ranges in the table; written under the lock.
    count: AtomicUsize,
    /// The hull of all that was ever here. Only grows; `low` is stored inverted, so that zero is
    /// the highest address.
    not_low: AtomicUsize,
    high: AtomicUsize,
    entries: AtomicPtr<Entry>,
}

/// There is no room for another range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Ranges {
    /// Whether there are any.
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether a range may touch one of these. No lock; never wrong about a range whose mapping the
    /// calling thread knows of.
    fn may_touch(&self, range: &Range<usize>) -> bool {
        self.are_any()
            && range.start < self.high.load(Ordering::Relaxed)
            && range.end > !self.not_low.load(Ordering::Relaxed)
    }

    /// Adds a range, which touches no other.
    pub(crate) fn insert(&self, range: &Range<usize>, private: bool) -> Result<(), Full> {
        let _held = self.lock.lock();
        let mut table = self.table()?;
        let entry = Entry { start: range.start, end: range.end, private };
        let at = table.used().partition_point(|known| known.start < entry.start);
        table.put(at, entry)?;
        self.not_low.fetch_max(!range.start, Ordering::Relaxed);
        self.high.fetch_max(range.end, Ordering::Relaxed);
        Ok(())
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> Vec<Entry> {
        if !self.are_any() {
            return Vec::new();
        }
        let _held = self.lock.lock();
        self.table().map(|table| table.used().to_vec()).unwrap_or_default()
    }

    /// Whether a range touches one of these, or one of a private mapping if only those count.
    pub(crate) fn touches(&self, range: &Range<usize>, private_only: bool) -> bool {
        if !self.may_touch(range) {
            return false;
        }
        let _held = self.lock.lock();
        let Ok(table) = self.table() else { return false };
        table.touched(range).iter().any(|known| known.private || !private_only)
    }

    /// Bytes of a range that belong to these.
    pub(crate) fn bytes_in(&self, range: &Range<usize>) -> usize {
        if !self.may_touch(range) {
            return 0;
        }
        let _held = self.lock.lock();
        let Ok(table) = self.table() else { return 0 };
        let parts = table.touched(range).iter();
        parts.map(|known| known.end.min(range.end) - known.start.max(range.start)).sum()
    }

    /// Takes a range away, also from the middle of one. Returns what is here no longer, if
    /// anything was: the range itself, or more if the table has no room for what would be left.
    pub(crate) fn remove(&self, range: &Range<usize>) -> Option<Range<usize>> {
        if !self.may_touch(range) {
            return None;
        }
        let _held = self.lock.lock();
        let mut table = self.table().ok()?;
        let first = table.used().partition_point(|known| known.end <= range.start);
        let last = first + table.touched(range).len();
        if first == last {
            return None;
        }
        let (left, right) = (table.used()[first], table.used()[last - 1]);
        table.take(first..last);
        let mut gone = range.clone();
        if right.end > range.end && table.put(first, Entry { start: range.end, ..right }).is_err() {
            gone.end = right.end;
        }
        if left.start < range.start && table.put(first, Entry { end: range.start, ..left }).is_err()
        {
            gone.start = left.start;
        }
        Some(gone)
    }

    /// The table, which the caller's lock protects.
    fn table(&self) -> Result<Table<'_>, Full> {
        let mut start = self.entries.load(Ordering::Acquire);
        if start.is_null() {
            start = wiped::map::<Entry>(CAPACITY).ok_or(Full)?.as_ptr();
            self.entries.store(start, Ordering::Release);
        }
        // SAFETY: the memory is mapped for CAPACITY entries, zeroes are entries, and the caller
        // holds the lock.
        let entries = unsafe { slice::from_raw_parts_mut(start, CAPACITY) };
        Ok(Table { entries, count: &self.count })
    }
}

/// The entries, while the lock is held.
struct Table<'a> {
    entries: &'a mut [Entry],
    count: &'a AtomicUsize,
}

impl Table<'_> {
    fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn used(&self) -> &[Entry] {
        &self.entries[..self.len()]
    }

    fn touched(&self, range: &Range<usize>) -> &[Entry] {
        let used = self.used();
        let first = used.partition_point(|known| known.end <= range.start);
        let last = used.partition_point(|known| known.start < range.end);
        &used[first..last.max(first)]
    }

    fn put(&mut self, at: usize, entry: Entry) -> Result<(), Full> {
        let len = self.len();
        if len == self.entries.len() {
            return Err(Full);
        }
        self.entries.copy_within(at..len, at + 1);
        self.entries[at] = entry;
        self.count.store(len + 1, Ordering::Release);
        Ok(())
    }

    fn take(&mut self, range: Range<usize>) {
        let len = self.len();
        self.entries.copy_within(range.end..len, range.start);
        self.count.store(len - range.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Ranges {
        Ranges {
            lock: Lock::new(),
            count: AtomicUsize::new(0),
            not_low: AtomicUsize::new(0),
            high: AtomicUsize::new(0),
            entries: AtomicPtr::default(),
        }
    }

    fn all(ranges: &Ranges) -> Vec<(usize, usize)> {
        let _held = ranges.lock.lock();
        let table = ranges.table().expect("room");
        table.used().iter().map(|entry| (entry.start, entry.end)).collect()
    }

    #[test]
    fn what_is_taken_from_the_middle_leaves_both_ends() {
        let ranges = empty();
        for start in [400, 100, 700] {
            ranges.insert(&(start..start + 200), start == 400).expect("room");
        }
        assert!(ranges.touches(&(250..401), false));
        assert_eq!(ranges.bytes_in(&(250..401)), 51);
        assert!(ranges.touches(&(250..401), true));
        assert!(!ranges.touches(&(250..400), true));
        assert!(!ranges.touches(&(300..400), false));
        assert_eq!(ranges.remove(&(450..460)), Some(450..460));
        assert_eq!(all(&ranges), [(100, 300), (400, 450), (460, 600), (700, 900)]);
        assert!(ranges.touches(&(599..600), true), "both ends are of a private mapping");
        assert!(ranges.remove(&(200..800)).is_some());
        assert_eq!(all(&ranges), [(100, 200), (800, 900)]);
        assert_eq!(ranges.remove(&(200..800)), None);
        assert!(ranges.remove(&(0..usize::MAX)).is_some());
        assert_eq!(all(&ranges), []);
        assert!(!ranges.touches(&(0..usize::MAX), false));
    }

    #[test]
    fn it_agrees_with_a_list_of_pages() {
        let ranges = empty();
        let mut pages = [false; 64];
        let mut seed = 7_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            let start = draw(64) as usize;
            let range = start..(start + 1 + draw(9) as usize).min(64);
            let touched = pages[range.clone()].contains(&true);
            assert_eq!(ranges.touches(&range, false), touched);
            if draw(2) == 0 && !touched {
                ranges.insert(&range, false).expect("room");
                pages[range].fill(true);
            } else {
                assert_eq!(ranges.remove(&range).is_some(), touched);
                pages[range].fill(false);
            }
        }
    }
}
