//! A file behind a pointer, for reading.

use crate::UncheckedAdvice;
use crate::memory::Memory;
use crate::{Advice, MapIfSafeError, MmapAsRawDesc, MmapMut, MmapOptions, RemapOptions};
use std::fmt;
use std::io;
use std::ops::Deref;

/// A map for reading. Dereferences to its bytes; drop unmaps it.
pub struct Mmap(pub(crate) Memory);

impl Mmap {
    /// Maps a whole file; [`MmapOptions`] has the rest.
    ///
    /// # Errors
    /// As [`MmapOptions::map`].
    ///
    /// # Safety
    /// As [`MmapOptions::map`].
    pub unsafe fn map<T: MmapAsRawDesc>(file: T) -> io::Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { MmapOptions::new().map(file) }
    }

    /// Maps a whole file that no process can change.
    ///
    /// # Errors
    /// As [`MmapOptions::map_if_safe`].
    pub fn map_if_safe<T: MmapAsRawDesc>(file: T) -> Result<Self, MapIfSafeError> {
        MmapOptions::new().map_if_safe(file)
    }

    /// Permits stores. One of [`MmapOptions::map_copy_read_only`] leaves the budget.
    ///
    /// # Errors
    /// `PermissionDenied` for a descriptor that was not opened for writing, unless stores are the
    /// map's own. The map is gone then.
    pub fn make_mut(self) -> io::Result<MmapMut> {
        // An evicted page comes back as the file has it, without stores that are the map's own.
        if self.0.is_private() {
            self.0.forget();
        }
        self.0.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(MmapMut(self.0))
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

impl Deref for Mmap {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the addresses are mapped while this lives, and readable; the caller that mapped
        // the file promised that no one changes it meanwhile.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.len()) }
    }
}

impl AsRef<[u8]> for Mmap {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Mmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mmap")
            .field("ptr", &self.0.start().cast_const())
            .field("len", &self.0.len())
            .finish()
    }
}

// SAFETY: the bytes stay where they are when the handle moves.
#[cfg(feature = "stable_deref_trait")]
unsafe impl stable_deref_trait::StableDeref for Mmap {}
