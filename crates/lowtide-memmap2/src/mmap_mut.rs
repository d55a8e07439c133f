//! A file, or memory, behind a pointer, for reading and writing.

use crate::memory::Memory;
use crate::{Advice, Mmap, MmapAsRawDesc, MmapOptions, RemapOptions, UncheckedAdvice};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

/// A map for reading and writing. Dereferences to its bytes; drop unmaps it, loses no store to the
/// file, and makes none durable.
pub struct MmapMut(pub(crate) Memory);

impl MmapMut {
    /// Maps a whole file; [`MmapOptions`] has the rest.
    ///
    /// # Errors
    /// As [`MmapOptions::map_mut`].
    ///
    /// # Safety
    /// As [`MmapOptions::map_mut`].
    pub unsafe fn map_mut<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { MmapOptions::new().map_mut(file) }
    }

    /// Memory of `length` bytes without a file.
    ///
    /// # Errors
    /// As [`MmapOptions::map_anon`].
    pub fn map_anon(length: usize) -> io::Result<Self> {
        MmapOptions::new().len(length).map_anon()
    }

    /// Ends the stores.
    ///
    /// # Errors
    /// What the kernel refuses; the map is gone then.
    pub fn make_read_only(self) -> io::Result<Mmap> {
        self.0.protect(libc::PROT_READ)?;
        Ok(Mmap(self.0))
    }

    /// Ends the stores, and permits execution. It is outside the budget from then on.
    ///
    /// # Errors
    /// What the kernel refuses; the map is gone then.
    pub fn make_exec(self) -> io::Result<Mmap> {
        self.0.forget();
        self.0.protect(libc::PROT_READ | libc::PROT_EXEC)?;
        Ok(Mmap(self.0))
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

impl Deref for MmapMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the addresses are mapped while this lives, and readable; the caller that mapped
        // the file promised that no one changes it meanwhile.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.len()) }
    }
}

impl AsRef<[u8]> for MmapMut {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for MmapMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive, and stores are permitted.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.0.len()) }
    }
}

impl AsMut<[u8]> for MmapMut {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for MmapMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MmapMut")
            .field("ptr", &self.0.start().cast_const())
            .field("len", &self.0.len())
            .finish()
    }
}

// SAFETY: the bytes stay where they are when the handle moves.
#[cfg(feature = "stable_deref_trait")]
unsafe impl stable_deref_trait::StableDeref for MmapMut {}
