//! The guard of a page that is stored to.

use super::access::Owned;
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

thread_local! {
    static WRITES: RefCell<ManuallyDrop<Writes>> =
        const { RefCell::new(ManuallyDrop::new(Writes::NONE)) };
}

/// Guards that a thread may have without an allocation.
const NEAR: usize = 8;

/// Translations of the pages on which this thread has such guards.
///
/// It has no destructor: a thread-local of the program may store to pages in its own, when those of
/// other thread-locals have run. So it has no memory but while there are many guards.
struct Writes {
    /// The first of them; 0 is none.
    near: [usize; NEAR],
    more: Vec<usize>,
}

impl Writes {
    const NONE: Self = Self { near: [0; NEAR], more: Vec::new() };

    fn add(&mut self, address: usize) {
        match self.near.iter_mut().find(|near| **near == 0) {
            Some(near) => *near = address,
            None => self.more.push(address),
        }
    }

    fn has(&self, address: usize) -> bool {
        self.near.contains(&address) || self.more.contains(&address)
    }

    fn remove(&mut self, address: usize) {
        if let Some(near) = self.near.iter_mut().find(|near| **near == address) {
            *near = 0;
        } else if let Some(at) = self.more.iter().position(|&other| other == address) {
            self.more.swap_remove(at);
            if self.more.is_empty() {
                self.more = Vec::new();
            }
        }
    }
}

/// Whether this thread has a guard for storing on a page, which its translation's address names.
pub(super) fn writes_here(address: usize) -> bool {
    WRITES.with_borrow(|writes| writes.has(address))
}

/// A page of a region that belongs to this thread alone while the guard lives.
///
/// Dereferences to the bytes of the page, always a whole one. Threads that want the page wait, so
/// do not wait for other work while holding one; two threads that each have one and want the
/// other's wait forever, as with two mutexes. The page is not evicted while the guard lives. A
/// guard cannot leave its thread.
#[must_use = "the page is owned only while the guard lives"]
pub struct PageMut<'region> {
    owned: Owned<'region>,
    not_send: std::marker::PhantomData<*const ()>,
}

impl<'region> PageMut<'region> {
    pub(super) fn new(owned: Owned<'region>) -> Self {
        WRITES.with_borrow_mut(|writes| writes.add(owned.address()));
        Self { owned, not_send: std::marker::PhantomData }
    }
}

impl Drop for PageMut<'_> {
    fn drop(&mut self) {
        let address = self.owned.address();
        WRITES.with_borrow_mut(|writes| writes.remove(address));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_guards_as_there_are_are_found_and_memory_for_many_is_given_back() {
        let mut writes = Writes::NONE;
        for count in [1, NEAR, 3 * NEAR] {
            (1..=count).for_each(|address| writes.add(address));
            assert!((1..=count).all(|address| writes.has(address)) && !writes.has(count + 1));
            for address in (1..=count).rev().step_by(2).chain((1..=count).rev().skip(1).step_by(2))
            {
                writes.remove(address);
                assert!(!writes.has(address));
            }
            assert_eq!((writes.near, writes.more.capacity()), ([0; NEAR], 0));
        }
    }
}
