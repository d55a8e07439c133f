//! `lowtide._lowtide`: what the Python package needs of the runtime.
//!
//! The package around it (`python/lowtide`) is what programs use; this module is private to it. The
//! two divide the work so: here is all that touches pages, threads or descriptors, with Python's
//! lock released; there is what an array, a map or a file looks like to a Python program.
//!
//! **One object, any process.** A child of `fork` has the objects of its parent and none of the
//! threads, so it must not touch a pager of its parent's. Each object here knows how it was made,
//! and makes what it stands for once in each process (`per_process`). A child adopts the maps
//! that it inherited before `fork` returns to its program (`forks`), and processes that have the
//! same `budget` divide it (`sharing`).
//!
//! | file | concept |
//! |---|---|
//! | `errors` | errors of the runtime as exceptions of Python |
//! | `arguments` | sizes, policies, memory of other objects |
//! | `budget` | a pager and its tenants, in any process |
//! | `shelf` | pagers that budgets of a size share |
//! | `pager` | the classes `Pager` and `Tenant` |
//! | `counters` | their counters, as dictionaries, of which `_results.py` makes results |
//! | `adopted` | mappings of the program that were taken over |
//! | `mirror` | maps that were replaced by a mirror |
//! | `identity` | which file it is |
//! | `view` | files that are read and written through the budget |
//! | `gather` | many rows in one call |
//! | `memory` | memory without a file, larger than its budget |
//! | `forks`, `per_process` | what a child of `fork` finds |
//! | `sharing` | one budget for several processes |
//! | `log` | what the runtime says, for `logging` |
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "see the file's header")]
mod adopted;
#[allow(unsafe_code, reason = "the buffer protocol")]
mod arguments;
mod budget;
mod counters;
mod errors;
#[allow(unsafe_code, reason = "see the file's header")]
mod forks;
mod gather;
mod identity;
#[allow(unsafe_code, reason = "see the file's header")]
mod log;
#[allow(unsafe_code, reason = "the buffer protocol")]
mod memory;
#[allow(unsafe_code, reason = "see the file's header")]
mod mirror;
mod pager;
mod per_process;
#[allow(unsafe_code, reason = "see the file's header")]
mod sharing;
mod shelf;
mod view;

use pyo3::prelude::*;

/// The module.
#[pymodule]
#[pyo3(name = "_lowtide")]
fn extension(m: &Bound<'_, PyModule>) -> PyResult<()> {
    log::watch();
    forks::watch();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("Error", m.py().get_type::<errors::Error>())?;
    m.add_class::<pager::Pager>()?;
    m.add_class::<pager::Tenant>()?;
    m.add_class::<adopted::Adopted>()?;
    m.add_class::<mirror::Mirror>()?;
    m.add_class::<view::RawView>()?;
    m.add_class::<memory::Memory>()?;
    m.add_function(wrap_pyfunction!(arguments::parse_size, m)?)?;
    m.add_function(wrap_pyfunction!(adopted::close, m)?)?;
    m.add_function(wrap_pyfunction!(adopted::as_mapped, m)?)?;
    m.add_function(wrap_pyfunction!(arguments::address_of, m)?)?;
    m.add_function(wrap_pyfunction!(identity::identity, m)?)?;
    m.add_function(wrap_pyfunction!(adopted::lives_in_memory, m)?)?;
    m.add_function(wrap_pyfunction!(pager::pager_for_maps, m)?)?;
    m.add_function(wrap_pyfunction!(pager::shared_pager, m)?)?;
    m.add_function(wrap_pyfunction!(forks::before_fork, m)?)?;
    m.add_function(wrap_pyfunction!(forks::after_fork_in_parent, m)?)?;
    m.add_function(wrap_pyfunction!(forks::after_fork_in_child, m)?)?;
    #[cfg(debug_assertions)]
    m.add_function(wrap_pyfunction!(sharing::hold_descriptors, m)?)?;
    m.add_function(wrap_pyfunction!(sharing::leave_all, m)?)
}
