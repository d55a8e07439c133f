//! Private mappings that are stored to: what can leave memory, and how.
//!
//! In a private mapping a page is the file's until it is stored to. Then it is a *copy*, which is
//! nowhere else:
//!
//! | a page that | is | when its budget is full |
//! |---|---|---|
//! | was loaded from | the kernel's page of the file; noticed and charged | paged out |
//! | was stored to | memory of the program, as from an allocation; not charged | stays |
//!
//! Zapping would destroy copies: a zapped address has the file's bytes again. A scan can tell pages
//! of files from copies, but a store between the scan and the zap would be lost. So no address of
//! such a mapping is ever zapped. Pages leave by `MADV_PAGEOUT`, which loses nothing whatever
//! happens meanwhile: it drops a clean page of a file, and a copy at worst goes to swap.
//!
//! The price: touches cannot be seen, so these pages leave in the order in which they came (a page
//! that came back too soon is recognized by its shadow, as usual); paging out costs more than
//! zapping; and the kernel does it only for files that the user owns or may write, and pages that
//! no other process maps. Otherwise pages of the file stay, as without lowtide.

use super::space::{PageTables, scan};
use super::watched::{IN_USE, Mapping, is_of_file};
use lowtide_sys::page_cache;
use lowtide_sys::pagemap::Region;
use lowtide_sys::tell;
use std::ops::Range;

/// The private mappings of one file that may be stored to.
#[derive(Debug, Default)]
pub(super) struct Copies(Vec<Mapping>);

impl Copies {
    pub(super) fn add(&mut self, mapping: Mapping) {
        self.0.push(mapping);
    }

    pub(super) fn mappings(&self) -> std::slice::Iter<'_, Mapping> {
        self.0.iter()
    }

    pub(super) const fn mappings_mut(&mut self) -> &mut Vec<Mapping> {
        &mut self.0
    }

    /// Takes pages of the file out of memory, where they are not copies. After other mappings of
    /// the file have given them up: the kernel does not page out what is mapped twice. Without
    /// page tables there are no copies, since no mapping with stores of its own is watched then.
    pub(super) fn page_out(
        &self,
        pagemap: Option<&PageTables>,
        pages: &Range<u64>,
        page_shift: u32,
    ) {
        let mut found = Vec::new();
        for mapping in &self.0 {
            let addresses = mapping.addresses_of(pages, page_shift);
            if addresses.is_empty() {
                continue;
            }
            found.clear();
            let out = match pagemap {
                Some(pagemap) => scan(pagemap, addresses, &IN_USE, &mut found).and_then(|()| {
                    let of_file = found.iter().filter(|region| is_of_file(region));
                    of_file.map(Region::range).try_for_each(page_cache::pageout)
                }),
                None => page_cache::pageout(addresses),
            };
            if let Err(error) = out {
                tell!(error, %error, "pages of a private map cannot be paged out");
            }
        }
    }
}

/// Cuts addresses out of the mappings of an owner, and returns those that were in one.
pub(super) fn cut(
    mappings: &mut Vec<Mapping>,
    gone: &Range<usize>,
    of: u64,
    page_shift: u32,
) -> Vec<Range<usize>> {
    let (mut left, mut forgotten) = (Vec::new(), Vec::new());
    for Mapping { addresses, first, owner } in mappings.drain(..) {
        if owner != of {
            left.push(Mapping { addresses, first, owner });
            continue;
        }
        let front = addresses.start..addresses.end.min(gone.start);
        let back = addresses.start.max(gone.end)..addresses.end;
        let middle = addresses.start.max(gone.start)..addresses.end.min(gone.end);
        if !middle.is_empty() {
            forgotten.push(middle);
        }
        if !front.is_empty() {
            left.push(Mapping { addresses: front, first, owner });
        }
        if !back.is_empty() {
            let skipped = ((back.start - addresses.start) >> page_shift) as u64;
            left.push(Mapping { addresses: back, first: first + skipped, owner });
        }
    }
    *mappings = left;
    forgotten
}

/// What of some ranges is not in another one.
pub(super) fn without(ranges: Vec<Range<usize>>, other: &Range<usize>) -> Vec<Range<usize>> {
    let parts = ranges.into_iter().flat_map(|range| {
        [range.start..range.end.min(other.start), range.start.max(other.end)..range.end]
    });
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_out_leaves_the_pages_around_it_where_they_are() {
        let of = |addresses, first| Mapping { addresses, first, owner: 7 };
        let whole = || vec![of(0x10_000..0x20_000, 5)];
        let mut mappings = whole();
        let gone = 0x12_000..0x13_000;
        assert_eq!(cut(&mut mappings, &gone, 7, 12), std::slice::from_ref(&gone));
        let left = [of(0x10_000..0x12_000, 5), of(0x13_000..0x20_000, 8)];
        assert_eq!(mappings, left);
        assert_eq!(left[1].addresses_of(&(0..10), 12), 0x13_000..0x15_000);
        assert!(left[1].addresses_of(&(0..8), 12).is_empty());
        assert!(cut(&mut mappings, &(0..0x10_000), 7, 12).is_empty());
        assert!(cut(&mut mappings, &(0..usize::MAX), 8, 12).is_empty(), "another's");
        assert_eq!(cut(&mut mappings, &(0..usize::MAX), 7, 12).len(), 2);
        assert!(mappings.is_empty());
    }

    #[test]
    fn ranges_without_another_one_are_what_is_on_both_sides() {
        let ranges = || vec![0..10, 20..30];
        assert_eq!(without(ranges(), &(5..25)), [0..5, 25..30]);
        assert_eq!(without(ranges(), &(2..4)), [0..2, 4..10, 20..30]);
        assert_eq!(without(ranges(), &(10..20)), ranges());
        assert!(without(ranges(), &(0..30)).is_empty());
    }
}
