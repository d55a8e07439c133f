//! A region of lowtide behind a pointer.
//!
//! Threads load and store words of it as atomics, so that no two of them race. A page that cannot
//! be brought in ends the process with a signal: the budget and the swap file have room for all.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lowtide::map::MapMut;
use lowtide_experiments::programs::heap::PAGE;

use super::content::WORDS;
use super::memory::Words;

/// Pages of words in such memory. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pointer {
    words: NonNull<AtomicU64>,
    pages: u64,
    /// Keeps the addresses.
    _memory: Arc<MapMut>,
}

// SAFETY: the words are atomics at addresses that are valid in all threads while a clone lives.
unsafe impl Send for Pointer {}

impl Pointer {
    pub(crate) fn new(mut memory: MapMut) -> Self {
        let pages = memory.len() as u64 / PAGE;
        let words = NonNull::new(memory.as_mut_ptr().cast()).expect("memory has an address");
        Self { words, pages, _memory: Arc::new(memory) }
    }
}

impl Words for Pointer {
    fn page(&self, page: u64) -> &[AtomicU64] {
        assert!(page < self.pages, "page {page} of a heap of {}", self.pages);
        // SAFETY: the page lies in the memory, as was just checked.
        let first = unsafe { self.words.add(page as usize * WORDS) };
        // SAFETY: the words are aligned as pages are, live as long as this, and are used as atomics
        // alone.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), WORDS) }
    }
}
