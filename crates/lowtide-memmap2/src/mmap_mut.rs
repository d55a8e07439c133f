//! A file, or memory, behind a pointer, for reading and writing.

use crate::memory::Memory;
use crate::{Mmap, MmapAsRawDesc, MmapOptions};
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

// SAFETY: the bytes stay where they are when the handle moves.
#[cfg(feature = "stable_deref_trait")]
unsafe impl stable_deref_trait::StableDeref for MmapMut {}
