//! The descriptors of a file, and the lock on it.
//!
//! A file is reached through up to four descriptors: past the page cache and through it, for reading and, from the first open for writing on, for
//! writing too. What reads use never changes, so a miss looks nothing up.
//!
//! **The lock** is `flock(2)` on the whole file: shared while the pager only reads it, exclusive from the first open for writing on. It is advice:
//! it keeps other pagers away that ask for it too, and nobody else. Two of them with the same file would each write pages that the other
//! has in memory in another version. A file system without locks is used without.
//!
//! The kernel ends what a killed process had in flight after the process is gone. A late write must not meet whoever is started in its place. So
//! the lock is on the descriptor that pages are written through: a request keeps its descriptor open, and an open descriptor keeps its
//! lock, until the last write has ended. And a lock that is held is asked for again for a moment: its owner may be dead.

use crate::config::IoMode;
use crate::error::OpenError;
use crate::io::Backend;
use lowtide_sys::file::{self, DirectAlign, FileKind, OpenMode};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long a lock that somebody holds is asked for.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// Time between two times.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// What makes two opens the same file, whatever its names are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileKey {
    /// The device whose contents the file is: its own, for a block device, else that of its file system.
    pub(crate) device: u64,
    /// `None` for the device itself.
    inode: Option<u64>,
}

/// The descriptors of one open of a file.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// Past the page cache, where that is possible.
    direct: Option<File>,
    /// Through the page cache: for ranges that direct I/O cannot address, and where it is refused.
    buffered: File,
    kind: FileKind,
    key: FileKey,
    writes: bool,
    /// The file was not there before.
    pub(crate) created: bool,
    why: String,
}

impl Descriptors {
    /// Opens what the arguments allow. With `create` a file that is not there is made.
    pub(crate) fn open(
        path: &Path,
        write: bool,
        create: bool,
        mode: IoMode,
        page_bytes: usize,
    ) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let access = if write { OpenMode::READ_WRITE } else { OpenMode::READ };
        let open = |access| {
            file::open(path, access).map_err(|e| match e {
                file::OpenError::Io { source, .. } => source,
                other => other.into(),
            })
        };
        let (buffered, created) = match open(access) {
            Err(e) if create && e.kind() == io::ErrorKind::NotFound => (open(access.create()), true),
            opened => (opened, false),
        };
        let buffered = buffered.map_err(io)?;
        let kind = file::kind(&buffered).map_err(io)?;
        if !matches!(kind, FileKind::Regular | FileKind::Block) {
            let kind =
                if kind == FileKind::Directory { "directory" } else { "pipe, socket or character device" };
            return Err(OpenError::Kind { path: path.to_owned(), kind: kind.to_owned() });
        }
        let (direct, why) = match mode {
            IoMode::Buffered => (None, "buffered as asked for".to_owned()),
            IoMode::Auto | IoMode::Direct => match open_direct(path, &buffered, access, page_bytes) {
                Ok((file, align)) => {
                    let why = format!("direct, aligned to {} bytes", align.offset);
                    (Some(file), why)
                }
                Err(why) if mode == IoMode::Direct => {
                    return Err(OpenError::NoDirectIo { path: path.to_owned(), page_bytes, why });
                }
                Err(why) => (None, format!("buffered, because {why}")),
            },
        };
        let facts = buffered.metadata().map_err(io)?;
        let key = if facts.file_type().is_block_device() {
            FileKey { device: facts.rdev(), inode: None }
        } else {
            FileKey { device: facts.dev(), inode: Some(facts.ino()) }
        };
        Ok(Self { direct, buffered, kind, key, writes: write, created, why })
    }

    pub(crate) const fn key(&self) -> FileKey {
        self.key
    }

    /// The descriptor for transfers of whole pages.
    fn pages(&self) -> &File {
        self.direct.as_ref().unwrap_or(&self.buffered)
    }

    fn page_fd(&self) -> RawFd {
        self.pages().as_raw_fd()
    }
}

fn open_direct(
    path: &Path,
    buffered: &File,
    access: OpenMode,
    page_bytes: usize,
) -> Result<(File, DirectAlign), String> {
    let align = match file::direct_alignment(buffered) {
        Ok(Some(align)) => align,
        Ok(None) => return Err("the file system offers no direct I/O".to_owned()),
        Err(e) => return Err(format!("its alignment cannot be learned: {e}")),
    };
    if !page_bytes.is_multiple_of(align.offset) || !page_bytes.is_multiple_of(align.memory) {
        return Err(format!("the device's logical block has {} bytes", align.offset.max(align.memory)));
    }
    file::open(path, access.direct()).map(|f| (f, align)).map_err(|e| e.to_string())
}

/// What is held of a file's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Nothing,
    Shared,
    Exclusive,
}

