//! Settings that few programs need: what the engine does in the kernel's own terms.
//!
//! They are traits, so that the first look at a builder does not show them, as those of
//! [`std::os::unix::fs`] are.
//!
//! ```
//! use lowtide::advanced::{OpenAdvanced as _, PagerAdvanced as _};
//! use lowtide::{OpenOptions, Pager, Size};
//!
//! # let file = tempfile::NamedTempFile::new()?;
//! # file.as_file().set_len(1 << 20)?;
//! let pager = Pager::builder().max(Size::mib(16)).depth(64).young_faults(true).build()?;
//! let weights = OpenOptions::new().folio_order(4).open(&pager, file.path())?;
//! # assert_eq!(weights.len(), 1 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::PagerBuilder;
use crate::space::open::OpenOptions;

/// More settings of a [`PagerBuilder`].
pub trait PagerAdvanced: sealed::Sealed + Sized {
    /// Reads that [`View::get_many`](crate::View::get_many) keeps in flight (1..=4096, default 32).
    #[must_use]
    fn depth(self, depth: u32) -> Self;

    /// Whether the access that brings a page in also sets its young bit, as a processor's page
    /// tables do: the kernel cannot avoid it and takes every new page for one that was used again.
    /// Off by default, because telling first accesses from later ones saves a sixth of all misses
    /// on skewed random reads. On, policies decide as the kernel's do, which helps where a file is
    /// read in a circle.
    #[must_use]
    fn young_faults(self, young: bool) -> Self;
}

/// More settings of [`OpenOptions`].
pub trait OpenAdvanced: sealed::Sealed + Sized {
    /// Brings pages in `2^order` at a time, in one folio of up to 2 MiB. For large reads: fewer,
    /// larger transfers. Where there is no contiguous room in memory, a single page is brought in
    /// instead. A file that is open already keeps the order that it was opened with, unless all
    /// views of it only read.
    #[must_use]
    fn folio_order(self, order: u8) -> Self;
}

impl PagerAdvanced for PagerBuilder {
    fn depth(mut self, depth: u32) -> Self {
        self.depth = depth.clamp(1, 4096);
        self
    }

    fn young_faults(mut self, young: bool) -> Self {
        self.young_faults = young;
        self
    }
}

impl OpenAdvanced for OpenOptions {
    fn folio_order(mut self, order: u8) -> Self {
        self.order = order;
        self
    }
}

mod sealed {
    /// Settings may be added; other types cannot have them.
    pub trait Sealed {}

    impl Sealed for crate::config::PagerBuilder {}

    impl Sealed for crate::space::open::OpenOptions {}
}
