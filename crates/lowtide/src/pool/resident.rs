//! Which frames have real memory behind them.
//!
//! An arena (`arena.rs`) has no memory at first; that comes with the pages that need it, and goes
//! back when the budget is lowered. The smallest unit is a page of the system, or a frame if it is
//! larger. While the budget is what the pager was built with, a whole block of 2 MiB is populated
//! at its first use, so that the kernel can back it by one huge page; hits are as fast as if all of
//! it had been there from the start. Under a lowered budget only the frames that are needed are
//! populated. So they are where limits set themselves, but for as much at the beginning as such a
//! limit never gives up: direct reads into single pages cost the kernel two or three times as much.
//!
//! **Running out.** Memory is requested with `MADV_POPULATE_WRITE` before a frame is given out.
//! Where the kernel refuses (broken memory, memory that it does not promise), the operation fails
//! with [`Error::NoMemory`](crate::Error::NoMemory). Elsewhere its out-of-memory killer chooses a
//! process, as for any other memory: on a machine that is out of memory as a whole, and in a memory
//! cgroup at its limit. So a budget above that limit is refused when the pager is built
//! ([`BuildError::AboveLimit`](crate::BuildError::AboveLimit)).
//!
//! **Cost.** One bit for each unit, and a test of it for each miss, under the pool's lock. The
//! first use of a block clears 2 MiB under the lock: some hundred microseconds, once. A ring pins
//! all of an arena that is registered with it, so an arena is registered only if it is populated
//! from the start ([`PagerBuilder::populate`](crate::PagerBuilder::populate)), and then it keeps
//! its memory.

use super::arena::Arena;
use super::frames::{FRAME_ORDER_MAX, Frames};
use lowtide_sys::memory::{HUGE_PAGE_BYTES, page_size};
use std::io;
use std::ops::Range;

/// Free blocks that are given back per acquisition of the pool's lock.
const PIECE: usize = 256;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Resident {
    /// A bit for each unit.
    bits: Vec<u64>,
    unit: usize,
    frame_bytes: usize,
    /// Bytes of the arena.
    bytes: usize,
    /// Units whose bit is set.
    units: usize,
    /// Memory is never given back.
    pinned: bool,
    /// From this byte on the arena takes no more than it needs, since frames stand for memory
    /// elsewhere, or limits set themselves. What is before stays, if that much is kept at all.
    frugal_from: usize,
    /// The kernel's last refusal, for a thread that finds no frame.
    pub(crate) refused: Option<io::Error>,
}

impl Resident {
    /// An arena that has no memory yet; with `pinned` it has all, for good.
    pub(crate) fn new(arena: &Arena, frame_bytes: usize, pinned: bool) -> Self {
        let (bytes, unit) = (arena.len(), page_size().max(frame_bytes));
        let units = bytes.div_ceil(unit);
        let mut this = Self {
            bits: vec![0; units.div_ceil(64)],
            unit,
            frame_bytes,
            bytes,
            units: 0,
            pinned,
            frugal_from: bytes,
            refused: None,
        };
        if pinned {
            this.set(0..units, true);
        }
        this
    }

