//! The descriptors of a file, and the lock on it.
//!
//! A file is reached through up to four descriptors: past the page cache and through it, for
//! reading and, from the first open for writing on, for writing too. The descriptors for reads
//! never change, so a miss looks nothing up.
//!
//! **The lock** is `flock(2)` on the whole file: shared while the pager only reads it, exclusive
//! from the first open for writing on. It is advisory: it keeps only pagers away that take it too.
//! Two of them with the same file would each write pages that the other has in memory in another
//! version. A file system without locks is used without.
//!
//! The kernel ends what a killed process had in flight after the process is gone. A late write must
//! not meet the process that is started in its place. So the lock is on the descriptor that pages
//! are written through: a request keeps its descriptor open, and an open descriptor keeps its lock,
//! until the last write has ended. And if the lock is held, the open tries again for a moment: the
//! owner may be dead.

use crate::config::IoMode;
use crate::error::OpenError;
use lowtide_io::Backend;
use lowtide_sys::file::{self, DirectAlign, FileKind, OpenMode};
use lowtide_sys::let_go::let_go;
use lowtide_sys::room::Own;
use lowtide_sys::tell;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// Attempts to open a file twice, where there is no `/proc` and other files take its name all the
/// time.
const ATTEMPTS: u32 = 64;

/// The identity of a file, whatever its names are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileKey {
    /// The device whose content the file is: its own, for a block device, otherwise that of its
    /// file system.
    pub(crate) device: u64,
    /// `None` for the device itself.
    inode: Option<u64>,
}

/// Whether an open makes the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Create {
    No,
    IfAbsent,
    New,
}

/// The kind of descriptors that an open wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) write: bool,
    pub(crate) create: Create,
    pub(crate) mode: IoMode,
    pub(crate) page_bytes: usize,
}

impl Wanted {
    const fn access(&self) -> OpenMode {
        if self.write { OpenMode::READ_WRITE } else { OpenMode::READ }
    }
}

/// A file's size, and its times of change.
type Stamp = [i64; 5];

/// The descriptors of one open of a file.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// Past the page cache, where that is possible.
    direct: Option<File>,
    /// Through the page cache: for ranges that direct I/O cannot address, and where it is refused.
    /// There until the drop.
    buffered: Option<File>,
    kind: FileKind,
    key: FileKey,
    writes: bool,
    is_direct: bool,
    /// The file was not there before.
    pub(crate) created: Option<NewName>,
    why: String,
}

/// The name of a file that was made: durable when its directory is.
#[derive(Debug)]
pub(crate) struct NewName {
    /// The directory, as it was found when the file was made: its own name may change, and so may
    /// the process's working directory. `None` if it may not be read.
    directory: Option<Own<File>>,
}

impl NewName {
    fn of(path: &Path) -> Self {
        let parent =
            path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = (OFlags::DIRECTORY | OFlags::NOCTTY).bits().cast_signed();
        Self {
            directory: std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open(parent)
                .ok()
                .map(Own::of_this_side),
        }
    }

    /// Makes the name durable: by way of the directory, or, where that cannot be synced, of the
    /// whole file system, which costs more.
    fn sync(&self, file: &File) -> io::Result<()> {
        match &self.directory {
            Some(directory) if directory.with(File::sync_all).is_ok() => Ok(()),
            _ => Ok(rustix::fs::syncfs(file)?),
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // No lock of the program's on the file goes with them.
        [self.direct.take(), self.buffered.take()].into_iter().flatten().for_each(let_go);
    }
}

impl Descriptors {
    /// Opens a path.
    pub(crate) fn open(path: &Path, wanted: &Wanted) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let access = wanted.access();
        let open = |access| file::open(path, access).map_err(|e| io(os_error(e)));
        for _ in 0..ATTEMPTS {
            let (buffered, created) = match wanted.create {
                Create::New => (open(access.create_new())?, true),
                _ => match open(access) {
                    Err(OpenError::Io { source, .. })
                        if wanted.create == Create::IfAbsent
                            && source.kind() == io::ErrorKind::NotFound =>
                    {
                        match open(access.create_new()) {
                            // Another process was faster.
                            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                            opened => (opened?, true),
                        }
                    }
                    opened => (opened?, false),
                },
            };
            let created = created.then(|| NewName::of(path));
            if let Some(descriptors) = Self::complete(path, buffered, created, wanted)? {
                return Ok(descriptors);
            }
        }
        Err(io(io::Error::from_raw_os_error(libc::ESTALE)))
    }

