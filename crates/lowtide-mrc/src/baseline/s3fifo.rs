//! S3-FIFO: three queues, with the small one as a filter in front of the main one.
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi: "FIFO queues are all you need for cache
//! eviction", SOSP 2023. Most pages of a skewed stream are accessed once while they are cached;
//! S3-FIFO evicts those early.
//!
//! ```text
//!            not in the ghost        accessed more than once since
//!   miss ------------------> SMALL ---------------------------> MAIN <--+ accessed since:
//!     \                      (10 %)                            (90 %)---+ count - 1, to the end
//!      \                        | not                             | not
//!       \ in the ghost          v                                 v
//!        +-----> MAIN         GHOST (numbers only,               gone
//!                              as many as MAIN has pages)
//! ```
//!
//! A hit adds 1 to a count that saturates at 3, and moves nothing. A full cache evicts from SMALL
//! while SMALL has its tenth of the capacity, otherwise from MAIN. The move from SMALL to MAIN
//! clears the count. Two details that the paper leaves open: SMALL's tenth is rounded down, but is
//! at least one page; and MAIN counts as full at the capacity less SMALL's tenth.
//!
//! 9 bytes per page, of which a hit touches one; O(1) amortised.

use super::cache::Cache;
use super::list::{List, Lists};
use std::num::NonZeroU32;

const SMALL: List = List(0);
const MAIN: List = List(1);
const GHOST: List = List(2);
const COUNT_MAX: u8 = 3;

/// The queue of a page, and its access count there.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Place {
    Nowhere,
    Small,
    Main,
    Ghost,
}

#[derive(Clone, Copy, Debug)]
struct State {
    place: Place,
    count: u8,
}

/// An S3-FIFO cache.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    state: Vec<State>,
    lists: Lists,
    capacity: u32,
    /// Number of pages from which on SMALL is the queue to evict from.
    small_target: u32,
    small: u32,
    main: u32,
    ghosts: u32,
}

impl S3Fifo {
    /// An empty cache of `capacity` pages for the pages `0..pages`, with the paper's sizes.
    #[must_use]
    pub fn new(pages: u32, capacity: NonZeroU32) -> Self {
        let capacity = capacity.get();
        Self {
            state: vec![State { place: Place::Nowhere, count: 0 }; pages as usize],
            lists: Lists::new(pages, 3),
            capacity,
            small_target: (capacity / 10).max(1),
            small: 0,
            main: 0,
            ghosts: 0,
        }
    }

    /// Capacity of MAIN in pages, and of GHOST in numbers.
    fn main_target(&self) -> u32 {
        self.capacity - self.small_target
    }

