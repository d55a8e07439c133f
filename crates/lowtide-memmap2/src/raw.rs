//! A file behind a pointer, without references to its bytes.

use crate::memory::Memory;
use crate::{Mmap, MmapAsRawDesc, MmapMut, MmapOptions};
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
