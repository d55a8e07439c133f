//! The translations of one view: a dense array of entries, which may grow while it is read.
//!
//! # Layout
//!
//! ```text
//!   entries: │ page 0 │ page 1 │ …    committed │ reserved: addresses only │  4 B a page
//!   hints:   │ table 0 │ table 1 │ …  committed │ reserved                 │  1 B for 512 pages
//!   groups:  │ tables 0 to 511 │ …    committed │ reserved                 │  1 B for 512 tables
//! ```
//!
//! A walk finds the tables that were ever used by way of the groups, so it costs what exists, and
//! next to nothing for what a sparse file or region might have: one byte for 1 GiB of pages of
//! 4 KiB.
//!
//! Hazard slots name a page by the address of its entry, so entries never move: the table reserves
//! addresses for as many pages as the view may ever have, and commits memory for those that it has.
//! Committed memory that was never written takes no physical page, and reads as zeroes, which is an
//! absent page without history.
//!
//! A look-up touches one word anywhere in a table that may be larger than what 4 KiB pages let a
//! processor reach without a walk of its page tables, so the table requests huge pages; where the
//! kernel grants none, only speed is lost.
//!
//! # Safety
//!
//! The file makes references to entries and hints in memory that it obtained from
//! `lowtide_sys::Mapping`. They are sound because every such reference borrows the table, lies
//! below the page count, and the count is raised only after the memory was committed.

use super::entry::{Entry, State};
use super::hint::Hint;
use crate::sync::{AtomicU64, Ordering};
use lowtide_core::limits::TABLE_ENTRIES;
use std::io;
use std::ops::Range;
use storage::Storage;

/// Tables of a group.
const GROUP_TABLES: u64 = 512;
/// Pages of a group.
const GROUP_PAGES: u64 = GROUP_TABLES * TABLE_ENTRIES;

/// The translations of one view. See the module documentation.
pub struct Table {
    entries: Storage<Entry>,
    hints: Storage<Hint>,
    groups: Storage<Hint>,
    /// Pages that the view has. Only grows; both storages are committed at least so far.
    pages: AtomicU64,
    reserved: u64,
}

impl Table {
    /// A table of `pages` absent pages, which can grow to `reserved` pages (or stays as it is, if
    /// `reserved` is less).
    ///
    /// Cost: some system calls, whatever the size.
    ///
    /// # Errors
    /// `InvalidInput` for more pages than the address space can describe; otherwise the errors of
    /// `mmap(2)` and `mprotect(2)`.
    pub fn new(pages: u64, reserved: u64) -> io::Result<Self> {
        let reserved = reserved.max(pages).max(1);
        let table = Self {
            entries: Storage::reserve(reserved)?,
            hints: Storage::reserve(reserved.div_ceil(TABLE_ENTRIES))?,
            groups: Storage::reserve(reserved.div_ceil(GROUP_PAGES))?,
            pages: AtomicU64::new(0),
            reserved,
        };
        table.grow(pages)?;
        Ok(table)
    }

