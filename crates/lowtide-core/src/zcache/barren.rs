//! Regions of files whose pages do not compress, so that random bytes cost nothing.
//!
//! A region is 2 MiB. After [`FAILURES`] pages in a row that did not become smaller its pages are
//! not tried for as many evictions, and for twice as many each time that happens again. Regions
//! share a table of fixed size; two of one place are taken for one.

use super::governor::hash;
use crate::units::Owner;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Places of the table.
const PLACES: usize = 4096;
/// log2 of the bytes of a region.
const REGION: u32 = 21;
/// Pages in a row that do not compress before a region is left alone.
const FAILURES: u32 = 8;
/// How often the time doubles.
const DOUBLINGS: u32 = 12;

/// See the module documentation. Each word: failures in a row, times that the region was left
/// alone, evictions to come for which it is. Threads that change one at the same time may lose a
/// count.
#[derive(Debug)]
pub(super) struct Barren {
    /// Made with the first page that does not compress: most of many tenants have none.
    regions: OnceLock<Box<[AtomicU32]>>,
    page_shift: u32,
}

impl Barren {
    pub(super) fn new(page_shift: u32) -> Self {
        Self { regions: OnceLock::new(), page_shift }
    }

    fn region<'a>(&self, regions: &'a [AtomicU32], owner: Owner) -> &'a AtomicU32 {
        let region = owner.page >> REGION.saturating_sub(self.page_shift);
        let hash = hash(Owner { page: region, ..owner });
        &regions[hash as usize % PLACES]
    }

    /// Whether a page is not to be tried.
    pub(super) fn skips(&self, owner: Owner) -> bool {
        let Some(regions) = self.regions.get() else { return false };
        let region = self.region(regions, owner);
        let word = region.load(Relaxed);
        let left = word >> 16;
        if left > 0 {
            region.store(word - (1 << 16), Relaxed);
        }
        left > 0
    }

    /// Notes whether a page became smaller.
    pub(super) fn note(&self, owner: Owner, smaller: bool) {
        if smaller && self.regions.get().is_none() {
            return;
        }
        let new = || (0..PLACES).map(|_| AtomicU32::new(0)).collect();
        let region = self.region(self.regions.get_or_init(new), owner);
        let word = region.load(Relaxed);
        if !smaller && word >> 16 > 0 {
            // It was taken along with those that have shown it.
            return;
        }
        let (failures, times) = (word & 0xff, word >> 8 & 0xff);
        let next = match (smaller, failures + 1 >= FAILURES) {
            (true, _) => 0,
            (false, false) => word & !0xff | (failures + 1),
            (false, true) => FAILURES << times.min(DOUBLINGS) << 16 | (times + 1).min(255) << 8,
        };
        if next != word {
            region.store(next, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SpaceId;

    #[test]
    fn a_region_that_does_not_compress_is_tried_less_and_less() {
        let barren = Barren::new(12);
        let page = |page| Owner { space: SpaceId(1), page };
        let mut tried = 0;
        for batch in 0..100_000 / 64 {
            let pages = (0..64).map(|n| page((batch * 64 + n) % 512));
            let taken: Vec<Owner> = pages.filter(|page| !barren.skips(*page)).collect();
            tried += taken.len();
            taken.into_iter().for_each(|page| barren.note(page, false));
        }
        assert!((80..1600).contains(&tried), "{tried} of 100,000");
        assert!(!barren.skips(page(600)), "another region");
        for _ in 0..1 << 16 {
            barren.skips(page(0));
        }
        barren.note(page(0), true);
        assert!((0..7).all(|n| {
            barren.note(page(n), false);
            !barren.skips(page(n))
        }));
    }
}
