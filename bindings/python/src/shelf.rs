//! Pagers that budgets of a size share.
//!
//! `lowtide.memmap(path, budget="8M")` is a budget for one array, and a program may have hundreds.
//! Each is a tenant of a pager that others share, so threads, and what else a pager has, are there
//! once. The tenant's `max` is the budget: nothing of another one's counts in it.
//!
//! A pager has tables for the whole of its budget, so it is not made for all that may come. The
//! next one, a *shelf*, is as large as those before it together: there are few. The sum of the
//! tenants' budgets is at most that of their shelf, so none has less room because of another.

use crate::errors::{IntoPython, OrRaise};
use crate::forks;
use lowtide::{BuildError, Pager, Size, Tenant, TenantError};
use pyo3::PyResult;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of the first shelf.
const FIRST: u64 = 64 << 20;

/// A pager, its bytes, and the sum of the budgets of its tenants.
struct Shelf {
    pager: Pager,
    bytes: u64,
    taken: AtomicU64,
}

/// Those of a generation of processes (`forks`): a child has none of its parent's. Locked in the
/// gate only.
static ALL: Mutex<(u64, Vec<Weak<Shelf>>)> = Mutex::new((0, Vec::new()));
/// Tenants have numbers for names.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The place of one budget on a shelf, until this is dropped.
pub(crate) struct Stand {
    pub(crate) tenant: Tenant,
    bytes: u64,
    shelf: Arc<Shelf>,
}

impl Stand {
    /// A place for a budget of this size.
    ///
    /// # Errors
    /// Those of making a pager of this size.
    pub(crate) fn take(size: Size) -> PyResult<Self> {
        let _quiet = forks::quiet();
        let bytes = size.bytes();
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if all.0 != forks::generation() {
            *all = (forks::generation(), Vec::new());
        }
        all.1.retain(|shelf| shelf.strong_count() > 0);
        let there: Vec<_> = all.1.iter().filter_map(Weak::upgrade).collect();
        let shelf = if let Some(shelf) = there.iter().find(|shelf| shelf.has_room(bytes)) {
            Arc::clone(shelf)
        } else {
            let of_all: u64 = there.iter().map(|shelf| shelf.bytes).sum();
            let shelf = Shelf::make(bytes, of_all.max(FIRST)).map_err(IntoPython::into_python);
            let shelf = Arc::new(shelf?);
            all.1.push(Arc::downgrade(&shelf));
            shelf
        };
        let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let tenant = shelf.pager.tenant(&name).max(size).create().or_raise()?;
        shelf.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(Self { tenant, bytes, shelf })
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Nothing is open or mapped in it any more. Where it cannot be removed, its place stays
        // taken: what it has is not for another budget.
        if remove(&self.tenant).is_ok() {
            self.shelf.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Removes a tenant, and those that the program has made below it.
fn remove(tenant: &Tenant) -> Result<(), TenantError> {
    tenant.children()?.iter().try_for_each(remove)?;
    tenant.remove()
}

impl Shelf {
    /// One for a budget, and for others of `more` bytes in all if the process may have that much.
    fn make(bytes: u64, more: u64) -> Result<Self, BuildError> {
        let build = |bytes| {
            let pager = Pager::builder().max(Size::new(bytes)).build()?;
            Ok(Self { pager, bytes, taken: AtomicU64::new(0) })
        };
        let larger = (more > bytes).then(|| build(more).ok()).flatten();
        larger.map_or_else(|| build(bytes), Ok)
    }

    fn has_room(&self, bytes: u64) -> bool {
        let sum = self.taken.load(Ordering::Relaxed).checked_add(bytes);
        sum.is_some_and(|sum| sum <= self.bytes)
    }
}
