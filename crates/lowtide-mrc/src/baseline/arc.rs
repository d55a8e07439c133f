//! ARC: recency against frequency, balanced by ghosts of the pages that each evicted.
//!
//! N. Megiddo, D. S. Modha: "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003. Four
//! lists in order of recency, for a cache of `c` pages:
//!
//! ```text
//!   oldest                newest | newest                 oldest
//!   [ B1: ghosts ][ T1: seen once ] [ T2: seen more often ][ B2: ghosts ]
//!   |<---- at most c in T1 + B1 ---->|      at most 2c in all four
//!                 |<-- at most c in T1 + T2: resident -->|
//! ```
//!
//! `p` is the target size of T1. A miss with a ghost in B1 shows that T1 should have been larger,
//! so `p` grows, by more if B1 is the smaller ghost list; a ghost in B2 shows the opposite. A
//! victim comes from T1 if T1 is larger than `p`, otherwise from T2, and leaves a ghost. Every
//! second access moves its page to T2, so a scan passes through T1 only.
//!
//! The paper's routine assumes a full cache whenever it needs a victim. Here
//! [`remove`](Cache::remove) may have freed space; then no page is evicted. `p` is a real number,
//! as in the paper.
//!
//! 9 bytes per page; O(1).

use super::cache::Cache;
use super::list::{List, Lists};
use std::num::NonZeroU32;

/// The list of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    T1,
    T2,
    B1,
    B2,
    Nowhere,
}

const PLACES: u32 = 4;

/// An ARC cache.
#[derive(Clone, Debug)]
pub struct ArcCache {
    place: Vec<Place>,
    lists: Lists,
    /// Pages in each of the four lists.
    members: [u32; PLACES as usize],
    /// Target size of T1, from 0 to the capacity.
    p: f64,
    capacity: u32,
}

impl ArcCache {
    /// An empty cache of `capacity` pages for the pages `0..pages`.
    #[must_use]
    pub fn new(pages: u32, capacity: NonZeroU32) -> Self {
        Self {
            place: vec![Place::Nowhere; pages as usize],
            lists: Lists::new(pages, PLACES),
            members: [0; PLACES as usize],
            p: 0.0,
            capacity: capacity.get(),
        }
    }

    #[inline]
    fn len(&self, place: Place) -> u32 {
        self.members[place as usize]
    }

    fn detach(&mut self, page: u32) {
        let place = self.place[page as usize];
        if place != Place::Nowhere {
            self.members[place as usize] -= 1;
            self.lists.unlink(page);
            self.place[page as usize] = Place::Nowhere;
        }
    }

    fn put(&mut self, page: u32, place: Place) {
        self.detach(page);
        self.members[place as usize] += 1;
        self.lists.push_newest(List(place as u32), page);
        self.place[page as usize] = place;
    }

    fn drop_oldest(&mut self, place: Place) {
        if let Some(page) = self.lists.oldest(List(place as u32)) {
            self.detach(page);
        }
    }

    /// Turns a resident page into a ghost if the cache is full. `from_b2`: the missing page is in
    /// B2.
    fn replace(&mut self, from_b2: bool) {
        if self.len(Place::T1) + self.len(Place::T2) < self.capacity {
            return;
        }
        let t1 = f64::from(self.len(Place::T1));
        let (top, ghosts) = if t1 >= 1.0 && (t1 > self.p || (from_b2 && t1 == self.p)) {
            (Place::T1, Place::B1)
        } else {
            (Place::T2, Place::B2)
        };
        if let Some(victim) = self.lists.oldest(List(top as u32)) {
            self.put(victim, ghosts);
        }
    }

    /// A miss without a ghost: makes room in the lists that are full.
    fn make_room(&mut self) {
        let [t1, t2, b1, b2] = self.members;
        if t1 + b1 == self.capacity {
            if t1 < self.capacity {
                self.drop_oldest(Place::B1);
                self.replace(false);
            } else {
                self.drop_oldest(Place::T1);
            }
        } else {
            // Capacities reach 2^32, so the sum may not fit 32 bits.
            if u64::from(t1 + b1) + u64::from(t2) + u64::from(b2) == 2 * u64::from(self.capacity) {
                self.drop_oldest(Place::B2);
            }
            self.replace(false);
        }
    }
}

