//! What can be wrong with the file of a warm restart.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why there is no warm restart, or why the next one will not be. Nothing else is affected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WarmError {
    /// The list cannot be read: the pager begins without it.
    #[error("the list of warm pages {path:?} cannot be read, and the start is cold: {source}")]
    Read {
        /// The list.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// It is no list that this pager can use, and is left as it is until the next one is saved.
    #[error("{path:?} is no list of warm pages for this pager, and the start is cold: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: Foreign,
    },
    /// It cannot be saved; one that was there before is as it was.
    #[error("the list of warm pages {path:?} cannot be saved: {source}")]
    Write {
        /// The list.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A fault of a list.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// It begins otherwise.
    #[error("it was not saved by this version of lowtide")]
    Other,
    /// It was cut, or changed.
    #[error("it is damaged")]
    Damaged,
    /// It is of a pager with other pages.
    #[error("its pages have {made_with} bytes, and those of this pager {page_bytes}")]
    PageBytes {
        /// Bytes of a page of the list.
        made_with: u64,
        /// Bytes of a page here.
        page_bytes: u64,
    },
}
