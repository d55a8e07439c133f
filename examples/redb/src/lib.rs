//! redb on a lowtide view.
//!
//! redb asks six things of what it stores its bytes in: the length, to read, to write, to set the
//! length, to make everything durable, and to close. A [`View`] does each of them, so the backend
//! below only passes them on. What the database gains is a budget: its pages live in the memory of
//! a pager, beside those of other files, and nowhere else.
//!
//! ```
//! use lowtide::{Size, OpenOptions, Pager};
//! use lowtide_redb::ViewBackend;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data.redb");
//! let pager = Pager::builder().max(Size::mib(16)).build()?;
//! let view = OpenOptions::new().create_with_len(0).open(&pager, &path)?;
//! let database = redb::Builder::new().create_with_backend(ViewBackend::new(view))?;
//! # drop(database);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! redb keeps a cache of its own in front of its backend, a gibibyte by default. Give it a few
//! mebibytes ([`redb::Builder::set_cache_size`]) and the rest of the memory to the pager: a page in
//! both caches is paid for twice.

use lowtide::View;
use redb::StorageBackend;
use std::io;

/// A database file that is read and written through a pager.
///
/// The view's lock keeps other processes away, also those that open the file with redb's own
/// backend. So one process uses the database at a time.
#[derive(Debug)]
pub struct ViewBackend {
    view: View,
}

impl ViewBackend {
    /// Stores a database in a file that is open for writing.
    #[must_use]
    pub fn new(view: View) -> Self {
        Self { view }
    }
}

impl StorageBackend for ViewBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.view.refresh_len()?)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Ok(self.view.read_at(offset, out)?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.view.write_at(offset, data)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(self.view.set_len(len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(self.view.flush()?)
    }

    /// redb drops the backend afterwards, which gives the file back. Errors can be reported here
    /// and not there.
    fn close(&self) -> io::Result<()> {
        Ok(self.view.flush()?)
    }
}
