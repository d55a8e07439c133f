//! The database's own cache: the leaves in its memory, in the order of their last use, and the
//! dirty ones among them in the order in which they were changed last.

use super::recency::Recency;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Cache {
    cached: Recency,
    dirty: Recency,
    capacity: u32,
    /// Dirty leaves above which the oldest is written.
    dirty_target: u32,
}

impl Cache {
    /// A cache of `capacity` of `leaves` leaves, of which it keeps `dirty_target` dirty at most.
    pub(super) fn new(leaves: u32, capacity: u32, dirty_target: u32) -> Self {
        Self { cached: Recency::new(leaves), dirty: Recency::new(leaves), capacity, dirty_target }
    }

    /// Uses a leaf. Returns whether it is in memory.
    pub(super) fn touch(&mut self, leaf: u32) -> bool {
        let cached = self.cached.contains(leaf);
        if cached {
            self.cached.touch(leaf);
        }
        cached
    }

    /// Takes the leaf out that was not used for longest, if there is no room for another. Returns
    /// it, and whether it must be written.
    pub(super) fn evict(&mut self) -> Option<(u32, bool)> {
        let leaf = self.cached.oldest().filter(|_| self.cached.len() >= self.capacity)?;
        self.cached.remove(leaf);
        Some((leaf, self.dirty.remove(leaf)))
    }

    /// Brings a leaf into memory.
    pub(super) fn insert(&mut self, leaf: u32) {
        self.cached.touch(leaf);
    }

    /// Changes a leaf that is in memory. Returns false if it is not (any more).
    pub(super) fn update(&mut self, leaf: u32) -> bool {
        let cached = self.cached.contains(leaf);
        if cached {
            self.dirty.touch(leaf);
        }
        cached
    }

    /// Whether leaves should be written.
    pub(super) fn is_too_dirty(&self) -> bool {
        self.dirty.len() > self.dirty_target
    }

    /// Takes the leaf whose last change is oldest, if too many are dirty: it is to be written.
    pub(super) fn overdue(&mut self) -> Option<u32> {
        if self.is_too_dirty() { self.take_dirty() } else { None }
    }

    /// Takes the dirty leaf whose last change is oldest: it is to be written.
    pub(super) fn take_dirty(&mut self) -> Option<u32> {
        let leaf = self.dirty.oldest()?;
        self.dirty.remove(leaf);
        Some(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_says_whether_it_must_be_written() {
        let mut cache = Cache::new(10, 2, 1);
        [3, 5].into_iter().for_each(|leaf| cache.insert(leaf));
        assert!(cache.update(3) && cache.touch(5) && !cache.touch(7) && !cache.update(7));
        assert_eq!(cache.evict(), Some((3, true)));
        assert_eq!(cache.evict(), None, "there is room");
        cache.insert(7);
        assert!(cache.update(5) && cache.update(7));
        assert!(cache.is_too_dirty());
        assert_eq!(cache.overdue(), Some(5));
        assert!(!cache.is_too_dirty());
        assert_eq!(
            (cache.overdue(), cache.take_dirty(), cache.take_dirty()),
            (None, Some(7), None)
        );
        assert_eq!(cache.evict(), Some((5, false)), "it was written");
    }
}
