//! The touched pages of a space: one bit each, in blocks that are allocated with their first page.

/// Pages per block.
const BLOCK_PAGES: u64 = 4096;
/// Pages per word.
const WORD_PAGES: u64 = 64;

type Block = [u64; (BLOCK_PAGES / WORD_PAGES) as usize];

/// A set of pages of one space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    blocks: Vec<Option<Box<Block>>>,
    pages: u64,
}

impl Footprint {
    /// Adds `pages` pages from `first`. Costs one step for each 64 pages.
    pub(crate) fn touch(&mut self, first: u64, pages: u64) {
        let end = first + pages;
        let mut page = first;
        while page < end {
            let (block, offset) = ((page / BLOCK_PAGES) as usize, page % BLOCK_PAGES);
            if block >= self.blocks.len() {
                self.blocks.resize(block + 1, None);
            }
            let words = self.blocks[block].get_or_insert_with(|| Box::new([0; _]));
            let word = &mut words[(offset / WORD_PAGES) as usize];
            let bit = page % WORD_PAGES;
            let here = (end - page).min(WORD_PAGES - bit);
            let bits = (u64::MAX >> (WORD_PAGES - here)) << bit;
            self.pages += u64::from((bits & !*word).count_ones());
            *word |= bits;
            page += here;
        }
    }

    /// Number of pages in the set.
    pub(crate) const fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_page_counts_once() {
        let mut footprint = Footprint::default();
        let mut naive = BTreeSet::new();
        let ranges = [
            (0, 1),
            (63, 2),
            (64, 64),
            (60, 200),
            (4090, 20),
            (1 << 31, 1),
            (5, 1),
            (100_000, 5000),
        ];
        for (first, pages) in ranges {
            footprint.touch(first, pages);
            naive.extend(first..first + pages);
            assert_eq!(footprint.pages(), naive.len() as u64, "after {pages} pages from {first}");
        }
    }

    #[test]
    fn the_last_page_of_a_space_can_be_touched() {
        let mut footprint = Footprint::default();
        footprint.touch((1 << 32) - 3, 3);
        footprint.touch(0, 0);
        assert_eq!(footprint.pages(), 3);
    }
}
