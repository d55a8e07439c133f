//! LRU: evicts the page whose last access is longest ago.
//!
//! The reference point of the field, with one property that no other policy here has, *inclusion*:
//! a larger cache holds everything that a smaller one holds, at every moment, so one pass with a
//! stack finds the misses of all sizes at once (R. L. Mattson, J. Gecsei, D. R. Slutz, I. L.
//! Traiger: "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970; see
//! [`mrc::StackDistances`](crate::StackDistances)). Its cost in a kernel is the list move on every
//! hit. This is the strict policy, not the kernel's pair of active and inactive lists with the same
//! name.
//!
//! 8 bytes per page; O(1).

use super::cache::Cache;
use super::list::{List, Lists};
use std::num::NonZeroU32;

const RECENCY: List = List(0);

/// A strict LRU cache.
#[derive(Clone, Debug)]
pub struct Lru {
    lists: Lists,
    capacity: u32,
    resident: u32,
}

impl Lru {
    /// An empty cache of `capacity` pages for the pages `0..pages`.
    #[must_use]
    pub fn new(pages: u32, capacity: NonZeroU32) -> Self {
        Self { lists: Lists::new(pages, 1), capacity: capacity.get(), resident: 0 }
    }
}

impl Cache for Lru {
    #[inline]
    fn access(&mut self, page: u32, _next: u64) -> bool {
        if self.lists.contains(page) {
            self.lists.renew(RECENCY, page);
            return true;
        }
        if self.resident == self.capacity
            && let Some(victim) = self.lists.oldest(RECENCY)
        {
            self.remove(victim);
        }
        self.lists.push_newest(RECENCY, page);
        self.resident += 1;
        false
    }

    #[inline]
    fn remove(&mut self, page: u32) {
        if self.lists.contains(page) {
            self.lists.unlink(page);
            self.resident -= 1;
        }
    }

    fn resident(&self) -> u64 {
        u64::from(self.resident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{Model, agree, streams};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Oldest first.
    struct Queue(VecDeque<u32>, usize);

    impl Model for Queue {
        fn access(&mut self, page: u32) -> bool {
            let hit = self.remove(page);
            if self.0.len() == self.1 {
                self.0.pop_front();
            }
            self.0.push_back(page);
            hit
        }

        fn remove(&mut self, page: u32) -> bool {
            let at = self.0.iter().position(|&p| p == page);
            at.is_some_and(|at| self.0.remove(at).is_some())
        }

        fn resident(&self) -> usize {
            self.0.len()
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_queue_that_is_searched(stream in streams(), capacity in 1_u32..20) {
            let cache = Lru::new(stream.pages, NonZeroU32::new(capacity).unwrap());
            agree(&stream, cache, Queue(VecDeque::new(), capacity as usize), capacity)?;
        }

        #[test]
        fn a_larger_cache_holds_what_a_smaller_one_holds(
            stream in streams(),
            small in 1_u32..10,
            more in 1_u32..10,
        ) {
            let lru = |c| Lru::new(stream.pages, NonZeroU32::new(c).unwrap());
            let mut caches = [small, small + more].map(lru);
            for step in &stream.steps {
                let [in_small, in_large] = caches.each_mut().map(|cache| step.play(cache, 0));
                prop_assert!(!in_small || in_large);
                let held = |cache: &Lru| -> Vec<_> {
                    (0..stream.pages).filter(|&p| cache.lists.contains(p)).collect()
                };
                let large = held(&caches[1]);
                prop_assert!(held(&caches[0]).iter().all(|page| large.contains(page)));
            }
        }
    }
}
