//! Index-linked lists of pages: circular, doubly linked through one flat array.
//!
//! Record `p` of the array links page `p`; the records behind the last page are the heads of the
//! lists. A page is on at most one list, and can be removed without knowing which. 8 bytes per
//! page, and no allocation after construction.

/// The link of an unlinked page.
const NOWHERE: u32 = u32::MAX;

/// The number of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List(pub(super) u32);

#[derive(Clone, Copy, Debug)]
struct Link {
    /// The neighbour that was pushed earlier.
    older: u32,
    /// The neighbour that was pushed later.
    newer: u32,
}

/// Some lists over the pages `0..pages`.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    links: Vec<Link>,
    pages: u32,
}

impl Lists {
    /// `lists` empty lists, all pages on none.
    pub(super) fn new(pages: u32, lists: u32) -> Self {
        let mut links = vec![Link { older: NOWHERE, newer: NOWHERE }; pages as usize];
        links.extend((pages..pages + lists).map(|head| Link { older: head, newer: head }));
        Self { links, pages }
    }

    /// Whether the page is on a list.
    #[inline]
    pub(super) fn contains(&self, page: u32) -> bool {
        self.links[page as usize].newer != NOWHERE
    }

    /// Puts a page that is on no list at the new end of `list`.
    #[inline]
    pub(super) fn push_newest(&mut self, list: List, page: u32) {
        let head = self.pages + list.0;
        let newest = self.links[head as usize].older;
        self.links[page as usize] = Link { older: newest, newer: head };
        self.links[newest as usize].newer = page;
        self.links[head as usize].older = page;
    }

    /// Takes a page off its list.
    #[inline]
    pub(super) fn unlink(&mut self, page: u32) {
        let Link { older, newer } = self.links[page as usize];
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
        self.links[page as usize] = Link { older: NOWHERE, newer: NOWHERE };
    }

    /// Puts a page of some list at the new end of `list`.
    #[inline]
    pub(super) fn renew(&mut self, list: List, page: u32) {
        self.unlink(page);
        self.push_newest(list, page);
    }

    /// The page at the old end.
    #[inline]
    pub(super) fn oldest(&self, list: List) -> Option<u32> {
        let oldest = self.links[(self.pages + list.0) as usize].newer;
        (oldest < self.pages).then_some(oldest)
    }

    /// The page that was inserted after `page` on its list.
    #[inline]
    pub(super) fn newer(&self, page: u32) -> Option<u32> {
        let newer = self.links[page as usize].newer;
        (newer < self.pages).then_some(newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_leave_in_order_and_from_the_middle() {
        let mut lists = Lists::new(5, 2);
        let (a, b) = (List(0), List(1));
        for page in [3, 0, 4] {
            lists.push_newest(a, page);
        }
        lists.push_newest(b, 1);
        lists.renew(b, 0);
        assert_eq!((lists.oldest(a), lists.newer(3), lists.newer(4)), (Some(3), Some(4), None));
        assert_eq!((lists.oldest(b), lists.newer(1), lists.newer(0)), (Some(1), Some(0), None));
        for page in [3, 4] {
            lists.unlink(page);
        }
        assert_eq!(lists.oldest(a), None);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|page| lists.contains(page)),
            [true, true, false, false, false]
        );
    }
}
