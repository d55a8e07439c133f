//! Errors of the runtime as exceptions of Python.
//!
//! An error that has an error number of the kernel becomes an `OSError` with that number, so Python
//! chooses the subclass: `FileNotFoundError`, `PermissionError`, `TimeoutError`. Every other one is
//! a `lowtide.Error`, which is an `OSError`, too. A budget without room is `lowtide.OutOfBudget`,
//! also a `MemoryError`. What is wrong with an argument is a `ValueError`.
//!
//! They are made without Python's lock, which a thread that makes one may not wait for (`forks`).

use lowtide::map::MapError;
use lowtide::{BuildError, CloseError, OpenError, TenantError};
use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::{create_exception, import_exception};
use std::io;

create_exception!(
    lowtide,
    Error,
    PyOSError,
    "An error of lowtide that the kernel has no number for."
);

// A class of Python: it has two bases.
import_exception!(lowtide._errors, OutOfBudget);

/// An `OSError` with this number, or an `Error` without one.
fn numbered(number: Option<i32>, text: String) -> PyErr {
    match number {
        Some(number) => PyOSError::new_err((number, text)),
        None => Error::new_err(text),
    }
}

/// What an error of the runtime is in Python.
pub(crate) trait IntoPython {
    /// The exception.
    fn into_python(self) -> PyErr;
}

impl IntoPython for lowtide::Error {
    fn into_python(self) -> PyErr {
        let number = self.raw_os_error();
        match self {
            Self::OutOfBudget { .. } | Self::NoMemory { .. } => {
                OutOfBudget::new_err((libc::ENOMEM, self.to_string()))
            }
            Self::OutOfRange { .. } => PyIndexError::new_err(self.to_string()),
            _ => numbered(number, self.to_string()),
        }
    }
}

impl IntoPython for OpenError {
    fn into_python(self) -> PyErr {
        let (number, text) = (self.raw_os_error(), self.to_string());
        match self {
            Self::FolioOrder { .. } => PyValueError::new_err(text),
            _ => numbered(number, text),
        }
    }
}

impl IntoPython for BuildError {
    fn into_python(self) -> PyErr {
        let text = self.to_string();
        match self {
            Self::Memory { source, .. } | Self::IoEngine { source, .. } | Self::Thread(source) => {
                numbered(source.raw_os_error(), text)
            }
            Self::SwapFile(_) => Error::new_err(text),
            _ => PyValueError::new_err(text),
        }
    }
}

impl IntoPython for MapError {
    fn into_python(self) -> PyErr {
        let text = self.to_string();
        match self {
            Self::Kernel { source, .. } => numbered(source.raw_os_error(), text),
            Self::Open(error) => error.into_python(),
            Self::Memory(error) => error.into_python(),
            Self::Tenant(error) => error.into_python(),
            Self::Range { .. } | Self::PageSize { .. } => PyValueError::new_err(text),
            // `Mode`, and what there may be in later versions.
            _ => numbered(Some(libc::EOPNOTSUPP), text),
        }
    }
}

impl IntoPython for TenantError {
    fn into_python(self) -> PyErr {
        let text = self.to_string();
        match self {
            Self::Name { .. } | Self::Exists { .. } | Self::OtherPager => {
                PyValueError::new_err(text)
            }
            _ => Error::new_err(text),
        }
    }
}

impl IntoPython for CloseError {
    fn into_python(self) -> PyErr {
        let number = self.files.first().and_then(|file| file.source.raw_os_error());
        numbered(number, self.to_string())
    }
}

impl IntoPython for io::Error {
    fn into_python(self) -> PyErr {
        numbered(self.raw_os_error(), self.to_string())
    }
}

/// For `?` with errors of the runtime.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: IntoPython> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(IntoPython::into_python)
    }
}
