//! Why a file cannot be mapped.

use super::mode::MapMode;
use crate::error::{Error, OpenError};
use crate::tenant::TenantError;
use std::io;

/// A map that cannot be made. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The range is impossible.
    #[error("cannot map {len} bytes from offset {offset} of the file: {why}")]
    Range {
        /// Offset in the file, in bytes.
        offset: u64,
        /// Bytes that were requested.
        len: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The pager counts in pages of another size than the processor.
    #[error(
        "a pager with pages of {pager} bytes cannot map files: the processor's pages have {system} \
         bytes; build the pager with `base_page({system})`"
    )]
    PageSize {
        /// Bytes of the pager's pages.
        pager: usize,
        /// Bytes of the processor's pages.
        system: usize,
    },
    /// The requested mode does not work here.
    #[error("`{mode}` mode cannot be used: {why}")]
    Mode {
        /// The mode.
        mode: MapMode,
        /// What the kernel or the request excludes, and what helps.
        why: String,
    },
    /// Memory without a file cannot be had.
    #[error("cannot map memory: {0}")]
    Memory(#[from] Error),
    /// The kernel refused a step.
    #[error("cannot map the file: {step} failed: {source}")]
    Kernel {
        /// The step.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The tenant is not available.
    #[error("cannot map the file for a tenant: {0}")]
    Tenant(#[from] TenantError),
}

impl MapError {
    pub(super) fn kernel(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Kernel { step, source }
    }
}

impl From<MapError> for io::Error {
    /// A kernel's error keeps its kind; the text is this error's.
    fn from(error: MapError) -> Self {
        let kind = match &error {
            MapError::Kernel { source, .. } => source.kind(),
            MapError::Range { .. } | MapError::PageSize { .. } | MapError::Tenant(_) => {
                io::ErrorKind::InvalidInput
            }
            MapError::Mode { .. } => io::ErrorKind::Unsupported,
            MapError::Memory(source) => source.kind(),
            MapError::Open(source) => source.kind(),
        };
        Self::new(kind, error)
    }
}
