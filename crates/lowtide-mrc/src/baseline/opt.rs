//! OPT: evicts the page whose next access is farthest in the future.
//!
//! L. A. Belady: "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966; optimal by Mattson et al., 1970. No policy that must admit every accessed
//! page misses less often, so this is the bound for the others. It needs the future, which a
//! recorded stream has: [`mrc::NextUse`](crate::NextUse) computes it in one backward pass. An
//! access after the content is freed counts as never, since it misses in any case.
//!
//! The resident pages are a binary heap by next access, farthest on top, and each page knows its
//! place in the heap. On a hit the page held the nearest key of all, and rises with the new one.
//!
//! 4 bytes per page and 16 bytes per resident page; O(log capacity).

use super::cache::Cache;
use std::num::NonZeroU32;

const ABSENT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    next: u64,
    page: u32,
}

/// Belady's optimal replacement.
#[derive(Clone, Debug)]
pub struct Opt {
    heap: Vec<Entry>,
    /// Index of each page in the heap.
    place: Vec<u32>,
    capacity: u32,
}

impl Opt {
    /// An empty cache of `capacity` pages for the pages `0..pages`.
    #[must_use]
    pub fn new(pages: u32, capacity: NonZeroU32) -> Self {
        let capacity = capacity.get();
        Self {
            heap: Vec::with_capacity(capacity.min(pages) as usize),
            place: vec![ABSENT; pages as usize],
            capacity,
        }
    }

    #[inline]
    fn set(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.place[entry.page as usize] = at as u32;
    }

    /// Moves the entry at `at` towards the top until its parent is at least as far.
    fn rise(&mut self, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent].next >= entry.next {
                break;
            }
            self.set(at, self.heap[parent]);
            at = parent;
        }
        self.set(at, entry);
    }

    /// Moves the entry at `at` away from the top until no child is farther.
    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].next > self.heap[child].next {
                child += 1;
            }
            if self.heap[child].next <= entry.next {
                break;
            }
            self.set(at, self.heap[child]);
            at = child;
        }
        self.set(at, entry);
    }
}

impl Cache for Opt {
    #[inline]
    fn access(&mut self, page: u32, next: u64) -> bool {
        let at = self.place[page as usize];
        if at != ABSENT {
            self.heap[at as usize].next = next;
            self.rise(at as usize);
            return true;
        }
        if self.heap.len() < self.capacity as usize {
            self.heap.push(Entry { next, page });
            self.rise(self.heap.len() - 1);
        } else {
            self.place[self.heap[0].page as usize] = ABSENT;
            self.heap[0] = Entry { next, page };
            self.sink(0);
        }
        false
    }

    fn remove(&mut self, page: u32) {
        let at = self.place[page as usize];
        if at == ABSENT {
            return;
        }
        self.place[page as usize] = ABSENT;
        let at = at as usize;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            let moved = self.heap[at].page;
            self.rise(at);
            self.sink(self.place[moved as usize] as usize);
        }
    }

    fn resident(&self) -> u64 {
        self.heap.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{Stream, streams};
    use crate::baseline::{Baseline, NEVER};
    use proptest::prelude::*;

    /// Misses by definition: each miss examines the whole future of every resident page.
    fn misses_by_looking_ahead(stream: &Stream, capacity: usize) -> u64 {
        let next_of = |page: u32, from: usize| {
            let found = stream.steps[from..].iter().position(|step| step.page == page);
            found.filter(|at| !stream.steps[from + at].remove).map_or(usize::MAX, |at| from + at)
        };
        let mut resident: Vec<u32> = Vec::new();
        let mut misses = 0;
        for (position, step) in stream.steps.iter().enumerate() {
            if step.remove {
                resident.retain(|&page| page != step.page);
            } else if !resident.contains(&step.page) {
                misses += 1;
                if resident.len() == capacity {
                    let victim =
                        (0..capacity).max_by_key(|&i| next_of(resident[i], position)).unwrap();
                    resident.swap_remove(victim);
                }
                resident.push(step.page);
            }
        }
        misses
    }

    /// The fewest misses of any choice of victims, by trying all of them.
    fn fewest_misses(stream: &Stream, position: usize, resident: &[u32], capacity: usize) -> u64 {
        let Some(step) = stream.steps.get(position) else { return 0 };
        let rest = |resident: &[u32]| fewest_misses(stream, position + 1, resident, capacity);
        if step.remove {
            let left: Vec<u32> =
                resident.iter().copied().filter(|&page| page != step.page).collect();
            return rest(&left);
        }
        if resident.contains(&step.page) {
            return rest(resident);
        }
        let mut with = resident.to_vec();
        with.push(step.page);
        if with.len() <= capacity {
            return 1 + rest(&with);
        }
        let without = |victim: usize| {
            with.iter().enumerate().filter(move |(i, _)| *i != victim).map(|(_, p)| *p)
        };
        (0..capacity)
            .map(|victim| 1 + rest(&without(victim).collect::<Vec<_>>()))
            .min()
            .unwrap_or(0)
    }

    proptest! {
        #[test]
        fn behaves_as_the_definition(stream in streams(), capacity in 1_u32..20) {
            let mut cache = Opt::new(stream.pages, NonZeroU32::new(capacity).unwrap());
            let misses = stream.misses(&mut cache);
            for (at, entry) in cache.heap.iter().enumerate() {
                prop_assert_eq!(cache.place[entry.page as usize], at as u32);
            }
            prop_assert_eq!(misses, misses_by_looking_ahead(&stream, capacity as usize));
        }

        #[test]
        fn no_policy_misses_less(stream in streams(), capacity in 1_u32..30) {
            let capacity = NonZeroU32::new(capacity).unwrap();
            let bound = stream.misses(&mut Opt::new(stream.pages, capacity));
            for baseline in Baseline::ALL {
                let misses = stream.misses(&mut *baseline.cache(stream.pages, capacity));
                prop_assert!(misses >= bound, "{} misses {} times, OPT \
                    {}", baseline, misses, bound);
            }
        }

        #[test]
        fn no_choice_of_victims_misses_less(
            steps in prop::collection::vec((0_u32..5, prop::bool::weighted(0.15)), 0..14),
            capacity in 1_u32..4,
        ) {
            let stream = Stream::new(5, steps);
            let misses = stream.misses(&mut Opt::new(5, NonZeroU32::new(capacity).unwrap()));
            prop_assert_eq!(misses, fewest_misses(&stream, 0, &[], capacity as usize));
        }
    }

    #[test]
    fn pages_that_are_never_wanted_again_go_first() {
        let mut cache = Opt::new(3, NonZeroU32::new(2).unwrap());
        assert!(!cache.access(0, 10) && !cache.access(1, NEVER) && !cache.access(2, 20));
        assert!(cache.access(0, 30) && cache.access(2, 40) && !cache.access(1, 50));
    }
}
