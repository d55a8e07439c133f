//! Dense numbers for pages: the first accessed page is 0, the next new one is 1.
//!
//! Neighbouring pages are looked up together, so the table is two-level: a *leaf* holds the numbers
//! of 64 neighbours, and each space has a *root*, an array of leaves. The length of a root depends
//! on its highest page, so one distant page would make it long and sparse. Therefore roots grow
//! only while their total length is in proportion to the number of leaves; the few leaves beyond
//! are in a hash table. So any `u64` page and any space number is supported, and an access in an
//! ordinary space is two array lookups.
//!
//! Memory: 272 bytes per leaf, 12 bytes per page for the reverse map, and at most 32 bytes of roots
//! per leaf plus 16 MiB.

use lowtide_workload::SpaceId;
use std::collections::HashMap;

/// Pages per leaf. Smaller leaves would need longer roots, larger ones more memory for scattered
/// pages.
const LEAF_PAGES: u64 = 64;
/// "No leaf" in a root, "no number" in a leaf.
const NONE: u32 = u32::MAX;
/// Entries of roots that are allowed regardless of the number of leaves.
const ROOT_ENTRIES_FREE: usize = 1 << 22;
/// Entries of roots allowed for each leaf.
const ROOT_ENTRIES_A_LEAF: usize = 8;

/// One space's root, with the leaf of each 64 pages.
type Root = Vec<u32>;

/// The numbering.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    leaves: Vec<[u32; LEAF_PAGES as usize]>,
    /// Space and leaf number of each leaf.
    leaf_origins: Vec<(SpaceId, u64)>,
    roots: Vec<Root>,
    root_entries: usize,
    /// Leaves that no root covers, by space and leaf number.
    far: HashMap<(u32, u64), u32>,
    /// The reverse map, by dense number.
    pages: Vec<u64>,
    spaces: Vec<SpaceId>,
}

impl Numbering {
    /// The number of a page, which is new if it has none; `None` if it would reach `limit`.
    #[inline]
    pub(super) fn get_or_add(&mut self, space: SpaceId, page: u64, limit: u32) -> Option<u32> {
        let leaf = match self.leaf(space, page / LEAF_PAGES) {
            Some(leaf) => leaf,
            None => self.add_leaf(space, page / LEAF_PAGES),
        };
        let number = &mut self.leaves[leaf as usize][(page % LEAF_PAGES) as usize];
        if *number == NONE {
            let next = self.pages.len() as u32;
            if next >= limit {
                return None;
            }
            *number = next;
            self.pages.push(page);
            self.spaces.push(space);
        }
        Some(*number)
    }

    /// Appends the numbers of the pages `first..=last`, in order, without those that have none.
    ///
    /// Costs the smaller of the range's leaves and all leaves.
    pub(super) fn in_range(&self, space: SpaceId, first: u64, last: u64, found: &mut Vec<u32>) {
        let range = first / LEAF_PAGES..=last / LEAF_PAGES;
        let mut add = |leaf_number: u64, leaf: u32| {
            let pages = (leaf_number * LEAF_PAGES..=u64::MAX).zip(&self.leaves[leaf as usize]);
            let wanted =
                pages.filter(|(page, number)| (first..=last).contains(page) && **number != NONE);
            found.extend(wanted.map(|(_, number)| *number));
        };
        if range.end() - range.start() < self.leaves.len() as u64 {
            for leaf_number in range {
                if let Some(leaf) = self.leaf(space, leaf_number) {
                    add(leaf_number, leaf);
                }
            }
        } else {
            let leaves = self.leaf_origins.iter().zip(0..);
            let mut touched: Vec<(u64, u32)> = leaves
                .filter(|((of, leaf_number), _)| *of == space && range.contains(leaf_number))
                .map(|((_, leaf_number), leaf)| (*leaf_number, leaf))
                .collect();
            touched.sort_unstable();
            touched.into_iter().for_each(|(leaf_number, leaf)| add(leaf_number, leaf));
        }
    }

    /// Space and page of each number.
    pub(super) fn into_origins(self) -> (Vec<SpaceId>, Vec<u64>) {
        (self.spaces, self.pages)
    }

