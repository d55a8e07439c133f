//! A bit for each page of a map.
//!
//! * *Fresh*: the page is present only because it was brought in. It is so until it is looked at:
//!   that it is present by then says nothing about a second touch.
//! * *Handed*, of a part of 2 MiB: it came in by the kernel's read-ahead (`handed.rs`).
//! * *Elsewhere*: other processes had it mapped, too, when it was looked at.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct PageBits {
    words: Vec<AtomicU64>,
}

impl PageBits {
    pub(super) fn new(pages: u64) -> Self {
        Self { words: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Pages that there are bits for.
    pub(super) fn pages(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    /// Makes bits for more pages.
    pub(super) fn grow(&mut self, pages: u64) {
        self.words.resize_with(pages.div_ceil(64) as usize, || AtomicU64::new(0));
    }

    pub(super) fn set(&self, page: u64) {
        self.words[(page / 64) as usize].fetch_or(1 << (page % 64), Relaxed);
    }

    pub(super) fn is_set(&self, page: u64) -> bool {
        self.words
            .get((page / 64) as usize)
            .is_some_and(|word| word.load(Relaxed) >> (page % 64) & 1 == 1)
    }

    /// Clears the bit of a page, and returns whether it was set. Pages without a bit are not.
    pub(super) fn take(&self, page: u64) -> bool {
        let Some(word) = self.words.get((page / 64) as usize) else { return false };
        let bit = 1 << (page % 64);
        // Almost always it is clear: a line that is not written.
        word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0
    }
}
