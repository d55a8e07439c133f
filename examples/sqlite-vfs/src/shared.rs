//! What connections of one process share about a database: its lock, and the index of its
//! write-ahead log.
//!
//! **The lock** has five levels. Many connections are *shared*, to read. One of them is *reserved*:
//! it will write, and collects its changes while the others read. It becomes *pending*, which keeps
//! new readers out, and *exclusive* once the last reader has left. A request never waits. SQLite
//! repeats it, as long as `busy_timeout` says.
//!
//! **The index** says where in the log the newest version of each page is. SQLite reads and writes
//! it as plain memory, and guards it with eight small locks. A file that processes map is the usual
//! place. Here it is memory of the process, and begins with zeroes whenever the last connection has
//! left, which makes the next one read the log again. So after a crash nothing of it is stale.

use sqlite_plugin::flags::{LockLevel, ShmLockMode};
use sqlite_plugin::vars::{SQLITE_BUSY, SQLITE_IOERR_LOCK, SQLITE_IOERR_SHMMAP};
use sqlite_plugin::vfs::VfsResult;
use std::collections::HashMap;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{fs, io, os::unix::fs::MetadataExt};

/// Locks of the index.
const INDEX_LOCKS: usize = 8;

/// The device and the inode of a file.
type Identity = (u64, u64);
type Shared = Mutex<State>;

/// The databases that are open. A file has one lock, under any name.
#[derive(Debug, Default)]
pub struct Databases {
    open: Mutex<HashMap<Identity, Weak<Shared>>>,
}

impl Databases {
    /// What the connections of a file share; the file exists.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    pub fn connection(&self, path: &Path) -> io::Result<Connection> {
        let file = fs::metadata(path)?;
        let mut open = lock(&self.open);
        open.retain(|_, state| state.strong_count() > 0);
        let entry = open.entry((file.dev(), file.ino())).or_default();
        let state = entry.upgrade().unwrap_or_default();
        *entry = Arc::downgrade(&state);
        Ok(Connection { state, level: LockLevel::Unlocked, index: Index::default() })
    }
}

/// Of one database. Levels and index locks of single connections are in [`Connection`].
#[derive(Debug, Default)]
struct State {
    /// Connections that are at least shared.
    shared: u32,
    /// The connection above that, of which there is one at most: whether there is one, and whether
    /// it lets new readers in.
    writer: Option<LockLevel>,
    /// Parts of the index; they never move.
    index: Vec<Box<[AtomicU64]>>,
    /// Connections that have a part of it.
    mapped: u32,
    index_shared: [u32; INDEX_LOCKS],
    index_exclusive: [bool; INDEX_LOCKS],
}

/// One connection to a database. Dropping it gives all its locks back.
#[derive(Debug)]
pub struct Connection {
    state: Arc<Shared>,
    level: LockLevel,
    index: Index,
}

/// What a connection has of the index.
#[derive(Debug, Default)]
struct Index {
    is_mapped: bool,
    shared: [bool; INDEX_LOCKS],
    exclusive: [bool; INDEX_LOCKS],
}

impl Connection {
    /// Takes the lock at a level above the present one.
    ///
    /// # Errors
    /// `SQLITE_BUSY`: another connection is in the way. One that asked to be exclusive and cannot
    /// be is pending from then on, so that readers come to an end.
    pub fn lock(&mut self, wanted: LockLevel) -> VfsResult<()> {
        if wanted <= self.level {
            return Ok(());
        }
        let mut state = lock(&self.state);
        if self.level == LockLevel::Unlocked {
            if state.writer.is_some_and(|level| level >= LockLevel::Pending) {
                return Err(SQLITE_BUSY);
            }
            state.shared += 1;
            self.level = LockLevel::Shared;
        }
        if wanted == LockLevel::Shared {
            return Ok(());
        }
        if self.level == LockLevel::Shared && state.writer.is_some() {
            return Err(SQLITE_BUSY);
        }
        let reached = match wanted {
            LockLevel::Exclusive if state.shared > 1 => LockLevel::Pending,
            level => level,
        };
        state.writer = Some(reached);
        self.level = reached;
        if reached == wanted { Ok(()) } else { Err(SQLITE_BUSY) }
    }

    /// Goes down to shared, or gives the lock back.
    pub fn unlock(&mut self, wanted: LockLevel) {
        if wanted >= self.level {
            return;
        }
        let mut state = lock(&self.state);
        if self.level > LockLevel::Shared {
            state.writer = None;
        }
        if wanted == LockLevel::Unlocked {
            state.shared -= 1;
        }
        self.level = wanted;
    }

