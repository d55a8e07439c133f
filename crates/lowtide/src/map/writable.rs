//! The handle of a map that is stored to.
//!
//! In `pagecache` mode a store goes to the kernel's page of the file, or, in a map of
//! [`map_copy`](super::MapOptions::map_copy), to a copy. lowtide takes no part in writing: a page
//! that is zapped hands its dirty bit to the page cache, which writes it as usual, and a dirty page
//! is not dropped. So a budget can take a page out of the program's addresses at any moment, and no
//! store is lost.
//!
//! In `userfault` mode lowtide writes what is stored, as it does for views (`stores.rs`).

use super::area::{Area, Memory, Stores};
use super::error::MapError;
use super::handle::{Map, debug};
use super::options::Access;
use super::remap::RemapOptions;
use super::report::MapReport;
use crate::error::Error;
use lowtide_sys::page_cache;
use lowtide_sys::shared::Rights;
use std::borrow::{Borrow, BorrowMut};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};

/// A file behind a pointer, under a budget, for reading and writing. Dereferences to its bytes.
///
/// Made by [`MapOptions::map_mut`](super::MapOptions::map_mut),
/// [`MapOptions::map_copy`](super::MapOptions::map_copy) and [`Map::make_mut`]. Dropping it loses
/// no store to the file, and makes none durable: call [`flush`](Self::flush) before.
///
/// ```
/// use lowtide::{Size, Pager, map::MapOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("table");
/// let pager = Pager::builder().max(Size::kib(256)).build()?;
/// let file = std::fs::File::options().read(true).write(true).create(true).open(&path)?;
/// file.set_len(1 << 20)?;
/// // SAFETY: no other program uses the file.
/// let mut map = match unsafe { MapOptions::new().map_mut(&pager, &file) } {
/// #   Err(lowtide::map::MapError::Mode { .. }) => return Ok(()),
///     map => map?,
/// };
/// map[500_000..500_005].copy_from_slice(b"hello");
/// map.flush_range(500_000..500_005)?;
/// assert_eq!(&std::fs::read(&path)?[500_000..500_005], b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MapMut(pub(super) Area);