    /// Opens the file of a descriptor.
    pub(crate) fn of_file(path: &Path, given: OwnedFd, wanted: &Wanted) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let buffered = match file::reopen(&given, wanted.access()) {
            Ok(file) => {
                let_go(given);
                file
            }
            // Use it as it is, if it will do.
            Err(refused) => {
                let flags = rustix::fs::fcntl_getfl(&given).map_err(|e| io(e.into()))?;
                let mode = flags & OFlags::RWMODE;
                let reads = mode == OFlags::RDWR || (mode == OFlags::RDONLY && !wanted.write);
                if !reads || flags.intersects(OFlags::APPEND | OFlags::DIRECT | OFlags::PATH) {
                    let_go(given);
                    return Err(io(os_error(refused)));
                }
                File::from(given)
            }
        };
        let complete = Self::complete(path, buffered, None, wanted)?;
        complete.ok_or_else(|| io(io::Error::from_raw_os_error(libc::ESTALE)))
    }

    /// Opens the second descriptor. `None` if it cannot be of the same file as the first.
    fn complete(
        path: &Path,
        buffered: File,
        created: Option<NewName>,
        wanted: &Wanted,
    ) -> Result<Option<Self>, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let kind = file::kind(&buffered).map_err(io)?;
        if !matches!(kind, FileKind::Regular | FileKind::Block) {
            let kind = if kind == FileKind::Directory {
                "directory"
            } else {
                "pipe, socket or character device"
            };
            return Err(OpenError::Kind { path: path.to_owned(), kind: kind.to_owned() });
        }
        let key = FileKey::of(&buffered).map_err(io)?;
        let page_bytes = wanted.page_bytes;
        let (direct, why) = match wanted.mode {
            IoMode::Buffered => (None, "buffered as requested".to_owned()),
            IoMode::Auto | IoMode::Direct => {
                match open_direct(path, &buffered, wanted.access(), page_bytes) {
                    Ok((file, _)) if !FileKey::of(&file).is_ok_and(|other| other == key) => {
                        return Ok(None);
                    }
                    Ok((file, align)) => {
                        (Some(file), format!("direct, aligned to {} bytes", align.offset))
                    }
                    Err(NoDirect::Shortage(source)) if wanted.mode == IoMode::Direct => {
                        return Err(io(source));
                    }
                    Err(NoDirect::Refused(why)) if wanted.mode == IoMode::Direct => {
                        return Err(OpenError::NoDirectIo {
                            path: path.to_owned(),
                            page_bytes,
                            why,
                        });
                    }
                    Err(NoDirect::Refused(why)) => (None, format!("buffered, because {why}")),
                    Err(NoDirect::Shortage(why)) => (None, format!("buffered, because {why}")),
                }
            }
        };
        let (writes, is_direct) = (wanted.write, direct.is_some());
        Ok(Some(Self {
            direct,
            buffered: Some(buffered),
            kind,
            key,
            writes,
            is_direct,
            created,
            why,
        }))
    }

    /// The same with one descriptor: for whole pages.
    pub(crate) fn for_reads(mut self) -> Self {
        self.buffered = self.direct.take().or_else(|| self.buffered.take());
        self
    }

    /// Tries once to take the lock.
    pub(crate) fn try_lock(&self, path: &Path, exclusive: bool) -> Held {
        let (operation, held) = if exclusive {
            (FlockOperation::NonBlockingLockExclusive, Held::Exclusive)
        } else {
            (FlockOperation::NonBlockingLockShared, Held::Shared)
        };
        match flock(self.pages(), operation) {
            Ok(()) => held,
            Err(Errno::WOULDBLOCK) => Held::Elsewhere,
            Err(error) => {
                tell!(warn, path = %path.display(), %error, "the file cannot be locked: \
                    nothing keeps other pagers away");
                Held::Nothing
            }
        }
    }

    /// Shows whether others have changed the file: its size, and when it changed.
    fn stamp(&self) -> Option<Stamp> {
        let facts = self.buffered().metadata().ok()?;
        let size = facts.size().cast_signed();
        Some([size, facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec()])
    }

    pub(crate) fn key(&self) -> FileKey {
        self.key
    }

    fn buffered(&self) -> &File {
        self.buffered.as_ref().expect("it is there until the drop")
    }

    /// The descriptor for transfers of whole pages.
    fn pages(&self) -> &File {
        self.direct.as_ref().unwrap_or_else(|| self.buffered())
    }

    fn page_fd(&self) -> RawFd {
        self.pages().as_raw_fd()
    }
}

