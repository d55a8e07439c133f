//! Adding files to a machine, and opening them (`files.rs`).

use super::errors::WriteErrors;
use super::files::{File, FileId, Open, OpenId};
use super::readahead::{MissRule, Readahead};
use super::world::World;
use crate::pool::Pool;
use lowtide_core::{LruType, MemcgId, SpaceId};
use std::collections::{BTreeMap, BTreeSet};

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
