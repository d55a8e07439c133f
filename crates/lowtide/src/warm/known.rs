//! What a pager knows of pages that it had, or is about to read.

use super::list::{self, Lists};
use lowtide_sys::tell;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};

/// How far a warm restart has come: [`Pager::warm_stat`](crate::Pager::warm_stat).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmStat {
    /// Pages on the lists of files that were opened so far.
    pub wanted_pages: u64,
    /// Those of them that were read, or there already.
    pub read_pages: u64,
    /// Files whose lists were not read, since they are not what they were.
    pub changed_files: u64,
    /// Whether nothing is left to be read of the files that were opened so far.
    pub is_ready: bool,
    /// Why the start is cold, if a list was there.
    pub error: Option<String>,
}

/// What a pager knows of the pages that it had, or has had.
#[derive(Debug, Default)]
pub(crate) struct Warm {
    /// Where the list is; none is kept without it.
    pub(super) path: Option<PathBuf>,
    /// Who saves it: a child has the pages of its parent in no memory of its own.
    pub(super) process: u32,
    pub(super) known: Mutex<Known>,
    /// There is work, or none is left.
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    /// Of files that are not open.
    pub(super) lists: Lists,
    /// Of files that are being read, or are about to be.
    pub(super) reading: Lists,
    /// Of files that were read, and may be closed in this moment.
    pub(super) read: Lists,
    pub(super) queue: VecDeque<Task>,
    pub(super) closing: bool,
    pub(super) stat: WarmStat,
}

impl Warm {
    /// Reads the list, if one is wanted and there.
    pub(crate) fn begin(path: Option<&Path>, page_bytes: u64) -> Self {
        let mut known = Known::default();
        match path.map_or_else(|| Ok(Lists::new()), |path| list::read(path, page_bytes)) {
            Ok(lists) => known.lists = lists,
            Err(error) => {
                tell!(warn, %error, "a cold start");
                known.stat.error = Some(error.to_string());
            }
        }
        let path = path.map(Path::to_owned);
        let (process, known) = (std::process::id(), Mutex::new(known));
        Self { path, process, known, changed: Condvar::new() }
    }
}

/// A file whose list is to be read.
pub(super) struct Task {
    /// Device and inode.
    pub(super) key: (u64, u64),
    /// Reads it; false if that has ended before the list does, although there was room.
    pub(super) read: Box<dyn FnOnce() -> bool + Send>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.key).finish()
    }
}