impl FileKey {
    /// Device and inode; `None` for a device itself.
    pub(crate) fn of_file(self) -> Option<(u64, u64)> {
        Some((self.device, self.inode?))
    }

    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        let facts = rustix::fs::fstat(file)?;
        let kind = rustix::fs::FileType::from_raw_mode(facts.st_mode);
        Ok(if kind == rustix::fs::FileType::BlockDevice {
            FileKey { device: facts.st_rdev, inode: None }
        } else {
            FileKey { device: facts.st_dev, inode: Some(facts.st_ino) }
        })
    }

    /// A number of it that is the same in all processes, and not 0. Those of two files may be the
    /// same, but hardly are.
    pub(crate) fn number(self) -> u64 {
        let inode = self.inode.unwrap_or(u64::MAX).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (self.device.rotate_left(40) ^ inode) | 1
    }
}

fn os_error(error: file::OpenError) -> io::Error {
    match error {
        file::OpenError::Io { source, .. } => source,
        other => other.into(),
    }
}

/// Why there is no descriptor past the page cache.
enum NoDirect {
    /// The file or the device takes no such I/O.
    Refused(String),
    /// There is no descriptor, or no memory, for one now.
    Shortage(io::Error),
}

/// Opens the file past the page cache: the same one, even if its name is another file's by now;
/// without `/proc`, the one that has its name.
fn open_direct(
    path: &Path,
    buffered: &File,
    access: OpenMode,
    page_bytes: usize,
) -> Result<(File, DirectAlign), NoDirect> {
    let refused = |why| Err(NoDirect::Refused(why));
    let align = match file::direct_alignment(buffered) {
        Ok(Some(align)) => align,
        Ok(None) => return refused("the file system offers no direct I/O".to_owned()),
        Err(e) => return refused(format!("its alignment cannot be learned: {e}")),
    };
    if !page_bytes.is_multiple_of(align.offset) || !page_bytes.is_multiple_of(align.memory) {
        return refused(format!(
            "the device's logical block has {} bytes",
            align.offset.max(align.memory)
        ));
    }
    let reopened = match file::reopen(buffered, access.direct()) {
        Err(file::OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            file::open(path, access.direct())
        }
        reopened => reopened,
    };
    reopened.map(|f| (f, align)).map_err(|error| match error {
        file::OpenError::Io { source, .. }
            if matches!(
                source.raw_os_error(),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
            ) =>
        {
            NoDirect::Shortage(source)
        }
        // By the reason alone: the path of the second open is of no use to a caller.
        file::OpenError::Io { source, .. } => NoDirect::Refused(source.to_string()),
        _ => NoDirect::Refused("the file system refuses direct I/O".to_owned()),
    })
}

/// The state of a file's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Nothing: the lock is not wanted, or the file system has none.
    Nothing,
    Shared,
    Exclusive,
    /// Nothing, because another pager or process has it.
    Elsewhere,
}