    #[inline]
    fn leaf(&self, space: SpaceId, leaf_number: u64) -> Option<u32> {
        let root = self.roots.get(space.0 as usize);
        match root.and_then(|root| root.get(usize::try_from(leaf_number).ok()?)) {
            Some(&leaf) if leaf != NONE => Some(leaf),
            _ if self.far.is_empty() => None,
            _ => self.far.get(&(space.0, leaf_number)).copied(),
        }
    }

    #[cold]
    fn add_leaf(&mut self, space: SpaceId, leaf_number: u64) -> u32 {
        let leaf = self.leaves.len() as u32;
        self.leaves.push([NONE; LEAF_PAGES as usize]);
        self.leaf_origins.push((space, leaf_number));
        match self.root_entry(space, leaf_number) {
            Some(entry) => *entry = leaf,
            None => _ = self.far.insert((space.0, leaf_number), leaf),
        }
        leaf
    }

    /// The position of a leaf in its root, which grows if allowed.
    fn root_entry(&mut self, space: SpaceId, leaf_number: u64) -> Option<&mut u32> {
        let (space, index) = (space.0 as usize, usize::try_from(leaf_number).ok()?);
        let allowed = ROOT_ENTRIES_FREE + ROOT_ENTRIES_A_LEAF * self.leaves.len();
        if space >= self.roots.len() {
            // An empty root is three words, six entries.
            let more = 6 * (space + 1 - self.roots.len());
            if self.root_entries + more > allowed {
                return None;
            }
            self.root_entries += more;
            self.roots.resize_with(space + 1, Root::new);
        }
        let root = &mut self.roots[space];
        if index >= root.len() {
            // Doubling keeps the cost of growth proportional to the length.
            let len = (index + 1).checked_next_power_of_two()?;
            if self.root_entries + (len - root.len()) > allowed {
                return None;
            }
            self.root_entries += len - root.len();
            root.resize(len, NONE);
        }
        Some(&mut root[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_page() -> impl Strategy<Value = (u32, u64)> {
        let space = prop_oneof![4 => 0_u32..3, 1 => any::<u32>()];
        let page =
            prop_oneof![4 => 0_u64..300, 1 => 1_u64 << 30..(1 << 30) + 100, 1 => any::<u64>()];
        (space, page)
    }

    proptest! {
        #[test]
        fn numbers_are_dense_and_lead_back(pages in prop::collection::vec(any_page(), 0..200)) {
            let mut numbering = Numbering::default();
            let mut expected: Vec<(u32, u64)> = Vec::new();
            for &(space, page) in &pages {
                let known = expected.iter().position(|&other| other == (space, page));
                if known.is_none() {
                    expected.push((space, page));
                }
                let number = numbering.get_or_add(SpaceId(space), page, u32::MAX).unwrap();
                prop_assert_eq!(expected[number as usize], (space, page));
                prop_assert!(known.is_none_or(|at| at == number as usize));
            }
            for last in [200, u64::MAX] {
                let mut found = Vec::new();
                numbering.in_range(SpaceId(1), 60, last, &mut found);
                let found = found.into_iter().map(|number| expected[number as usize]);
                let mut wanted = expected.clone();
                wanted.retain(|&(space, page)| space == 1 && (60..=last).contains(&page));
                wanted.sort_unstable();
                prop_assert!(found.eq(wanted));
            }
            let (spaces, back) = numbering.into_origins();
            prop_assert!(spaces.iter().map(|space| space.0).zip(back).eq(expected));
        }
    }

    #[test]
    fn stray_pages_do_not_make_long_roots() {
        let mut numbering = Numbering::default();
        for far_out in [u64::MAX, 1 << 62, 1 << 40, 1 << 35] {
            numbering.get_or_add(SpaceId(0), far_out, u32::MAX).unwrap();
            numbering.get_or_add(SpaceId(u32::MAX), far_out, u32::MAX).unwrap();
        }
        assert!(numbering.root_entries <= ROOT_ENTRIES_FREE + 8 * ROOT_ENTRIES_A_LEAF);
        let mut found = Vec::new();
        numbering.in_range(SpaceId(0), (1 << 35) - 9, (1 << 35) + 9, &mut found);
        assert_eq!(found, [6]);
    }

    #[test]
    fn the_limit_holds() {
        let mut numbering = Numbering::default();
        let mut add = |page| numbering.get_or_add(SpaceId(0), page, 2);
        assert_eq!([add(5), add(6), add(7), add(5)], [Some(0), Some(1), None, Some(0)]);
    }
}
