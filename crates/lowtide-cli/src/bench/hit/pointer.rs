//! The raw pointer: private anonymous memory on ordinary pages, read without any check.
//!
//! # Safety
//!
//! The mapping is written once, before it can be read, and then only read. Debug builds check every
//! index against its length; otherwise the contract of [`Words`] guarantees that it is below. A
//! bounds check would not belong to the cost of a raw pointer.

#![allow(unsafe_code)]

use std::convert::Infallible;
use std::io;

use lowtide_sys::memory::{HugePages, Mapping};

use super::chase::Words;
use crate::bench::content::{Content, WORD_BYTES};

/// Words in anonymous memory.
pub(super) struct PointerWords {
    mapping: Mapping,
    count: u64,
}

impl PointerWords {
    /// The words of the first `bytes` bytes (a multiple of 1 KiB), in fresh memory without huge
    /// pages.
    ///
    /// # Errors
    /// Those of mapping memory.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::new(bytes, HugePages::Never)?;
        // SAFETY: `Mapping::new` has committed at least `bytes` zeroed bytes, known only here until
        // this reference ends.
        let content = unsafe { std::slice::from_raw_parts_mut(mapping.as_ptr(), bytes) };
        Content::Words.fill(0, content);
        Ok(Self { mapping, count: (bytes / WORD_BYTES) as u64 })
    }
}

impl Words for PointerWords {
    type Error = Infallible;

    fn count(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    fn word(&self, index: u64) -> Result<u64, Infallible> {
        debug_assert!(index < self.count);
        // SAFETY: `index` is below `count` by this trait's contract, so the offset is inside the
        // mapping.
        let at = unsafe { self.mapping.as_ptr().cast::<u64>().add(index as usize) };
        // SAFETY: The word is committed, aligned to 8 (a mapping starts at a page), initialised by
        // `new` and never written again.
        Ok(u64::from_le(unsafe { at.read() }))
    }
}
