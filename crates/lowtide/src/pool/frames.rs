//! Which frames are free: a buddy allocator over the arena.
//!
//! # Model
//!
//! The arena is `N` base-page frames. A *block* of order `k` is `2^k` neighbouring frames that
//! begin at a multiple of `2^k`; its *buddy* is the other half of the block of order `k + 1` around
//! it. Two free buddies merge, so that large folios find room again.
//!
//! ```text
//!   order 2  │       0       │       4       │ 8: the end of the arena cuts it off
//!   order 1  │   0   │   2   │   4   │   6   │   8   │
//!   order 0  │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │ 7 │ 8 │ 9 │    N = 10: blocks 0..8, 8..10 at first
//! ```
//!
//! The free blocks of one order are a *tree of bitmaps*: a bit for each block, and above each word
//! of 64 bits one bit that says whether the word has any. Finding a free block is one
//! `trailing_zeros` a level, at most five, and always finds the lowest address, which packs blocks
//! together; testing whether a buddy is free is one bit, with no list to unlink it from. All orders
//! together take little more than two bits a frame.
//!
//! # Single frames
//!
//! Almost all traffic is single frames: one evicted, one read in. In front of the tree there is a
//! stack of at most [`STACK_MAX`] of them. A frame that is pushed and popped again never touches
//! the tree, and its bytes and its line of metadata are the ones most recently used. Frames on the
//! stack are free but not merged. They are merged when the stack is full (half of it) and when an
//! order is requested that the tree does not have (all of it), so no request is refused that
//! merging could satisfy.
//!
//! # Cost
//!
//! Single frames: a push or a pop; O(log N) in the tree for one call in many. Other orders: O(log
//! N), plus the emptying of the stack.

/// Largest order of a block: 16 MiB of 4 KiB frames.
pub(crate) const FRAME_ORDER_MAX: u8 = 12;

/// Frames that the stack holds: 16 KiB of it, which a second-level cache keeps.
const STACK_MAX: usize = 4096;

/// Order of the block that refills an empty stack, if no smaller one is free.
const REFILL_ORDER: u8 = 6;

/// The free frames of an arena. See the module documentation.
#[derive(Debug)]
pub(crate) struct Frames {
    frames: u32,
    /// Free frames, those on the stack included.
    free: u32,
    /// Free single frames that are not in `orders`. The top is used next.
    stack: Vec<u32>,
    /// The other free blocks, by order. Bit `i` is the block that begins at frame `i << order`.
    orders: Vec<BitTree>,
    /// One bit a frame, set while it is free; finds double frees.
    #[cfg(debug_assertions)]
    is_free: Vec<u64>,
}

impl Frames {
    /// An arena of frames `0 .. frames`, all free. Cost: O(`frames` / 64).
    pub(crate) fn new(frames: u32) -> Self {
        let mut this = Self {
            frames,
            free: frames,
            stack: Vec::with_capacity(STACK_MAX.min(frames as usize)),
            orders: (0..=FRAME_ORDER_MAX).map(|order| BitTree::new(frames >> order)).collect(),
            #[cfg(debug_assertions)]
            is_free: vec![u64::MAX; frames.div_ceil(64) as usize],
        };
        let mut start = 0;
        while start < frames {
            // The largest block that may begin here and still fits. Alignment is no limit after the
            // first, since blocks only get smaller towards the end.
            let order = (frames - start).ilog2().min(u32::from(FRAME_ORDER_MAX)) as u8;
            this.orders[usize::from(order)].set(start >> order);
            start += 1 << order;
        }
        this
    }

    /// Takes a block of `2^order` frames and returns its first. `None` if no block of this order is
    /// free, or if the order is larger than [`FRAME_ORDER_MAX`].
    #[inline]
    pub(crate) fn alloc(&mut self, order: u8) -> Option<u32> {
        let frame = if order == 0
            && let Some(frame) = self.stack.pop()
        {
            frame
        } else {
            self.alloc_from_tree(order)?
        };
        assert!(
            self.free >= 1 << order,
            "{} frames are free, and a block of order {order} was found",
            self.free
        );
        self.free -= 1 << order;
        self.mark(frame, order, false);
        Some(frame)
    }

