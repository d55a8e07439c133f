//! Where the compressed tier gets its memory: whole pages, one at a time.
//!
//! The store never allocates for contents by itself. It takes pages from a [`PageSource`] and drops
//! them when they are empty, so that the source can charge every one of them to the tenant whose
//! pages are compressed into it. Since a store belongs to one tenant, a page of it never holds
//! contents of two.
//!
//! The store calls [`PageSource::take`] and drops pages **while it holds none of its own locks**,
//! but for the one that lets one thread compact at a time: a source may take any lock of its owner,
//! and an owner may call the store under those locks only if the source does not need them. A page
//! that is dropped must not compact.

use crate::lock::lock;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a page of anonymous memory, in both tiers.
pub const PAGE_BYTES: usize = 4096;

/// Gives pages of memory to a store.
///
/// `take` is called from every thread that stores, recompresses or compacts.
pub trait PageSource: Send + Sync {
    /// A page of [`page_bytes`](PageSource::page_bytes), with any contents. Dropping it gives it
    /// back. Its bytes must not change in other ways while the store has it; if they do, loads fail
    /// with [`Corrupt`](crate::Corrupt).
    type Page: DerefMut<Target = [u8]> + Send;

    /// Bytes of a page: of one that is stored, and of the memory that it is stored in. A power of
    /// two from 512 to 65536, and always the same.
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    /// A page, or `None` if there is none now: the store then rejects what it should have kept.
    fn take(&self) -> Option<Self::Page>;

    /// The store's tables, which are on the heap, need another page until the store is dropped.
    /// False if there is none for them: the store then rejects what it should have kept.
    fn charge_table(&self) -> bool {
        true
    }

    /// A page that was charged for tables is not needed any more.
    fn uncharge_table(&self) {}
}

/// Pages on the heap, at most as many as a limit: for tests, benchmarks, and programs that use a
/// store without the runtime. Pages that come back are kept for later, until the source is dropped.
#[derive(Debug)]
pub struct HeapPages {
    shared: Arc<Shared>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Shared {
    taken: AtomicUsize,
    spare: Mutex<Vec<Box<[u8]>>>,
}

impl HeapPages {
    /// A source that has at most `limit` pages out at any time.
    #[must_use]
    pub fn new(limit: usize) -> HeapPages {
        HeapPages { shared: Arc::default(), limit }
    }

    /// Pages that are out now.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Acquire)
    }
}

impl PageSource for HeapPages {
    type Page = HeapPage;

    fn take(&self) -> Option<HeapPage> {
        let more = |taken| (taken < self.limit).then_some(taken + 1);
        self.shared.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        let spare = lock(&self.shared.spare).pop();
        let bytes = spare.unwrap_or_else(|| vec![0; PAGE_BYTES].into_boxed_slice());
        Some(HeapPage { bytes, shared: Arc::clone(&self.shared) })
    }
}

/// A page of [`HeapPages`].
#[derive(Debug)]
pub struct HeapPage {
    bytes: Box<[u8]>,
    shared: Arc<Shared>,
}

impl std::ops::Deref for HeapPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for HeapPage {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for HeapPage {
    fn drop(&mut self) {
        lock(&self.shared.spare).push(std::mem::take(&mut self.bytes));
        self.shared.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_no_more_pages_out_than_its_limit() {
        let source = HeapPages::new(2);
        let first = source.take().expect("the first");
        let _second = source.take().expect("the second");
        assert!(source.take().is_none());
        assert_eq!(source.taken(), 2);
        drop(first);
        assert_eq!(source.taken(), 1);
        assert_eq!(source.take().expect("one came back").len(), PAGE_BYTES);
    }
}