/// No descriptor: a request with it fails.
const NONE: RawFd = -1;

/// All descriptors of a file that is open in a pager.
#[derive(Debug)]
pub(crate) struct Backing {
    path: Arc<PathBuf>,
    key: FileKey,
    /// The descriptors for reads; an anonymous region has none.
    first: Option<Own<Descriptors>>,
    /// The descriptors for writes, where `first` cannot write.
    later: OnceLock<Own<Descriptors>>,
    held: Mutex<Held>,
    /// Size and times of the file when it was opened first.
    stamp: Option<Stamp>,
}

impl Backing {
    /// A file, whose lock is held on these descriptors as `held` says.
    pub(crate) fn new(path: &Path, first: Descriptors, held: Held) -> Self {
        let (path, stamp, key) = (Arc::new(path.to_owned()), first.stamp(), first.key);
        let (later, held, first) =
            (OnceLock::new(), Mutex::new(held), Some(Own::of_this_side(first)));
        Self { path, key, first, later, held, stamp }
    }

    /// A file behind pointers: what reads it is in the room, what writes it, if anything does, and
    /// its lock, in the program's table.
    pub(crate) fn in_room(
        path: &Path,
        reads: Own<Descriptors>,
        writes: Option<Descriptors>,
        held: Held,
    ) -> Self {
        let (path, key) = (Arc::new(path.to_owned()), reads.fact(Descriptors::key));
        let later = writes.map(Own::of_this_side).map_or_else(OnceLock::new, OnceLock::from);
        let (first, held) = (Some(reads), Mutex::new(held));
        Self { path, key, first, later, held, stamp: None }
    }

    /// What a region of anonymous pages has instead: a name, and a number that no other has.
    pub(crate) fn anonymous(name: &Path, number: u32) -> Self {
        let key = FileKey { device: u64::MAX, inode: Some(number.into()) };
        let (path, later, held) =
            (Arc::new(name.to_owned()), OnceLock::new(), Mutex::new(Held::Nothing));
        Self { path, key, first: None, later, held, stamp: None }
    }

    /// The descriptors for reads.
    ///
    /// # Panics
    /// For an anonymous region.
    fn first(&self) -> &Own<Descriptors> {
        self.first.as_ref().expect("an anonymous region is not read from a file")
    }

    /// The descriptors of a view, which are in the table of the threads that use views.
    ///
    /// # Panics
    /// In a thread with another table.
    fn of_view(&self) -> &Descriptors {
        self.first().here().expect("a view is used where it was opened")
    }

    pub(crate) const fn path(&self) -> &Arc<PathBuf> {
        &self.path
    }

    pub(crate) const fn key(&self) -> FileKey {
        self.key
    }

    /// Whether the file may be written to: whether it was opened so.
    pub(crate) fn is_writable(&self) -> bool {
        self.first.as_ref().is_some_and(|first| first.fact(|own| own.writes))
            || self.later.get().is_some()
    }

    /// Lets the file be written from now on, if it could not be.
    pub(crate) fn make_writable(&self, descriptors: Descriptors) {
        if !self.is_writable() {
            // One that came first is as good.
            drop(self.later.set(Own::of_this_side(descriptors)));
        }
    }

    fn writer(&self) -> &Descriptors {
        self.later.get().and_then(Own::here).unwrap_or_else(|| self.of_view())
    }

    /// The descriptor for reading whole pages.
    pub(crate) fn read_fd(&self) -> RawFd {
        self.first().here().map_or(NONE, Descriptors::page_fd)
    }

    /// The descriptor for writing whole pages; one that refuses if the file is not open for
    /// writing.
    pub(crate) fn write_fd(&self) -> RawFd {
        self.writer().page_fd()
    }

    /// The descriptor that goes through the page cache, for writing if the file may be written.
    /// Making it durable makes the whole file durable.
    pub(crate) fn buffered(&self) -> &File {
        self.writer().buffered()
    }

