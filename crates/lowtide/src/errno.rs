//! What an error is in the terms of the standard library.
//!
//! Storage engines work with [`io::Error`], look at its [kind](io::Error::kind), and show its text.
//! So each error has a kind, and becomes an [`io::Error`] by `?`. An [`io::Error`] holds either an
//! error number or an error with a text of its own; here it holds the error itself, since the text
//! names the file. Where the standard library has no kind for the kernel's error (`EIO`, `EMFILE`,
//! `ENFILE`, ...), a program could not tell such an error from any other, so there it holds the
//! number: [`io::Error::raw_os_error`] has it, and the text does not name the file. The number of
//! the others is one call away:
//!
//! ```
//! # fn view() -> Result<lowtide::View, Box<dyn std::error::Error>> {
//! #     let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
//! #     let file = tempfile::NamedTempFile::new()?;
//! #     Ok(lowtide::OpenOptions::new().open(&pager, file.path())?)
//! # }
//! fn read(view: &lowtide::View, offset: u64) -> std::io::Result<[u8; 8]> {
//!     let mut bytes = [0; 8];
//!     view.read_at(offset, &mut bytes)?;
//!     Ok(bytes)
//! }
//! # let view = view()?;
//! let error = read(&view, 4096).unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
//! let inner = error.get_ref().and_then(|e| e.downcast_ref::<lowtide::Error>()).unwrap();
//! assert!(matches!(inner, lowtide::Error::OutOfRange { offset: 4096, bytes: 8, .. }));
//! assert_eq!(inner.raw_os_error(), None); // not an error of the kernel
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::error::{CloseError, Error, OpenError};
use std::io::{self, ErrorKind};

impl Error {
    /// The kind that a system call with this outcome would have. An error of the kernel keeps its
    /// kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { source, .. }
            | Self::Install { source, .. }
            | Self::SwapIn { source, .. }
            | Self::Write { source, .. }
            | Self::NameNotDurable { source, .. }
            | Self::Punch { source, .. }
            | Self::Grow { source, .. } => source.kind(),
            Self::Timeout { .. } => ErrorKind::TimedOut,
            Self::OutOfRange { .. } => ErrorKind::UnexpectedEof,
            Self::ReadOnly { .. } => ErrorKind::PermissionDenied,
            Self::OutOfBudget { .. } | Self::NoMemory { .. } => ErrorKind::OutOfMemory,
            Self::Tenant(_) => ErrorKind::InvalidInput,
            Self::HeldHere { .. } | Self::Nested { .. } => ErrorKind::Deadlock,
            Self::NoBarrier => ErrorKind::PermissionDenied,
            Self::Poisoned => ErrorKind::Other,
            Self::HeldElsewhere { .. } => ErrorKind::ResourceBusy,
        }
    }

    /// The kernel's error number, if the kernel refused something; for an error of lowtide's own
    /// the number that a system call would give, if one means the same.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Read { source, .. }
            | Self::Install { source, .. }
            | Self::SwapIn { source, .. }
            | Self::Write { source, .. }
            | Self::NameNotDurable { source, .. }
            | Self::Punch { source, .. }
            | Self::Grow { source, .. } => source.raw_os_error(),
            Self::Timeout { .. } => Some(libc::ETIMEDOUT),
            Self::ReadOnly { .. } => Some(libc::EBADF),
            Self::OutOfBudget { .. } | Self::NoMemory { .. } => Some(libc::ENOMEM),
            Self::HeldHere { .. } | Self::Nested { .. } => Some(libc::EDEADLK),
            Self::NoBarrier => Some(libc::EPERM),
            Self::HeldElsewhere { .. } => Some(libc::EBUSY),
            Self::OutOfRange { .. } | Self::Tenant(_) | Self::Poisoned => None,
        }
    }
}

