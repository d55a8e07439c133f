//! The stores of a pager, the group that pays for each, and the frames whose pages came back once.
//!
//! Under the pool's lock. When a group is removed its parent pays from then on, as for all that the
//! group had.

use super::kept::Kept;
use lowtide_core::MemcgId;
use std::sync::{Arc, Weak};

/// See the module documentation; by default of a pool in which nothing is compressed.
#[derive(Debug, Default)]
pub(crate) struct Zcaches {
    places: Vec<Option<Place>>,
    /// A bit for each frame; none where nothing is compressed.
    came_back: Box<[u64]>,
}

#[derive(Debug)]
struct Place {
    group: MemcgId,
    cache: Option<Weak<dyn Kept>>,
    /// Frames that it has, those of its tables included.
    taken: u64,
    /// Frames that stand for its tables.
    tables: Vec<u32>,
}

impl Zcaches {
    /// Those of a pool in which pages are compressed, with a number of frames.
    pub(crate) fn new(frames: u32) -> Self {
        let words = (frames as usize).div_ceil(64);
        Self { places: Vec::new(), came_back: vec![0; words].into_boxed_slice() }
    }

    /// The store of a group, if it has one that lives.
    pub(super) fn find(&self, group: MemcgId) -> Option<Arc<dyn Kept>> {
        let mut places = self.places.iter().flatten().filter(|place| place.group == group);
        places.find_map(|place| place.cache.as_ref()?.upgrade())
    }

    /// A place for a new one.
    pub(super) fn begin(&mut self, group: MemcgId) -> usize {
        let place = Place { group, cache: None, taken: 0, tables: Vec::new() };
        let free = self.places.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[index] = Some(place);
        index
    }

    /// It can be found from now on.
    pub(super) fn settle(&mut self, index: usize, cache: &Arc<dyn Kept>) {
        self.place(index).cache = Some(Arc::downgrade(cache));
    }

    /// It is gone: the frames of its tables, and the group that has paid for them.
    pub(super) fn end(&mut self, index: usize) -> (Vec<u32>, MemcgId) {
        let place = self.places[index].take().expect("a store ends once");
        (place.tables, place.group)
    }

    fn place(&mut self, index: usize) -> &mut Place {
        self.places[index].as_mut().expect("a store has its place until it is dropped")
    }

    /// The group that pays for a store.
    pub(super) fn group(&self, index: usize) -> MemcgId {
        self.places[index].as_ref().expect("a store has its place until it is dropped").group
    }

    /// A group is gone: its heir pays from now on.
    pub(crate) fn inherit(&mut self, gone: MemcgId, heir: MemcgId) {
        for place in self.places.iter_mut().flatten().filter(|place| place.group == gone) {
            place.group = heir;
        }
    }

    /// The stores of some groups. Not to be dropped under the pool's lock.
    pub(crate) fn all(&self, of: impl Fn(MemcgId) -> bool) -> Vec<Arc<dyn Kept>> {
        let places = self.places.iter().flatten().filter(|place| of(place.group));
        places.filter_map(|place| place.cache.as_ref()?.upgrade()).collect()
    }

    /// Frames that the stores of some groups have.
    pub(crate) fn frames_of(&self, of: impl Fn(MemcgId) -> bool) -> u64 {
        let places = self.places.iter().flatten().filter(|place| of(place.group));
        places.map(|place| place.taken).sum()
    }

    /// A store takes a frame, or gives one back.
    pub(super) fn count(&mut self, index: usize, taken: bool) {
        let count = &mut self.place(index).taken;
        *count = if taken { *count + 1 } else { *count - 1 };
    }

    /// A store takes a frame for its tables, and keeps it.
    pub(super) fn take_for_table(&mut self, index: usize, frame: u32) {
        self.place(index).tables.push(frame);
        self.count(index, true);
    }

    /// It gives one of these back.
    pub(super) fn give_table(&mut self, index: usize) -> u32 {
        self.count(index, false);
        self.place(index).tables.pop().expect("as many as were taken")
    }

    /// A page comes into a frame.
    pub(crate) fn placed(&mut self, frame: u32, came_back: bool) {
        if let Some(word) = self.came_back.get_mut(frame as usize / 64) {
            let bit = 1 << (frame % 64);
            *word = if came_back { *word | bit } else { *word & !bit };
        }
    }

    /// Whether the page in a frame was evicted once before it came in.
    pub(super) fn came_back(&self, frame: u32) -> bool {
        self.came_back.get(frame as usize / 64).is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }
}
