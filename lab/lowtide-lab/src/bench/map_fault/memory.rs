//! The memory that is touched: the words of a data file, mapped by lowtide or by the kernel.
//!
//! # Safety
//!
//! The file is locked for the run and not written, so its bytes do not change while references to
//! them live. Both kinds of mappings are shared: a page that is taken out of the page table keeps
//! its bytes.

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;

use lowtide::map::{Map, MapReport};
use lowtide_bench::content::{WORD_BYTES, word};
use lowtide_bench::datafile::DataFile;
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache;
use lowtide_workload::SplitMix64;
use memmap2::{Advice, Mmap, MmapOptions};

/// A mapped file of words.
pub(crate) enum Memory {
    Map(Map),
    Kernel(Mmap),
}

impl Memory {
    /// A mapping of the kernel that reads nothing around a fault.
    ///
    /// # Errors
    /// Those of mapping.
    pub(crate) fn kernel(file: &DataFile, len: usize) -> io::Result<Self> {
        // SAFETY: no process changes the file, which has `len` bytes.
        let mapping = unsafe { MmapOptions::new().len(len).map(file.file()) }?;
        mapping.advise(Advice::Random)?;
        Ok(Self::Kernel(mapping))
    }

    /// What lowtide says about its map.
    pub(crate) fn report(&self) -> Option<MapReport> {
        match self {
            Self::Map(map) => Some(map.report()),
            Self::Kernel(_) => None,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Kernel(mapping) => mapping,
        }
    }

    /// The number of pages.
    pub(crate) fn pages(&self) -> u64 {
        (self.bytes().len() / page_size()) as u64
    }

    /// The addresses of all pages.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.bytes().as_ptr().addr();
        start..start + self.bytes().len()
    }

    /// Reads a word of each of `pages`, and returns how many were wrong.
    pub(crate) fn touch(&self, pages: impl Iterator<Item = u64>, seed: u64) -> u64 {
        let words_a_page = (page_size() / WORD_BYTES) as u64;
        let mut rng = SplitMix64::new(seed);
        let (words, _) = self.bytes().as_chunks::<WORD_BYTES>();
        let mut wrong = 0;
        for page in pages {
            let index = page * words_a_page + rng.below(words_a_page);
            wrong += u64::from(u64::from_le_bytes(words[index as usize]) != word(index));
        }
        wrong
    }

    /// Takes all pages out of the page table.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn zap(&self) -> io::Result<()> {
        // SAFETY: a shared mapping, whose next touch maps the same bytes.
        unsafe { page_cache::zap(self.addresses()) }
    }
}
