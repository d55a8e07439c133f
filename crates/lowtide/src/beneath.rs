//! Direct writes beside changes that pass through the kernel's page cache.
//!
//! Pages are written past the page cache, but some changes go through it: cutting a file off,
//! lengthening it or punching it makes the kernel zero the rest of a block in the cache, and what a
//! failed sync may have lost is copied through it (`writeback/rescue.rs`). When both happen at a
//! time to one block of the cache, the block in the cache has bytes from before the direct write,
//! is dirty, and is written later: over what the direct write has written. The kernel notices some
//! of these collisions and reports them as an error of the file; it never prevents them (`open(2)`,
//! `O_DIRECT`).
//!
//! So they exclude each other, block by block. A change announces its range; from then on no write
//! into its blocks begins, and when those on their way have ended, the change is alone. A change
//! never waits here: the caller decides how long to try again.

use crate::sync::lock;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes of a block of the page cache.
const BLOCK: u64 = 4096;

/// What is on its way to one file.
#[derive(Debug, Default)]
pub(crate) struct Beneath(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Blocks of direct writes on their way; a few dozen at most.
    writing: Vec<Range<u64>>,
    /// Blocks of the change that is announced.
    changing: Option<Range<u64>>,
}

/// The blocks that a range of bytes touches.
fn blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Beneath {
    /// Notes a write that begins, unless a change of its blocks is announced. Returns whether it
    /// may begin.
    pub(crate) fn write_begins(&self, bytes: &Range<u64>) -> bool {
        let (mut state, blocks) = (lock(&self.0), blocks(bytes));
        let free = state.changing.as_ref().is_none_or(|changing| !overlap(changing, &blocks));
        if free {
            state.writing.push(blocks);
        }
        free
    }

    /// Such a write has ended.
    pub(crate) fn write_ends(&self, bytes: &Range<u64>) {
        let (mut state, blocks) = (lock(&self.0), blocks(bytes));
        let at = state.writing.iter().position(|write| *write == blocks);
        state.writing.swap_remove(at.expect("only a write that has begun ends"));
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
        !state.writing.iter().any(|write| changing.is_some_and(|blocks| overlap(blocks, write)))
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

    #[test]
    fn writes_and_changes_of_one_block_exclude_each_other() {
        let beneath = Beneath::default();
        assert!(beneath.write_begins(&(0..1024)) && beneath.write_begins(&(8192..9000)));
        let change = beneath.change(&(3000..3001)).unwrap();
        assert!(!change.is_alone(), "of the same block");
        assert!(!beneath.write_begins(&(4000..5000)), "no more of them begin");
        assert!(beneath.write_begins(&(4096..8192)), "others do");
        assert!(beneath.change(&(1 << 20..u64::MAX)).is_none(), "one change at a time");
        beneath.write_ends(&(0..1024));
        assert!(change.is_alone());
        drop(change);
        let change = beneath.change(&(9000..u64::MAX)).unwrap();
        assert!(!change.is_alone());
        beneath.write_ends(&(8192..9000));
        assert!(change.is_alone());
        beneath.write_ends(&(4096..8192));
    }
}
