//! Databases with far less memory than data, in every geometry of a pager.

use lowtide::advanced::OpenAdvanced as _;
use lowtide::{OpenOptions, Pager, Size};
use lowtide_redb::ViewBackend;
use redb::{Builder, Database};
use std::path::Path;
use std::time::Duration;

/// A killed process may hold the file's lock until the device has ended what it had in flight.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a page, and the order of the folios that a miss brings in.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub page: usize,
    pub order: u8,
}

impl Geometry {
    /// About the smallest budget in which such folios can be used, in bytes.
    pub const fn budget(self) -> u64 {
        let (pages, folio) = (self.page as u64 * 64, (self.page as u64) << self.order);
        let smallest = if pages > folio * 8 { pages } else { folio * 8 };
        if smallest > 256 << 10 { smallest } else { 256 << 10 }
    }

    /// A pager with that budget.
    pub fn pager(self) -> Pager {
        let builder = Pager::builder().max(Size::new(self.budget())).base_page(self.page);
        builder.build().expect("a pager of the smallest budget")
    }

    /// A database in a file of a pager.
    pub fn open(self, pager: &Pager, path: &Path) -> Database {
        let options = OpenOptions::new().create_with_len(0).folio_order(self.order);
        let options = options.lock_timeout(LOCK_PATIENCE);
        let view = options.open(pager, path).expect("a view of the file");
        builder().create_with_backend(ViewBackend::new(view)).expect("a database on the view")
    }
}

/// A database whose own cache is too small to hide what is below it.
pub fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(256 << 10);
    builder
}
