//! Another length for a map.
//!
//! A mapping of the kernel can grow in place if the addresses behind it are free, and else move. It
//! is not watched while that happens: entries of page tables are not looked at in addresses that
//! may belong to another mapping by then. A mirror has the length that it was made with, but for
//! memory without a file (`heap.rs`).

use super::area::{Area, Memory};
use super::error::MapError;
use super::mode::MapMode;
use std::sync::Arc;

/// How a map may change its length. Mirrors `RemapOptions` of the crate `memmap2`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemapOptions {
    may_move: bool,
}

impl RemapOptions {
    /// The map stays where it is, or keeps its length.
    #[must_use]
    pub const fn new() -> Self {
        Self { may_move: false }
    }

    /// Whether the map may move to other addresses.
    #[must_use]
    pub const fn may_move(mut self, may_move: bool) -> Self {
        self.may_move = may_move;
        self
    }
}

impl Area {
    /// See [`Map::remap`](super::Map::remap).
    pub(super) fn remap(&mut self, len: usize, how: RemapOptions) -> Result<(), MapError> {
        let pool = &self.pager.inner.pool;
        let offset = self.options.offset;
        let range = |why| MapError::Range { offset, len: len as u64, why };
        let shift = pool.page_shift;
        let first = offset >> shift << shift;
        let before = (offset - first) as usize;
        let bytes = before
            .checked_add(len)
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(|| range("no address space is as large"))?;
        if len == 0 {
            return Err(range("a map that has bytes keeps some: drop it"));
        }
        if self.is_heap() {
            return self.resize_heap(len);
        }
        let (window, adopted, stores) = match &mut self.memory {
            Memory::PageCache { window, adopted, stores, .. } => (window, adopted, *stores),
            Memory::Nothing => {
                return Err(range("a map without bytes is of no file: map it again"));
            }
            Memory::Mirror { .. } => {
                let why = "a mirror keeps its length: map the file again, or use `pagecache`";
                return Err(MapError::Mode { mode: MapMode::Userfault, why: why.to_owned() });
            }
        };
        let file = Arc::clone(adopted.file());
        adopted.retire();
        let resized = window.resize(bytes, how.may_move);
        let addresses = window.addresses();
        let again = self.options.clone().offset(first);
        let taken = again.take_over(&self.pager, &file, addresses.clone(), stores);
        if resized.is_ok() {
            self.len = len;
            self.options.len = Some(len);
            self.place(addresses.start + before);
        }
        let Memory::PageCache { adopted, .. } = &mut self.memory else { unreachable!() };
        // Without being watched it is memory without a budget, and the error says so.
        *adopted = taken?;
        resized.map_err(MapError::kernel("mremap(2)"))
    }
}
