//! How many pages a read brings: the window of read-ahead, which measures its own usefulness.
//!
//! The rule is the kernel's for swap (`docs/kernel/fault-and-writeback.md` A7): the next window
//! follows from how many pages of the ones read ahead were *touched* since the last window. Without
//! a hit it is a single page, or two if the read is next to the one before; with hits it is the
//! next power of two above hits + 2, at most the limit; and never less than half of the last one.
//!
//! Only a touch of a page that was read ahead is a hit. That a page is found in memory when the
//! window is filled, or that the window itself reads it, is not: a read-ahead that counted its own
//! reads would confirm itself. A page that is touched twice is one hit, because the slot forgets
//! that it was read ahead at the first touch.

use super::slot::CLUSTER_SLOTS;
use crate::lock::lock;
use std::sync::Mutex;

/// Hits that a new window begins with, as if it had been useful.
const INITIAL_HITS: u32 = 4;

/// Read-ahead of one stream: of a region, or of a tenant. Its owner passes it to
/// [`SwapFile::read`](super::SwapFile::read) and [`SwapFile::touched`](super::SwapFile::touched).
#[derive(Debug)]
pub struct ReadAhead {
    max: u32,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    hits: u32,
    window: u32,
    last: u32,
}

impl ReadAhead {
    /// Windows of at most `max` pages, which is rounded down to a power of two and at most
    /// [`CLUSTER_SLOTS`]. The kernel's default is 8; 1 means no read-ahead.
    #[must_use]
    pub fn new(max: usize) -> ReadAhead {
        let max = max.clamp(1, CLUSTER_SLOTS);
        let max = if max.is_power_of_two() { max } else { max.next_power_of_two() / 2 };
        let state = State { hits: INITIAL_HITS, window: 0, last: u32::MAX - 1 };
        ReadAhead { max: max as u32, state: Mutex::new(state) }
    }

    /// Pages to be read around a slot, a power of two: the window of this read.
    pub(super) fn next(&self, slot: u32) -> u32 {
        let mut state = lock(&self.state);
        let hits = std::mem::take(&mut state.hits);
        let adjacent = slot.abs_diff(state.last) == 1;
        let wanted = match hits {
            0 if adjacent => 2,
            0 => 1,
            hits => (hits.min(self.max) + 2).next_power_of_two().max(4),
        };
        let window = wanted.max(state.window / 2).min(self.max);
        state.window = window;
        state.last = slot;
        window
    }

    /// A page that was read ahead was touched for the first time.
    /// [`SwapFile::touched`](super::SwapFile::touched) calls this for pages that keep their slots.
    pub fn hit(&self) {
        let mut state = lock(&self.state);
        state.hits = state.hits.saturating_add(1);
    }
}

impl Default for ReadAhead {
    /// Windows of at most 8 pages.
    fn default() -> ReadAhead {
        ReadAhead::new(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_hits_the_window_halves_down_to_one_page() {
        let ahead = ReadAhead::default();
        let windows: Vec<u32> = (0..6).map(|n| ahead.next(n * 100)).collect();
        assert_eq!(windows, [8, 4, 2, 1, 1, 1]);
        assert_eq!(ahead.next(501), 2, "the next slot");
        assert_eq!(ahead.next(500), 2, "and the one before");
    }

    #[test]
    fn hits_open_the_window_up_to_its_limit() {
        for (hits, window) in [(1, 4), (2, 4), (3, 8), (6, 8), (7, 16), (40, 16)] {
            let ahead = ReadAhead::new(31);
            for n in 0..6 {
                ahead.next(n * 100);
            }
            (0..hits).for_each(|_| ahead.hit());
            assert_eq!(ahead.next(9000), window, "{hits} hits");
        }
        assert_eq!(ReadAhead::new(1).next(7), 1);
        let ahead = ReadAhead::default();
        lock(&ahead.state).hits = u32::MAX;
        ahead.hit();
        assert_eq!(ahead.next(0), 8, "more hits than can be counted");
    }
}