    /// Raises the number of pages to `pages`; no-op if there are as many. The new ones are absent.
    ///
    /// Threads may use the table meanwhile, and grow it.
    ///
    /// # Errors
    /// `InvalidInput` beyond what was reserved; `OutOfMemory` when the kernel cannot promise the
    /// memory.
    pub fn grow(&self, pages: u64) -> io::Result<()> {
        if pages > self.reserved {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{pages} pages are more than the {} that the table was made for; reserve more \
                     when the view is opened",
                    self.reserved
                ),
            ));
        }
        self.entries.commit(pages)?;
        self.hints.commit(pages.div_ceil(TABLE_ENTRIES))?;
        self.groups.commit(pages.div_ceil(GROUP_PAGES))?;
        self.pages.fetch_max(pages, Ordering::Release);
        Ok(())
    }

    /// How many pages there are.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// The translation of `page`, or `None` beyond the last page. Cost: two loads and a comparison.
    #[inline]
    pub fn get(&self, page: u64) -> Option<&Entry> {
        self.slice(page..page.checked_add(1)?).first()
    }

    /// The translation that is at an address, as hazard slots name it; `None` if it is of another
    /// table.
    pub fn at_address(&self, address: usize) -> Option<&Entry> {
        let bytes = address.checked_sub(self.base().addr())?;
        self.get((bytes / size_of::<Entry>()) as u64)
    }

    /// The addresses of all translations that there may ever be.
    pub fn addresses(&self) -> std::ops::RangeInclusive<usize> {
        let first = self.base().addr();
        first..=first + self.reserved as usize * size_of::<Entry>() - 1
    }

    /// The address of the first translation; the others follow. It stays what it is while the table
    /// lives.
    pub fn base(&self) -> *const Entry {
        self.entries.base()
    }

    /// The translation of `page`.
    ///
    /// # Panics
    /// Beyond the last page, as a slice does; see [`Table::get`].
    #[inline]
    #[track_caller]
    pub fn entry(&self, page: u64) -> &Entry {
        let Some(entry) = self.get(page) else {
            panic!("page {page} of a view of {} pages", self.pages())
        };
        entry
    }

    /// The translations of `pages`, for walks. Cut off at the last page.
    #[inline]
    pub fn slice(&self, pages: Range<u64>) -> &[Entry] {
        let end = pages.end.min(self.pages());
        if pages.start >= end {
            return &[];
        }
        // SAFETY: `end` is at most the page count, which `grow` raises only after committing as
        // many entries.
        unsafe { self.entries.slice(pages.start..end) }
    }

    /// The hint of the table of [`TABLE_ENTRIES`] pages that `page` is in.
    ///
    /// # Panics
    /// Beyond the last page, as a slice does.
    #[inline]
    #[track_caller]
    pub fn hint(&self, page: u64) -> &Hint {
        let pages = self.pages();
        assert!(page < pages, "page {page} of a view of {pages} pages");
        let table = page / TABLE_ENTRIES;
        // SAFETY: The page is below the page count, which `grow` raises only after committing the
        // hints of all tables up to it.
        let hints = unsafe { self.hints.slice(table..table + 1) };
        &hints[0]
    }

    /// The hints of the groups of the pages that there are.
    fn groups(&self) -> &[Hint] {
        // SAFETY: the groups of as many pages are committed before the page count is raised.
        unsafe { self.groups.slice(0..self.pages().div_ceil(GROUP_PAGES)) }
    }

    /// Pages of one folio, from `first` on, get frames. Under the pool's lock.
    #[inline]
    pub fn note_used(&self, first: u64, order: u8) {
        for page in (first..first + (1 << order)).step_by(TABLE_ENTRIES as usize) {
            if self.hint(page).note_used() {
                self.groups()[(page / GROUP_PAGES) as usize].note_used();
            }
        }
    }

    /// The tables, by their pages, in which some page ever had a frame. Only for a caller that has
    /// had the pool's lock since the last page may have come. Cost: a look at one byte for each
    /// 512 × 512 pages, and for each 512 pages near those that were used.
    pub fn used(&self) -> impl Iterator<Item = Range<u64>> {
        self.used_in(0..u64::MAX)
    }

    /// The same within a range of pages, from either end. Tables are cut off where the range is.
    pub fn used_in(&self, pages: Range<u64>) -> impl DoubleEndedIterator<Item = Range<u64>> {
        let end = pages.end.min(self.pages());
        let start = pages.start.min(end);
        let cut = move |first: u64, size: u64| {
            let of = first * size;
            of.max(start)..(of + size).min(end)
        };
        let groups =
            if start < end { start / GROUP_PAGES..end.div_ceil(GROUP_PAGES) } else { 0..0 };
        let used = groups.filter(|&group| self.groups()[group as usize].was_used());
        let tables = used.flat_map(move |group| {
            let pages = cut(group, GROUP_PAGES);
            pages.start / TABLE_ENTRIES..pages.end.div_ceil(TABLE_ENTRIES)
        });
        let used = tables.filter(|table| self.hint(table * TABLE_ENTRIES).was_used());
        used.map(move |table| cut(table, TABLE_ENTRIES))
    }

    /// Whether some page may be dirty. Cost: as of [`Table::used`].
    pub fn may_be_dirty(&self) -> bool {
        self.used().any(|pages| self.hint(pages.start).may_be_dirty())
    }

    /// The last page from `from` on that is dirty or being stored to. Cost: as of
    /// [`Table::may_be_dirty`], and a look at the entries of tables that may have some.
    pub fn last_dirty(&self, from: u64) -> Option<u64> {
        self.used_in(from..u64::MAX).rev().find_map(|pages| {
            if !self.hint(pages.start).may_be_dirty() {
                return None;
            }
            let dirty = |e: &Entry| {
                matches!(
                    e.load(),
                    State::Resident { dirty: true, .. } | State::Locked { dirty: true, .. }
                )
            };
            let entries = self.slice(pages.clone());
            entries.iter().rposition(dirty).map(|at| pages.start + at as u64)
        })
    }

    /// How many pages are in memory now. Cost: a look at each entry of the tables that were ever
    /// used.
    pub fn resident(&self) -> u64 {
        let in_memory =
            |e: &&Entry| matches!(e.load(), State::Resident { .. } | State::Locked { .. });
        self.used().map(|pages| self.slice(pages).iter().filter(in_memory).count() as u64).sum()
    }

    /// Sets YOUNG in the entry of `page`, which was seen as `seen`, if `young`, and notes it in the
    /// hint; and UNFENCED, if it is not set and `permits` says so. Returns whether it has made the
    /// page young: not if the bit was set already, or if the entry has changed since, which a
    /// reader may ignore.
    ///
    /// # Panics
    /// Beyond the last page.
    #[inline]
    pub fn note_read(
        &self,
        page: u64,
        seen: State,
        young: bool,
        permits: impl FnOnce() -> bool,
    ) -> bool {
        let set = self.entry(page).note_read(seen, young, permits);
        if set {
            self.hint(page).note_young();
        }
        set
    }

    /// Bytes of memory that the table takes now. Cost: a system call for each group of tables of
    /// which some were used.
    pub fn memory_bytes(&self) -> u64 {
        let pages = self.pages();
        let groups = (0_u64..).zip(self.groups()).filter(|(_, group)| group.was_used());
        let bytes = groups.map(|(group, _)| {
            let first = group * GROUP_PAGES;
            let entries = first..(first + GROUP_PAGES).min(pages);
            self.entries.resident(entries) + GROUP_TABLES * size_of::<Hint>() as u64
        });
        bytes.sum()
    }
}

