//! What SQLite asks of a file system, answered by views.
//!
//! Most requests are one call of a [`View`]. These need more:
//!
//! * **`sync`** is [`View::flush`], which makes the name of a new file durable, too. SQLite relies
//!   on the order: a journal and its name before the pages that it can restore.
//! * **`delete`** syncs the folder. To delete the journal is to commit.
//! * **Promises about the device**: none is made. Views write pages back in any order and as a
//!   whole, so a power cut may tear bytes beside those that SQLite wrote. It keeps whole sectors
//!   apart for that, and a sector is a page of the pager.
//! * **Errors**: SQLite knows a number. The text goes to its log
//!   (`sqlite3_config(SQLITE_CONFIG_LOG)`).

use crate::shared::{Connection, Databases};
use lowtide::{Error, OpenError, OpenOptions, Pager, View};
use sqlite_plugin::flags::ShmLockMode;
use sqlite_plugin::flags::{AccessFlags, CreateMode, LockLevel, OpenKind, OpenMode, OpenOpts};
use sqlite_plugin::logger::{SqliteLogLevel, SqliteLogger};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::{SqliteErr, Vfs, VfsHandle, VfsResult};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::{fs, io};

/// What SQLite writes its own messages with; known once the VFS is registered.
pub(crate) type Log = Arc<OnceLock<SqliteLogger>>;

/// The file system: a pager, and the databases that are open in it.
pub struct Lowtide {
    pager: Pager,
    databases: Databases,
    log: Log,
}

/// A file that SQLite has open.
#[derive(Debug)]
pub struct Handle {
    view: View,
    is_read_only: bool,
    /// Of a main database. No other file is locked.
    connection: Option<Connection>,
}

impl VfsHandle for Handle {
    fn readonly(&self) -> bool {
        self.is_read_only
    }

    fn in_memory(&self) -> bool {
        false
    }
}

impl Lowtide {
    pub(crate) fn new(pager: Pager) -> Self {
        Self { pager, databases: Databases::default(), log: Log::default() }
    }

    pub(crate) fn log(&self) -> Log {
        Arc::clone(&self.log)
    }

    /// Logs an error, and gives its number.
    fn failed(&self, code: SqliteErr, error: &dyn std::error::Error) -> SqliteErr {
        if let Some(logger) = self.log.get() {
            // SQLite takes the text for a format, and cuts long ones.
            for line in error.to_string().replace('%', "%%").as_bytes().chunks(200) {
                logger.log(SqliteLogLevel::Warn, &String::from_utf8_lossy(line));
            }
        }
        code
    }

    /// As [`failed`](Self::failed), for what may fail because the disk is full.
    fn not_done(&self, code: SqliteErr, error: &Error) -> SqliteErr {
        let is_full = match error {
            Error::Write { source, .. } | Error::Grow { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        };
        self.failed(if is_full { vars::SQLITE_FULL } else { code }, error)
    }

    fn open_view(&self, path: &Path, mode: &OpenMode) -> Result<View, OpenError> {
        let options = OpenOptions::new();
        match mode {
            OpenMode::ReadOnly => options,
            OpenMode::ReadWrite { create: CreateMode::None } => options.write(true),
            OpenMode::ReadWrite { create: CreateMode::Create } => options.create_with_len(0),
            OpenMode::ReadWrite { create: CreateMode::MustCreate } => {
                options.create_new_with_len(0)
            }
        }
        .open(&self.pager, path)
    }

    fn not_opened(&self, error: &OpenError) -> SqliteErr {
        let code = match error {
            OpenError::Locked { .. } => vars::SQLITE_BUSY,
            _ => vars::SQLITE_CANTOPEN,
        };
        self.failed(code, error)
    }

    /// A file without a name, for what SQLite does not keep.
    fn temporary(&self) -> VfsResult<View> {
        let file =
            tempfile::tempfile().map_err(|e| self.failed(vars::SQLITE_IOERR_GETTEMPPATH, &e))?;
        let options = OpenOptions::new().write(true).lock(false);
        options.open_file(&self.pager, file).map_err(|e| self.not_opened(&e))
    }
}

impl Vfs for Lowtide {
    type Handle = Handle;

