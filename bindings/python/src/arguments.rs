//! Arguments: sizes, policies, and the memory of other objects.

use lowtide::{Policy, Size};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use std::mem::MaybeUninit;
use std::slice;

/// Bytes: a number, or a text such as `"2G"`.
pub(crate) fn size(value: &Bound<'_, PyAny>) -> PyResult<Size> {
    if let Ok(bytes) = value.extract::<u64>() {
        return Ok(Size::new(bytes));
    }
    if value.is_instance_of::<PyInt>() {
        return Err(PyValueError::new_err(format!(
            "a size is a number of bytes from 0 to 2**64 - 1, and {value} is not"
        )));
    }
    let Ok(text) = value.extract::<String>() else {
        let what = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "a size is a number of bytes or a text such as '2G', not a {what}"
        )));
    };
    text.parse::<Size>().map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Bytes of an optional size.
pub(crate) fn optional_size(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Size>> {
    value.map(size).transpose()
}

/// The bytes that a size such as `"2G"` stands for.
#[pyfunction]
pub(crate) fn parse_size(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    size(value).map(Size::bytes)
}

/// A policy by its name.
pub(crate) fn policy(name: &str) -> PyResult<Policy> {
    name.parse::<Policy>().map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The memory of an object, which does not move or go while this lives.
pub(crate) struct Buffer(ffi::Py_buffer);

// SAFETY: the object keeps its memory until the buffer is released, which `Drop` does with Python's
// lock; until then any thread may use the memory.
unsafe impl Send for Buffer {}
// SAFETY: as above; what other threads store meanwhile is the program's own doing, as it is with
// every function that gives Python's lock back.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The memory of an object, in one piece.
    ///
    /// # Errors
    /// That of the object: it has no memory, not in one piece, or not to be stored to.
    pub(crate) fn of(object: &Bound<'_, PyAny>, is_stored: bool) -> PyResult<Self> {
        let mut buffer = MaybeUninit::<ffi::Py_buffer>::uninit();
        let flags = if is_stored { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
        // SAFETY: an object, and room for what the call fills in.
        let failed =
            unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), buffer.as_mut_ptr(), flags) } != 0;
        if failed {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: the call has filled it in.
        Ok(Self(unsafe { buffer.assume_init() }))
    }

    /// Where it is.
    pub(crate) fn address(&self) -> usize {
        self.0.buf.addr()
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or_default()
    }

    /// The memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: the object keeps that many bytes there while this lives.
        unsafe { slice::from_raw_parts(self.0.buf.cast::<u8>(), self.len()) }
    }

    /// The memory, for stores.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 || self.0.readonly != 0 {
            return &mut [];
        }
        // SAFETY: as above, and the object permits stores.
        unsafe { slice::from_raw_parts_mut(self.0.buf.cast::<u8>(), self.len()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was filled in by the object, and is released once, with Python's lock.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut self.0) });
    }
}

/// Where the memory of an object is, and its bytes.
#[pyfunction]
pub(crate) fn address_of(object: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    let buffer = Buffer::of(object, false)?;
    Ok((buffer.address(), buffer.len()))
}
