//! The stores of a pager: the group that pays for each, and the frames that each has in reserve.
//!
//! Under the pool's lock. A store belongs to the regions of one group; when the group is removed,
//! its parent pays from then on, as for everything that the group had. Then the parent may have
//! several stores.

use super::slot::Store;
use lowtide_core::MemcgId;
use std::io;
use std::sync::{Arc, Weak};

/// What a page counts for that swap has refused, next to one that stays for a reason that may pass:
/// a tenant whose limit was just lowered may have no frame to note where a page is.
pub(crate) const REFUSAL: u64 = 8;

/// Batches of victims of some groups of which swap has taken nothing, or some, so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tried {
    /// Their pages where it has taken nothing: [`REFUSAL`] for one that it has refused, 1 for one
    /// that did not go for a reason that may pass.
    pub(crate) refused: u64,
    /// Batches of which it has taken some.
    pub(crate) taken: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Swaps {
    places: Vec<Option<Place>>,
    /// Frames that all stores together may have, reserves not counted.
    limit: u64,
    /// Frames that they have, those of tables not counted.
    taken: u64,
}

/// One store.
#[derive(Debug)]
struct Place {
    group: MemcgId,
    store: Option<Weak<dyn Store>>,
    /// Frames that are charged, and that only the store may take.
    reserve: Vec<u32>,
    /// How many there should be.
    wanted: usize,
    /// Frames that the store has, those of its tables included.
    taken: u64,
    /// Of these, frames that stand for its tables.
    tables: Vec<u32>,
    /// Frames that stand for tables of slots of its regions.
    slots: u64,
    tried: Tried,
    /// Why it has taken nothing of the last one that it refused; none since it took some.
    refused: Option<Arc<io::Error>>,
}

impl Place {
    /// Whether it has a frame in reserve for something else than a table of slots. The last one is
    /// for such a table: without it no page can go, so none would come free for the reserve.
    fn may_take(&self) -> bool {
        self.reserve.len() > 1
    }

    /// Takes such a frame.
    fn take_reserved(&mut self) -> Option<u32> {
        if self.may_take() { self.reserve.pop() } else { None }
    }

    /// The store, if it lives.
    fn store(&self) -> Option<Arc<dyn Store>> {
        self.store.as_ref().and_then(Weak::upgrade)
    }
}

