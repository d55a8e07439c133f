//! Pages on their way from reclaim to a store.
//!
//! Under the pool's lock their bytes are copied, so that their frames are free at once, and their
//! translations stay busy: a thread that wants one waits. When nothing is isolated any more the
//! lock is given back, they are compressed and stored, and each translation becomes absent, stored
//! or not. The thread owns them as those of reads in flight, and waits for nothing but short locks.

use super::places::Zcaches;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::{Freed, Owner, Shadow};
use std::sync::Arc;

/// Pages and bytes that one invocation of reclaim takes along before it stores them.
const PAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;

/// See the module documentation. Dropping it makes absent what was not stored.
#[derive(Debug)]
pub(crate) struct Leaving<'p> {
    pool: &'p Pool,
    pages: Vec<Page>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Page {
    space: Arc<Space>,
    page: u64,
    shadow: u32,
    /// Where its bytes are.
    at: usize,
}

impl<'p> Leaving<'p> {
    pub(crate) const fn new(pool: &'p Pool) -> Self {
        Self { pool, pages: Vec::new(), bytes: Vec::new() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether a page is the one that was taken along after this number of others.
    pub(crate) fn is(&self, after: usize, owner: Owner) -> bool {
        let is = |page: &Page| (page.space.id, page.page) == (owner.space, owner.page);
        self.pages.get(after).is_some_and(is)
    }

    /// Takes a page along that the engine has freed, whose translation is locked and whose bytes
    /// are still there, if it is to be kept. Then its translation is busy.
    pub(crate) fn take(&mut self, zcaches: &Zcaches, space: &Arc<Space>, gone: &Freed) {
        let (pool, Owner { page, .. }) = (self.pool, gone.owner);
        let Some(of_space) = &space.zcache else { return };
        let Some(shadow) = gone.shadow.map(Shadow::to_bits) else { return };
        let whole = (page + 1) << pool.page_shift <= space.len();
        let is_full = self.pages.len() >= PAGES_MAX || self.bytes.len() >= BYTES_MAX;
        if !whole
            || is_full
            || of_space.is_paused()
            || !zcaches.came_back(gone.folio.0)
            || !of_space.cache.wants(gone.owner, of_space.common.collects(), &|| pool.now())
        {
            return;
        }
        let Some(at) = self.copy(space, gone) else { return };
        if space.table.entry(page).hold_back() {
            // They see that it is busy, and wait again.
            pool.waits.complete(space.table.entry(page), &Ok(()));
        }
        self.pages.push(Page { space: Arc::clone(space), page, shadow, at });
    }

    /// Copies the bytes of a page, from its frame or from where a pointer leads, and says where
    /// they are.
    fn copy(&mut self, space: &Space, gone: &Freed) -> Option<usize> {
        let at = self.bytes.len();
        let Some(mapped) = &space.mapped else {
            self.bytes.extend_from_slice(self.pool.bytes(gone.folio.0));
            return Some(at);
        };
        self.bytes.resize(at + self.pool.page_bytes(), 0);
        let copied = mapped.copy(gone.owner.page, &mut self.bytes[at..]);
        if !copied {
            self.bytes.truncate(at);
        }
        copied.then_some(at)
    }

    /// Stores the pages. Called without the pool's lock.
    pub(crate) fn store(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let page_bytes = self.pool.page_bytes();
        let mut last = None;
        while !self.pages.is_empty() {
            // All of them take a millisecond: what a thread waits for comes first.
            let awaited = self.pages.iter().position(Page::is_awaited);
            let page = self.pages.swap_remove(awaited.unwrap_or(0));
            let bytes = &bytes[page.at..][..page_bytes];
            let of_space = page.space.zcache.as_ref().expect("only such are taken along");
            if !of_space.is_paused() {
                let owner = Owner { space: page.space.id, page: page.page };
                of_space.cache.store(owner, bytes, &of_space.common);
            }
            page.end(self.pool);
            last = Some(page.space);
        }
        if let Some(of_space) = last.as_ref().and_then(|space| space.zcache.as_ref()) {
            of_space.cache.adapt();
        }
    }
}

impl Page {
    fn is_awaited(&self) -> bool {
        self.space.table.entry(self.page).is_awaited()
    }

    /// It is absent from now on.
    fn end(&self, pool: &Pool) {
        let entry = self.space.table.entry(self.page);
        if entry.abort_read(self.shadow) {
            pool.waits.complete(entry, &Ok(()));
        }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        for page in self.pages.drain(..) {
            page.end(self.pool);
        }
    }
}
