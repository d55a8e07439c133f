//! What stands in the place of redb's file backend while its tests run: the bytes go through a
//! view, in a pager that all tests of a binary share; the locks between redb's own handles stay
//! where they were.

mod optimized;
pub(crate) mod range_lock;
mod view_backend;

use crate::db::BackendIoError;
use crate::{BackendError, DatabaseError, StorageBackend};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{OpenOptions, Pager, Size};
use std::fs::File;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::OnceLock;
use view_backend::ViewBackend;

/// A number from the environment, or another one.
fn setting<T: FromStr>(name: &str, default: &str) -> T {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
    text.parse().unwrap_or_else(|_| panic!("{name}={text} is not understood"))
}

fn pager() -> &'static Pager {
    static PAGER: OnceLock<Pager> = OnceLock::new();
    PAGER.get_or_init(|| {
        let max: Size = setting("LOWTIDE_SUITE_MAX", "16M");
        let builder = Pager::builder().max(max).base_page(setting("LOWTIDE_SUITE_PAGE", "4096"));
        builder.build().expect("the pager of the tests")
    })
}

#[derive(Debug)]
pub struct FileBackend {
    locks: optimized::FileBackend,
    bytes: ViewBackend,
}

impl FileBackend {
    pub fn new(file: File) -> Result<Self, DatabaseError> {
        Ok(Self::from_file(file))
    }

    pub(crate) fn from_file(file: File) -> Self {
        let order = setting("LOWTIDE_SUITE_ORDER", "0");
        let options = OpenOptions::new().lock(false).folio_order(order);
        let same = file.try_clone().expect("another descriptor of the file");
        let view = options.write(true).open_file(pager(), same).expect("a view of the file");
        Self { locks: optimized::FileBackend::from_file(file), bytes: ViewBackend::new(view) }
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> Result<u64, BackendIoError> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BackendIoError> {
        self.bytes.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), BackendIoError> {
        self.bytes.write(offset, data)
    }

    fn set_len(&self, len: u64) -> Result<(), BackendIoError> {
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> Result<(), BackendIoError> {
        self.bytes.sync_data()
    }

    fn close(&self) -> Result<(), BackendIoError> {
        self.bytes.close().and(self.locks.close())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.locks.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.locks.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.locks.query_lock_range(start, end)
    }
}