impl Swaps {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { places: Vec::new(), limit, taken: 0 }
    }

    /// The store of a group, if it has one that lives.
    pub(super) fn find(&self, group: MemcgId) -> Option<Arc<dyn Store>> {
        self.places.iter().flatten().filter(|p| p.group == group).find_map(Place::store)
    }

    /// A place for a new store.
    pub(super) fn begin(&mut self, group: MemcgId) -> usize {
        let (reserve, tables) = (Vec::new(), Vec::new());
        let (wanted, taken, slots, tried) = (0, 0, 0, Tried::default());
        let (store, refused) = (None, None);
        let place = Place { group, store, reserve, wanted, taken, tables, slots, tried, refused };
        let place = Some(place);
        match self.places.iter().position(Option::is_none) {
            Some(index) => {
                self.places[index] = place;
                index
            }
            None => {
                self.places.push(place);
                self.places.len() - 1
            }
        }
    }

    fn place(&mut self, index: usize) -> &mut Place {
        self.places[index].as_mut().expect("a store has its place until it is dropped")
    }

    /// The store can be found from now on, and has these frames in reserve.
    pub(super) fn settle(&mut self, index: usize, store: &Arc<dyn Store>, reserve: Vec<u32>) {
        let place = self.place(index);
        place.store = Some(Arc::downgrade(store));
        place.wanted = reserve.len();
        place.reserve = reserve;
    }

    /// A store is gone: returns its reserve and the frames of its tables, and the group that has
    /// paid for them.
    pub(super) fn end(&mut self, index: usize) -> (Vec<u32>, MemcgId) {
        let place = self.places[index].take().expect("a store ends once");
        let mut frames = place.reserve;
        frames.extend(place.tables);
        (frames, place.group)
    }

    /// The group that pays for a store.
    pub(crate) fn group(&self, index: usize) -> Option<MemcgId> {
        self.places[index].as_ref().map(|place| place.group)
    }

    /// A group is gone: its heir pays from now on. Cost: O(stores).
    pub(crate) fn inherit(&mut self, gone: MemcgId, heir: MemcgId) {
        for place in self.places.iter_mut().flatten().filter(|place| place.group == gone) {
            place.group = heir;
        }
    }

    /// Counts a batch of `pages` of a group of which swap has taken nothing: because it has no room
    /// or its device fails, as the error says, or else for a reason that may pass.
    pub(super) fn note_refusal(&mut self, group: MemcgId, pages: u64, refused: Option<io::Error>) {
        let refused = refused.map(Arc::new);
        for place in self.places.iter_mut().flatten().filter(|place| place.group == group) {
            place.tried.refused += pages * if refused.is_some() { REFUSAL } else { 1 };
            place.refused = refused.clone().or(place.refused.take());
        }
    }

    /// Swap has taken pages of a group.
    pub(super) fn note_stored(&mut self, group: MemcgId) {
        for place in self.places.iter_mut().flatten().filter(|place| place.group == group) {
            place.tried.taken += 1;
            place.refused = None;
        }
    }

    /// Why swap takes no more pages of some groups.
    pub(crate) fn refused(&self, of: impl Fn(MemcgId) -> bool) -> Option<Arc<io::Error>> {
        let mut places = self.places.iter().flatten().filter(|place| of(place.group));
        places.find_map(|place| place.refused.clone())
    }

    /// What was tried to store of some groups.
    pub(crate) fn tried(&self, of: impl Fn(MemcgId) -> bool) -> Tried {
        let places = self.places.iter().flatten().filter(|place| of(place.group));
        places.fold(Tried::default(), |all, Place { tried, .. }| Tried {
            refused: all.refused + tried.refused,
            taken: all.taken + tried.taken,
        })
    }

    /// Frames that the stores of some groups have.
    pub(crate) fn frames_of(&self, of: impl Fn(MemcgId) -> bool) -> u64 {
        let places = self.places.iter().flatten().filter(|place| of(place.group));
        places.map(|place| place.taken).sum()
    }

    /// Whether a store may have one more frame: all together have fewer than their limit, and it
    /// has fewer than `most`.
    pub(super) fn has_room(&mut self, index: usize, most: u64) -> bool {
        self.taken < self.limit && self.has_share(index, most)
    }

    /// Whether a store has fewer frames than `most`.
    pub(super) fn has_share(&mut self, index: usize, most: u64) -> bool {
        self.place(index).taken < most
    }

    /// Whether a group has a frame in reserve.
    pub(crate) fn can_borrow(&self, group: MemcgId) -> bool {
        self.places.iter().flatten().any(|place| place.group == group && place.may_take())
    }

    /// Takes a frame out of the reserve of a group's stores, for a page of the group that comes
    /// back from swap: it stays charged, and what it took in the store is free soon.
    pub(crate) fn borrow(&mut self, group: MemcgId) -> Option<u32> {
        let mut places = self.places.iter_mut().flatten();
        places.find_map(|place| (place.group == group).then(|| place.take_reserved())?)
    }

    /// A store takes a frame; without one from elsewhere, one of its reserve.
    pub(super) fn take(&mut self, index: usize, frame: Option<u32>) -> Option<u32> {
        let frame = frame.or_else(|| self.place(index).take_reserved())?;
        self.place(index).taken += 1;
        self.taken += 1;
        Some(frame)
    }

    /// A store takes a frame for its tables, and keeps it. Returns whether there was one.
    pub(super) fn take_for_table(&mut self, index: usize, frame: Option<u32>) -> bool {
        let place = self.place(index);
        let Some(frame) = frame.or_else(|| place.take_reserved()) else { return false };
        place.tables.push(frame);
        place.taken += 1;
        true
    }

    /// A table of slots of a store's region takes a frame, if need be the last in reserve. Returns
    /// which.
    pub(super) fn take_for_slots(&mut self, index: usize, frame: Option<u32>) -> Option<u32> {
        let place = self.place(index);
        let frame = frame.or_else(|| place.reserve.pop())?;
        place.slots += 1;
        Some(frame)
    }

    /// Some such tables are gone.
    pub(super) fn give_slots(&mut self, index: usize, tables: u64) {
        self.place(index).slots -= tables;
    }

    /// Tables of slots of the regions of some groups.
    pub(crate) fn slots_of(&self, of: impl Fn(MemcgId) -> bool) -> u64 {
        let places = self.places.iter().flatten().filter(|place| of(place.group));
        places.map(|place| place.slots).sum()
    }

    /// A store gives a frame back. Returns whether its reserve has kept it.
    pub(super) fn give(&mut self, index: usize, frame: u32) -> bool {
        assert!(self.taken > 0, "frame {frame} comes back from a store, and none was out");
        self.taken -= 1;
        self.place(index).taken -= 1;
        self.keep(index, frame)
    }

    /// Puts a charged frame into the reserve of a store, if it lacks one.
    pub(super) fn keep(&mut self, index: usize, frame: u32) -> bool {
        let place = self.place(index);
        let lacks = place.reserve.len() < place.wanted;
        if lacks {
            place.reserve.push(frame);
        }
        lacks
    }

    /// The stores whose reserves lack frames, and their groups.
    pub(super) fn lacking(&self) -> impl Iterator<Item = (usize, MemcgId)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(index, place)| {
            let place = place.as_ref()?;
            (place.reserve.len() < place.wanted).then_some((index, place.group))
        })
    }

    /// The stores of some groups. Not to be dropped under the pool's lock.
    pub(crate) fn all(&self, of: impl Fn(MemcgId) -> bool) -> Vec<Arc<dyn Store>> {
        let places = self.places.iter().flatten().filter(|place| of(place.group));
        places.filter_map(Place::store).collect()
    }
}
