//! SIEVE: a hand sifts a queue, and leaves accessed pages in place.
//!
//! Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi: "SIEVE is Simpler than LRU: an Efficient
//! Turn-Key Eviction Algorithm for Web Caches", NSDI 2024. As in CLOCK, a hit sets a bit. The hand
//! walks from the old end of the queue to the new one and starts over there; it clears set bits and
//! evicts the first page whose bit is clear. The difference is that surviving pages keep their
//! place instead of becoming the newest. So new pages, which always enter at the new end, gather
//! behind the survivors and are examined soon (quick demotion), while the old end fills with
//! survivors (lazy promotion).
//!
//! It is not resistant to scans or loops: one sweep over unpopular pages clears bits everywhere.
//!
//! 9 bytes per page, of which a hit touches one; O(1) amortised.

use super::marked::Marked;

/// A SIEVE cache.
pub type Sieve = Marked<true>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Cache;
    use crate::baseline::testing::{Model, agree, streams};
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    /// Oldest first, with the index of the hand. An index past the newest page wraps only when a
    /// victim is wanted, by when a page may have come in there: the hand then is back at the
    /// old end, as the paper has it.
    struct Sifted {
        pages: Vec<(u32, bool)>,
        hand: Option<usize>,
        capacity: usize,
    }

    impl Sifted {
        fn step(&self, at: usize) -> Option<usize> {
            (at + 1 < self.pages.len()).then_some(at + 1)
        }
    }

    impl Model for Sifted {
        fn access(&mut self, page: u32) -> bool {
            if let Some((_, visited)) = self.pages.iter_mut().find(|(p, _)| *p == page) {
                *visited = true;
                return true;
            }
            if self.pages.len() == self.capacity {
                let mut at = self.hand.unwrap_or(0);
                while self.pages[at].1 {
                    self.pages[at].1 = false;
                    at = self.step(at).unwrap_or(0);
                }
                // What was the next newer page has the victim's index afterwards.
                self.hand = self.step(at).map(|_| at);
                self.pages.remove(at);
            }
            self.pages.push((page, false));
            false
        }

        fn remove(&mut self, page: u32) -> bool {
            let Some(at) = self.pages.iter().position(|(p, _)| *p == page) else { return false };
            self.hand = match self.hand {
                Some(hand) if hand > at => Some(hand - 1),
                Some(hand) if hand == at => self.step(at).map(|_| at),
                hand => hand,
            };
            self.pages.remove(at);
            true
        }

        fn resident(&self) -> usize {
            self.pages.len()
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_sifted_vector(stream in streams(), capacity in 1_u32..20) {
            let cache = Sieve::new(stream.pages, NonZeroU32::new(capacity).unwrap());
            let sifted = Sifted { pages: Vec::new(), hand: None, capacity: capacity as usize };
            agree(&stream, cache, sifted, capacity)?;
        }
    }

    #[test]
    fn survivors_keep_their_place() {
        let mut cache = Sieve::new(6, NonZeroU32::new(3).unwrap());
        for page in [0, 1, 2, 0] {
            cache.access(page, 0);
        }
        // 0 survives once and stays the oldest; the victims are 1, 2 and then 3, never 0, while it
        // is accessed.
        for page in [3, 4, 5] {
            assert!(!cache.access(page, 0));
            assert!(cache.access(0, 0));
        }
        assert!(!cache.access(1, 0) && !cache.access(2, 0));
    }
}
