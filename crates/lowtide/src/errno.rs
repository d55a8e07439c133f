//! What an error is in the terms of the standard library.
//!
//! Storage engines speak [`io::Error`], look at its [kind](io::Error::kind), and show its text. So
//! each error has a kind, and becomes an [`io::Error`] by `?`. An [`io::Error`] holds either an
//! error number or an error with a text of its own; here it holds the error itself, since the text
//! names the file. The number is a look away:
//!
//! ```
//! # fn view() -> Result<lowtide::View, Box<dyn std::error::Error>> {
//! #     let pager = lowtide::Pager::builder().max("1M".parse()?).build()?;
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
//! assert_eq!(inner.raw_os_error(), None); // the kernel was not asked
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::error::{CloseError, Error, OpenError};
use std::io::{self, ErrorKind};

impl Error {
    /// The kind that a system call with this outcome would have. What the kernel said keeps its
    /// kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { source, .. }
            | Self::Write { source, .. }
            | Self::Name { source, .. }
            | Self::Grow { source, .. } => source.kind(),
            Self::Timeout { .. } => ErrorKind::TimedOut,
            Self::OutOfRange { .. } => ErrorKind::UnexpectedEof,
            Self::ReadOnly { .. } => ErrorKind::PermissionDenied,
            Self::OutOfBudget { .. } | Self::NoMemory { .. } => ErrorKind::OutOfMemory,
            Self::OverLimit { .. } => ErrorKind::WouldBlock,
            Self::Tenant(_) => ErrorKind::InvalidInput,
            Self::HeldHere { .. } | Self::Nested { .. } => ErrorKind::Deadlock,
            Self::NoBarrier => ErrorKind::PermissionDenied,
            Self::Poisoned => ErrorKind::Other,
            Self::HeldElsewhere { .. } => ErrorKind::ResourceBusy,
        }
    }

    /// The kernel's error number, if the kernel refused something; of an error of lowtide's own the
    /// number that a system call would give, if there is one that means the same.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Read { source, .. }
            | Self::Write { source, .. }
            | Self::Name { source, .. }
            | Self::Grow { source, .. } => source.raw_os_error(),
            Self::Timeout { .. } => Some(libc::ETIMEDOUT),
            Self::ReadOnly { .. } => Some(libc::EBADF),
            Self::OutOfBudget { .. } | Self::NoMemory { .. } => Some(libc::ENOMEM),
            Self::OverLimit { .. } => Some(libc::EAGAIN),
            Self::HeldHere { .. } | Self::Nested { .. } => Some(libc::EDEADLK),
            Self::NoBarrier => Some(libc::EPERM),
            Self::HeldElsewhere { .. } => Some(libc::EBUSY),
            Self::OutOfRange { .. } | Self::Tenant(_) | Self::Poisoned => None,
        }
    }
}

impl OpenError {
    /// The kind that `open(2)` with this outcome would have. What the kernel said keeps its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } | Self::Thread { source, .. } | Self::Translation { source, .. } => {
                source.kind()
            }
            Self::Grow { source, .. } => source.kind(),
            Self::TooLarge { .. } => ErrorKind::FileTooLarge,
            Self::TooMany { .. } => ErrorKind::QuotaExceeded,
            Self::NoDirectIo { .. } => ErrorKind::Unsupported,
            Self::Locked { .. } => ErrorKind::WouldBlock,
            Self::Copies { .. } => ErrorKind::ResourceBusy,
            Self::Poisoned { .. } => ErrorKind::Other,
            Self::Kind { .. } | Self::Tenant { .. } | Self::FolioOrder { .. } => ErrorKind::InvalidInput,
        }
    }

    /// The kernel's error number, or the one that means the same, if there is one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::Thread { source, .. } | Self::Translation { source, .. } => {
                source.raw_os_error()
            }
            Self::Grow { source, .. } => source.raw_os_error(),
            Self::TooLarge { .. } => Some(libc::EFBIG),
            Self::TooMany { .. } => Some(libc::ENFILE),
            Self::Locked { .. } => Some(libc::EWOULDBLOCK),
            Self::Copies { .. } => Some(libc::EBUSY),
            Self::NoDirectIo { .. } | Self::Kind { .. } | Self::FolioOrder { .. } => Some(libc::EINVAL),
            Self::Tenant { .. } | Self::Poisoned { .. } => None,
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the error: [`io::Error::get_ref`] has it.
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

impl From<OpenError> for io::Error {
    /// Keeps the error: [`io::Error::get_ref`] has it.
    fn from(error: OpenError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

impl From<CloseError> for io::Error {
    /// Of the kind of the first file's error. Keeps the error: [`io::Error::get_ref`] has it.
    fn from(error: CloseError) -> io::Error {
        let kind = error.files.first().map_or(ErrorKind::Other, |file| file.source.kind());
        io::Error::new(kind, error)
    }
}