/// Arrays in reserved address space.
#[cfg(not(loom))]
mod storage {
    use lowtide_sys::memory::{HugePages, Mapping, page_size};
    use lowtide_sys::pagemap::mincore;
    use std::io;
    use std::marker::PhantomData;
    use std::ops::Range;

    /// Types that may be made of zeroed, shared memory.
    ///
    /// # Safety
    /// The type is a `repr(transparent)` atomic: all bit patterns are values of it, it may be
    /// written through shared references by any thread, and it needs no drop.
    pub(super) unsafe trait Zeroed {}
    // SAFETY: A transparent `AtomicU32`.
    unsafe impl Zeroed for super::Entry {}
    // SAFETY: A transparent `AtomicU8`.
    unsafe impl Zeroed for super::Hint {}

    /// An array of `T`, all zeroes at first, that never moves.
    pub(super) struct Storage<T: Zeroed> {
        memory: Mapping,
        of: PhantomData<[T]>,
    }

    /// Bytes of `count` elements.
    fn bytes<T>(count: u64) -> io::Result<usize> {
        usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<T>())).ok_or_else(
            || {
                let message = format!("a table of {count} elements does not fit the address space");
                io::Error::new(io::ErrorKind::InvalidInput, message)
            },
        )
    }

    impl<T: Zeroed> Storage<T> {
        /// Addresses for `count` elements, of which none may be used yet.
        pub(super) fn reserve(count: u64) -> io::Result<Self> {
            Ok(Self {
                memory: Mapping::reserve_with(bytes::<T>(count)?, HugePages::Yes)?,
                of: PhantomData,
            })
        }

        /// Makes the first `count` elements usable.
        pub(super) fn commit(&self, count: u64) -> io::Result<()> {
            self.memory.commit(bytes::<T>(count)?)
        }

        /// The address of the first element, used or not.
        pub(super) fn base(&self) -> *const T {
            self.memory.as_ptr().cast()
        }

        /// Bytes of the elements of a range, which is committed, that are in memory. All of them
        /// where the kernel does not say.
        pub(super) fn resident(&self, range: Range<u64>) -> u64 {
            let (page, base) = (page_size(), self.memory.as_ptr().addr());
            let at = |index: u64| base + index as usize * size_of::<T>();
            let addresses = at(range.start) / page * page..at(range.end).next_multiple_of(page);
            let mut resident = vec![0; addresses.len() / page];
            match mincore(addresses.clone(), &mut resident) {
                Ok(()) => (resident.iter().filter(|&&at| at & 1 == 1).count() * page) as u64,
                Err(_) => addresses.len() as u64,
            }
        }

        /// Some elements.
        ///
        /// # Safety
        /// `range.start <= range.end`, and `range.end` is at most a count that `commit` was called
        /// with.
        #[inline]
        pub(super) unsafe fn slice(&self, range: Range<u64>) -> &[T] {
            let base = self.memory.as_ptr().cast::<T>();
            // SAFETY: The range is committed, so the first element, or the place behind the last,
            // is inside the mapping.
            let first = unsafe { base.add(range.start as usize) };
            // SAFETY: A mapping begins at a multiple of the page size, so elements are aligned. The
            // range is readable and writable, and stays so until the mapping is dropped, which the
            // borrow of `self` prevents. Any bytes are a `T`, and they change only through atomics,
            // as `Zeroed` demands.
            unsafe { std::slice::from_raw_parts(first, (range.end - range.start) as usize) }
        }
    }
}

/// Arrays for the model, which cannot put its atomics into raw memory.
#[cfg(loom)]
mod storage {
    use std::io;
    use std::ops::Range;

    /// An array that never moves, complete from the start.
    pub(super) struct Storage<T>(Vec<T>);

