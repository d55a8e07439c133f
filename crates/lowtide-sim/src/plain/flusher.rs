//! Dirty pages of the plain machine. A write ends when it begins, so a page that is flushed is
//! clean at once.
//!
//! ```text
//!   dirty pages, as last published
//!     up to 15 % of the budget   the writer goes on, and no one writes
//!     more                       the flusher writes all that becomes dirty
//!     more than 20 %             the writer sleeps, too, until figures are published again
//! ```
//!
//! A group's limits go by published figures with every kind of list, and a writer looks at the
//! background limit of its group only above the middle of both limits
//! (`docs/kernel/fault-and-writeback.md` B3, B5). So dirty pages pile up between two publications,
//! and reclaim meets them.

use super::{Plain, owner_of};
use crate::memory::ObjectId;
use lowtide_core::Task;
use lowtide_workload::SpaceId;

/// The part of the budget that may be dirty, as a divisor (the kernel's ratio of 20 %).
const LIMIT: u64 = 5;

/// What is dirty, in the order in which it became so.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    dirty: Vec<(ObjectId, u64)>,
    /// Dirty pages as of the last publication.
    pub(super) published: u64,
}

impl Plain {
    pub(super) fn set_dirty(&mut self, object: ObjectId, page: u64) {
        let frame = self.pool.frame(object, page).expect("a page that is dirtied is resident");
        if !self.pool.engine.set_dirty(frame) {
            return;
        }
        self.flusher.dirty.push((object, page));
        let (seen, limit) = (self.flusher.published, self.config.pages / LIMIT);
        // The middle between the limit and the one in the background, which is half of it.
        if seen > limit - limit / 4 {
            self.flush();
        }
        if seen > limit {
            self.publish();
        }
    }

    /// Writes everything that is dirty.
    pub(super) fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.flusher.dirty);
        for (object, page) in dirty.drain(..) {
            self.sync(object, page);
        }
        self.flusher.dirty = dirty;
    }

    /// Writes a page of a file if it is dirty. A heap has nowhere to be written to but swap, and no
    /// other caller requests that.
    pub(super) fn sync(&mut self, object: ObjectId, page: u64) {
        if self.pool.is_anon(object) {
            return;
        }
        if let Some(frame) = self.pool.start_writeback(object, page) {
            self.counts.writes += 1;
            self.pool.engine.end_writeback(frame, true, Task::DESCRIPTOR);
        }
    }

    /// Gives a page up, waiting for a write to swap. Returns whether it was resident.
    pub(super) fn free(&mut self, space: SpaceId, object: ObjectId, page: u64) -> bool {
        self.spaces[space.0 as usize].last_read = super::NO_PAGE;
        let found = self.pool.frame(object, page);
        found.into_iter().for_each(|frame| self.wait_for_write(frame));
        if let Some(zcache) = &mut self.zcache {
            zcache.forget(&mut self.pool.engine, owner_of(object, page));
        }
        let gone = self.pool.discard(object, page);
        debug_assert!(gone, "between accesses nothing is being written or isolated");
        found.is_some()
    }
}
