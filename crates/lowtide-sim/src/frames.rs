//! The allocator of frames: single ones, and aligned blocks for large folios.
//!
//! A buddy allocator. A block of order *n* has 2^n frames and begins at a multiple of that. One
//! that is too large is halved; two free halves of the same block become one again.
//!
//! Free blocks are kept in stacks by order, so the last that was freed is the next that is used.
//! An entry of a stack counts only while its frame says that a free block of that order begins
//! there: so a block that has been joined to its other half need not be looked for.

use lowtide_core::FolioId;

/// Orders of blocks: up to 2 MiB of 4 KiB pages.
pub(crate) const ORDERS: usize = 10;
/// No free block begins at this frame.
const NONE: u8 = u8::MAX;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Frames {
    stacks: [Vec<u32>; ORDERS],
    /// The order of the free block that begins at a frame.
    begins: Vec<u8>,
    free: usize,
    /// Blocks are joined: there are large folios.
    joins: bool,
}

impl Frames {
    /// `frames` frames, all free. The first ones are handed out first: neighbours in time are
    /// neighbours in memory.
    pub(crate) fn new(frames: u32) -> Self {
        let mut stacks: [Vec<u32>; ORDERS] = Default::default();
        stacks[0] = (0..frames).rev().collect();
        let free = frames as usize;
        Self { stacks, begins: vec![0; free], free, joins: false }
    }

    /// Prepares for large folios: from now on free blocks are joined. Cost: O(frames), once.
    pub(crate) fn join(&mut self) {
        if std::mem::replace(&mut self.joins, true) {
            return;
        }
        let single = std::mem::take(&mut self.stacks[0]);
        let singles: Vec<u32> =
            single.into_iter().filter(|&frame| self.begins[frame as usize] == 0).collect();
        self.free -= singles.len();
        for &frame in &singles {
            self.begins[frame as usize] = NONE;
        }
        singles.into_iter().for_each(|frame| self.put(FolioId(frame), 0));
    }

    /// How many are free.
    pub(crate) const fn free(&self) -> usize {
        self.free
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.begins.len()
    }

    /// Bytes of memory that this takes.
    pub(crate) fn bytes(&self) -> usize {
        self.begins.len() + self.stacks.iter().map(|stack| stack.capacity() * 4).sum::<usize>()
    }

    /// Takes a block of 2^order frames. `None` if there is none.
    ///
    /// # Panics
    /// When the order is larger than there are.
    pub(crate) fn take(&mut self, order: u8) -> Option<FolioId> {
        let (first, found) = (order..ORDERS as u8).find_map(|at| Some((self.pop(at)?, at)))?;
        // The upper halves stay.
        for half in (order..found).rev() {
            self.push(first + (1 << half), half);
        }
        self.free -= 1 << order;
        Some(FolioId(first))
    }

    /// Gives a block back.
    pub(crate) fn put(&mut self, first: FolioId, order: u8) {
        self.free += 1 << order;
        let (mut first, mut order) = (first.0, order);
        while self.joins && usize::from(order) + 1 < ORDERS {
            let other = first ^ (1 << order);
            if self.begins.get(other as usize) != Some(&order) {
                break;
            }
            self.begins[other as usize] = NONE;
            first &= !(1 << order);
            order += 1;
        }
        self.push(first, order);
    }

    fn push(&mut self, first: u32, order: u8) {
        self.begins[first as usize] = order;
        let stack = &mut self.stacks[usize::from(order)];
        stack.push(first);
        // Entries that count no longer are at most as many as frames.
        if stack.len() > 2 * (self.begins.len() >> order) + 64 {
            stack.sort_unstable_by(|a, b| b.cmp(a));
            stack.dedup();
            stack.retain(|&frame| self.begins[frame as usize] == order);
        }
    }

    fn pop(&mut self, order: u8) -> Option<u32> {
        let stack = &mut self.stacks[usize::from(order)];
        loop {
            let first = stack.pop()?;
            if self.begins[first as usize] == order {
                self.begins[first as usize] = NONE;
                return Some(first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_workload::SplitMix64;

    #[test]
    fn single_frames_come_in_order_and_the_last_freed_comes_first() {
        let mut frames = Frames::new(100);
        let first: Vec<u32> = (0..5).map(|_| frames.take(0).unwrap().0).collect();
        assert_eq!(first, [0, 1, 2, 3, 4]);
        frames.put(FolioId(2), 0);
        assert_eq!((frames.take(0), frames.free()), (Some(FolioId(2)), 95));
        assert_eq!(frames.take(1), None, "nothing was joined");
    }

    #[test]
    fn blocks_are_aligned_never_overlap_and_join_again() {
        let mut frames = Frames::new(5_000);
        frames.join();
        let mut rng = SplitMix64::new(1);
        let mut taken: Vec<(u32, u8)> = Vec::new();
        for _ in 0..50_000 {
            let order = rng.below(ORDERS as u64) as u8;
            if rng.percent(50) {
                if let Some(block) = frames.take(order) {
                    taken.push((block.0, order));
                }
            } else if !taken.is_empty() {
                let (first, order) = taken.swap_remove(rng.below(taken.len() as u64) as usize);
                frames.put(FolioId(first), order);
            }
        }
        let mut owners = vec![0_u8; 5_000];
        for &(first, order) in &taken {
            assert!(first.is_multiple_of(1 << order));
            owners[first as usize..first as usize + (1 << order)].iter_mut().for_each(|n| *n += 1);
        }
        assert!(owners.iter().all(|&n| n <= 1));
        let held: usize = owners.iter().map(|&n| usize::from(n)).sum();
        assert_eq!(frames.free() + held, frames.len());
        for (first, order) in taken {
            frames.put(FolioId(first), order);
        }
        let whole = 5_000 >> (ORDERS - 1);
        assert_eq!((0..).map_while(|_| frames.take(ORDERS as u8 - 1)).count(), whole);
    }
}
