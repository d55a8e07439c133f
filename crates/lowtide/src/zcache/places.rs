//! The stores of a pager, the group that pays for each, and the frames whose pages came back once.
//!
//! Under the pool's lock. When a group is removed its parent pays from then on, as for all that the
//! group had.

use super::kept::Kept;
use lowtide_core::MemcgId;
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

/// See the module documentation; by default of a pool in which nothing is compressed. Most of many
/// tenants have nothing compressed, so what is done often looks at the others only.
#[derive(Debug, Default)]
pub(crate) struct Zcaches {
    places: Slab<Place>,
    /// The store that a group's next file gets.
    by_group: HashMap<MemcgId, usize>,
    /// Stores that have had a frame.
    used: BTreeSet<usize>,
    /// Frames that the stores of a group have, those of their tables included.
    taken: HashMap<MemcgId, u64>,
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
        Self { came_back: vec![0; words].into_boxed_slice(), ..Self::default() }
    }

    /// The store of a group, if it has one that lives.
    pub(super) fn find(&self, group: MemcgId) -> Option<Arc<dyn Kept>> {
        self.places.get(*self.by_group.get(&group)?)?.cache.as_ref()?.upgrade()
    }

    /// A place for a new one.
    pub(super) fn begin(&mut self, group: MemcgId) -> usize {
        let index = self.places.insert(Place { group, cache: None, taken: 0, tables: Vec::new() });
        self.by_group.insert(group, index);
        index
    }

    /// It can be found from now on.
    pub(super) fn settle(&mut self, index: usize, cache: &Arc<dyn Kept>) {
        self.places[index].cache = Some(Arc::downgrade(cache));
    }

    /// It is gone: the frames of its tables, and the group that has paid for them.
    pub(super) fn end(&mut self, index: usize) -> (Vec<u32>, MemcgId) {
        let Place { group, taken, tables, .. } = self.places.remove(index);
        self.used.remove(&index);
        if self.by_group.get(&group) == Some(&index) {
            self.by_group.remove(&group);
        }
        self.add_taken(group, -i64::try_from(taken).expect("fewer frames"));
        (tables, group)
    }

    fn add_taken(&mut self, group: MemcgId, frames: i64) {
        let taken = self.taken.entry(group).or_default();
        *taken = taken.checked_add_signed(frames).expect("no more are given back than were taken");
        if *taken == 0 {
            self.taken.remove(&group);
        }
    }

    /// The group that pays for a store.
    pub(super) fn group(&self, index: usize) -> MemcgId {
        self.places[index].group
    }

    /// A group is gone: its heir pays from now on.
    pub(crate) fn inherit(&mut self, gone: MemcgId, heir: MemcgId) {
        self.by_group.remove(&gone);
        for (_, place) in self.places.iter_mut().filter(|(_, place)| place.group == gone) {
            place.group = heir;
        }
        if let Some(taken) = self.taken.remove(&gone) {
            *self.taken.entry(heir).or_default() += taken;
        }
    }

    /// The stores of some groups that may have something. Not to be dropped under the pool's lock.
    pub(crate) fn all(&self, of: impl Fn(MemcgId) -> bool) -> Vec<Arc<dyn Kept>> {
        let places = self.used.iter().map(|&index| &self.places[index]);
        let places = places.filter(|place| of(place.group));
        places.filter_map(|place| place.cache.as_ref()?.upgrade()).collect()
    }

    /// All stores of some groups, those of [`all`](Self::all) and idle ones.
    pub(crate) fn every(&self, of: impl Fn(MemcgId) -> bool) -> Vec<Arc<dyn Kept>> {
        let places = self.places.iter().filter(|(_, place)| of(place.group));
        places.filter_map(|(_, place)| place.cache.as_ref()?.upgrade()).collect()
    }

    /// Frames that the stores of some groups have.
    pub(crate) fn frames_of(&self, of: impl Fn(MemcgId) -> bool) -> u64 {
        self.taken.iter().filter(|(group, _)| of(**group)).map(|(_, taken)| taken).sum()
    }

    /// Frames that the stores of one group have.
    pub(super) fn frames_of_group(&self, group: MemcgId) -> u64 {
        self.taken.get(&group).copied().unwrap_or(0)
    }

    /// A store takes a frame, or gives one back.
    pub(super) fn count(&mut self, index: usize, taken: bool) {
        let place = &mut self.places[index];
        place.taken = if taken { place.taken + 1 } else { place.taken - 1 };
        let group = place.group;
        self.add_taken(group, if taken { 1 } else { -1 });
        if taken {
            self.used.insert(index);
        }
    }

    /// A store takes a frame for its tables, and keeps it.
    pub(super) fn take_for_table(&mut self, index: usize, frame: u32) {
        self.places[index].tables.push(frame);
        self.count(index, true);
    }

    /// It gives one of these back.
    pub(super) fn give_table(&mut self, index: usize) -> u32 {
        self.count(index, false);
        self.places[index].tables.pop().expect("as many as were taken")
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
