//! A file behind a pointer, without references to its bytes.

use crate::memory::Memory;
use crate::{Advice, Mmap, MmapAsRawDesc, MmapMut, MmapOptions, RemapOptions, UncheckedAdvice};
use std::fmt;
use std::io;

/// A map whose bytes are reached by pointers alone, for memory that others change.
pub struct MmapRaw(pub(crate) Memory);

#[expect(clippy::len_without_is_empty, reason = "as in memmap2")]
impl MmapRaw {
    /// Maps a whole file for reading and writing; [`MmapOptions`] has the rest.
    ///
    /// # Errors
    /// As [`MmapOptions::map_raw`].
    pub fn map_raw<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        MmapOptions::new().map_raw(file)
    }

    /// The first byte. What may be read through it is as the mapping has it.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.0.start()
    }

    /// The first byte. A store where the mapping is for reading is `SIGSEGV`.
    #[inline]
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.0.start()
    }

    /// Bytes of the map.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes all stores to the file, and returns when they are durable.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC` and others where writing failed.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_range(0, self.0.len())
    }

    /// Starts to write all stores, and does not wait.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), as far as errors are known already.
    pub fn flush_async(&self) -> io::Result<()> {
        self.flush_async_range(0, self.0.len())
    }

    /// As [`flush`](Self::flush), for a part of the map in bytes.
    ///
    /// # Errors
    /// `InvalidInput` for what is no part of the map; else as [`flush`](Self::flush).
    pub fn flush_range(&self, offset: usize, len: usize) -> io::Result<()> {
        self.0.flush(offset, len, libc::MS_SYNC)
    }

    /// As [`flush_async`](Self::flush_async), for a part of the map in bytes.
    ///
    /// # Errors
    /// As [`flush_range`](Self::flush_range).
    pub fn flush_async_range(&self, offset: usize, len: usize) -> io::Result<()> {
        self.0.flush(offset, len, libc::MS_ASYNC)
    }

    /// Says how the map will be used.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.0.advise(0, self.0.len(), advice as i32)
    }

    /// As [`advise`](Self::advise), with advice that may change bytes.
    ///
    /// # Errors
    /// What the kernel refuses.
    ///
    /// # Safety
    /// No reference to the bytes that it changes lives.
    pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
        self.0.advise(0, self.0.len(), advice as i32)
    }

    /// Says how a part of the map, in bytes, will be used.
    ///
    /// # Errors
    /// `InvalidInput` for what is no part of the map; else what the kernel refuses.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> io::Result<()> {
        self.0.advise(offset, len, advice as i32)
    }

    /// As [`advise_range`](Self::advise_range), with advice that may change bytes.
    ///
    /// # Errors
    /// As `advise_range`.
    ///
    /// # Safety
    /// As [`unchecked_advise`](Self::unchecked_advise).
    pub unsafe fn unchecked_advise_range(
        &self,
        advice: UncheckedAdvice,
        offset: usize,
        len: usize,
    ) -> io::Result<()> {
        self.0.advise(offset, len, advice as i32)
    }

    /// Keeps the whole map in memory (`mlock(2)`). It is outside the budget from then on.
    ///
    /// # Errors
    /// What the kernel refuses: more than the limit on locked memory.
    pub fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }

    /// Ends that (`munlock(2)`).
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }

    /// Makes the map longer or shorter.
    ///
    /// # Errors
    /// What the kernel refuses: it would have to move and may not. The map is as it was.
    ///
    /// # Safety
    /// A touch past the end of the file is `SIGBUS`; pointers into a map that moves dangle.
    pub unsafe fn remap(&mut self, new_len: usize, options: RemapOptions) -> io::Result<()> {
        // SAFETY: the map is borrowed alone, so nothing refers to its bytes.
        unsafe { self.0.remap(new_len, options) }
    }
}

impl fmt::Debug for MmapRaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MmapRaw")
            .field("ptr", &self.0.start().cast_const())
            .field("len", &self.0.len())
            .finish()
    }
}

impl From<Mmap> for MmapRaw {
    fn from(map: Mmap) -> Self {
        Self(map.0)
    }
}

impl From<MmapMut> for MmapRaw {
    fn from(map: MmapMut) -> Self {
        Self(map.0)
    }
}
