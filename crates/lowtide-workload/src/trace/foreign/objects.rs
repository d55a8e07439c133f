//! Objects with an identity and a size, but no place, get one: a range of pages in an arena.
//!
//! Ranges are given out side by side in order of first appearance, `ceil(size / 4096)` pages each,
//! at least one. Neighbours in the arena are therefore objects that appeared together, as in a
//! cache that fills a log. An object that has grown beyond its range moves to a new one at the end;
//! one that has shrunk keeps its range, and its accesses touch the beginning. Pages left behind are
//! not used again and get cold.
//!
//! Memory is O(distinct objects), about 24 bytes each plus the empty slots of the table.

use super::super::error::TraceFault;
use super::super::record::Names;
use super::PAGE_BYTES;
use super::regions::Regions;
use crate::op::{OpKind, PageOp, SPACE_PAGES_MAX, Space};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// The largest accepted object, in bytes: 1 TiB. A larger one is a damaged or misread
/// trace.
pub(super) const OBJECT_BYTES_MAX: u64 = 1 << 40;

/// Where an object is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its first page, counted over all regions of the arena.
    page: u64,
    pages: u32,
}

/// The ranges given out so far.
#[derive(Debug)]
pub(super) struct Arena {
    places: HashMap<u64, Place, BuildHasherDefault<Spread>>,
    /// The first free page.
    next: u64,
    regions: Regions,
}

impl Arena {
    /// An arena called `file:objects`.
    pub(super) fn new() -> Self {
        Self { places: HashMap::default(), next: 0, regions: Regions::new(Space::file("objects")) }
    }

    /// The operation on object `id`, which has `bytes` bytes.
    ///
    /// # Errors
    /// [`TraceFault::ObjectTooLarge`], [`TraceFault::TooManyNames`].
    #[inline]
    pub(super) fn access(
        &mut self,
        kind: OpKind,
        id: u64,
        bytes: u64,
        names: &mut Names,
    ) -> Result<PageOp, TraceFault> {
        if bytes > OBJECT_BYTES_MAX {
            return Err(TraceFault::ObjectTooLarge { bytes, max: OBJECT_BYTES_MAX });
        }
        // At most 2^28, by the limit above.
        let pages = bytes.div_ceil(PAGE_BYTES).max(1) as u32;
        let place = match self.places.entry(id) {
            Entry::Occupied(entry) if entry.get().pages >= pages => *entry.get(),
            entry => {
                // A range does not cross from one region to the next.
                let left = SPACE_PAGES_MAX - self.next % SPACE_PAGES_MAX;
                let page = self.next + if left < u64::from(pages) { left } else { 0 };
                self.next = page + u64::from(pages);
                *entry.insert_entry(Place { page, pages }).get()
            }
        };
        let (space, page) = self.regions.place(place.page, names)?;
        Ok(PageOp { kind, space, page, pages })
    }

    /// The operation that gives up all of object `id`; `None` when it has never been there.
    ///
    /// # Errors
    /// [`TraceFault::TooManyNames`].
    pub(super) fn free(
        &mut self,
        id: u64,
        names: &mut Names,
    ) -> Result<Option<PageOp>, TraceFault> {
        let Some(&Place { page, pages }) = self.places.get(&id) else { return Ok(None) };
        let (space, page) = self.regions.place(page, names)?;
        Ok(Some(PageOp { kind: OpKind::Free, space, page, pages }))
    }
}

/// Spreads identities over the table. Many traces number their objects, so the bits have to be
/// mixed; none of them is an attack on this table, so one multiplication is enough.
#[derive(Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    #[inline]
    fn write_u64(&mut self, id: u64) {
        // 2^64 divided by the golden ratio; the product's upper half has seen all bits.
        let product = u128::from(id) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(accesses: &[(u64, u64)]) -> Vec<(u32, u64, u32)> {
        let (mut arena, mut names) = (Arena::new(), Names::default());
        let access = |&(id, bytes): &(u64, u64)| {
            let op = arena.access(OpKind::Read, id, bytes, &mut names).unwrap();
            (op.space.0, op.page, op.pages)
        };
        accesses.iter().map(access).collect()
    }

    #[test]
    fn ranges_lie_side_by_side_and_growth_moves() {
        let found = ranges(&[(7, 1), (9, 4097), (7, 4096), (5, 0), (7, 4097), (7, 1), (9, 8192)]);
        let want = [(0, 0, 1), (0, 1, 2), (0, 0, 1), (0, 3, 1), (0, 4, 2), (0, 4, 1), (0, 1, 2)];
        assert_eq!(found, want);
    }

    #[test]
    fn an_arena_goes_on_in_another_space_when_one_is_full() {
        // 2^28 pages each, behind one page: the sixteenth does not fit any more.
        let mut accesses = vec![(0, 1)];
        accesses.extend((1..=16).map(|id| (id, OBJECT_BYTES_MAX)));
        accesses.push((0, 1));
        let found = ranges(&accesses);
        assert_eq!(found[15], (0, 1 + 14 * (1 << 28), 1 << 28));
        assert_eq!(found[16], (1, 0, 1 << 28));
        assert_eq!(found[17], (0, 0, 1));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let mut arena = Arena::new();
        let error =
            arena.access(OpKind::Read, 1, OBJECT_BYTES_MAX + 1, &mut Names::default()).unwrap_err();
        assert!(matches!(error, TraceFault::ObjectTooLarge { .. }), "{error}");
    }

    #[test]
    fn only_what_was_there_is_given_up() {
        let (mut arena, mut names) = (Arena::new(), Names::default());
        assert_eq!(arena.free(1, &mut names).unwrap(), None);
        arena.access(OpKind::Write, 1, 9000, &mut names).unwrap();
        let free = arena.free(1, &mut names).unwrap().unwrap();
        assert_eq!((free.kind, free.page, free.pages), (OpKind::Free, 0, 3));
    }
}
