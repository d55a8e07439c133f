//! Errors of the runtime as exceptions of Python.
//!
//! An error of the kernel becomes an `OSError` with its number, so Python chooses the subclass:
//! `FileNotFoundError`, `PermissionError`. An error of lowtide's own has a class of its own below
//! `lowtide.Error`, which is an `OSError`, too; some are also what Python's functions raise for the
//! same (`python/lowtide/_errors.py`). What is wrong with an argument is a `ValueError`.
//!
//! They are made without Python's lock, which a thread that makes one may not wait for (`forks`).

use lowtide::map::MapError;
use lowtide::{BuildError, CloseError, OpenError, TenantError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::{create_exception, import_exception};
use std::io;

create_exception!(
    lowtide,
    Error,
    PyOSError,
    "An error of lowtide that the kernel has no number for."
);

// Classes of Python: most have two bases.
import_exception!(lowtide._errors, Busy);
import_exception!(lowtide._errors, Closed);
import_exception!(lowtide._errors, Exists);
import_exception!(lowtide._errors, Gone);
import_exception!(lowtide._errors, Locked);
import_exception!(lowtide._errors, NotEmpty);
import_exception!(lowtide._errors, NotPossible);
import_exception!(lowtide._errors, OutOfBudget);
import_exception!(lowtide._errors, OutOfRange);
import_exception!(lowtide._errors, Poisoned);
import_exception!(lowtide._errors, ReadOnly);
import_exception!(lowtide._errors, Timeout);

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
        let (number, text) = (self.raw_os_error(), self.to_string());
        match self {
            Self::OutOfBudget { .. } | Self::NoMemory { .. } => {
                OutOfBudget::new_err((libc::ENOMEM, text))
            }
            Self::OutOfRange { .. } => OutOfRange::new_err(text),
            Self::Timeout { .. } => Timeout::new_err((number, text)),
            Self::HeldHere { .. } | Self::HeldElsewhere { .. } | Self::Nested { .. } => {
                Busy::new_err((number, text))
            }
            Self::ReadOnly { .. } => ReadOnly::new_err((number, text)),
            Self::Poisoned => Poisoned::new_err(text),
            Self::Tenant(error) => of_tenant(&error, text),
            _ => numbered(number, text),
        }
    }
}

impl IntoPython for OpenError {
    fn into_python(self) -> PyErr {
        let (number, text) = (self.raw_os_error(), self.to_string());
        match self {
            Self::FolioOrder { .. } => PyValueError::new_err(text),
            Self::Locked { .. } => Locked::new_err((number, text)),
            Self::Poisoned { .. } => Poisoned::new_err(text),
            Self::Tenant { source, .. } => of_tenant(&source, text),
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
            Self::Tenant(error) => of_tenant(&error, text),
            Self::Range { .. } | Self::PageSize { .. } => PyValueError::new_err(text),
            // `Mode`, and what there may be in later versions.
            _ => NotPossible::new_err((libc::EOPNOTSUPP, text)),
        }
    }
}

impl IntoPython for TenantError {
    fn into_python(self) -> PyErr {
        let text = self.to_string();
        of_tenant(&self, text)
    }
}

/// With the text of the error around it, which names the file.
fn of_tenant(error: &TenantError, text: String) -> PyErr {
    match error {
        TenantError::Gone => Gone::new_err(text),
        TenantError::Busy => Busy::new_err((libc::EBUSY, text)),
        TenantError::Exists { .. } => Exists::new_err(text),
        TenantError::HasChildren { .. } => NotEmpty::new_err((libc::ENOTEMPTY, text)),
        TenantError::NoRoom { .. } => OutOfBudget::new_err((libc::ENOMEM, text)),
        TenantError::Poisoned => Poisoned::new_err(text),
        TenantError::TooMany | TenantError::TooDeep | TenantError::NoThread { .. } => {
            Error::new_err(text)
        }
        // Of an argument: a name, a limit, a tenant of another pager.
        _ => PyValueError::new_err(text),
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
