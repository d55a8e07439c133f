//! Direct writes beside what passes through the kernel's page cache.
//!
//! Pages are written past the page cache, and some things are not. The end of a file that is no
//! whole block is written through it. Cutting a file off, lengthening it or punching it makes the
//! kernel zero the rest of a block in it. What a failed sync may have lost is copied through it
//! (`writeback/rescue.rs`). When a direct write and one of these meet in one block of the cache,
//! the block in the cache has bytes from before the direct write, is dirty, and is written later:
//! over what the direct write has written. The kernel notices some of these collisions and reports
//! them as an error of the file; it never prevents them (`open(2)`, `O_DIRECT`).
//!
//! So they exclude each other, block by block:
//!
//! | in one block | a direct write | a cached write | a change |
//! |---|---|---|---|
//! | **a direct write** | together | one at a time | one at a time |
//! | **a cached write** | one at a time | together | one at a time |
//! | **a change** | one at a time | one at a time | one at a time |
//!
//! A write that may not begin is tried again by its caller. A change announces its range; from then
//! on no write into its blocks begins, and when those on their way have ended, the change is alone.
//! A change never waits here: the caller decides how long to try again. There is one change at a
//! time, wherever it is.

use lowtide_pin::sync::lock;
use slab::Slab;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes of a block of the page cache.
pub(crate) const BLOCK: u64 = 4096;

/// What is on its way to one file.
#[derive(Debug, Default)]
pub(crate) struct Beneath(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Writes on their way, each under its number. A checkpoint has thousands of them, so they are
    /// searched only where one may be met.
    writing: Slab<Blocks>,
    /// How many of them are cached, in part at least.
    cached: usize,
    /// Blocks of the change that is announced.
    changing: Option<Range<u64>>,
}

/// The blocks of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Blocks {
    /// What is written past the page cache.
    direct: Range<u64>,
    /// What is written through it, before or after the direct part or without one.
    cached: Range<u64>,
}

/// A write that has begun, to be given back when it ends.
#[derive(Debug)]
#[must_use = "the write has begun, and must end"]
pub(crate) struct OnItsWay(usize);

/// The blocks that a range of bytes touches.
fn blocks(bytes: &Range<u64>) -> Range<u64> {
    if bytes.is_empty() { 0..0 } else { bytes.start / BLOCK..bytes.end.div_ceil(BLOCK) }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Blocks {
    fn touch(&self, blocks: &Range<u64>) -> bool {
        overlap(&self.direct, blocks) || overlap(&self.cached, blocks)
    }

    fn collide(&self, other: &Self) -> bool {
        overlap(&self.direct, &other.cached) || overlap(&self.cached, &other.direct)
    }
}

impl State {
    /// Whether a write would collide with one on its way: two direct ones never do.
    fn meets(&self, write: &Blocks) -> bool {
        let may_meet = self.cached > 0 || !write.cached.is_empty();
        may_meet && self.writing.iter().any(|(_, other)| other.collide(write))
    }
}

impl Beneath {
    /// Notes a write that begins: `direct` is written past the page cache, `cached` through it.
    /// `None` if it may not begin now: it would collide with another write, or with the change that
    /// is announced.
    pub(crate) fn write_begins(
        &self,
        direct: &Range<u64>,
        cached: &Range<u64>,
    ) -> Option<OnItsWay> {
        let write = Blocks { direct: blocks(direct), cached: blocks(cached) };
        let mut state = lock(&self.0);
        let collides = state.changing.as_ref().is_some_and(|changing| write.touch(changing))
            || state.meets(&write);
        if collides {
            return None;
        }
        state.cached += usize::from(!write.cached.is_empty());
        Some(OnItsWay(state.writing.insert(write)))
    }

    /// Such a write has ended.
    pub(crate) fn write_ends(&self, OnItsWay(number): OnItsWay) {
        let mut state = lock(&self.0);
        let write = state.writing.remove(number);
        state.cached -= usize::from(!write.cached.is_empty());
    }

    /// Announces a change, unless there is one: then `None`.
    pub(crate) fn change(&self, bytes: &Range<u64>) -> Option<Change<'_>> {
        let mut state = lock(&self.0);
        if state.changing.is_some() {
            return None;
        }
        state.changing = Some(blocks(bytes));
        Some(Change(self))
    }
}