impl Cache for ArcCache {
    #[inline]
    fn access(&mut self, page: u32, _next: u64) -> bool {
        let (b1, b2) = (f64::from(self.len(Place::B1)), f64::from(self.len(Place::B2)));
        match self.place[page as usize] {
            Place::T1 | Place::T2 => {
                self.put(page, Place::T2);
                return true;
            }
            Place::B1 => {
                self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.capacity));
                self.replace(false);
                self.put(page, Place::T2);
            }
            Place::B2 => {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
                self.replace(true);
                self.put(page, Place::T2);
            }
            Place::Nowhere => {
                self.make_room();
                self.put(page, Place::T1);
            }
        }
        false
    }

    #[inline]
    fn remove(&mut self, page: u32) {
        self.detach(page);
    }

    fn resident(&self) -> u64 {
        u64::from(self.len(Place::T1)) + u64::from(self.len(Place::T2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{Model, agree, streams};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The paper's Figure 4, case by case, on four queues, newest first.
    #[derive(Default)]
    struct Figure4 {
        t1: VecDeque<u32>,
        t2: VecDeque<u32>,
        b1: VecDeque<u32>,
        b2: VecDeque<u32>,
        p: f64,
        c: usize,
    }

    fn take(queue: &mut VecDeque<u32>, page: u32) -> bool {
        let before = queue.len();
        queue.retain(|&p| p != page);
        queue.len() < before
    }

    impl Figure4 {
        fn replace(&mut self, in_b2: bool) {
            let t1 = self.t1.len() as f64;
            if self.resident() < self.c {
                // Space freed by a removal: the paper has no removals.
            } else if !self.t1.is_empty() && ((in_b2 && t1 == self.p) || t1 > self.p) {
                self.b1.push_front(self.t1.pop_back().unwrap());
            } else {
                self.b2.push_front(self.t2.pop_back().unwrap());
            }
        }
    }

    impl Model for Figure4 {
        fn access(&mut self, page: u32) -> bool {
            let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
            if take(&mut self.t1, page) || take(&mut self.t2, page) {
                self.t2.push_front(page);
                return true;
            }
            if self.b1.contains(&page) {
                let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
                self.p = (self.p + delta).min(self.c as f64);
                self.replace(false);
                take(&mut self.b1, page);
                self.t2.push_front(page);
                return false;
            }
            if self.b2.contains(&page) {
                let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
                self.p = (self.p - delta).max(0.0);
                self.replace(true);
                take(&mut self.b2, page);
                self.t2.push_front(page);
                return false;
            }
            let l1 = self.t1.len() + self.b1.len();
            let all = l1 + self.t2.len() + self.b2.len();
            if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.pop_back();
                    self.replace(false);
                } else {
                    self.t1.pop_back();
                }
            } else if all >= self.c {
                if all == 2 * self.c {
                    self.b2.pop_back();
                }
                self.replace(false);
            }
            self.t1.push_front(page);
            false
        }

        fn remove(&mut self, page: u32) -> bool {
            take(&mut self.b1, page);
            take(&mut self.b2, page);
            take(&mut self.t1, page) | take(&mut self.t2, page)
        }

        fn resident(&self) -> usize {
            self.t1.len() + self.t2.len()
        }
    }

    proptest! {
        #[test]
        fn behaves_as_the_papers_figure_4(stream in streams(), capacity in 1_u32..20) {
            let cache = ArcCache::new(stream.pages, NonZeroU32::new(capacity).unwrap());
            let figure = Figure4 { c: capacity as usize, ..Figure4::default() };
            agree(&stream, cache, figure, capacity)?;
        }
    }

    #[test]
    fn a_scan_leaves_the_pages_of_t2_alone() {
        let mut cache = ArcCache::new(1000, NonZeroU32::new(10).unwrap());
        for page in [0, 1, 2, 3, 4, 0, 1, 2, 3, 4].into_iter().chain(5..1000) {
            cache.access(page, 0);
        }
        assert!((0..5).all(|page| cache.access(page, 0)));
    }
}
