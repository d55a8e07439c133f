//! Memory without a file, larger than its budget: what `lowtide.empty` makes arrays of.
//!
//! The runtime serves the page faults of this memory, so a child of `fork` does not have it: a
//! touch there is `SIGSEGV`, as the runtime's documents say. Arrays keep the object, and with it
//! the memory, alive.
//!
//! # Safety
//!
//! The buffer protocol gives out the address of memory that the object owns and never moves.

use crate::budget::Uses;
use crate::errors::OrRaise;
use crate::forks;
use crate::pager::Account;
use lowtide::map::{MapMut, MapOptions};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::mem::ManuallyDrop;

/// Zeroed memory of a budget, with the buffer protocol.
#[pyclass(module = "lowtide._lowtide", frozen, weakref)]
pub(crate) struct Memory {
    map: ManuallyDrop<MapMut>,
    address: usize,
    len: usize,
    /// The generation of the process that has it.
    born: u64,
    _uses: Uses,
}

#[pymethods]
impl Memory {
    #[new]
    fn new(py: Python<'_>, len: usize, budget: &Bound<'_, PyAny>) -> PyResult<Self> {
        if len == 0 {
            return Err(PyValueError::new_err("memory has at least one byte"));
        }
        let account = Account::of(budget)?;
        let map = py.detach(|| {
            let _quiet = forks::quiet();
            let tenant = account.tenant()?;
            MapOptions::new().tenant(&tenant).len(len).map_anon(tenant.pager()).or_raise()
        })?;
        let _uses = account.budget.uses(len as u64);
        let address = map.as_ptr().addr();
        Ok(Self { map: ManuallyDrop::new(map), address, len, born: forks::generation(), _uses })
    }

    /// Bytes of it.
    fn __len__(&self) -> usize {
        self.len
    }

    /// Bytes that are in memory now.
    #[getter]
    fn resident(&self) -> u64 {
        if self.born == forks::generation() { self.map.report().resident_bytes } else { 0 }
    }

    /// # Safety
    /// Called by Python, with a view to fill in.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        if this.born != forks::generation() {
            return Err(PyBufferError::new_err(
                "a child of fork does not have this memory: make it in the child, or use a file",
            ));
        }
        let (address, len) = (this.address as *mut _, this.len as ffi::Py_ssize_t);
        // SAFETY: Python's view, and memory that lives as long as the object, which the view keeps.
        let failed =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) } != 0;
        if failed { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.born != forks::generation() {
            // It is the parent's.
            return;
        }
        forks::without_pythons_lock(|| {
            let _quiet = forks::quiet();
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        });
    }
}
