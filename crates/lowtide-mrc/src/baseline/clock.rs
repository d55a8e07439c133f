//! CLOCK: first in, first out, but a page that was accessed since its last examination gets a
//! second chance.
//!
//! LRU without the list move: a hit sets one bit, and the bit is read only when a victim is needed
//! (F. J. Corbató: "A paging experiment with the Multics system", MIT Project MAC, 1968). The pages
//! form a circle with a hand. The hand examines the oldest page: if the bit is set, it clears the
//! bit and moves on, which makes that page the newest; otherwise the page is the victim. New pages
//! are inserted behind the hand.
//!
//! The circle is a queue, and a step of the hand moves a page from the old end to the new one,
//! which is the same order. [`remove`](Cache::remove) closes the gap, and the next page is inserted
//! behind the hand like any other.
//!
//! 9 bytes per page, of which a hit touches one; O(1) amortised, because an earlier hit pays for
//! each step of the hand.

use super::marked::Marked;

/// A CLOCK cache with one reference bit per page.
pub type Clock = Marked<false>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{Model, agree, streams};
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    /// A circle of pages and bits, and the index of the hand.
    struct Circle {
        pages: Vec<(u32, bool)>,
        hand: usize,
        capacity: usize,
    }

    impl Model for Circle {
        fn access(&mut self, page: u32) -> bool {
            if let Some((_, referenced)) = self.pages.iter_mut().find(|(p, _)| *p == page) {
                *referenced = true;
                return true;
            }
            if self.pages.len() < self.capacity {
                self.pages.insert(self.hand, (page, false));
                self.hand += 1;
                return false;
            }
            loop {
                self.hand %= self.pages.len();
                let slot = &mut self.pages[self.hand];
                self.hand += 1;
                if !slot.1 {
                    *slot = (page, false);
                    return false;
                }
                slot.1 = false;
            }
        }

        fn remove(&mut self, page: u32) -> bool {
            let Some(at) = self.pages.iter().position(|(p, _)| *p == page) else { return false };
            self.pages.remove(at);
            self.hand -= usize::from(at < self.hand);
            true
        }

        fn resident(&self) -> usize {
            self.pages.len()
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_circle_with_a_hand(stream in streams(), capacity in 1_u32..20) {
            let cache = Clock::new(stream.pages, NonZeroU32::new(capacity).unwrap());
            let circle = Circle { pages: Vec::new(), hand: 0, capacity: capacity as usize };
            agree(&stream, cache, circle, capacity)?;
        }
    }
}
