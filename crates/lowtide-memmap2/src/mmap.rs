//! A file behind a pointer, for reading.

use crate::memory::Memory;
use crate::{MapIfSafeError, MmapAsRawDesc, MmapMut, MmapOptions};
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

// SAFETY: the bytes stay where they are when the handle moves.
#[cfg(feature = "stable_deref_trait")]
unsafe impl stable_deref_trait::StableDeref for Mmap {}
