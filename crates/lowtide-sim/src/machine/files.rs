//! Files: where they are on the device, which of their pages are dirty, and their open
//! descriptions.

use super::errors::{ErrorCursor, WriteErrors};
use super::readahead::Readahead;
use super::sched::TaskId;
use crate::memory::ObjectId;
use lowtide_core::{MemcgId, SpaceId};
use std::collections::{BTreeMap, BTreeSet};

/// The number of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// The number of an open file description: position and read-ahead state, shared by all that share
/// the description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenId(pub u32);

/// A file.
#[derive(Debug)]
pub struct File {
    pub object: ObjectId,
    /// Its first byte on the device.
    pub position: u64,
    /// Its size in pages, the last of which may be there in part.
    pub pages: u64,
    /// It ends within its last page.
    pub partial: bool,
    /// Read-ahead and writes may bring its pages in as large folios. Only for files that are
    /// neither mapped nor made shorter.
    pub large: bool,
    /// Its pages that have blocks on the device, if it was made by `truncate` alone: all others are
    /// holes, which are read as zeros without the device.
    pub(super) blocks: Option<BTreeSet<u64>>,
    /// Its size is being changed; tasks may wait for the end of that.
    pub resizing: bool,
    pub resize_waiters: Vec<TaskId>,
    /// Dirty pages that are not being written, in file order.
    pub dirty: BTreeSet<u64>,
    /// Pages that became dirty again while they were being written.
    pub redirtied: Vec<u64>,
    /// How often a writer of a page found it being written and dirty again.
    pub deferred: u64,
    /// The group whose writes it has.
    pub owner: MemcgId,
    /// When the first of them became dirty.
    pub dirtied_at: u64,
    /// Since when it waits for its turn of the flusher: since then, or since its last turn.
    pub queued_at: u64,
    /// Where the flusher goes on.
    pub cursor: u64,
    /// Numbers of the writes in flight.
    pub writing: BTreeSet<u64>,
    pub sync_waiters: Vec<TaskId>,
    /// Writes that failed, and flushes that were to make it durable.
    pub write_errors: WriteErrors,
    /// Reads of pages that failed, counted; and for each page the number of the last.
    pub read_failures: u64,
    pub(super) read_errors: BTreeMap<u64, u64>,
}

impl File {
    /// The space of the engine that its pages are in.
    pub const fn space(&self) -> SpaceId {
        SpaceId(self.object.0)
    }

    /// Whether a page has no block on the device.
    pub fn is_hole(&self, page: u64) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| !blocks.contains(&page))
    }

    /// Pages are written: they have blocks from now on.
    pub fn allocate(&mut self, pages: std::ops::Range<u64>) {
        if let Some(blocks) = &mut self.blocks {
            blocks.extend(pages);
        }
    }

    /// The device failed to read a page.
    pub fn read_failed(&mut self, page: u64) {
        self.read_failures += 1;
        self.read_errors.insert(page, self.read_failures);
    }

    /// Whether a read of a page has failed since `failures` were counted: a task that began then
    /// and finds the page absent reports an error; a task that begins later tries again.
    pub fn failed_since(&self, page: u64, failures: u64) -> bool {
        self.read_errors.get(&page).is_some_and(|&last| last > failures)
    }
}

/// An open file description.
#[derive(Debug)]
pub struct Open {
    pub file: FileId,
    pub readahead: Readahead,
    /// The failed writes that it has reported.
    pub errors: ErrorCursor,
}
