//! Memory from the kernel: anonymous mappings that lowtide owns, and shared mappings of files.
//!
//! * [`Mapping`]: private anonymous memory, with or without huge pages. The arena of
//!   frames and the dense tables beside it live in these.
//! * [`FileMapping`]: a shared mapping of a file. lowtide itself does not use it to page;
//!   benchmarks compare with it.

mod anonymous;
mod file;
mod heap;

pub use anonymous::{HugePages, Mapping};
pub use file::{Access, Advice, FileMapping};
pub use heap::fit_heap_to_limit;

/// The size of a huge page in bytes (the PMD size of x86-64, and of arm64 with 4 KiB pages).
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The size in bytes of the pages that the kernel maps. Costs one load after the first call.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}
