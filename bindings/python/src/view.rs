//! Files that are read and written through the budget. `lowtide.View`, a raw file of Python's, is
//! made of this.

use crate::arguments::{Buffer, optional_size};
use crate::budget::Uses;
use crate::errors::{Error, IntoPython, OrRaise};
use crate::gather::{Gather, Refused, Rows};
use crate::identity::{self, Identity};
use crate::pager::Account;
use crate::per_process::PerProcess;
use lowtide::{OpenOptions, Size, View};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// An open file, in any process.
#[pyclass(module = "lowtide._lowtide", frozen)]
pub(crate) struct RawView {
    account: Account,
    path: PathBuf,
    writes: bool,
    create: Option<Size>,
    locks: bool,
    read_ahead: Option<Size>,
    is_closed: AtomicBool,
    live: PerProcess<View>,
    /// Which file it is, since it was opened: another process opens the same one, or none.
    file: OnceLock<Identity>,
    uses: Mutex<Option<Uses>>,
}

/// How often a file is opened that is replaced at each time.
const TRIES: u32 = 100;

impl RawView {
    fn view(&self) -> PyResult<Arc<View>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(PyValueError::new_err("I/O operation on closed file"));
        }
        if let Some(view) = self.live.made() {
            return Ok(view);
        }
        // Outside of the closure: a budget makes something for this process, too.
        let tenant = self.account.tenant()?;
        self.live.get(|| {
            let mut options =
                OpenOptions::new().write(self.writes).lock(self.locks).tenant(&tenant);
            if let Some(bytes) = self.create {
                options = options.create_with_len(bytes);
            }
            if let Some(window) = self.read_ahead {
                options = options.read_ahead(window);
            }
            for _ in 0..TRIES {
                let before = identity::of_path(&self.path).ok();
                let view = options.open(tenant.pager(), &self.path).or_raise()?;
                let after = identity::of_path(&self.path).map_err(IntoPython::into_python)?;
                if before.is_none_or(|before| identity::is_same(&before, &after)) {
                    return self.check(&after).map(|()| view);
                }
            }
            let path = self.path.display();
            Err(Error::new_err(format!("{path} is replaced again and again while it is opened")))
        })
    }

    /// That it is the file which was opened first.
    fn check(&self, found: &Identity) -> PyResult<()> {
        if identity::is_same(self.file.get_or_init(|| *found), found) {
            return Ok(());
        }
        let path = self.path.display();
        let text =
            format!("{path} is another file by now than the one that this process inherited");
        Err(Error::new_err(text))
    }

    fn note_use(&self, bytes: u64) {
        let uses = self.account.budget.uses(bytes);
        *self.uses.lock().unwrap_or_else(PoisonError::into_inner) = Some(uses);
    }
}

