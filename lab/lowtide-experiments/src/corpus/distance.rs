//! Streams made from stack distances.
//!
//! The stack distance of an access is the number of different pages since the last access to the
//! same page. A stream is drawn backwards from that: draw a distance, then access the page that is
//! at this depth of the stack of recency, or a page never seen. Real programs stay in one habit
//! for a while, so the draws are correlated: a regime chooses the distribution, and changes rarely.
//!
//! The stack is a row of slots in order of time with a Fenwick tree over the used ones, so the page
//! at a depth is found by descent in O(log n). The row is compacted when it is full.

use lowtide_workload::SplitMix64;

/// Regimes of log-normal stack distances.
#[derive(Clone, Copy, Debug)]
pub struct Distances {
    /// Pages in all. When all were seen, the deepest stands for one never seen.
    pub pages: u32,
    /// Accesses.
    pub accesses: u32,
    /// For each regime: median distance as a share of the pages, spread (standard deviation of the
    /// logarithm), and share of accesses to new pages.
    pub regimes: &'static [(f64, f64, f64)],
    /// Mean accesses between two choices of a regime.
    pub stay: u32,
}

impl Distances {
    /// The pages accessed.
    #[must_use]
    pub fn draw(&self, seed: u64) -> Vec<u32> {
        let mut rng = SplitMix64::new(seed);
        let mut stack = Stack::new(self.pages);
        let mut regime = 0;
        let mut stream = Vec::with_capacity(self.accesses as usize);
        for _ in 0..self.accesses {
            if rng.below(u64::from(self.stay.max(1))) == 0 {
                regime = rng.below(self.regimes.len() as u64) as usize;
            }
            let (median, spread, fresh) = self.regimes[regime];
            let depth = if rng.unit_f64() < fresh {
                u32::MAX
            } else {
                let distance = median * f64::from(self.pages) * (spread * normal(&mut rng)).exp();
                // A float cast saturates, and distances are not negative.
                distance as u32
            };
            stream.push(stack.access(depth));
        }
        stream
    }
}

/// A draw of the normal distribution, by Box and Muller.
fn normal(rng: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit_f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.unit_f64()).cos()
}

/// The pages seen, most recent last.
struct Stack {
    /// By slot, in order of time: the page, if the slot is used.
    owner: Vec<Option<u32>>,
    /// Fenwick tree over "the slot is used", counted from 1.
    tree: Vec<u32>,
    /// The next free slot.
    next: usize,
    /// Pages seen: they are numbered as they come.
    seen: u32,
    pages: u32,
}

impl Stack {
    fn new(pages: u32) -> Self {
        let slots = (4 * pages.max(1) as usize).next_power_of_two();
        Self { owner: vec![None; slots], tree: vec![0; slots + 1], next: 0, seen: 0, pages }
    }

    /// Accesses the page at `depth`, 0 being the most recent, or beyond all a new one, and returns
    /// it.
    fn access(&mut self, depth: u32) -> u32 {
        let page = if depth < self.seen || self.seen == self.pages {
            // From the old end, counted from 1.
            let rank = self.seen - depth.min(self.seen - 1);
            self.take(rank)
        } else {
            self.seen += 1;
            self.seen - 1
        };
        if self.next == self.owner.len() {
            self.compact();
        }
        self.owner[self.next] = Some(page);
        self.add(self.next, 1);
        self.next += 1;
        page
    }

    /// Removes the used slot of this rank.
    fn take(&mut self, rank: u32) -> u32 {
        let (mut at, mut left) = (0, rank);
        let mut step = self.owner.len();
        while step > 0 {
            if at + step < self.tree.len() && self.tree[at + step] < left {
                at += step;
                left -= self.tree[at];
            }
            step /= 2;
        }
        self.add(at, u32::MAX);
        self.owner[at].take().unwrap_or(0)
    }

    /// Adds to a slot's count; `u32::MAX` takes one away.
    fn add(&mut self, slot: usize, count: u32) {
        let mut at = slot + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(count);
            at += at & at.wrapping_neg();
        }
    }

    fn compact(&mut self) {
        let used: Vec<u32> = self.owner.iter().flatten().copied().collect();
        self.owner.fill(None);
        self.tree.fill(0);
        self.next = used.len();
        for (slot, page) in used.into_iter().enumerate() {
            self.owner[slot] = Some(page);
            self.add(slot, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_finds_the_page_that_a_list_has_there() {
        let mut rng = SplitMix64::new(9);
        let (mut stack, mut list) = (Stack::new(40), Vec::new());
        for _ in 0..5_000 {
            let depth = rng.below(60) as u32;
            let page = stack.access(depth);
            let depth = if (depth as usize) < list.len() || list.len() == 40 {
                (depth as usize).min(list.len() - 1)
            } else {
                list.insert(0, list.len() as u32);
                0
            };
            let expected = list.remove(depth);
            list.insert(0, expected);
            assert_eq!(page, expected);
        }
    }

    #[test]
    fn distances_have_the_median_that_was_requested() {
        let regimes = &[(0.05, 0.5, 0.0)];
        let stream = Distances { pages: 1000, accesses: 20_000, regimes, stay: 10 }.draw(3);
        let mut list: Vec<u32> = Vec::new();
        let mut depths = Vec::new();
        for page in stream {
            if let Some(at) = list.iter().position(|&p| p == page) {
                list.remove(at);
                depths.push(at);
            }
            list.insert(0, page);
        }
        depths.sort_unstable();
        let median = depths[depths.len() / 2];
        assert!((40..60).contains(&median), "{median}");
    }
}