    /// Gives a block of `2^order` frames back, or a block that is part of one that was taken:
    /// frames may be freed singly.
    ///
    /// # Panics
    /// When the block is not an aligned part of the arena. When it is free already: always in debug
    /// builds, and otherwise where that is seen without searching. The frames would belong to two
    /// pages.
    #[inline]
    pub(crate) fn free(&mut self, frame: u32, order: u8) {
        self.mark(frame, order, true);
        if order == 0 && frame < self.frames && self.stack.len() < self.stack.capacity() {
            self.stack.push(frame);
        } else {
            self.free_to_tree(frame, order);
        }
        self.free += 1 << order;
        assert!(self.free <= self.frames, "{} frames are free, of {}", self.free, self.frames);
    }

    /// Free frames.
    #[inline]
    pub(crate) const fn free_frames(&self) -> u32 {
        self.free
    }

    /// The largest order that [`Frames::alloc`] would not refuse now, or `None` when no frame is
    /// free. Merges the stack.
    #[cfg(test)]
    pub(crate) fn largest_free_order(&mut self) -> Option<u8> {
        self.merge_stack(0);
        (0..=FRAME_ORDER_MAX).rev().find(|&order| self.orders[usize::from(order)].first().is_some())
    }

    /// All free blocks of one order, after single frames have been merged. Cost: O(blocks).
    pub(crate) fn free_blocks(&mut self, order: u8) -> Vec<u32> {
        self.merge_stack(0);
        self.orders[usize::from(order)].all().map(|block| block << order).collect()
    }

    /// Bytes that the allocator takes: at most 17 KiB, and 0.26 B a frame.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let trees: usize = self.orders.iter().map(BitTree::bytes).sum();
        size_of::<Self>() + self.stack.capacity() * size_of::<u32>() + trees
    }

    #[cold]
    #[inline(never)]
    fn alloc_from_tree(&mut self, order: u8) -> Option<u32> {
        if order > FRAME_ORDER_MAX {
            return None;
        }
        if order == 0 {
            return self.refill();
        }
        self.take_block(order).or_else(|| {
            self.merge_stack(0);
            self.take_block(order)
        })
    }

    /// Fills the empty stack with the frames of the smallest free block, and returns the lowest of
    /// them.
    fn refill(&mut self) -> Option<u32> {
        let order = self.smallest_with(0)?.min(REFILL_ORDER);
        let first = self.take_block(order)?;
        let room = self.stack.capacity() as u32;
        let end = first + (1 << order);
        // A tiny arena's stack is smaller than the block.
        let kept = end.min(first + 1 + room);
        self.stack.extend((first + 1..kept).rev());
        for frame in kept..end {
            self.free_to_tree(frame, 0);
        }
        Some(first)
    }

    /// The smallest order, from `order` on, that has a free block in the tree.
    fn smallest_with(&self, order: u8) -> Option<u8> {
        (order..=FRAME_ORDER_MAX).find(|&order| self.orders[usize::from(order)].first().is_some())
    }

    /// Takes the lowest block of the smallest order that suffices, and splits it: the upper halves
    /// stay free.
    fn take_block(&mut self, order: u8) -> Option<u32> {
        let from = self.smallest_with(order)?;
        let block = self.orders[usize::from(from)].first()?;
        self.orders[usize::from(from)].clear(block);
        let frame = block << from;
        for half in order..from {
            self.orders[usize::from(half)].set((frame >> half) + 1);
        }
        Some(frame)
    }

    /// Puts all but the `keep` most recently freed single frames into the tree.
    #[cold]
    fn merge_stack(&mut self, keep: usize) {
        for i in 0..self.stack.len().saturating_sub(keep) {
            self.merge_block(self.stack[i], 0);
        }
        self.stack.drain(..self.stack.len().saturating_sub(keep));
    }

    #[cold]
    #[inline(never)]
    fn free_to_tree(&mut self, frame: u32, order: u8) {
        assert!(
            order <= FRAME_ORDER_MAX
                && frame.is_multiple_of(1 << order)
                && frame.checked_add(1 << order).is_some_and(|end| end <= self.frames),
            "frame {frame} of order {order} is no block of an arena of {} frames",
            self.frames
        );
        if order == 0 && self.stack.len() == self.stack.capacity() && self.stack.len() > 1 {
            self.merge_stack(self.stack.len() / 2);
            self.stack.push(frame);
        } else {
            self.merge_block(frame, order);
        }
    }

    /// Marks a block free in the tree, merged with its buddy as long as that is free too.
    fn merge_block(&mut self, frame: u32, order: u8) {
        let mut order = usize::from(order);
        let mut block = frame >> order;
        while order < usize::from(FRAME_ORDER_MAX) && self.orders[order].get(block ^ 1) {
            self.orders[order].clear(block ^ 1);
            block >>= 1;
            order += 1;
        }
        assert!(!self.orders[order].get(block), "frame {frame} was freed twice");
        self.orders[order].set(block);
    }

    /// Debug builds know whether each frame is free.
    #[cfg(debug_assertions)]
    fn mark(&mut self, frame: u32, order: u8, free: bool) {
        for frame in frame..frame.saturating_add(1 << order).min(self.frames) {
            let (word, bit) = (frame as usize / 64, 1 << (frame % 64));
            let was_free = self.is_free[word] & bit != 0;
            assert!(
                was_free != free,
                "frame {frame} was {}",
                if free { "freed twice" } else { "given out twice" }
            );
            self.is_free[word] ^= bit;
        }
    }

    #[cfg(not(debug_assertions))]
    #[inline(always)]
    fn mark(&mut self, _frame: u32, _order: u8, _free: bool) {}
}

