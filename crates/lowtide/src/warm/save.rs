//! Which pages are in memory, for the next start.

use super::error::WarmError;
use super::list::{self, FileList, Version, Writer};
use crate::pool::Pool;
use crate::space::Space;
use lowtide_pin::translation::State as EntryState;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Tables of translations that are looked at with the lock taken once: some microseconds.
const TABLES: usize = 8;

impl Version {
    pub(super) fn of(file: &Metadata) -> Self {
        let seconds = (file.mtime() as u64).wrapping_mul(1_000_000_000);
        Self { len: file.len(), changed: seconds.wrapping_add(file.mtime_nsec() as u64) }
    }

    pub(super) fn of_space(space: &Space) -> Option<Self> {
        space.backing.with_reader(|file| file.metadata()).ok().map(|file| Self::of(&file))
    }
}

/// Saves what is in memory of all files, and what is known of those that are not open.
pub(super) fn save(pool: &Pool, path: &Path) -> Result<(), WarmError> {
    let spaces: Vec<_> = pool.lock().spaces.iter().flatten().cloned().collect();
    let open: Vec<_> = spaces.iter().filter_map(|space| list_of(pool, space)).collect();
    let mut lists = {
        let known = lowtide_pin::sync::lock(&pool.warm.known);
        let mut lists = known.lists.clone();
        let read = known.read.iter().map(|(key, list)| (*key, Arc::clone(list)));
        lists.extend(read.chain(open));
        lists.extend(known.reading.iter().map(|(key, list)| (*key, Arc::clone(list))));
        lists
    };
    // Of files that were removed or changed nothing would be read.
    lists.retain(|&(device, inode), list| {
        let is = |file: Metadata| (file.dev(), file.ino()) == (device, inode);
        let now = || std::fs::metadata(&list.path).ok();
        !list.is_empty() && now().is_some_and(|file| Version::of(&file) == list.version && is(file))
    });
    list::write(path, &lists, pool.page_bytes() as u64)
}

/// A file is about to leave memory. While it is read for a warm start, its list says more.
pub(crate) fn note_closing(pool: &Pool, space: &Arc<Space>) {
    let known = || lowtide_pin::sync::lock(&pool.warm.known);
    let key = space.backing.key().of_file().filter(|_| pool.warm.path.is_some());
    // Seen before the pages are: what is read after this is all there.
    let is_read = |key: &_| !known().reading.contains_key(key);
    if key.as_ref().is_some_and(is_read)
        && let Some((key, list)) = list_of(pool, space)
    {
        let mut known = known();
        // Another thread that closes it was first, if it is closed now.
        if !space.is_closed() {
            known.read.remove(&key);
            known.lists.insert(key, list);
        }
    }
}

/// The pages of a file that are in memory, and were used.
fn list_of(pool: &Pool, space: &Arc<Space>) -> Option<((u64, u64), Arc<FileList>)> {
    let key = space.backing.key().of_file().filter(|_| space.anon.is_none())?;
    let version = Version::of_space(space)?;
    let mut writers = <[Writer; 2]>::default();
    let tables: Vec<_> = space.table.used().collect();
    for tables in tables.chunks(TABLES) {
        let state = pool.lock();
        for page in tables.iter().cloned().flatten() {
            let EntryState::Resident { frame, .. } = space.table.entry(page).load() else {
                continue;
            };
            if !pool.unused.is_set(frame) {
                let is_active = state.engine.is_active(state.folio_of(space, page, frame));
                writers[usize::from(!is_active)].push(page);
            }
        }
    }
    let path = space.path_ref().to_path_buf();
    Some((key, Arc::new(FileList { path, version, pages: writers.map(Writer::finish) })))
}
