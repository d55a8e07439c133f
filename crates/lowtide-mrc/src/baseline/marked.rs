//! A queue with a mark on each page, and a hand that looks for a page without one.
//!
//! A hit sets the mark and does nothing else. [`Clock`](super::Clock) and [`Sieve`](super::Sieve)
//! are this, and differ in one thing: whether a page that the hand spares keeps its place.

use super::cache::Cache;
use super::list::{List, Lists};
use std::num::NonZeroU32;

const QUEUE: List = List(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Absent,
    Resident,
    Marked,
}

/// A cache of marked pages, of which survivors stay in place or become the newest.
#[derive(Clone, Debug)]
pub struct Marked<const STAY: bool> {
    state: Vec<State>,
    lists: Lists,
    /// The page to examine next; `None` is the old end, where the hand always is if survivors move.
    hand: Option<u32>,
    capacity: u32,
    resident: u32,
}

impl<const STAY: bool> Marked<STAY> {
    /// An empty cache of `capacity` pages for the pages `0..pages`.
    #[must_use]
    pub fn new(pages: u32, capacity: NonZeroU32) -> Self {
        Self {
            state: vec![State::Absent; pages as usize],
            lists: Lists::new(pages, 1),
            hand: None,
            capacity: capacity.get(),
            resident: 0,
        }
    }

    fn evict(&mut self) {
        while let Some(page) = self.hand.or_else(|| self.lists.oldest(QUEUE)) {
            self.hand = STAY.then_some(page);
            if self.state[page as usize] == State::Resident {
                self.remove(page);
                return;
            }
            self.state[page as usize] = State::Resident;
            if STAY {
                self.hand = self.lists.newer(page);
            } else {
                self.lists.renew(QUEUE, page);
            }
        }
    }
}

impl<const STAY: bool> Cache for Marked<STAY> {
    #[inline]
    fn access(&mut self, page: u32, _next: u64) -> bool {
        let state = &mut self.state[page as usize];
        if *state != State::Absent {
            *state = State::Marked;
            return true;
        }
        *state = State::Resident;
        if self.resident == self.capacity {
            self.evict();
        }
        self.lists.push_newest(QUEUE, page);
        self.resident += 1;
        false
    }

    #[inline]
    fn remove(&mut self, page: u32) {
        if self.state[page as usize] != State::Absent {
            self.state[page as usize] = State::Absent;
            if self.hand == Some(page) {
                self.hand = self.lists.newer(page);
            }
            self.lists.unlink(page);
            self.resident -= 1;
        }
    }

    fn resident(&self) -> u64 {
        u64::from(self.resident)
    }
}