impl MapMut {
    /// Bytes of the map.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the map has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The first byte, for loads. Valid while the map lives.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.0.base.as_ptr()
    }

    /// The first byte. Valid while the map lives.
    #[must_use]
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.base.as_ptr()
    }

    /// Writes all stores to the file, and returns when they are durable. A private map has nothing
    /// to write.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC` and others where writing failed, also earlier and in the background; the
    /// kernel tells each open file once. What could not be written may be lost: store it again. In
    /// `userfault` mode it is not lost, and is tried again.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_part(0..self.0.len)
    }

    /// As [`flush`](Self::flush), for a part of the map in bytes.
    ///
    /// # Errors
    /// `InvalidInput` if the part is not in the map; else as [`flush`](Self::flush).
    pub fn flush_range(&self, bytes: Range<usize>) -> io::Result<()> {
        self.flush_part(bytes)
    }

    /// Starts to write all stores to the file, and does not wait.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), as far as errors are known already.
    pub fn flush_async(&self) -> io::Result<()> {
        self.start_part(0..self.0.len)
    }

    /// As [`flush_async`](Self::flush_async), for a part of the map in bytes.
    ///
    /// # Errors
    /// `InvalidInput` if the part is not in the map; else as [`flush_async`](Self::flush_async).
    pub fn flush_async_range(&self, bytes: Range<usize>) -> io::Result<()> {
        self.start_part(bytes)
    }

    /// Ends the stores. A map of [`MapOptions::map_copy`](super::MapOptions::map_copy) keeps what
    /// was stored.
    ///
    /// # Errors
    /// [`MapError::Kernel`]; the map no longer exists.
    pub fn make_read_only(self) -> Result<Map, MapError> {
        let protected = match &self.0.memory {
            Memory::Nothing => Ok(()),
            Memory::Mirror { served, .. } => served.mirror.permit(Rights::Read),
            Memory::PageCache { window, .. } => window.protect(Rights::Read),
        };
        protected.map_err(MapError::kernel("mprotect(2)"))?;
        Ok(Map(self.0))
    }

    /// Says how the map will be used.
    ///
    /// # Errors
    /// The kernel's.
    pub fn advise(&self, access: Access) -> io::Result<()> {
        self.0.advise(access, 0..self.0.len)
    }

    /// Says how a part of the map, in bytes, will be used.
    ///
    /// # Errors
    /// `InvalidInput` if the part is not in the map; else the kernel's.
    pub fn advise_range(&self, access: Access, bytes: Range<usize>) -> io::Result<()> {
        self.0.advise(access, bytes)
    }

    /// Makes the map longer or shorter, in bytes. Stores are kept, except in a private map past a
    /// new end. See [`RemapOptions`].
    ///
    /// # Errors
    /// As [`Map::remap`].
    ///
    /// # Safety
    /// Pointers from before are invalid if the map moves, and past the new end.
    #[expect(unsafe_code, reason = "a slice that code keeps beyond a borrow would dangle")]
    pub unsafe fn remap(&mut self, len: usize, options: RemapOptions) -> Result<(), MapError> {
        self.0.remap(len, options)
    }

    /// Makes a part of memory without a file zeroes. The whole pages in it take neither memory nor
    /// swap afterwards, and a page that could not be brought in can be used again.
    ///
    /// # Errors
    /// `InvalidInput` if the part is not in the map, `Unsupported` for a map of a file.
    pub fn clear(&mut self, part: Range<usize>) -> io::Result<()> {
        self.0.discard(part)
    }

    /// As [`clear`](Self::clear), for an owner that has given the part to no other.
    #[cfg(feature = "alloc")]
    pub(crate) fn clear_own(&self, part: Range<usize>) -> io::Result<()> {
        self.0.discard(part)
    }

    /// As [`Map::error`].
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.0.error()
    }

    /// How the map works now. Cost: a look at the translation of each page.
    #[must_use]
    pub fn report(&self) -> MapReport {
        self.0.report()
    }

    fn flush_part(&self, part: Range<usize>) -> io::Result<()> {
        let part = self.0.part(part)?;
        match &self.0.memory {
            Memory::PageCache { window, stores: Stores::Shared, .. } if !part.is_empty() => {
                let before = self.0.base.addr().get() - window.addresses().start;
                window.sync(before + part.start..before + part.end)
            }
            Memory::Mirror { served, .. } if !part.is_empty() => {
                self.0.check_own()?;
                Ok(served.flush(self.pages_of(&part))?)
            }
            _ => Ok(()),
        }
    }

    fn start_part(&self, part: Range<usize>) -> io::Result<()> {
        let part = self.0.part(part)?;
        match &self.0.memory {
            Memory::PageCache { adopted, stores: Stores::Shared, .. } if !part.is_empty() => {
                let start = self.0.options.offset + part.start as u64;
                let len = part.len() as u64;
                adopted.file().with(|file| page_cache::start_writing_range(file, start, len))
            }
            Memory::Mirror { served, .. } if !part.is_empty() => {
                self.0.check_own()?;
                Ok(served.start_flush(self.pages_of(&part))?)
            }
            _ => Ok(()),
        }
    }

    /// The pages of the file that a part of the map touches.
    fn pages_of(&self, part: &Range<usize>) -> Range<u64> {
        let (offset, shift) = (self.0.options.offset, self.0.pager.inner.pool.page_shift);
        let end = offset + part.end as u64;
        (offset + part.start as u64) >> shift..end.div_ceil(1 << shift)
    }
}

impl Deref for MapMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the addresses are mapped while this lives; the caller who made the map promised
        // that no other process and no other map changes them while references live.
        #[expect(unsafe_code, reason = "this is where a mapping becomes a slice")]
        unsafe {
            std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.len)
        }
    }
}

impl DerefMut for MapMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive, and the mapping permits stores.
        #[expect(unsafe_code, reason = "this is where a mapping becomes a slice")]
        unsafe {
            std::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.len)
        }
    }
}

impl AsRef<[u8]> for MapMut {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for MapMut {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Borrow<[u8]> for MapMut {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl BorrowMut<[u8]> for MapMut {
    #[inline]
    fn borrow_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for MapMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("MapMut", &self.0, f)
    }
}
