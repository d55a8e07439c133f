//! Locks that a panic has left.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. One that a panic has left is taken as it is: what it guards has no unfinished
/// changes but those of the panic's own page, and contents are verified in any case.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
