//! Words behind a pointer, read without any check: private anonymous memory on ordinary pages, and
//! lowtide's maps. All are read by the same instructions.
//!
//! # Safety
//!
//! Anonymous memory is written once, before it can be read, and then only read. The file of a map
//! is locked for the run, and not written. Debug builds check every index against its length;
//! otherwise the contract of [`Words`] guarantees that it is below. A bounds check would not belong
//! to the cost of a raw pointer.

#![allow(unsafe_code)]

use std::convert::Infallible;
use std::io;

use lowtide::map::Map;
use lowtide_bench::content::{Content, WORD_BYTES};
use lowtide_sys::memory::{HugePages, Mapping};

use super::chase::Words;

/// Words in memory.
pub(crate) struct PointerWords {
    base: *const u64,
    count: u64,
    memory: Memory,
}

/// What keeps the words where they are.
enum Memory {
    Anonymous(#[expect(dead_code, reason = "it is unmapped on drop")] Mapping),
    Map(Map),
}

impl PointerWords {
    /// The words of the first `bytes` bytes (a multiple of 1 KiB), in fresh memory without huge
    /// pages.
    ///
    /// # Errors
    /// Those of mapping memory.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::new(bytes, HugePages::Never)?;
        // SAFETY: `Mapping::new` has committed at least `bytes` zeroed bytes, known only here until
        // this reference ends.
        let content = unsafe { std::slice::from_raw_parts_mut(mapping.as_ptr(), bytes) };
        Content::Words.fill(0, content);
        let base = mapping.as_ptr().cast_const().cast();
        Ok(Self { base, count: (bytes / WORD_BYTES) as u64, memory: Memory::Anonymous(mapping) })
    }

    /// All whole words of a map that begins with its file.
    pub(crate) fn of_map(map: Map) -> Self {
        let (base, count) = (map.as_ptr().cast(), (map.len() / WORD_BYTES) as u64);
        Self { base, count, memory: Memory::Map(map) }
    }

    /// Page faults that lowtide has served here, or noticed.
    pub(crate) fn faults(&self) -> u64 {
        match &self.memory {
            Memory::Anonymous(_) => 0,
            Memory::Map(map) => map.report().faults,
        }
    }
}

impl Words for PointerWords {
    type Error = Infallible;

    fn count(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    fn word(&mut self, index: u64) -> Result<u64, Infallible> {
        debug_assert!(index < self.count);
        // SAFETY: `index` is below `count` by this trait's contract, so the offset is inside the
        // memory that `memory` keeps mapped.
        let at = unsafe { self.base.add(index as usize) };
        // SAFETY: The word is mapped, aligned to 8 (memory and map start at a page), and never
        // written: `new` has initialised it, or the file has.
        Ok(u64::from_le(unsafe { at.read() }))
    }
}
