//! Where the leaves of a tree are in its file, and where the next write of one goes.
//!
//! Leaves are written copy on write: to a free extent, best fit, lowest first; and if there is
//! none, to the end of the file. What a leaf leaves behind can be used again after the next
//! checkpoint. So in a file that has been used for a while free extents lie scattered among those
//! in use, and the leaves that were written last lie far from each other. That matters to
//! read-ahead: behind each of them there are pages that are not cached. Leaves at the end of a
//! fresh file form one run of cached pages instead.
//!
//! Neighbouring free extents are not joined. Source: `docs/kernel/workloads.md` §1(b);
//! `docs/design/fidelity.md`, the database.

use std::collections::BTreeSet;

use lowtide_workload::SplitMix64;

/// Pages of the longest extent.
const LONGEST: usize = 8;

/// Where a database's dirty leaves go at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// To free extents that are scattered all over the file.
    Scattered,
    /// Behind all others: a file that was just filled.
    Appended,
}

/// A part of the file, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub(super) first: u32,
    pub(super) pages: u8,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Extents {
    of: Vec<Extent>,
    /// First pages of free extents, by their pages.
    free: [BTreeSet<u32>; LONGEST + 1],
    given_up: Vec<Extent>,
    end: u32,
}

impl Extents {
    /// A file with `leaves` leaves in their order, whose pages `sizes` lists as often as they are
    /// to occur. `free_percent` of the extents are free, scattered at random.
    ///
    /// # Panics
    /// When no size is listed, or one is 0 or above 8.
    pub(super) fn new(
        leaves: u32,
        sizes: &[u8],
        layout: Layout,
        free_percent: u32,
        rng: &mut SplitMix64,
    ) -> Self {
        let mut extents = Self {
            of: Vec::with_capacity(leaves as usize),
            free: Default::default(),
            given_up: Vec::new(),
            end: 0,
        };
        let free_percent = if layout == Layout::Appended { 0 } else { free_percent };
        while extents.of.len() < leaves as usize {
            let pages = sizes[rng.below(sizes.len() as u64) as usize];
            let extent = extents.append(pages);
            if rng.percent(free_percent) {
                extents.give_back(extent);
            } else {
                extents.of.push(extent);
            }
        }
        extents
    }

    /// Pages of the file.
    pub(super) const fn pages(&self) -> u32 {
        self.end
    }

    /// Where a leaf is.
    pub(super) fn of(&self, leaf: u32) -> Extent {
        self.of[leaf as usize]
    }

    fn append(&mut self, pages: u8) -> Extent {
        let extent = Extent { first: self.end, pages };
        self.end += u32::from(pages);
        extent
    }

    fn give_back(&mut self, extent: Extent) {
        self.free[usize::from(extent.pages)].insert(extent.first);
    }

    /// An extent for the next contents of a leaf.
    pub(super) fn allocate(&mut self, leaf: u32) -> Extent {
        let pages = self.of(leaf).pages;
        for size in usize::from(pages)..=LONGEST {
            if let Some(first) = self.free[size].pop_first() {
                let rest = size as u8 - pages;
                if rest > 0 {
                    self.give_back(Extent { first: first + u32::from(pages), pages: rest });
                }
                return Extent { first, pages };
            }
        }
        self.append(pages)
    }

    /// The contents of a leaf have been written to an extent: the old one is given up.
    pub(super) fn moved(&mut self, leaf: u32, to: Extent) {
        let from = std::mem::replace(&mut self.of[leaf as usize], to);
        self.given_up.push(from);
    }

    /// Takes what was given up until now: a checkpoint begins.
    pub(super) fn take_given_up(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.given_up)
    }

    /// The checkpoint is durable: what had been given up before it can be used again.
    pub(super) fn checkpointed(&mut self, given_up: Vec<Extent>) {
        given_up.into_iter().for_each(|extent| self.give_back(extent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(extents: &Extents) -> bool {
        let free = (1..)
            .zip(&extents.free[1..])
            .flat_map(|(pages, firsts)| firsts.iter().map(move |&first| Extent { first, pages }));
        let mut all: Vec<Extent> =
            extents.of.iter().copied().chain(free).chain(extents.given_up.clone()).collect();
        all.sort_by_key(|extent| extent.first);
        all.windows(2).any(|two| two[0].first + u32::from(two[0].pages) > two[1].first)
    }

    #[test]
    fn an_aged_file_has_scattered_free_extents_and_a_fresh_one_has_none() {
        let mut rng = SplitMix64::new(1);
        let aged = Extents::new(10_000, &[7], Layout::Scattered, 15, &mut rng);
        let free = aged.free[7].len();
        assert!((1_600..1_900).contains(&free), "{free}");
        let gaps = aged.free[7].iter().zip(aged.free[7].iter().skip(1)).map(|(a, b)| b - a);
        let mean = f64::from(gaps.sum::<u32>()) / free as f64;
        assert!((40.0..55.0).contains(&mean), "all over the file: {mean}");
        let fresh = Extents::new(10_000, &[7], Layout::Appended, 15, &mut rng);
        assert_eq!((fresh.pages(), fresh.free[7].len()), (70_000, 0));
    }

    #[test]
    fn writes_take_the_lowest_that_fits_and_old_extents_wait_for_a_checkpoint() {
        let mut rng = SplitMix64::new(2);
        let mut extents = Extents::new(2_000, &[6, 7, 7, 8], Layout::Scattered, 20, &mut rng);
        let end = extents.pages();
        for round in 0..20 {
            for leaf in (round..2_000).step_by(17) {
                let (was, to) = (extents.of(leaf), extents.allocate(leaf));
                assert_eq!(was.pages, to.pages);
                extents.moved(leaf, to);
            }
            assert!(!overlaps(&extents));
            let given_up = extents.take_given_up();
            extents.checkpointed(given_up);
        }
        assert!(extents.pages() < end + end / 20, "free extents are used again");
        let lowest = *extents.free[7].first().unwrap();
        let leaf = (0..2_000).find(|&leaf| extents.of(leaf).pages == 7).unwrap();
        assert_eq!(extents.allocate(leaf), Extent { first: lowest, pages: 7 });
    }
}