    /// Journals lie beside the file itself, and not beside a link to it: the next program may find
    /// the database by another name, and must find them.
    fn canonical_path<'a>(&self, path: Cow<'a, str>) -> VfsResult<Cow<'a, str>> {
        let given = Path::new(&*path);
        let found = fs::canonicalize(given).or_else(|_| {
            // It is not there yet. Its folder is.
            let folder = given.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
            Ok::<PathBuf, io::Error>(folder.join(given.file_name().unwrap_or_default()))
        });
        let found = found.map_err(|e| self.failed(vars::SQLITE_CANTOPEN_FULLPATH, &e))?;
        // SQLite has paths in UTF-8.
        let text = found.into_os_string().into_string();
        text.map(Cow::Owned).map_err(|_| vars::SQLITE_CANTOPEN_FULLPATH)
    }

    fn open(&self, path: Option<&str>, opts: OpenOpts) -> VfsResult<Handle> {
        let Some(path) = path.map(Path::new) else {
            let view = self.temporary()?;
            return Ok(Handle { view, is_read_only: false, connection: None });
        };
        let mut is_read_only = opts.mode().is_readonly();
        let view = match self.open_view(path, &opts.mode()) {
            // A database that may only be read is opened for that.
            Err(OpenError::Io { source, .. }) if !is_read_only && may_be_read(&source) => {
                is_read_only = true;
                self.open_view(path, &OpenMode::ReadOnly)
            }
            opened => opened,
        };
        let view = view.map_err(|e| self.not_opened(&e))?;
        let connection = match opts.kind() {
            OpenKind::MainDb => {
                let found = self.databases.connection(path);
                Some(found.map_err(|e| self.failed(vars::SQLITE_CANTOPEN, &e))?)
            }
            _ => None,
        };
        if opts.delete_on_close() {
            // The view keeps the file; its name can go now.
            fs::remove_file(path).map_err(|e| self.failed(vars::SQLITE_IOERR_DELETE, &e))?;
        }
        Ok(Handle { view, is_read_only, connection })
    }

    fn delete(&self, path: &str) -> VfsResult<()> {
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(vars::SQLITE_IOERR_DELETE_NOENT);
            }
            Err(error) => return Err(self.failed(vars::SQLITE_IOERR_DELETE, &error)),
        }
        let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
        let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| self.failed(vars::SQLITE_IOERR_DIR_FSYNC, &e))
    }

    /// A journal that is empty counts as none: its transaction had not begun.
    fn access(&self, path: &str, flags: AccessFlags) -> VfsResult<bool> {
        Ok(fs::metadata(path).is_ok_and(|file| match flags {
            AccessFlags::Exists => !file.is_file() || file.len() > 0,
            AccessFlags::Read => true,
            AccessFlags::ReadWrite => !file.permissions().readonly(),
        }))
    }

    fn file_size(&self, handle: &mut Handle) -> VfsResult<usize> {
        let len = handle.view.refresh_len();
        Ok(len.map_err(|e| self.not_done(vars::SQLITE_IOERR_FSTAT, &e))? as usize)
    }

    fn truncate(&self, handle: &mut Handle, size: usize) -> VfsResult<()> {
        let cut = handle.view.set_len(size as u64);
        cut.map_err(|e| self.not_done(vars::SQLITE_IOERR_TRUNCATE, &e))
    }

    fn write(&self, handle: &mut Handle, offset: usize, data: &[u8]) -> VfsResult<usize> {
        let written = handle.view.write_at(offset as u64, data);
        written.map_err(|e| self.not_done(vars::SQLITE_IOERR_WRITE, &e))?;
        Ok(data.len())
    }

    fn read(&self, handle: &mut Handle, offset: usize, data: &mut [u8]) -> VfsResult<usize> {
        let read = handle.view.read_clamped(offset as u64, data);
        read.map_err(|e| self.not_done(vars::SQLITE_IOERR_READ, &e))
    }

    fn sync(&self, handle: &mut Handle) -> VfsResult<()> {
        handle.view.flush().map_err(|e| self.not_done(vars::SQLITE_IOERR_FSYNC, &e))
    }

    fn close(&self, handle: Handle) -> VfsResult<()> {
        // What SQLite wants to be durable it has synced.
        drop(handle);
        Ok(())
    }

    fn lock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        handle.connection.as_mut().map_or(Ok(()), |connection| connection.lock(level))
    }

    fn unlock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        if let Some(connection) = &mut handle.connection {
            connection.unlock(level);
        }
        Ok(())
    }

    fn check_reserved_lock(&self, handle: &mut Handle) -> VfsResult<bool> {
        Ok(handle.connection.as_ref().is_some_and(Connection::is_reserved))
    }

    fn sector_size(&self, handle: &mut Handle) -> VfsResult<i32> {
        i32::try_from(handle.view.page_size()).map_err(|_| vars::SQLITE_INTERNAL)
    }

    fn device_characteristics(&self, _handle: &mut Handle) -> VfsResult<i32> {
        Ok(0)
    }

    fn shm_map(
        &self,
        handle: &mut Handle,
        part: usize,
        bytes: usize,
        make: bool,
    ) -> VfsResult<Option<NonNull<u8>>> {
        let connection = handle.connection.as_mut().ok_or(vars::SQLITE_IOERR_SHMMAP)?;
        connection.map(part, bytes, make)
    }

    fn shm_lock(
        &self,
        handle: &mut Handle,
        first: u32,
        count: u32,
        mode: ShmLockMode,
    ) -> VfsResult<()> {
        let connection = handle.connection.as_mut().ok_or(vars::SQLITE_IOERR_SHMLOCK)?;
        connection.lock_index(first, count, mode)
    }

    fn shm_barrier(&self, _handle: &mut Handle) {
        fence(Ordering::SeqCst);
    }

    fn shm_unmap(&self, handle: &mut Handle, _delete: bool) -> VfsResult<()> {
        if let Some(connection) = &mut handle.connection {
            connection.unmap();
        }
        Ok(())
    }
}

/// Whether a file that cannot be opened for writing may be one for reading.
fn may_be_read(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}