    impl<T: Default> Storage<T> {
        pub(super) fn reserve(count: u64) -> io::Result<Self> {
            Ok(Self((0..count).map(|_| T::default()).collect()))
        }

        pub(super) fn commit(&self, _count: u64) -> io::Result<()> {
            Ok(())
        }

        pub(super) fn base(&self) -> *const T {
            self.0.as_ptr()
        }

        /// Bytes of memory that some elements take: all of them, from the start.
        pub(super) fn resident(&self, range: Range<u64>) -> u64 {
            (range.end - range.start) * size_of::<T>() as u64
        }

        /// Some elements.
        ///
        /// # Safety
        /// None is needed; the real array does.
        pub(super) unsafe fn slice(&self, range: Range<u64>) -> &[T] {
            &self.0[range.start as usize..range.end as usize]
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_new_table_has_absent_pages_without_history() {
        let table = Table::new(1000, 1000).unwrap();
        assert_eq!(table.pages(), 1000);
        assert_eq!(table.slice(0..5000).len(), 1000);
        assert!(
            table.slice(0..1000).iter().all(|entry| entry.load() == State::Absent { shadow: 0 })
        );
        assert!(
            table.get(999).is_some() && table.get(1000).is_none() && table.get(u64::MAX).is_none()
        );
        assert!(table.slice(1000..2000).is_empty());
    }

    #[test]
    fn entries_stay_where_they_are_while_the_table_grows() {
        let table = Table::new(0, 1 << 32).unwrap();
        assert!(table.get(0).is_none());
        table.grow(1).unwrap();
        let address = table.entry(0).address();
        table.entry(0).try_begin_read(0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for step in 1..=50 {
                        table.grow(step * 40_000 + thread).unwrap();
                    }
                });
            }
        });
        assert_eq!(table.pages(), 50 * 40_000 + 3);
        assert_eq!(table.entry(0).address(), address);
        assert_eq!(table.entry(0).load(), State::Busy);
        assert_eq!(table.entry(2_000_000).address(), address + 2_000_000 * size_of::<Entry>());
        table.entry(2_000_002).try_begin_read(0).unwrap();
        table.grow(1).unwrap();
        assert_eq!(table.pages(), 2_000_003, "it never shrinks");
    }

    #[test]
    fn tables_that_were_used_are_found_from_both_ends_and_within_a_range() {
        let table = Table::new(3 * GROUP_PAGES + 100, 0).unwrap();
        assert_eq!(table.used().count(), 0);
        for page in [3 * GROUP_PAGES + 7, GROUP_PAGES - 1, 700, 0] {
            table.note_used(page, 0);
        }
        let due = [0..512, 512..1024, GROUP_PAGES - 512..GROUP_PAGES];
        let last = 3 * GROUP_PAGES..3 * GROUP_PAGES + 100;
        assert!(table.used().eq(due.iter().cloned().chain([last.clone()])));
        let within: Vec<_> = table.used_in(600..3 * GROUP_PAGES + 50).rev().collect();
        let due = [last.start..last.start + 50, GROUP_PAGES - 512..GROUP_PAGES, 600..1024];
        assert_eq!(within, due);
        assert_eq!(table.used_in(GROUP_PAGES..3 * GROUP_PAGES).count(), 0);
        assert_eq!(table.used_in(9..9).count() + table.used_in(u64::MAX..u64::MAX).count(), 0);
    }

    #[test]
    fn the_memory_of_a_sparse_table_is_that_of_what_was_used() {
        let table = Table::new(1 << 32, 0).unwrap();
        assert_eq!(table.memory_bytes(), 0);
        table.note_used(1 << 31, 0);
        table.entry(1 << 31).try_begin_read(0).unwrap();
        let bytes = table.memory_bytes();
        // Huge pages may have come.
        assert!((2048..=4 << 20).contains(&bytes), "{bytes} bytes for one page of 2^32");
    }

    #[test]
    fn what_cannot_be_described_is_refused() {
        let table = Table::new(10, 20).unwrap();
        assert_eq!(table.grow(21).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(table.pages(), 10);
        assert!(Table::new(0, u64::MAX).is_err());
        assert!(Table::new(0, 1 << 61).is_err());
    }

    #[test]
    fn a_young_page_is_noted_in_its_table_only() {
        let table = Table::new(3 * TABLE_ENTRIES, 0).unwrap();
        let page = TABLE_ENTRIES + 7;
        table.entry(page).try_begin_read(0).unwrap();
        assert!(!table.entry(page).finish_read(9, false));
        let seen = table.entry(page).load();
        let set_young = || table.note_read(page, seen, true, || false);
        assert!(set_young() && !set_young());
        assert!(!table.hint(0).take_young() && !table.hint(2 * TABLE_ENTRIES).take_young());
        assert!(table.hint(TABLE_ENTRIES).take_young());
        assert!(table.entry(page).clear_young());
    }
}
