//! The choices about swap when a pager is built.

use lowtide_core::Size;
use std::path::{Path, PathBuf};

/// Slots where no size is given: more than any pager has pages.
const SLOTS_MAX: u64 = 1 << 40;

/// Where anonymous pages go that are evicted. Without it they are never evicted.
///
/// ```
/// use lowtide::{Pager, Swap};
///
/// let swap = Swap::compressed("16M".parse()?);        // of the 64 MiB, at most
/// let pager = Pager::builder().max("64M".parse()?).swap(swap).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is passed to `Builder::swap`"]
pub struct Swap {
    limit: Size,
    size: Size,
    file: Option<(PathBuf, Size)>,
}

impl Swap {
    /// Compresses evicted pages in memory. All compressed pages of the pager together take at most
    /// `limit` bytes, which are charged to the tenants whose pages they are.
    pub const fn compressed(limit: Size) -> Self {
        Self { limit, size: Size::MAX, file: None }
    }

    /// Bytes of pages that may be in swap at a time, as they were before compression. Default: as
    /// many as fit.
    pub const fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// Writes pages that do not compress, and compressed ones that were not used for long, to a
    /// swap file of at most `size` bytes in a directory. The file has no name and disappears with
    /// the process; only its owner may open it. It takes room as pages are written.
    pub fn file(mut self, dir: impl Into<PathBuf>, size: Size) -> Self {
        self.file = Some((dir.into(), size));
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
