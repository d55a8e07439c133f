//! The reservations of a pager: the group that pays for each, and its pages.

use lowtide_core::MemcgId;
use slab::Slab;

/// The payer of each reservation, and its pages.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    places: Slab<Place>,
    /// Pages of all reservations.
    pages: u64,
}

/// One reservation.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) group: MemcgId,
    pub(super) pages: u64,
}

impl Reservations {
    pub(super) fn begin(&mut self, group: MemcgId) -> usize {
        self.places.insert(Place { group, pages: 0 })
    }

    pub(super) fn end(&mut self, index: usize) {
        self.places.remove(index);
    }

    pub(super) fn place(&mut self, index: usize) -> &mut Place {
        self.places.get_mut(index).expect("a reservation has its place until it is dropped")
    }

    pub(crate) fn group(&self, index: usize) -> Option<MemcgId> {
        self.places.get(index).map(|place| place.group)
    }

    /// Pages of all reservations together.
    pub(crate) const fn pages(&self) -> u64 {
        self.pages
    }

    /// Sets how many pages a reservation has.
    pub(super) fn set_pages(&mut self, index: usize, pages: u64) {
        let place = self.place(index);
        let had = std::mem::replace(&mut place.pages, pages);
        assert!(
            had <= self.pages,
            "a reservation of {had} pages is more than all, which have {}",
            self.pages
        );
        self.pages = self.pages - had + pages;
    }

    /// A group is gone: its heir pays from now on. Cost: O(reservations).
    pub(super) fn inherit(&mut self, gone: MemcgId, heir: MemcgId) {
        for (_, place) in self.places.iter_mut().filter(|(_, place)| place.group == gone) {
            place.group = heir;
        }
    }
}