    /// Whether a connection of the process is going to write.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        lock(&self.state).writer.is_some()
    }

    /// The address of a part of the index, which is valid until [`unmap`](Self::unmap); `None` if
    /// it does not exist and is not to be made.
    ///
    /// # Errors
    /// `SQLITE_IOERR_SHMMAP`: parts of different sizes, which SQLite does not ask for.
    pub fn map(&mut self, part: usize, bytes: usize, make: bool) -> VfsResult<Option<NonNull<u8>>> {
        let mut state = lock(&self.state);
        if !self.index.is_mapped {
            self.index.is_mapped = true;
            state.mapped += 1;
        }
        while make && state.index.len() <= part {
            let words = bytes.div_ceil(size_of::<AtomicU64>());
            state.index.push((0..words).map(|_| AtomicU64::new(0)).collect());
        }
        match state.index.get(part) {
            None => Ok(None),
            Some(words) if size_of_val(&**words) < bytes => Err(SQLITE_IOERR_SHMMAP),
            Some(words) => Ok(NonNull::new(words.as_ptr().cast::<u8>().cast_mut())),
        }
    }

    /// Takes or gives back `count` locks of the index from `first` on: all of them, or none.
    ///
    /// # Errors
    /// `SQLITE_BUSY`: another connection is in the way.
    pub fn lock_index(&mut self, first: u32, count: u32, mode: ShmLockMode) -> VfsResult<()> {
        let slots = first as usize..first.saturating_add(count) as usize;
        if slots.end > INDEX_LOCKS {
            return Err(SQLITE_IOERR_LOCK);
        }
        let (mut state, own) = (lock(&self.state), &mut self.index);
        for slot in slots.clone() {
            let others = state.index_shared[slot] - u32::from(own.shared[slot]);
            let taken = state.index_exclusive[slot] && !own.exclusive[slot];
            let is_free = match mode {
                ShmLockMode::LockShared => !taken,
                ShmLockMode::LockExclusive => !taken && others == 0,
                ShmLockMode::UnlockShared | ShmLockMode::UnlockExclusive => true,
            };
            if !is_free {
                return Err(SQLITE_BUSY);
            }
        }
        for slot in slots {
            let (shared, exclusive) = match mode {
                ShmLockMode::LockShared => (true, own.exclusive[slot]),
                ShmLockMode::UnlockShared => (false, own.exclusive[slot]),
                ShmLockMode::LockExclusive => (own.shared[slot], true),
                ShmLockMode::UnlockExclusive => (own.shared[slot], false),
            };
            state.index_shared[slot] += u32::from(shared);
            state.index_shared[slot] -= u32::from(own.shared[slot]);
            if exclusive != own.exclusive[slot] {
                state.index_exclusive[slot] = exclusive;
            }
            (own.shared[slot], own.exclusive[slot]) = (shared, exclusive);
        }
        Ok(())
    }

    /// Gives the index back. It is gone with the last connection that has it.
    pub fn unmap(&mut self) {
        let all = INDEX_LOCKS as u32;
        for mode in [ShmLockMode::UnlockShared, ShmLockMode::UnlockExclusive] {
            // Giving back never fails.
            let _ = self.lock_index(0, all, mode);
        }
        if std::mem::take(&mut self.index.is_mapped) {
            let mut state = lock(&self.state);
            state.mapped -= 1;
            if state.mapped == 0 {
                state.index.clear();
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.unmap();
        self.unlock(LockLevel::Unlocked);
    }
}

/// A thread that panics leaves nothing half done in what is locked here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockLevel::{Exclusive, Reserved, Shared, Unlocked};
    use ShmLockMode::{LockExclusive, LockShared, UnlockExclusive};

    fn two() -> (Connection, Connection) {
        let (databases, file) = (Databases::default(), tempfile::NamedTempFile::new().unwrap());
        let connect = || databases.connection(file.path()).unwrap();
        (connect(), connect())
    }

    #[test]
    fn a_writer_waits_for_readers_and_keeps_new_ones_out() {
        let (mut one, mut two) = two();
        one.lock(Shared).unwrap();
        two.lock(Shared).unwrap();
        one.lock(Reserved).unwrap();
        assert!(two.is_reserved());
        assert_eq!(two.lock(Reserved), Err(SQLITE_BUSY), "one writes");
        assert_eq!(one.lock(Exclusive), Err(SQLITE_BUSY), "a reader is there");
        two.unlock(Unlocked);
        assert_eq!(two.lock(Shared), Err(SQLITE_BUSY), "no new readers");
        one.lock(Exclusive).unwrap();
        assert_eq!(two.lock(Shared), Err(SQLITE_BUSY));
        one.unlock(Shared);
        two.lock(Shared).unwrap();
        drop(one);
        assert!(!two.is_reserved());
        two.lock(Exclusive).unwrap();
    }

    #[test]
    fn the_index_is_the_same_memory_and_ends_with_the_last_connection() {
        let (mut one, mut two) = two();
        assert_eq!(one.map(0, 32_768, false).unwrap(), None);
        let part = one.map(1, 32_768, true).unwrap();
        assert!(part.is_some());
        assert_eq!(two.map(1, 32_768, false).unwrap(), part);
        one.lock_index(0, 2, LockExclusive).unwrap();
        assert_eq!(two.lock_index(1, 1, LockShared), Err(SQLITE_BUSY));
        assert_eq!(two.lock_index(1, 2, LockExclusive), Err(SQLITE_BUSY), "all or none");
        two.lock_index(2, 1, LockShared).unwrap();
        one.lock_index(0, 2, UnlockExclusive).unwrap();
        two.lock_index(1, 1, LockShared).unwrap();
        assert_eq!(one.lock_index(1, 1, LockExclusive), Err(SQLITE_BUSY));
        drop(two);
        one.lock_index(1, 2, LockExclusive).unwrap();
        one.unmap();
        assert_eq!(one.map(0, 32_768, false).unwrap(), None, "the next begins with none");
    }
}