    /// Uses the descriptor for reads, where it is.
    pub(crate) fn with_reader<R: Send>(
        &self,
        work: impl FnOnce(&File) -> io::Result<R> + Send,
    ) -> io::Result<R> {
        self.first().with(|own| work(own.buffered()))
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.first().fact(|own| own.is_direct)
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.first().fact(|own| own.kind) == FileKind::Regular
    }

    /// Makes a name durable that this pager gave to the file.
    pub(crate) fn sync_name(&self, backend: &Backend, name: &NewName) -> io::Result<()> {
        backend.sync_name(&self.path, || name.sync(self.of_view().buffered()))
    }

    /// Size of the file now.
    pub(crate) fn size(&self) -> io::Result<u64> {
        self.with_reader(|file| file::size(file))
    }

    /// Makes the file `len` bytes long.
    pub(crate) fn set_len(&self, backend: &Backend, len: u64) -> io::Result<()> {
        backend.set_len(&self.path, self.buffered(), len)
    }

    /// Makes a hole in the file.
    pub(crate) fn punch(&self, backend: &Backend, bytes: Range<u64>) -> io::Result<()> {
        backend.punch(&self.path, self.buffered(), bytes)
    }

    /// One line for people: how the file is read.
    pub(crate) fn why(&self) -> &str {
        self.first.as_ref().map_or("anonymous memory", |first| first.fact(|own| own.why.as_str()))
    }

    /// Takes the lock for reading, unless one is held. Returns whether it is held, or the file
    /// system has no locks. If the file has changed since it was opened, while its lock was not
    /// held or was lost to another process, `changed` is called. Calls must not overlap.
    pub(crate) fn try_lock_shared(&self, changed: impl FnOnce()) -> bool {
        let mut held = lowtide_pin::sync::lock(&self.held);
        if matches!(*held, Held::Nothing | Held::Elsewhere) {
            *held = self.of_view().try_lock(&self.path, false);
            if *held != Held::Elsewhere {
                self.notice_others(changed);
            }
        }
        *held != Held::Elsewhere
    }

    /// Calls `changed` if the file is not as it was when it was opened, and was not written here.
    fn notice_others(&self, changed: impl FnOnce()) {
        let as_before = || self.stamp.is_some() && self.of_view().stamp() == self.stamp;
        if !self.is_writable() && !as_before() {
            changed();
        }
    }

    /// Takes the lock for writing, unless it is held; with descriptors that can write and that are
    /// about to become this file's, on those. A lock for reading is given back before, because it
    /// would prevent this one: another process may come first, write, and leave. Then the lock for
    /// reading is lost, too, until a later call gets it. If the file has changed since it was
    /// opened, `changed` is called. Calls must not overlap.
    pub(crate) fn try_lock_exclusive(&self, new: &Descriptors, changed: impl FnOnce()) -> bool {
        let mut held = lowtide_pin::sync::lock(&self.held);
        if *held == Held::Exclusive {
            return true;
        }
        let change = *held == Held::Shared;
        if change {
            let _ = flock(self.of_view().pages(), FlockOperation::Unlock);
        }
        let on = if self.is_writable() { self.writer() } else { new };
        *held = on.try_lock(&self.path, true);
        let taken = *held != Held::Elsewhere;
        if !taken && change {
            *held = self.of_view().try_lock(&self.path, false);
        }
        if taken {
            self.notice_others(changed);
        }
        taken
    }

    /// Gives the lock back: the next open of the file has descriptors of its own.
    pub(crate) fn unlock(&self) {
        let mut held = lowtide_pin::sync::lock(&self.held);
        let file = match std::mem::replace(&mut *held, Held::Nothing) {
            Held::Nothing | Held::Elsewhere => return,
            Held::Shared => self.of_view().pages(),
            Held::Exclusive => self.writer().pages(),
        };
        let _ = flock(file, FlockOperation::Unlock);
    }
}