/// All descriptors of a file that is open in a pager.
#[derive(Debug)]
pub(crate) struct Backing {
    path: Arc<PathBuf>,
    /// What reads go through.
    first: Descriptors,
    /// What writes go through, where `first` cannot write.
    later: OnceLock<Descriptors>,
    held: Mutex<Held>,
}

impl Backing {
    pub(crate) fn new(path: &Path, first: Descriptors) -> Self {
        let path = Arc::new(path.to_owned());
        Self { path, first, later: OnceLock::new(), held: Mutex::new(Held::Nothing) }
    }

    pub(crate) const fn path(&self) -> &Arc<PathBuf> {
        &self.path
    }

    pub(crate) const fn key(&self) -> FileKey {
        self.first.key
    }

    /// Whether the file may be written to: whether somebody opened it so.
    pub(crate) fn is_writable(&self) -> bool {
        self.first.writes || self.later.get().is_some()
    }

    /// Lets the file be written from now on, if it could not be.
    pub(crate) fn make_writable(&self, descriptors: Descriptors) {
        if !self.is_writable() {
            // One that came first is as good.
            drop(self.later.set(descriptors));
        }
    }

    fn writer(&self) -> &Descriptors {
        self.later.get().unwrap_or(&self.first)
    }

    /// The descriptor for reading whole pages.
    pub(crate) fn read_fd(&self) -> RawFd {
        self.first.page_fd()
    }

    /// The descriptor for writing whole pages. Of a file that is not open for writing it is one that refuses.
    pub(crate) fn write_fd(&self) -> RawFd {
        self.writer().page_fd()
    }

    /// The descriptor that goes through the page cache, for writing if the file may be written. Making it durable makes the whole file durable.
    pub(crate) fn buffered(&self) -> &File {
        &self.writer().buffered
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.first.direct.is_some()
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.first.kind == FileKind::Regular
    }

    /// Size of the file now.
    pub(crate) fn size(&self) -> io::Result<u64> {
        file::size(&self.first.buffered)
    }

    /// Makes the file so long.
    pub(crate) fn set_len(&self, backend: &Backend, len: u64) -> io::Result<()> {
        backend.extend(&self.path, self.buffered(), len)
    }

    /// One line for people: how the file is read.
    pub(crate) fn why(&self) -> &str {
        &self.first.why
    }

    /// Takes the lock for reading, unless one is held. Calls must not overlap.
    ///
    /// # Errors
    /// [`OpenError::Locked`] when somebody writes the file.
    pub(crate) fn lock_shared(&self) -> Result<(), OpenError> {
        let mut held = crate::sync::lock(&self.held);
        if *held == Held::Nothing && self.try_lock(self.first.pages(), false)? {
            *held = Held::Shared;
        }
        Ok(())
    }

    /// Takes the lock for writing, unless it is held; with descriptors that can write and that are about to become this file's, on those. Calls
    /// must not overlap.
    ///
    /// # Errors
    /// [`OpenError::Locked`] when somebody else uses the file. A lock for reading is kept then.
    pub(crate) fn lock_exclusive(&self, new: Option<&Descriptors>) -> Result<(), OpenError> {
        let mut held = crate::sync::lock(&self.held);
        if *held == Held::Exclusive {
            return Ok(());
        }
        // A lock belongs to the descriptors of one open; that of another would stand in the way.
        let change = std::mem::replace(&mut *held, Held::Nothing) == Held::Shared;
        if change {
            let _ = flock(self.first.pages(), FlockOperation::Unlock);
        }
        let on = if self.is_writable() { self.writer() } else { new.unwrap_or(&self.first) };
        match self.try_lock(on.pages(), true) {
            Ok(taken) => {
                if taken {
                    *held = Held::Exclusive;
                }
                Ok(())
            }
            Err(e) => {
                if change && self.try_lock(self.first.pages(), false).is_ok_and(|taken| taken) {
                    *held = Held::Shared;
                }
                Err(e)
            }
        }
    }

    /// Asks for the lock, for up to [`LOCK_PATIENCE`]; false where there are no locks.
    fn try_lock(&self, file: &File, exclusive: bool) -> Result<bool, OpenError> {
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        let deadline = Instant::now() + LOCK_PATIENCE;
        let mut locked = flock(file, operation);
        while locked == Err(Errno::WOULDBLOCK) && Instant::now() < deadline {
            std::thread::sleep(LOCK_PAUSE);
            locked = flock(file, operation);
        }
        match locked {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Err(OpenError::Locked { path: self.path.to_path_buf() }),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the file cannot be locked: nothing keeps other pagers away");
                Ok(false)
            }
        }
    }

    /// Gives the lock back: whoever opens the file next has descriptors of his own.
    pub(crate) fn unlock(&self) {
        let mut held = crate::sync::lock(&self.held);
        let file = match std::mem::replace(&mut *held, Held::Nothing) {
            Held::Nothing => return,
            Held::Shared => self.first.pages(),
            Held::Exclusive => self.writer().pages(),
        };
        let _ = flock(file, FlockOperation::Unlock);
    }
}
