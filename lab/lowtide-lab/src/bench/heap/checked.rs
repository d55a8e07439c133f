//! A region of one thread, which knows what it has stored to each page and checks it.

use std::ops::Range;

use lowtide::Region;
use lowtide_experiments::programs::heap::PAGE;
use lowtide_experiments::programs::tenants::Content;
use lowtide_workload::SplitMix64;

use super::content::{CHECKED, WORDS};
use super::memory::Heap;

/// Bytes between two stores of zeros to a page, as the published servers have it.
const STRIDE: usize = 512;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Checked {
    region: Region,
    content: Content,
    /// Stores to each page since it was last free.
    stores: Vec<u32>,
    /// Of the words that are checked.
    rng: SplitMix64,
}

impl Checked {
    /// A region that was not stored to.
    pub(crate) fn new(region: Region, content: Content, seed: u64) -> Self {
        let stores = vec![0; region.page_count() as usize];
        Self { region, content, stores, rng: SplitMix64::new(seed) }
    }

    /// Checks a page and stores to it. Returns whether it was not in memory.
    ///
    /// # Errors
    /// Those of the region, and a wrong content, as text.
    pub(crate) fn store(&mut self, page: u64) -> Result<bool, String> {
        let missed = !self.region.is_resident(page);
        match self.content {
            Content::Zeros => self.store_zeros(page)?,
            Content::Objects => self.store_objects(page)?,
        }
        Ok(missed)
    }

    fn store_zeros(&self, page: u64) -> Result<(), String> {
        let mut guard = self.region.page_mut(page).map_err(|error| error.to_string())?;
        for (at, byte) in guard.iter_mut().enumerate().step_by(STRIDE) {
            if *byte != 0 {
                return Err(format!(
                    "page {page} has {byte:#x} at byte {at}, and zeros were stored"
                ));
            }
            *byte = 0;
        }
        Ok(())
    }

    fn store_objects(&mut self, page: u64) -> Result<(), String> {
        let stores = self.stores[page as usize];
        if stores == 0 {
            Heap::fill(&self.region, page)?;
        }
        let found = Heap::store(&self.region, page)?;
        if found != u64::from(stores) {
            return Err(format!("page {page} was stored to {stores} times, and says {found}"));
        }
        self.stores[page as usize] += 1;
        let indexes = [(); CHECKED].map(|()| 1 + self.rng.below(WORDS as u64 - 1) as usize);
        Heap::load(&self.region, page, indexes).map(drop)
    }

    /// Frees pages: they are zeroes afterwards, and take neither memory nor swap.
    ///
    /// # Errors
    /// Those of the region, as text.
    pub(crate) fn free(&mut self, pages: Range<u64>) -> Result<(), String> {
        let bytes = pages.start * PAGE..pages.end * PAGE;
        self.region.clear(bytes).map_err(|error| error.to_string())?;
        self.stores[pages.start as usize..pages.end as usize].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide::{Pager, Size, SwapOptions};

    /// A region of one and a half budgets, and the same region.
    fn region(content: Content) -> (Checked, Region) {
        let swap = SwapOptions::compressed(Size::new(1 << 20));
        let pager = Pager::builder().max(Size::new(2 << 20)).swap(swap).build().unwrap();
        let region = pager.root().region(3 << 20).unwrap();
        (Checked::new(region.clone(), content, 1), region)
    }

    #[test]
    fn what_comes_back_from_swap_is_found_sound_and_freed_pages_begin_again() {
        for content in [Content::Zeros, Content::Objects] {
            let (mut checked, region) = region(content);
            for round in 0..3 {
                let missed = (0..768).filter(|&page| checked.store(page).unwrap()).count();
                assert!(missed > 200, "{content:?}, round {round}: {missed}");
                checked.free(100..300).unwrap();
                assert!((100..300).all(|page| !region.is_resident(page)));
            }
            assert!(region.swapped_pages() > 0, "{content:?}");
        }
    }

    #[test]
    fn a_foreign_store_and_a_lost_one_are_found() {
        let (mut zeros, region) = region(Content::Zeros);
        zeros.store(7).unwrap();
        region.write_at(7 * PAGE + 512, &[1]).unwrap();
        assert!(zeros.store(7).unwrap_err().contains("zeros were stored"));

        let (mut objects, region) = self::region(Content::Objects);
        (0..2).for_each(|_| assert!(objects.store(7).is_ok()));
        region.write_at(7 * PAGE, &1_u64.to_le_bytes()).unwrap();
        assert!(objects.store(7).unwrap_err().contains("stored to 2 times, and says 1"));
    }
}
