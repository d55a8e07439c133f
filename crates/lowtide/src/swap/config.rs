//! The choices about swap when a pager is built.

use lowtide_core::Size;
use std::path::{Path, PathBuf};

/// Slots where no size is given: more than any pager has pages.
const SLOTS_MAX: u64 = 1 << 40;

/// Where evicted anonymous pages are kept. Without it they are never evicted.
///
/// ```
/// use lowtide::{Size, Pager, SwapOptions};
///
/// let swap = SwapOptions::compressed(Size::mib(16));        // of the 64 MiB, at most
/// let pager = Pager::builder().max(Size::mib(64)).swap(swap).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is passed to `PagerBuilder::swap`"]
pub struct SwapOptions {
    limit: Size,
    size: Size,
    file: Option<(PathBuf, Size)>,
}

impl SwapOptions {
    /// Compresses evicted pages in memory. All compressed pages of the pager together take at most
    /// `limit` bytes, which are charged to the tenants whose pages they are.
    pub fn compressed(limit: impl Into<Size>) -> Self {
        Self { limit: limit.into(), size: Size::MAX, file: None }
    }

    /// Bytes of pages that may be in swap at a time, as they were before compression. Default: as
    /// many as fit.
    pub fn size(mut self, size: impl Into<Size>) -> Self {
        self.size = size.into();
        self
    }

    /// Writes pages that do not compress, and compressed ones that were not used for long, to a
    /// swap file of at most `size` bytes in a directory. The file has no name and disappears with
    /// the process; only its owner may open it. It takes room as pages are written.
    pub fn file(mut self, dir: impl Into<PathBuf>, size: impl Into<Size>) -> Self {
        self.file = Some((dir.into(), size.into()));
        self
    }

    /// The directory of the file, and the pages that it may have.
    pub(crate) fn file_slots(&self, page_shift: u32) -> Option<(&Path, u64)> {
        let (dir, size) = self.file.as_ref()?;
        Some((dir, size.bytes() >> page_shift))
    }

    /// Frames that compressed pages may take.
    pub(crate) const fn frames(&self, page_shift: u32) -> u64 {
        if self.limit.is_max() { u64::MAX } else { self.limit.bytes() >> page_shift }
    }

    /// Pages that may be in swap.
    pub(crate) const fn slots(&self, page_shift: u32) -> u64 {
        if self.size.is_max() { SLOTS_MAX } else { self.size.bytes() >> page_shift }
    }
}
