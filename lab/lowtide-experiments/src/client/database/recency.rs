//! A list of numbers in the order of their last use, each at most once.
//!
//! ```text
//!   newest ◄── next ── · ◄── next ── · ◄── next ── oldest
//! ```
//!
//! Doubly linked through two arrays that have a place for every number there is, so each operation
//! takes constant time.

/// The end of the list.
const NONE: u32 = u32::MAX;
/// The link of a number that is not on the list.
const ABSENT: u32 = u32::MAX - 1;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Recency {
    newer: Vec<u32>,
    older: Vec<u32>,
    newest: u32,
    oldest: u32,
    len: u32,
}

impl Recency {
    /// An empty list of numbers below `numbers`.
    pub(super) fn new(numbers: u32) -> Self {
        let links = || vec![ABSENT; numbers as usize];
        Self { newer: links(), older: links(), newest: NONE, oldest: NONE, len: 0 }
    }

    /// How many there are.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.newer[id as usize] != ABSENT
    }

    /// Makes a number the newest, whether it was on the list or not.
    pub(super) fn touch(&mut self, id: u32) {
        self.remove(id);
        (self.newer[id as usize], self.older[id as usize]) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = id,
            newest => self.newer[newest as usize] = id,
        }
        self.newest = id;
        self.len += 1;
    }

    /// The oldest number.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Takes a number off the list. Returns whether it was on it.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        if !self.contains(id) {
            return false;
        }
        let (newer, older) = (self.newer[id as usize], self.older[id as usize]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        (self.newer[id as usize], self.older[id as usize]) = (ABSENT, ABSENT);
        self.len -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_last_use() {
        let mut list = Recency::new(5);
        [0, 1, 2, 1, 4, 0].into_iter().for_each(|id| list.touch(id));
        assert!(list.remove(4) && !list.remove(4) && !list.remove(3));
        let mut order = Vec::new();
        while let Some(id) = list.oldest() {
            list.remove(id);
            order.push(id);
        }
        assert_eq!((order, list.len()), (vec![2, 1, 0], 0));
    }
}
