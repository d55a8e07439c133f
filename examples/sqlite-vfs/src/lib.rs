//! SQLite on lowtide views.
//!
//! SQLite does all its I/O through an object of its own, the *virtual file system* (VFS). This one
//! keeps each file, be it a database, a rollback journal, a write-ahead log or a temporary table,
//! in a [`View`](lowtide::View) of one pager. So all databases of a process share one budget of
//! memory, and lowtide's policy decides which of their pages stay. Nothing is in the kernel's page
//! cache.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! use lowtide::{Pager, Size};
//! use rusqlite::{Connection, OpenFlags};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data.db");
//! let pager = Pager::builder().max(Size::mib(16)).build()?;
//! lowtide_sqlite_vfs::register("lowtide", &pager)?;
//!
//! let database = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "lowtide")?;
//! database.pragma_update(None, "journal_mode", "wal")?;
//! database.execute_batch("create table t (n int); insert into t values (1), (2)")?;
//! let sum: i64 = database.query_row("select sum(n) from t", [], |row| row.get(0))?;
//! assert_eq!(sum, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `vfs` does what SQLite asks for. `shared` is what connections of one process share about a
//! database: its lock, and the index of its write-ahead log. Both live in the memory of the
//! process, because the view's lock keeps other processes away: several may read a database, or one
//! may write it.

#![cfg(feature = "sqlite")]

pub mod shared;
pub mod vfs;

use lowtide::Pager;
use sqlite_plugin::vfs::{RegisterOpts, register_static};
use std::ffi::CString;
use std::fmt;

/// Makes a pager available to SQLite as a VFS of this name, for the rest of the process's life.
///
/// A connection uses it if it names it: with `Connection::open_with_flags_and_vfs`, or with `vfs=`
/// in the address of a database. Other connections are not changed.
///
/// # Errors
/// A name with a zero byte; otherwise what SQLite says.
pub fn register(name: &str, pager: &Pager) -> Result<(), RegisterError> {
    // Crates that only link SQLite must not be dropped by the linker.
    let _ = rusqlite::version_number();
    let name = CString::new(name).map_err(|_| RegisterError { code: None })?;
    let vfs = vfs::Lowtide::new(pager.clone());
    let log = vfs.log();
    let logger = register_static(name, vfs, RegisterOpts { make_default: false })
        .map_err(|code| RegisterError { code: Some(code) })?;
    // It is empty: the VFS has just been made.
    let _ = log.set(logger);
    Ok(())
}

/// A VFS that SQLite does not accept.
#[derive(Debug)]
pub struct RegisterError {
    code: Option<i32>,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "SQLite refuses the VFS with code {code}"),
            None => write!(f, "the name of a VFS cannot have a zero byte"),
        }
    }
}

impl std::error::Error for RegisterError {}
