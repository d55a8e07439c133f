//! Index-linked lists of folios: circular, doubly linked through the folio table.
//!
//! The *head* is the young end, where folios are inserted; scans take from the *tail*, the old end.
//! A list head is a record of the table itself, so [`FolioTable::unlink`] works on any folio
//! without knowing which list it is on; promoted folios rely on that (their flag names one
//! generation, their links another list, until the evictor meets them).

use super::FolioTable;
use crate::units::FolioId;

/// The two ends of one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListHead(u32);

impl ListHead {
    /// Where its record is in the table.
    #[inline]
    pub(super) const fn index(self) -> u32 {
        self.0
    }
}

impl FolioTable {
    /// Makes an empty list.
    pub(crate) fn new_list(&mut self) -> ListHead {
        ListHead(self.push_head())
    }

    /// Gives an empty list up.
    pub(crate) fn drop_list(&mut self, list: ListHead) {
        self.spare_head(list.0);
    }

    #[inline]
    fn insert_between(&mut self, id: FolioId, prev: u32, next: u32) {
        let node = self.link(id.0);
        debug_assert_eq!(node.prev, u32::MAX, "folio {id:?} is on a list already");
        (node.prev, node.next) = (prev, next);
        node.set_on_trail(false);
        self.link(prev).next = id.0;
        self.link(next).prev = id.0;
    }

    /// Inserts at the young end.
    #[inline]
    pub(crate) fn push_young(&mut self, list: ListHead, id: FolioId) {
        let next = self.link(list.0).next;
        self.insert_between(id, list.0, next);
        self.extend_trail(list, id);
    }

    /// Inserts at the old end, next to be scanned.
    #[inline]
    pub(crate) fn push_old(&mut self, list: ListHead, id: FolioId) {
        let prev = self.link(list.0).prev;
        self.insert_between(id, prev, list.0);
    }

    /// Takes the folio off whatever list it is on.
    #[inline]
    pub(crate) fn unlink(&mut self, id: FolioId) {
        let node = self.link(id.0);
        let (prev, next) = (node.prev, node.next);
        (node.prev, node.next) = (u32::MAX, u32::MAX);
        self.link(prev).next = next;
        self.link(next).prev = prev;
    }

    /// Loads the records that taking these folios off their lists changes, side by side.
    pub(crate) fn fetch_neighbours(&self, folios: &[FolioId]) {
        let record = |at: u32| self.record(at).map_or(0, |folio| folio.prev);
        let links = folios.iter().map(|&id| (self[id].prev, self[id].next));
        std::hint::black_box(links.fold(0, |seen, (a, b)| seen ^ record(a) ^ record(b)));
    }

    /// The folio at the old end.
    #[inline]
    pub(crate) fn oldest(&mut self, list: ListHead) -> Option<FolioId> {
        let last = self.link(list.0).prev;
        if self.link(last).on_trail() {
            self.shorten_trail(list, FolioId(last));
        }
        (last != list.0).then_some(FolioId(last))
    }

    /// The folios from the old end on.
    pub(crate) fn oldest_first(&self, list: ListHead) -> impl Iterator<Item = FolioId> + '_ {
        let before = move |at: u32| {
            let prev = self.record(at)?.prev;
            (prev != list.0).then_some(FolioId(prev))
        };
        std::iter::successors(before(list.0), move |id| before(id.0))
    }

    /// Whether the list has no folio.
    #[inline]
    pub(crate) fn is_empty(&mut self, list: ListHead) -> bool {
        self.link(list.0).next == list.0
    }

    /// The folios from the old end to the young one, links checked in both directions.
    ///
    /// # Panics
    /// When a link is not answered by its neighbour: the table is damaged.
    pub(crate) fn walk(&mut self, list: ListHead) -> Vec<FolioId> {
        let mut seen = Vec::new();
        let mut at = list.0;
        loop {
            let prev = self.link(at).prev;
            assert_eq!(self.link(prev).next, at, "list link {prev} -> {at} is one-sided");
            if prev == list.0 {
                return seen;
            }
            seen.push(FolioId(prev));
            at = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_order_and_unlink_without_knowing_the_list() {
        let mut t = FolioTable::used(8);
        let (a, b) = (t.new_list(), t.new_list());
        for i in [1, 2, 3] {
            t.push_young(a, FolioId(i));
        }
        t.push_old(a, FolioId(4));
        t.push_young(b, FolioId(5));
        assert_eq!(t.walk(a), [4, 1, 2, 3].map(FolioId));
        t.unlink(FolioId(1));
        t.unlink(FolioId(5));
        assert_eq!(t.walk(a), [4, 2, 3].map(FolioId));
        assert_eq!(t.oldest_first(a).collect::<Vec<_>>(), [4, 2, 3].map(FolioId));
        assert_eq!((t.oldest(a), t.oldest_first(b).next()), (Some(FolioId(4)), None));
        assert!(t.is_empty(b) && t.oldest(b).is_none());
    }
}