#[pymethods]
impl RawView {
    #[new]
    #[pyo3(signature = (path, budget, *, write=false, create=None, lock=true, read_ahead=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        budget: &Bound<'_, PyAny>,
        write: bool,
        create: Option<&Bound<'_, PyAny>>,
        lock: bool,
        read_ahead: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let create = optional_size(create)?;
        let view = Self {
            account: Account::of(budget)?,
            // A child may be in another folder.
            path: std::path::absolute(path)?,
            writes: write || create.is_some(),
            create,
            locks: lock,
            read_ahead: optional_size(read_ahead)?,
            is_closed: AtomicBool::new(false),
            live: PerProcess::default(),
            file: OnceLock::new(),
            uses: Mutex::default(),
        };
        py.detach(|| {
            let len = view.view()?.len();
            view.note_use(len);
            Ok::<_, PyErr>(())
        })?;
        Ok(view)
    }

    /// Which file was opened, as it was then.
    #[getter]
    fn file(&self) -> Option<Identity> {
        self.file.get().copied()
    }

    /// Bytes of the file: it is looked at.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.view()?.refresh_len().or_raise())
    }

    /// Bytes of a page.
    #[getter]
    fn page_size(&self) -> usize {
        self.account.budget.spec.page_size
    }

    /// Whether stores are possible.
    #[getter]
    fn writable(&self) -> bool {
        self.writes
    }

    /// Whether the file is read past the kernel's page cache.
    #[getter]
    fn direct(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| Ok(self.view()?.is_direct()))
    }

    /// Copies what exists of a range into an object: the bytes that did.
    fn read_into(&self, py: Python<'_>, offset: u64, into: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = Buffer::of(into, true)?;
        py.detach(|| self.view()?.read_clamped(offset, buffer.bytes_mut()).or_raise())
    }

    /// Copies the bytes of an object into the file.
    fn write(&self, py: Python<'_>, offset: u64, bytes: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::of(bytes, false)?;
        py.detach(|| self.view()?.write_at(offset, buffer.bytes()).or_raise())?;
        Ok(buffer.len())
    }

    /// Copies rows of `row` bytes, of those that begin at `offset`, into `out`. `indices` are
    /// numbers of eight bytes.
    fn gather(
        &self,
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        row: usize,
        offset: u64,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (indices, mut out) = (Buffer::of(indices, false)?, Buffer::of(out, true)?);
        let indices = indices_of(&indices)?;
        if row == 0 || out.len() / row < indices.len() {
            let (has, wants) = (out.len(), indices.len().saturating_mul(row));
            return Err(PyValueError::new_err(format!("`out` has {has} bytes, not {wants}")));
        }
        let mut gather = Gather::default();
        let view = py.detach(|| self.view())?;
        let mut rows = Rows::of(view.len(), offset, row);
        let (mut done, mut has_looked) = (0, false);
        while done < indices.len() {
            let left = &indices[done..];
            let to = done * row;
            let round = py.detach(|| {
                let into = &mut out.bytes_mut()[to..];
                gather.round(&view, &rows, left, into)
            });
            match round {
                Ok(count) => done += count,
                Err(Refused::Index(_)) if !has_looked => {
                    // The file may have become longer.
                    let len = py.detach(|| view.refresh_len().or_raise())?;
                    rows = Rows::of(len, offset, row);
                    has_looked = true;
                }
                Err(Refused::Index(index)) => {
                    let count = rows.count;
                    return Err(PyIndexError::new_err(format!(
                        "row {index} is not one of the {count} rows of {row} bytes of {}",
                        self.path.display()
                    )));
                }
                Err(Refused::Runtime(error)) => return Err(error).or_raise(),
            }
            py.check_signals()?;
        }
        Ok(())
    }

    /// The range is soon wanted: it is read in the background, as far as there is room.
    fn prefetch(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<()> {
        py.detach(|| {
            self.view()?.prefetch(offset..offset.saturating_add(size));
            Ok(())
        })
    }

    /// Makes the file longer or shorter.
    fn truncate(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        py.detach(|| self.view()?.set_len(bytes).or_raise())
    }

    /// Makes everything durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.view()?.flush().or_raise())
    }

    /// Makes everything durable, and closes the file.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        py.detach(|| {
            let _quiet = crate::forks::quiet();
            drop(self.uses.lock().unwrap_or_else(PoisonError::into_inner).take());
            let Some(view) = self.live.take() else { return Ok(()) };
            let flushed = view.flush();
            drop(view);
            flushed.or_raise()
        })
    }
}

/// The numbers in a buffer, which are eight bytes each.
fn indices_of(buffer: &Buffer) -> PyResult<&[i64]> {
    // SAFETY: any bytes are numbers; those that are not in whole numbers are refused below.
    #[expect(unsafe_code, reason = "bytes are looked at as numbers")]
    let (before, indices, behind) = unsafe { buffer.bytes().align_to::<i64>() };
    if before.is_empty() && behind.is_empty() {
        return Ok(indices);
    }
    Err(Error::new_err("indices are aligned numbers of eight bytes"))
}
