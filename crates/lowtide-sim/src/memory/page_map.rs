//! A sparse array over page numbers: tables of 512 entries, made when first written.
//!
//! The same shape serves the page cache's index ([`PageMap`]) and the page tables of a mapping
//! (`table.rs`), so a walk over tables is a walk over slots of a [`Top`], in the order of
//! addresses, however sparse the addresses are. A lookup is two loads; the first is from an array
//! of 4 bytes for each 2 MiB of address space, which stays in cache.

use lowtide_core::limits::TABLE_ENTRIES;

/// Pages that one space may have: 16 TiB of 4 KiB pages. The top level is then at most 32 MiB.
pub const PAGES_MAX: u64 = 1 << 32;

/// From the number of a page to that of its table.
pub(super) const SHIFT: u32 = TABLE_ENTRIES.trailing_zeros();
/// From the number of a page to its place in the table.
pub(super) const MASK: u64 = TABLE_ENTRIES - 1;
/// No table has been made.
const NONE: u32 = u32::MAX;

/// Where each table is, by its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Top(Vec<u32>);

impl Top {
    /// The slot of a table that has been made.
    #[inline]
    pub(super) fn slot(&self, table: u64) -> Option<usize> {
        match self.0.get(table as usize) {
            Some(&slot) if slot != NONE => Some(slot as usize),
            _ => None,
        }
    }

    /// A table has been made.
    pub(super) fn set(&mut self, table: u64, slot: usize) {
        let table = table as usize;
        if table >= self.0.len() {
            self.0.resize(table + 1, NONE);
        }
        self.0[table] = slot as u32;
    }

    /// One more than the number of the last table.
    pub(super) const fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// The tables that have been made: the number of each, and its slot.
    pub(super) fn slots(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        (0..).zip(&self.0).filter(|(_, slot)| **slot != NONE).map(|(t, &slot)| (t, slot as usize))
    }

    /// Bytes of memory this takes.
    pub(super) const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct PageMap<T> {
    top: Top,
    tables: Vec<T>,
    empty: T,
}

impl<T: Copy> PageMap<T> {
    /// A map in which every page has the value `empty`.
    pub fn new(empty: T) -> Self {
        Self { top: Top::default(), tables: Vec::new(), empty }
    }

    #[inline]
    fn position(&self, page: u64) -> Option<usize> {
        Some((self.top.slot(page >> SHIFT)? << SHIFT) | (page & MASK) as usize)
    }

    /// The value of a page.
    #[inline]
    pub fn get(&self, page: u64) -> T {
        self.position(page).map_or(self.empty, |at| self.tables[at])
    }

    /// The value of a page, to be written.
    ///
    /// # Panics
    /// When the page is not below [`PAGES_MAX`]: a caller that takes page numbers from outside
    /// checks them first.
    #[inline]
    pub fn entry(&mut self, page: u64) -> &mut T {
        let at = self.position(page).unwrap_or_else(|| self.make(page));
        &mut self.tables[at]
    }

    #[cold]
    fn make(&mut self, page: u64) -> usize {
        assert!(page < PAGES_MAX, "page {page} is beyond what a space can have");
        let at = self.tables.len();
        self.top.set(page >> SHIFT, at >> SHIFT);
        self.tables.resize(at + TABLE_ENTRIES as usize, self.empty);
        at + (page & MASK) as usize
    }

    /// Tables there could be, made or not: one more than the number of the last that was made.
    pub const fn tables(&self) -> u64 {
        self.top.len()
    }

    /// The entries of a table that has been made.
    pub fn table(&self, table: u64) -> Option<&[T]> {
        let at = self.position(table << SHIFT)?;
        Some(&self.tables[at..at + TABLE_ENTRIES as usize])
    }

    /// Bytes of memory this takes.
    pub const fn bytes(&self) -> usize {
        self.top.bytes() + self.tables.capacity() * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_far_apart_cost_a_table_each() {
        let mut map = PageMap::new(0_u8);
        for page in [0, 511, 512, 1 << 25, PAGES_MAX - 1] {
            assert_eq!((map.get(page), map.table(page >> SHIFT).is_some()), (0, page == 511));
            *map.entry(page) = 7;
        }
        assert_eq!(
            (map.get(511), map.get(513), map.get(1 << 25), map.get(PAGES_MAX)),
            (7, 0, 7, 0)
        );
        assert!(map.bytes() < 40 << 20);
        let made: Vec<u64> = (0..map.tables()).filter(|&t| map.table(t).is_some()).collect();
        assert_eq!(made, [0, 1, 1 << 16, (1 << 23) - 1]);
    }
}
