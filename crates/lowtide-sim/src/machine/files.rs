//! Files: where they are on the device, which of their pages are dirty, and their open
//! descriptions.

use super::errors::{ErrorCursor, WriteErrors};
use super::readahead::{MissRule, Readahead};
use super::sched::TaskId;
use super::world::World;
use crate::memory::ObjectId;
use crate::pool::Pool;
use lowtide_core::{LruType, MemcgId, SpaceId};
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
    blocks: Option<BTreeSet<u64>>,
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
    read_errors: BTreeMap<u64, u64>,
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

/// Bytes between two files on the device: no file of a workload is larger.
const FILE_DISTANCE: u64 = 1 << 44;

impl World {
    /// Adds a file of `pages` pages without an owner.
    pub fn add_file(&mut self, pages: u64) -> FileId {
        self.add_file_of(MemcgId::ROOT, pages)
    }

    /// Adds a file of `pages` pages that a group writes: the group is throttled for its dirty
    /// pages.
    pub fn add_file_of(&mut self, owner: MemcgId, pages: u64) -> FileId {
        let Pool { memory, engine, .. } = &mut self.pool;
        let object = memory.add_object(engine, LruType::File, owner);
        engine.set_device_of_space(SpaceId(object.0), self.writeback.device);
        let id = FileId(self.files.len() as u32);
        self.files.push(File {
            object,
            position: u64::from(id.0) * FILE_DISTANCE,
            pages,
            partial: false,
            large: false,
            blocks: None,
            resizing: false,
            resize_waiters: Vec::new(),
            dirty: BTreeSet::new(),
            redirtied: Vec::new(),
            deferred: 0,
            owner,
            dirtied_at: 0,
            queued_at: 0,
            cursor: 0,
            writing: BTreeSet::new(),
            sync_waiters: Vec::new(),
            write_errors: WriteErrors::default(),
            read_failures: 0,
            read_errors: BTreeMap::new(),
        });
        id
    }

    /// Adds a file that `truncate` alone has made: `pages` pages of holes.
    pub fn add_sparse_file(&mut self, pages: u64) -> FileId {
        let id = self.add_file(pages);
        self.file(id).blocks = Some(BTreeSet::new());
        id
    }

    /// The file system keeps a file's pages in large folios where it can, as ext4 and XFS do. The
    /// file is never mapped, nor made shorter.
    pub fn allow_large_folios(&mut self, file: FileId) {
        self.pool.allow_large();
        self.file(file).large = true;
    }

    /// Opens a file.
    pub fn open(&mut self, file: FileId) -> OpenId {
        let id = OpenId(self.opens.len() as u32);
        let errors = self.file(file).write_errors.opened();
        self.opens.push(Open { file, readahead: Readahead::new(self.readahead_pages), errors });
        id
    }

    /// Opens a file again and closes the description that it had: it begins without read-ahead.
    pub fn open_again(&mut self, open: OpenId) -> OpenId {
        let file = self.opens[open.0 as usize].file;
        let errors = self.file(file).write_errors.opened();
        self.opens[open.0 as usize] =
            Open { file, readahead: Readahead::new(self.readahead_pages), errors };
        open
    }

    /// Whether a write of a file has failed since the last call for an open description of it.
    pub fn check_errors(&mut self, open: OpenId) -> bool {
        let open = &mut self.opens[open.0 as usize];
        self.files[open.file.0 as usize].write_errors.check(&mut open.errors)
    }

    /// Sets random access for an open description: only the requested pages are read.
    pub fn advise_random(&mut self, open: OpenId) {
        self.opens[open.0 as usize].readahead = Readahead::new(0);
    }

    /// Misses of its mappings are counted as they were before Linux 7.
    pub fn count_misses_as_before_7(&mut self, open: OpenId) {
        self.opens[open.0 as usize].readahead.set_rule(MissRule::MappedPages);
    }

    pub fn file(&mut self, id: FileId) -> &mut File {
        &mut self.files[id.0 as usize]
    }
}