    fn evict(&mut self) {
        if self.small >= self.small_target {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    /// Moves pages from SMALL to MAIN until one can be evicted, or none is left.
    fn evict_small(&mut self) {
        while let Some(page) = self.lists.oldest(SMALL) {
            let wanted = self.state[page as usize].count > 1;
            self.detach(page);
            if !wanted {
                self.add_ghost(page);
                return;
            }
            if self.main >= self.main_target() {
                self.evict_main();
            }
            self.add(page, Place::Main);
        }
    }

    fn evict_main(&mut self) {
        while let Some(page) = self.lists.oldest(MAIN) {
            let count = &mut self.state[page as usize].count;
            if *count == 0 {
                self.detach(page);
                return;
            }
            *count -= 1;
            self.lists.renew(MAIN, page);
        }
    }

    fn add_ghost(&mut self, page: u32) {
        if self.main_target() == 0 {
            return;
        }
        if self.ghosts >= self.main_target()
            && let Some(oldest) = self.lists.oldest(GHOST)
        {
            self.detach(oldest);
        }
        self.add(page, Place::Ghost);
    }

    fn add(&mut self, page: u32, place: Place) {
        let (list, members) = match place {
            Place::Nowhere => return,
            Place::Small => (SMALL, &mut self.small),
            Place::Main => (MAIN, &mut self.main),
            Place::Ghost => (GHOST, &mut self.ghosts),
        };
        *members += 1;
        self.lists.push_newest(list, page);
        self.state[page as usize] = State { place, count: 0 };
    }

    fn detach(&mut self, page: u32) {
        let members = match self.state[page as usize].place {
            Place::Nowhere => return,
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Ghost => &mut self.ghosts,
        };
        *members -= 1;
        self.lists.unlink(page);
        self.state[page as usize].place = Place::Nowhere;
    }
}

impl Cache for S3Fifo {
    #[inline]
    fn access(&mut self, page: u32, _next: u64) -> bool {
        let state = &mut self.state[page as usize];
        if matches!(state.place, Place::Small | Place::Main) {
            state.count = (state.count + 1).min(COUNT_MAX);
            return true;
        }
        while self.small + self.main >= self.capacity {
            self.evict();
        }
        // Read after the evictions: they may have pushed the page out of the ghost queue.
        let place = match self.state[page as usize].place {
            Place::Ghost => Place::Main,
            _ => Place::Small,
        };
        self.detach(page);
        self.add(page, place);
        false
    }

    #[inline]
    fn remove(&mut self, page: u32) {
        self.detach(page);
    }

    fn resident(&self) -> u64 {
        u64::from(self.small) + u64::from(self.main)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{Model, agree, streams};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The paper's pseudocode on three queues, oldest first.
    #[derive(Default)]
    struct Queues {
        small: VecDeque<(u32, u8)>,
        main: VecDeque<(u32, u8)>,
        ghost: VecDeque<u32>,
        capacity: usize,
        small_target: usize,
    }

    impl Queues {
        fn evict_small(&mut self) {
            while let Some((page, count)) = self.small.pop_front() {
                if count > 1 {
                    if self.main.len() >= self.capacity - self.small_target {
                        self.evict_main();
                    }
                    self.main.push_back((page, 0));
                } else {
                    self.ghost.push_back(page);
                    if self.ghost.len() > self.capacity - self.small_target {
                        self.ghost.pop_front();
                    }
                    break;
                }
            }
        }

        fn evict_main(&mut self) {
            while let Some((page, count)) = self.main.pop_front() {
                if count == 0 {
                    break;
                }
                self.main.push_back((page, count - 1));
            }
        }
    }

    impl Model for Queues {
        fn access(&mut self, page: u32) -> bool {
            let mut resident = self.small.iter_mut().chain(&mut self.main);
            if let Some((_, count)) = resident.find(|(p, _)| *p == page) {
                *count = (*count + 1).min(3);
                return true;
            }
            while self.resident() >= self.capacity {
                if self.small.len() >= self.small_target {
                    self.evict_small();
                } else {
                    self.evict_main();
                }
            }
            if let Some(at) = self.ghost.iter().position(|&p| p == page) {
                self.ghost.remove(at);
                self.main.push_back((page, 0));
            } else {
                self.small.push_back((page, 0));
            }
            false
        }

        fn remove(&mut self, page: u32) -> bool {
            let before = self.resident();
            self.small.retain(|(p, _)| *p != page);
            self.main.retain(|(p, _)| *p != page);
            self.ghost.retain(|p| *p != page);
            self.resident() < before
        }

        fn resident(&self) -> usize {
            self.small.len() + self.main.len()
        }
    }

    proptest! {
        #[test]
        fn behaves_as_the_papers_pseudocode(stream in streams(), capacity in 1_u32..30) {
            let cache = S3Fifo::new(stream.pages, NonZeroU32::new(capacity).unwrap());
            let capacity_model = capacity as usize;
            let small_target = (capacity_model / 10).max(1);
            let queues = Queues { capacity: capacity_model, small_target, ..Queues::default() };
            agree(&stream, cache, queues, capacity)?;
        }
    }
}