    /// Bytes that have memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        ((self.units * self.unit) as u64).min(self.bytes as u64)
    }

    fn get(&self, unit: usize) -> bool {
        self.bits[unit / 64] >> (unit % 64) & 1 == 1
    }

    fn set(&mut self, units: Range<usize>, to: bool) {
        for unit in units {
            if self.get(unit) != to {
                self.bits[unit / 64] ^= 1 << (unit % 64);
                self.units = if to { self.units + 1 } else { self.units - 1 };
            }
        }
        assert!(
            self.units <= self.bytes.div_ceil(self.unit),
            "more memory is counted than there is"
        );
    }

    /// Units that a block of frames touches.
    fn units_of(&self, frame: u32, order: u8) -> Range<usize> {
        let start = frame as usize * self.frame_bytes;
        start / self.unit..(start + (self.frame_bytes << order)).div_ceil(self.unit)
    }

    /// Ensures that frames have memory; `generous`: their neighbours may have some, too.
    ///
    /// # Errors
    /// The kernel's error; the frames must not be used then.
    #[inline]
    pub(crate) fn back(
        &mut self,
        arena: &Arena,
        frame: u32,
        order: u8,
        generous: bool,
    ) -> io::Result<()> {
        let units = self.units_of(frame, order);
        if units.clone().all(|unit| self.get(unit)) {
            return Ok(());
        }
        self.populate(arena, units, generous)
    }

    #[cold]
    fn populate(&mut self, arena: &Arena, units: Range<usize>, generous: bool) -> io::Result<()> {
        let of_block = (HUGE_PAGE_BYTES / self.unit).max(1);
        let all = self.bytes.div_ceil(self.unit);
        let block =
            units.start / of_block * of_block..(units.end.div_ceil(of_block) * of_block).min(all);
        let is_frugal = block.end * self.unit > self.frugal_from.next_multiple_of(self.unit);
        let whole = generous && !is_frugal && !block.clone().any(|unit| self.get(unit));
        let asked = if whole { block } else { units };
        arena.populate(asked.start * self.unit..(asked.end * self.unit).min(self.bytes))?;
        self.set(asked, true);
        Ok(())
    }

    /// Ensures that frames have no memory: what they stand for has its own elsewhere. From the
    /// first call on no frame gets memory before it needs it.
    ///
    /// # Errors
    /// The kernel's error; the frames still have memory then.
    pub(crate) fn unback(&mut self, arena: &Arena, frame: u32, order: u8) -> io::Result<()> {
        self.be_frugal(arena, 0)?;
        let units = self.units_of(frame, order);
        if !units.clone().any(|unit| self.get(unit)) {
            return Ok(());
        }
        let bytes = units.start * self.unit..(units.end * self.unit).min(self.bytes);
        arena.discard(bytes)?;
        self.set(units, false);
        Ok(())
    }

    /// From the first call on no frame gets memory before it needs it, but for those in the whole
    /// blocks that `kept` bytes have.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn be_frugal(&mut self, arena: &Arena, kept: u64) -> io::Result<()> {
        let from = kept.min(self.bytes as u64) as usize / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if from < self.frugal_from && !self.pinned {
            // A page that is populated would bring a huge one, which nothing has paid for.
            arena.forbid_huge_pages(from)?;
            self.frugal_from = from;
        }
        Ok(())
    }

    /// Gives memory of free frames back to the system until at most `keep` bytes have some, the
    /// largest blocks first. Returns whether there may be more to give: the lock is to be offered
    /// in between.
    pub(crate) fn trim(&mut self, arena: &Arena, frames: &mut Frames, keep: u64) -> bool {
        if self.pinned || self.resident_bytes() <= keep {
            return false;
        }
        let is_kept = self.frugal_from < self.bytes && self.frugal_from as u64 <= keep;
        let from = if is_kept { self.frugal_from / self.unit } else { 0 };
        let mut pieces = 0;
        for order in (0..=FRAME_ORDER_MAX).rev() {
            for frame in frames.free_blocks(order) {
                let start = frame as usize * self.frame_bytes;
                let end = start + (self.frame_bytes << order);
                // Units that are wholly free.
                let units = start.div_ceil(self.unit).max(from)..end / self.unit;
                if units.is_empty() || !units.clone().any(|unit| self.get(unit)) {
                    continue;
                }
                if arena.discard(units.start * self.unit..units.end * self.unit).is_err() {
                    // It stays resident, and is counted as such.
                    return false;
                }
                self.set(units, false);
                pieces += 1;
                if self.resident_bytes() <= keep {
                    return false;
                }
                if pieces == PIECE {
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_limit_never_gives_up_is_populated_in_blocks_and_kept_while_as_much_may_be() {
        let (page, blocks) = (page_size(), 4);
        let block = (HUGE_PAGE_BYTES / page) as u32;
        let arena = Arena::new(blocks * HUGE_PAGE_BYTES);
        let mut resident = Resident::new(&arena, page, false);
        let mut frames = Frames::new(4 * block);
        // One block is kept: the half of the second is none.
        let kept = HUGE_PAGE_BYTES as u64;
        resident.be_frugal(&arena, kept + kept / 2).unwrap();
        resident.back(&arena, 7, 0, true).unwrap();
        assert_eq!(resident.resident_bytes(), kept);
        for frame in [block + 7, 3 * block] {
            resident.back(&arena, frame, 0, true).unwrap();
        }
        assert_eq!(resident.resident_bytes(), kept + 2 * page as u64);
        assert!(!resident.trim(&arena, &mut frames, kept));
        assert_eq!(resident.resident_bytes(), kept);
        assert!(resident.get(7) && !resident.get(block as usize + 7));
        assert!(!resident.trim(&arena, &mut frames, kept / 2));
        assert!(resident.resident_bytes() <= kept / 2, "a budget that was lowered holds");
    }

    #[test]
    fn where_frames_stand_for_other_memory_one_that_needs_some_takes_no_more_than_that() {
        let (page, blocks) = (page_size(), 4);
        let arena = Arena::new(blocks * HUGE_PAGE_BYTES);
        let mut resident = Resident::new(&arena, page, false);
        resident.unback(&arena, 0, 0).unwrap();
        for block in 0..blocks {
            let frame = (block * HUGE_PAGE_BYTES / page + 7) as u32;
            resident.back(&arena, frame, 0, true).unwrap();
        }
        assert_eq!((resident.resident_bytes(), arena.huge_bytes()), ((blocks * page) as u64, 0));
    }
}
