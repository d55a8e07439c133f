//! What one file has of a tenant's compressed pages.

use super::common::Common;
use super::kept::Kept;
use lowtide_core::{Owner, SpaceId};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The compressed pages of one file.
#[derive(Debug)]
pub(crate) struct OfSpace {
    pub(crate) cache: Arc<dyn Kept>,
    space: SpaceId,
    pub(super) common: Arc<Common>,
    /// Threads that change the file beneath its absent pages.
    paused: AtomicU32,
}

/// While it lives, pages of a file are neither stored nor loaded. At its end none is stored.
#[must_use = "pages are stored again when it is dropped"]
pub(crate) struct Pause<'a>(&'a OfSpace);

impl OfSpace {
    pub(crate) fn new(cache: Arc<dyn Kept>, space: SpaceId) -> Self {
        Self { cache, space, common: Arc::default(), paused: AtomicU32::new(0) }
    }

    const fn owner(&self, page: u64) -> Owner {
        Owner { space: self.space, page }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(SeqCst) > 0
    }

    /// Fills a page whose translation this thread has made busy, if it is stored.
    pub(crate) fn load(&self, page: u64, to: &mut [u8]) -> bool {
        self.cache.missed(self.owner(page));
        !self.is_paused() && self.cache.load(self.owner(page), to, self.common.get())
    }

    /// Drops a page whose translation this thread has made busy: it is replaced.
    pub(crate) fn forget(&self, page: u64) {
        self.cache.forget(self.owner(page));
    }

    /// Drops pages, which this thread has busy or which cannot come in.
    pub(crate) fn forget_range(&self, pages: Range<u64>) {
        self.cache.forget_range(self.space, pages);
    }

    /// Drops all of it: the file is closed, and its number may soon be another's.
    pub(crate) fn end(&self) {
        self.forget_range(0..u64::MAX);
        self.cache.file_ends(self.common.end());
    }

    /// Keeps pages from being stored and loaded while a thread changes the file beneath them, and
    /// drops those that are stored. Loads that have begun are over when the thread has then seen
    /// that no page is busy.
    pub(crate) fn pause(&self) -> Pause<'_> {
        self.paused.fetch_add(1, SeqCst);
        Pause(self)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.forget_range(0..u64::MAX);
        self.0.paused.fetch_sub(1, SeqCst);
    }
}