/// A change that is announced. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Change<'b>(&'b Beneath);

impl Change<'_> {
    /// Whether no write into its blocks is on its way. It stays so.
    pub(crate) fn is_alone(&self) -> bool {
        let state = lock(&self.0.0);
        let changing = state.changing.as_ref();
        let touches = |write: &Blocks| changing.is_some_and(|blocks| write.touch(blocks));
        !state.writing.iter().any(|(_, write)| touches(write))
    }

    /// Whether it is a change of exactly the blocks of a range.
    pub(crate) fn is_of(&self, bytes: &Range<u64>) -> bool {
        lock(&self.0.0).changing == Some(blocks(bytes))
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        lock(&self.0.0).changing = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Range<u64> = 0..0;

    #[test]
    fn writes_and_changes_of_one_block_exclude_each_other() {
        let beneath = Beneath::default();
        let first = beneath.write_begins(&(0..1024), &NOTHING).unwrap();
        let second = beneath.write_begins(&NOTHING, &(8192..9000)).unwrap();
        let change = beneath.change(&(3000..3001)).unwrap();
        assert!(!change.is_alone(), "of the same block");
        assert!(beneath.write_begins(&(4000..5000), &NOTHING).is_none(), "no more of them begin");
        assert!(beneath.write_begins(&NOTHING, &(4000..5000)).is_none(), "in whatever way");
        let third = beneath.write_begins(&(4096..8192), &NOTHING).expect("others do");
        assert!(beneath.change(&(1 << 20..u64::MAX)).is_none(), "one change at a time");
        beneath.write_ends(first);
        assert!(change.is_alone());
        drop(change);
        let change = beneath.change(&(9000..u64::MAX)).unwrap();
        assert!(change.is_of(&(8192..u64::MAX)) && !change.is_of(&(9000..9001)));
        assert!(!change.is_alone());
        beneath.write_ends(second);
        assert!(change.is_alone());
        beneath.write_ends(third);
    }

    #[test]
    fn a_direct_write_and_a_cached_one_of_one_block_exclude_each_other() {
        let beneath = Beneath::default();
        let direct = beneath.write_begins(&(512..1024), &NOTHING).unwrap();
        let beside = beneath.write_begins(&(1024..1536), &NOTHING).expect("direct writes do not");
        assert!(beneath.write_begins(&NOTHING, &(2048..2100)).is_none());
        beneath.write_ends(direct);
        assert!(beneath.write_begins(&NOTHING, &(2048..2100)).is_none(), "there is another");
        beneath.write_ends(beside);
        let cached = beneath.write_begins(&NOTHING, &(2048..2100)).unwrap();
        assert!(beneath.write_begins(&(512..1024), &NOTHING).is_none());
        let other = beneath.write_begins(&NOTHING, &(512..600)).expect("cached writes do not");
        beneath.write_ends(cached);
        assert!(beneath.write_begins(&(1024..1536), &NOTHING).is_none(), "there is another");
        beneath.write_ends(other);
    }

    #[test]
    fn the_cached_tail_of_a_write_excludes_direct_writes_also_while_the_direct_part_is_written() {
        let beneath = Beneath::default();
        let both = beneath.write_begins(&(0..8192), &(8192..9000)).unwrap();
        assert!(beneath.write_begins(&(9216..9728), &NOTHING).is_none(), "the tail's block");
        let direct = beneath.write_begins(&(12288..16384), &NOTHING).unwrap();
        assert!(beneath.write_begins(&(4096..8192), &(8192..8700)).is_some());
        beneath.write_ends(both);
        assert!(beneath.write_begins(&(8192..12288), &(12288..12300)).is_none());
        beneath.write_ends(direct);
        assert!(
            beneath.write_begins(&(9216..9728), &NOTHING).is_none(),
            "one of the two tails is still on its way"
        );
    }

    #[test]
    fn nothing_is_in_no_block() {
        let beneath = Beneath::default();
        let _change = beneath.change(&(0..u64::MAX)).unwrap();
        assert!(beneath.write_begins(&NOTHING, &(700..700)).is_some());
    }
}