impl OpenError {
    /// The kind that `open(2)` with this outcome would have. An error of the kernel keeps its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. }
            | Self::Thread { source, .. }
            | Self::Translation { source, .. } => source.kind(),
            Self::SetLen { source, .. } => source.kind(),
            Self::TooLarge { .. } => ErrorKind::FileTooLarge,
            Self::TooMany { .. } => ErrorKind::QuotaExceeded,
            Self::NoDirectIo { .. } => ErrorKind::Unsupported,
            Self::Locked { .. } => ErrorKind::WouldBlock,
            Self::Copies { .. } => ErrorKind::ResourceBusy,
            Self::Poisoned { .. } => ErrorKind::Other,
            Self::Kind { .. } | Self::Tenant { .. } | Self::FolioOrder { .. } => {
                ErrorKind::InvalidInput
            }
        }
    }

    /// The kernel's error number, or the one that means the same, if there is one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. }
            | Self::Thread { source, .. }
            | Self::Translation { source, .. } => source.raw_os_error(),
            Self::SetLen { source, .. } => source.raw_os_error(),
            Self::TooLarge { .. } => Some(libc::EFBIG),
            Self::TooMany { .. } => Some(libc::ENFILE),
            Self::Locked { .. } => Some(libc::EWOULDBLOCK),
            Self::Copies { .. } => Some(libc::EBUSY),
            Self::NoDirectIo { .. } | Self::Kind { .. } | Self::FolioOrder { .. } => {
                Some(libc::EINVAL)
            }
            Self::Tenant { .. } | Self::Poisoned { .. } => None,
        }
    }
}

/// An [`io::Error`] of this kind that keeps the error, or the number if the number has no kind.
fn with_kind_or_number(
    kind: ErrorKind,
    number: Option<i32>,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> io::Error {
    // No kernel has this one, so its kind is that of all numbers without a kind. It has no name.
    let no_kind = io::Error::from_raw_os_error(i32::MAX).kind();
    match number {
        Some(number) if kind == no_kind => io::Error::from_raw_os_error(number),
        _ => io::Error::new(kind, error),
    }
}

impl From<Error> for io::Error {
    /// Keeps the error: [`io::Error::get_ref`] has it. If there is no [kind](Error::kind) for the
    /// kernel's error, keeps the number instead.
    fn from(error: Error) -> io::Error {
        with_kind_or_number(error.kind(), error.raw_os_error(), error)
    }
}

impl From<OpenError> for io::Error {
    /// Keeps the error: [`io::Error::get_ref`] has it. If there is no [kind](OpenError::kind) for
    /// the kernel's error, keeps the number instead.
    fn from(error: OpenError) -> io::Error {
        with_kind_or_number(error.kind(), error.raw_os_error(), error)
    }
}

impl From<CloseError> for io::Error {
    /// Has the kind of the first file's error. Keeps the error: [`io::Error::get_ref`] has it. If
    /// there is no kind for the kernel's error, keeps the number instead.
    fn from(error: CloseError) -> io::Error {
        let first = error.files.first().map(|file| &file.source);
        let kind = first.map_or(ErrorKind::Other, Error::kind);
        with_kind_or_number(kind, first.and_then(Error::raw_os_error), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn said(number: i32) -> (io::Error, io::Error, io::Error) {
        let source = || io::Error::from_raw_os_error(number);
        let path = PathBuf::from("/a/file");
        let read =
            Error::Read { path: Arc::new(path.clone()), page: 7, source: Arc::new(source()) };
        let unwritten =
            crate::Unwritten { path: Arc::new(path.clone()), pages: 1, source: read.clone() };
        let close = CloseError { files: vec![unwritten] };
        (read.into(), OpenError::Io { path, source: source() }.into(), close.into())
    }

    #[test]
    fn an_error_number_without_a_kind_stays_a_number_and_others_name_the_file() {
        for number in [libc::EMFILE, libc::ENFILE, libc::EIO] {
            let (read, open, close) = said(number);
            let found = [read, open, close].map(|error| error.raw_os_error());
            assert_eq!(found, [Some(number); 3]);
        }
        for number in [libc::ENOENT, libc::EACCES, libc::ENOSPC, libc::EROFS, libc::EDQUOT] {
            let kind = io::Error::from_raw_os_error(number).kind();
            let (read, open, close) = said(number);
            for error in [read, open, close] {
                assert_eq!(error.kind(), kind);
                assert!(error.to_string().contains("/a/file"), "{error}");
            }
        }
    }
}
