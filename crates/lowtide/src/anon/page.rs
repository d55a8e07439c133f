//! The guard of a page that is stored to.

use super::access::Owned;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

thread_local! {
    /// Translations of the pages on which this thread has such guards.
    static WRITES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread has a guard for storing on a page, which its translation's address names.
pub(super) fn writes_here(address: usize) -> bool {
    WRITES.try_with(|writes| writes.borrow().contains(&address)) == Ok(true)
}

/// A page of a region that belongs to this thread alone while the guard lives.
///
/// Dereferences to the bytes of the page, always a whole one. Threads that want the page wait, so
/// do not wait for other work while holding one; two threads that each have one and want the
/// other's wait for ever, as with two mutexes. The page is not evicted meanwhile. A guard cannot
/// leave its thread.
#[must_use = "the page is owned only while the guard lives"]
pub struct PageMut<'region> {
    owned: Owned<'region>,
    not_send: std::marker::PhantomData<*const ()>,
}

impl<'region> PageMut<'region> {
    pub(super) fn new(owned: Owned<'region>) -> Self {
        WRITES.with_borrow_mut(|writes| writes.push(owned.address()));
        Self { owned, not_send: std::marker::PhantomData }
    }
}

impl Drop for PageMut<'_> {
    fn drop(&mut self) {
        let address = self.owned.address();
        let _ = WRITES.try_with(|writes| {
            let mut writes = writes.borrow_mut();
            if let Some(at) = writes.iter().rposition(|&other| other == address) {
                writes.swap_remove(at);
            }
        });
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for `Owned::bytes`, shared within this thread.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        unsafe {
            std::slice::from_raw_parts(self.owned.as_ptr(), self.owned.pool.page_bytes())
        }
    }
}

impl DerefMut for PageMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.owned.bytes()
    }
}

impl fmt::Debug for PageMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMut").field("len", &self.len()).finish_non_exhaustive()
    }
}
