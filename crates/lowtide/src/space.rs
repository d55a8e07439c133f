//! One open file and its translations: what all views of it share.

use crate::config::IoMode;
use crate::error::{Error, OpenError};
use crate::io::Backend;
use crate::translation::Table;
use lowtide_core::{FolioId, SpaceId};
use lowtide_sys::file::{self, DirectAlign, FileKind, OpenMode};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Translations that a file may grow to without being opened again: 2^28 pages of address space (1 GiB of entries),
/// which costs nothing until it is used.
const GROWTH_RESERVE_PAGES: u64 = 1 << 28;

/// The descriptors of a file.
#[derive(Debug)]
pub(crate) struct Backing {
    path: Arc<PathBuf>,
    /// Past the page cache, where that is possible.
    direct: Option<File>,
    /// Through the page cache: for ranges that direct I/O cannot address, and where it is refused.
    buffered: File,
    kind: FileKind,
    writable: bool,
    why: String,
}

impl Backing {
    /// Opens the descriptors that `mode` allows.
    pub(crate) fn open(
        path: &Path,
        access: OpenMode,
        mode: IoMode,
        page_bytes: usize,
    ) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let buffered = file::open(path, access).map_err(|e| match e {
            file::OpenError::Io { source, .. } => io(source),
            other => io(other.into()),
        })?;
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
        Ok(Self { path: Arc::new(path.to_owned()), direct, buffered, kind, writable: access.write, why })
    }

    /// The descriptor for a transfer of whole pages.
    pub(crate) fn page_fd(&self) -> RawFd {
        self.direct.as_ref().unwrap_or(&self.buffered).as_raw_fd()
    }

    /// Makes the file so long.
    pub(crate) fn set_len(&self, backend: &Backend, len: u64) -> io::Result<()> {
        backend.extend(&self.path, &self.buffered, len)
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Size of the file now.
    pub(crate) fn size(&self) -> io::Result<u64> {
        file::size(&self.buffered)
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
    let mode = OpenMode { create: false, ..access.direct() };
    file::open(path, mode).map(|f| (f, align)).map_err(|e| e.to_string())
}

/// Write errors of a file, numbered, so that each handle learns of each once (`fault-and-writeback.md` §B11).
#[derive(Debug, Default)]
pub(crate) struct WriteErrors {
    count: AtomicU64,
    last: Mutex<Option<Arc<io::Error>>>,
}

impl WriteErrors {
    pub(crate) fn record(&self, error: io::Error) {
        *crate::sync::lock(&self.last) = Some(Arc::new(error));
        self.count.fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// The last error, if there was one since the cursor stood where it stands; moves the cursor.
    pub(crate) fn check_and_advance(&self, cursor: &AtomicU64) -> Option<Arc<io::Error>> {
        let last = crate::sync::lock(&self.last);
        let now = self.count();
        if cursor.swap(now, Relaxed) == now { None } else { last.clone() }
    }
}

/// One open file under a pager.
pub(crate) struct Space {
    pub(crate) id: SpaceId,
    pub(crate) table: Table,
    pub(crate) backing: Backing,
    /// log2 of base pages in the folios that a miss brings in.
    pub(crate) order: u8,
    page_shift: u32,
    len: AtomicU64,
    pub(crate) errors: WriteErrors,
    /// Page up to which the last partial write-back came.
    pub(crate) written_to: AtomicU64,
    /// Only one thread writes the file's dirty pages at a time.
    pub(crate) writing: Mutex<()>,
    growing: Mutex<()>,
    /// The last view is gone: no more pages come in. Changes under the pool's lock.
    closed: AtomicBool,
}

impl Space {
    pub(crate) fn new(
        id: SpaceId,
        backing: Backing,
        len: u64,
        order: u8,
        page_shift: u32,
    ) -> Result<Self, OpenError> {
        let pages = len.div_ceil(1 << page_shift);
        let reserve = pages.saturating_add(GROWTH_RESERVE_PAGES).next_multiple_of(1 << order);
        let table = Table::new(pages.next_multiple_of(1 << order), reserve)
            .map_err(|source| OpenError::Translation { path: backing.path.to_path_buf(), source })?;
        Ok(Self {
            id,
            table,
            backing,
            order,
            page_shift,
            len: AtomicU64::new(len),
            errors: WriteErrors::default(),
            written_to: AtomicU64::new(0),
            writing: Mutex::new(()),
            growing: Mutex::new(()),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn path_ref(&self) -> &Arc<PathBuf> {
        &self.backing.path
    }

    pub(crate) fn path(&self) -> Arc<PathBuf> {
        Arc::clone(&self.backing.path)
    }

    /// Bytes of the file when it was last looked at.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Pages of the file, a partial last one included.
    pub(crate) fn pages(&self) -> u64 {
        self.len().div_ceil(1 << self.page_shift)
    }

    /// Says that the last view is gone.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Whether the last view is gone. To be asked under the pool's lock by whoever brings a page in.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.backing.writable
    }

    pub(crate) fn out_of_range(&self, page: u64) -> Error {
        Error::OutOfRange { path: self.path(), page, len: self.len() }
    }

    pub(crate) fn read_error(&self, page: u64, source: io::Error) -> Error {
        Error::Read { path: self.path(), page, source: Arc::new(source) }
    }

    /// Looks at the file's size again, and makes room for the translations of what was added.
    pub(crate) fn refresh_len(&self) -> Result<u64, Error> {
        let _one_at_a_time = crate::sync::lock(&self.growing);
        let len = self.backing.size().map_err(|e| self.read_error(0, e))?;
        self.set_len_locked(len)?;
        Ok(len)
    }

    fn set_len_locked(&self, len: u64) -> Result<(), Error> {
        let pages = len.div_ceil(1 << self.page_shift).next_multiple_of(1 << self.order);
        self.table.grow(pages).map_err(|source| self.grow_error(len, source))?;
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn grow_error(&self, len: u64, source: io::Error) -> Error {
        Error::Grow { path: self.path(), len, source: Arc::new(source) }
    }

    /// Makes the file at least so long.
    pub(crate) fn extend_to(&self, backend: &Backend, len: u64) -> Result<(), Error> {
        let _one_at_a_time = crate::sync::lock(&self.growing);
        let now = self.backing.size().map_err(|e| self.grow_error(len, e))?;
        if now < len {
            if !self.backing.is_regular() {
                let full = io::Error::from_raw_os_error(libc::ENOSPC);
                return Err(self.grow_error(len, full));
            }
            self.backing.set_len(backend, len).map_err(|e| self.grow_error(len, e))?;
        }
        self.set_len_locked(now.max(len))
    }

    /// The descriptor that goes through the page cache. Making it durable makes the whole file durable.
    pub(crate) fn buffered_fd(&self) -> RawFd {
        self.backing.buffered.as_raw_fd()
    }

    /// One line for people: how the file is read.
    pub(crate) fn describe_io(&self) -> &str {
        &self.backing.why
    }
}

/// First frame of the large folio that a frame of this space belongs to, by alignment. For a page that came in alone, where there was no
/// room for a large folio, it may name another folio; good enough for counting accesses.
#[inline]
pub(crate) const fn head_of(frame: u32, order: u8) -> FolioId {
    FolioId(frame & !((1 << order) - 1))
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("id", &self.id)
            .field("backing", &self.backing)
            .field("len", &self.len())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
