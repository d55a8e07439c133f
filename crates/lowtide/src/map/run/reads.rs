//! A file that a program reads through descriptors: the public API of what `noted.rs` does.

use crate::ahead::readahead::window_pages;
use crate::map::adopt::Use;
use crate::map::error::MapError;
use crate::map::noticed::WatchedFile;
use crate::map::options::MapOptions;
use crate::map::space;
use crate::map::watch::Watcher;
use crate::pager::Pager;
use lowtide_sys::room::bring;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A file whose reads through descriptors are kept within the budget, until this is dropped.
///
/// Made by [`MapOptions::adopt_reads`]. The descriptors are the program's, and work as usual.
#[derive(Debug)]
pub struct Reads {
    file: Arc<WatchedFile>,
    watcher: Arc<Watcher>,
    page_shift: u32,
}

impl MapOptions {
    /// Keeps what is read of `file` through descriptors: what [`Reads::note`] gets. Mappings
    /// of the file that are [adopted](Self::adopt) for the same tenant share its pages.
    /// [`read_ahead`](Self::read_ahead) and
    /// [`keep_kernel_read_ahead`](Self::keep_kernel_read_ahead) count as for mappings.
    ///
    /// Cached pages of the file that are not in use are dropped, now and when this ends, unless it
    /// is watched already or longer.
    ///
    /// # Errors
    /// [`MapError`] says what the kernel refuses.
    pub fn adopt_reads(&self, pager: &Pager, file: BorrowedFd<'_>) -> Result<Reads, MapError> {
        let pool = &pager.inner.pool;
        space::check_page_size(pool)?;
        let group = self.group(pager)?;
        let watcher = pager
            .inner
            .threads
            .service(Watcher::start)
            .map_err(MapError::kernel("starting a thread"))?;
        let size = lowtide_sys::file::size(file).map_err(MapError::kernel("fstat(2)"))?;
        let file = Arc::new(bring(file).map_err(MapError::kernel("dup(2)"))?);
        let end = size.div_ceil(1 << pool.page_shift).max(1);
        let file = self.watched_file(pager, &watcher, &file, (group, Use::Read), end)?;
        let largest = || window_pages(pool, self.read_ahead);
        file.noted.begin((!self.keep_kernel_read_ahead).then(largest));
        Ok(Reads { file, watcher, page_shift: pool.page_shift })
    }
}

impl Reads {
    /// Notes that bytes of the file were read, in this order. The ranges of one call count as one
    /// read.
    pub fn note(&self, reads: impl IntoIterator<Item = Range<u64>>) {
        let page_bytes = 1_u64 << self.page_shift;
        let pages =
            |bytes: Range<u64>| bytes.start >> self.page_shift..bytes.end.div_ceil(page_bytes);
        self.file.noted.add(reads.into_iter().map(pages));
        self.watcher.noted();
    }

    /// Notes that were lost because too many waited. Their pages may be dropped as those of reads
    /// without a note.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.file.noted.lost()
    }

    /// Bytes of the file that are charged, because of reads or of mappings. Cost: a look at each
    /// of its translations.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.file.space.table.resident() << self.page_shift
    }
}