/// A set of numbers below a bound, which finds its smallest member in one step a level.
#[derive(Debug)]
struct BitTree {
    /// `levels[0]` has a bit for each number; a bit of `levels[l + 1]` is set while its word of
    /// `levels[l]` is not 0. The last level is one word, or none if the bound is 0.
    levels: Vec<Box<[u64]>>,
}

impl BitTree {
    fn new(bound: u32) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(64);
        while words > 0 {
            levels.push(vec![0; words as usize].into_boxed_slice());
            words = if words == 1 { 0 } else { words.div_ceil(64) };
        }
        Self { levels }
    }

    /// Whether `number` is in the set. Numbers beyond the bound are not.
    fn get(&self, number: u32) -> bool {
        let word = self.levels.first().and_then(|level| level.get(number as usize / 64));
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn set(&mut self, number: u32) {
        let mut index = number as usize;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            let had_any = *word != 0;
            *word |= 1 << (index % 64);
            if had_any {
                break;
            }
            index /= 64;
        }
    }

    fn clear(&mut self, number: u32) {
        let mut index = number as usize;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            *word &= !(1 << (index % 64));
            if *word != 0 {
                break;
            }
            index /= 64;
        }
    }

    /// The smallest member.
    fn first(&self) -> Option<u32> {
        let top = self.levels.last()?;
        if top[0] == 0 {
            return None;
        }
        let descend =
            |index: usize, level: &[u64]| index * 64 + level[index].trailing_zeros() as usize;
        Some(self.levels.iter().rev().fold(0, |index, level| descend(index, level)) as u32)
    }

    /// All members, the smallest first.
    fn all(&self) -> impl Iterator<Item = u32> {
        let words = self.levels.first().into_iter().flat_map(|level| level.iter().enumerate());
        words.flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u32 * 64 + bit)
        })
    }

    fn bytes(&self) -> usize {
        self.levels.iter().map(|level| size_of_val(&**level) + size_of::<Box<[u64]>>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of numbers that look random and are the same in every run.
    struct Prng(u64);

    impl Prng {
        fn below(&mut self, bound: u32) -> u32 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
        }
    }

    /// The same interface, by exhaustive search. A block can be given out if all its frames are
    /// free.
    struct Model(Vec<bool>);

    impl Model {
        fn largest(&self) -> Option<u8> {
            (0..=FRAME_ORDER_MAX).rev().find(|&order| {
                let mut blocks = self.0.chunks_exact(1 << order);
                blocks.any(|block| block.iter().all(|&free| free))
            })
        }

        fn take(&mut self, frame: u32, order: u8) {
            assert!(
                frame.is_multiple_of(1 << order),
                "block {frame} of order {order} is not aligned"
            );
            for free in &mut self.0[frame as usize..][..1 << order] {
                assert!(*free, "a frame was given out twice");
                *free = false;
            }
        }

        fn give(&mut self, frame: u32, order: u8) {
            self.0[frame as usize..][..1 << order].fill(true);
        }
    }

    #[test]
    fn it_does_what_an_exhaustive_search_does() {
        for seed in 0..60 {
            let mut prng = Prng(seed);
            let size = [1, 2, 3, 63, 64, 65, 1000, 4095, 4097, 12_345][seed as usize % 10];
            let mut frames = Frames::new(size);
            let mut model = Model(vec![true; size as usize]);
            let mut taken: Vec<(u32, u8)> = Vec::new();
            for step in 0..1500 {
                // Phases that fill and that empty the arena.
                let fills = step / 300 % 2 == 0;
                if prng.below(10) < if fills { 7 } else { 3 } {
                    let order = if prng.below(3) > 0 { 0 } else { prng.below(15) as u8 };
                    match frames.alloc(order) {
                        Some(frame) => {
                            model.take(frame, order);
                            taken.push((frame, order));
                        }
                        None => assert!(
                            model.largest().is_none_or(|largest| largest < order),
                            "refused order {order}"
                        ),
                    }
                } else if !taken.is_empty() {
                    let (frame, order) = taken.swap_remove(prng.below(taken.len() as u32) as usize);
                    model.give(frame, order);
                    if prng.below(4) == 0 {
                        // A folio that is split is freed frame by frame.
                        (frame..frame + (1 << order)).for_each(|frame| frames.free(frame, 0));
                    } else {
                        frames.free(frame, order);
                    }
                }
                assert_eq!(
                    frames.free_frames() as usize,
                    model.0.iter().filter(|&&free| free).count()
                );
                if step % 50 == 0 {
                    assert_eq!(frames.largest_free_order(), model.largest());
                }
            }
            taken.into_iter().for_each(|(frame, order)| frames.free(frame, order));
            assert_eq!(frames.free_frames(), size);
            assert_eq!(
                frames.largest_free_order(),
                Some(size.ilog2().min(12) as u8),
                "all merged again"
            );
        }
    }

    #[test]
    fn every_frame_of_the_arena_can_be_given_out_singly() {
        for size in [1, 7, 64, 4096, 4097, 10_000, 70_001] {
            let mut frames = Frames::new(size);
            let mut given: Vec<u32> = std::iter::from_fn(|| frames.alloc(0)).collect();
            assert_eq!(frames.free_frames(), 0);
            assert_eq!(frames.largest_free_order(), None);
            given.sort_unstable();
            assert!(given.into_iter().eq(0..size));
        }
    }

    #[test]
    fn single_frames_that_were_freed_make_a_large_block_again() {
        let mut frames = Frames::new(3 << FRAME_ORDER_MAX);
        let all: Vec<u32> = std::iter::from_fn(|| frames.alloc(0)).collect();
        // Odd frames first, so that nothing merges until the even ones come.
        all.iter().filter(|&frame| frame % 2 == 1).for_each(|&frame| frames.free(frame, 0));
        assert_eq!(frames.alloc(1), None);
        all.iter().filter(|&frame| frame % 2 == 0).for_each(|&frame| frames.free(frame, 0));
        for _ in 0..3 {
            assert!(frames.alloc(FRAME_ORDER_MAX).is_some());
        }
        assert_eq!(frames.free_frames(), 0);
    }

    #[test]
    fn the_frame_freed_last_is_used_next() {
        let mut frames = Frames::new(1000);
        let taken: Vec<u32> = (0..10).filter_map(|_| frames.alloc(0)).collect();
        frames.free(taken[3], 0);
        frames.free(taken[7], 0);
        assert_eq!((frames.alloc(0), frames.alloc(0)), (Some(taken[7]), Some(taken[3])));
    }

    #[test]
    fn impossible_requests_are_refused() {
        assert_eq!(Frames::new(0).alloc(0), None);
        assert_eq!(Frames::new(0).largest_free_order(), None);
        let mut frames = Frames::new(4095);
        assert_eq!(frames.alloc(FRAME_ORDER_MAX), None);
        assert_eq!(frames.alloc(u8::MAX), None);
        assert_eq!(frames.free_frames(), 4095);
        assert!(frames.alloc(FRAME_ORDER_MAX - 1).is_some());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_a_defect() {
        let mut frames = Frames::new(100);
        let frame = frames.alloc(0).unwrap();
        frames.free(frame, 0);
        frames.free(frame, 0);
    }

    #[test]
    #[should_panic(expected = "no block of an arena")]
    fn freeing_what_is_no_block_is_a_defect() {
        let mut frames = Frames::new(100);
        while frames.alloc(0).is_some() {}
        frames.free(2, 2);
    }

    #[test]
    fn metadata_is_a_small_part_of_the_frames() {
        for size in [4096, 1 << 20, 1 << 24] {
            assert!(Frames::new(size).metadata_bytes() <= 5 * size as usize);
        }
        assert!(Frames::new(1 << 24).metadata_bytes() < (1 << 24) * 27 / 100);
    }
}
