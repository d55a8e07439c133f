//! Something that each process makes for itself.

use crate::forks;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Made at its first use in a process. What a child of `fork` finds of its parent's is left as it
/// is: it has threads that the child has not.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(Mutex<Option<(u64, Arc<T>)>>);

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerProcess<T> {
    /// Nothing, until it is used.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn slot(&self) -> MutexGuard<'_, Option<(u64, Arc<T>)>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.as_ref().is_some_and(|(born, _)| *born != forks::generation()) {
            mem::forget(slot.take());
        }
        slot
    }

    /// That of this process, made if it is the first use.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let _quiet = forks::quiet();
        let mut slot = self.slot();
        if let Some((_, made)) = &*slot {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(make()?);
        *slot = Some((forks::generation(), Arc::clone(&made)));
        Ok(made)
    }

    /// That of this process, if it was made.
    pub(crate) fn made(&self) -> Option<Arc<T>> {
        let _quiet = forks::quiet();
        self.slot().as_ref().map(|(_, made)| Arc::clone(made))
    }

    /// Takes that of this process out.
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        let _quiet = forks::quiet();
        self.slot().take().map(|(_, made)| made)
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        // A thread may end now, and no child is to find half of that.
        let _quiet = forks::quiet();
        drop(self.take());
    }
}
