//! The handle of a map that is read.

use super::area::{Area, Memory, Stores};
use super::error::MapError;
use super::mode::MapMode;
use super::options::{Access, MapOptions};
use super::remap::RemapOptions;
use super::report::MapReport;
use super::writable::MapMut;
use crate::error::Error;
use crate::pager::Pager;
use lowtide_sys::shared::Rights;
use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::AsFd;
use std::sync::Arc;

/// A file behind a pointer, under a budget. Dereferences to its bytes.
///
/// It stays where it is while it lives, and can be shared between threads. A child made by `fork`
/// does not have one in `userfault` mode: a touch there is `SIGSEGV`, because the child has no
/// threads that would serve it. The [module](super) has a table of such cases.
///
/// **Errors.** A page that cannot be read is `SIGBUS` for the thread that touches it, as in a map
/// of the kernel; [`error`](Map::error) says why. So is a page past the end of a file that has
/// become shorter.
///
/// **Drop.** The addresses are gone when drop returns, and so are the pages and the charge, unless
/// a device hangs. A thread of the pager that watched the map, or reads ahead for it, may keep the
/// file *open* a moment longer: unmounting its file system may have to be tried again.
pub struct Map(pub(super) Area);

impl Map {
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

    /// The first byte. Valid while the map lives.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.0.base.as_ptr()
    }

    /// Says how the map will be used.
    ///
    /// # Errors
    /// The kernel's.
    pub fn advise(&self, access: Access) -> io::Result<()> {
        self.0.advise(access, 0..self.0.len)
    }

    /// Says how a part of the map, in bytes, will be used. In `userfault` mode
    /// [`Access::Normal`], [`Access::Random`] and [`Access::Sequential`] are about the whole map.
    ///
    /// # Errors
    /// `InvalidInput` if the part is not in the map; else the kernel's.
    pub fn advise_range(&self, access: Access, bytes: Range<usize>) -> io::Result<()> {
        self.0.advise(access, bytes)
    }

    /// Makes the map longer or shorter, in bytes. See [`RemapOptions`].
    ///
    /// # Errors
    /// [`MapError::Mode`] for a map in `userfault` mode; [`MapError::Range`] for an impossible
    /// length; [`MapError::Kernel`] if it would have to move and may not. On error the map is
    /// unchanged.
    ///
    /// # Safety
    /// Pointers from before are invalid if the map moves, and past the new end.
    #[expect(unsafe_code, reason = "a slice that code keeps beyond a borrow would dangle")]
    pub unsafe fn remap(&mut self, len: usize, options: RemapOptions) -> Result<(), MapError> {
        self.0.remap(len, options)
    }

    /// Makes the map writable. One of [`MapOptions::map`] becomes as one of
    /// [`MapOptions::map_mut`], and one of [`MapOptions::map_copy_read_only`] as one of
    /// [`MapOptions::map_copy`].
    ///
    /// # Errors
    /// [`MapError::Mode`] for a map in `userfault` mode that [`MapOptions::map_mut`] did not make,
    /// [`MapError::Kernel`] for a descriptor that was not opened for writing. On error the map no
    /// longer exists.
    pub fn make_mut(self) -> Result<MapMut, MapError> {
        let Self(mut area) = self;
        let Area { memory, options, pager, .. } = &mut area;
        match memory {
            Memory::Nothing => {}
            Memory::Mirror { served, .. } if served.mirror.is_stored_to() => {
                let writable = MapError::kernel("mprotect(2)");
                served.mirror.permit(Rights::ReadWrite).map_err(writable)?;
            }
            Memory::Mirror { .. } => {
                let why = "it keeps a mirror of the file, from which no store reaches the file; \
                           map it with `map_mut`, or with `pagecache`";
                return Err(MapError::Mode { mode: MapMode::Userfault, why: why.to_owned() });
            }
            Memory::PageCache { window, adopted, stores, file_is_writable } => {
                let writable = MapError::kernel("mprotect(2)");
                match stores {
                    Stores::Never if !*file_is_writable => {
                        return Err(writable(io::ErrorKind::PermissionDenied.into()));
                    }
                    Stores::Never => *stores = Stores::Shared,
                    Stores::PrivateLater => {
                        // Before the first store no page may be zapped any more.
                        adopted.retire();
                        let shift = pager.inner.pool.page_shift;
                        let offset = options.offset >> shift << shift;
                        let again = options.clone().offset(offset);
                        let addresses = window.addresses();
                        let file = Arc::clone(adopted.file());
                        *adopted = again.take_over(pager, &file, addresses, Stores::Private)?;
                        *stores = Stores::Private;
                    }
                    Stores::Shared | Stores::Private => {}
                }
                window.protect(Rights::ReadWrite).map_err(writable)?;
            }
        }
        Ok(MapMut(area))
    }

    /// Why a page could not be brought in, if that ever happened: the first such error. In the way
    /// `pagecache` the kernel brings pages in and keeps the reason for itself: this says only if
    /// the file has become shorter.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.0.error()
    }

    /// How the map works now. Cost: a look at the translation of each page.
    #[must_use]
    pub fn report(&self) -> MapReport {
        self.0.report()
    }
}

impl Deref for Map {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the addresses are mapped while this lives, and each page has the bytes of the
        // file from the first load on; the caller of `MapOptions::map` promised that these do not
        // change.
        #[expect(unsafe_code, reason = "this is where a mapping becomes a slice")]
        unsafe {
            std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.len)
        }
    }
}

impl AsRef<[u8]> for Map {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Map {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("Map", &self.0, f)
    }
}

/// As the crate `memmap2` prints its maps.
pub(super) fn debug(name: &str, area: &Area, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name).field("ptr", &area.base).field("len", &area.len).finish_non_exhaustive()
}

impl Pager {
    /// Maps a whole file for reading; [`MapOptions`] has the rest.
    ///
    /// # Errors
    /// As [`MapOptions::map`].
    ///
    /// # Safety
    /// As [`MapOptions::map`].
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map(&self, file: impl AsFd) -> Result<Map, MapError> {
        // SAFETY: the caller's promise.
        unsafe { MapOptions::new().map(self, file) }
    }
}

impl crate::Tenant {
    /// Maps a whole file for reading, and charges its pages to this tenant.
    ///
    /// # Errors
    /// As [`MapOptions::map`].
    ///
    /// # Safety
    /// As [`MapOptions::map`].
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map(&self, file: impl AsFd) -> Result<Map, MapError> {
        // SAFETY: the caller's promise.
        unsafe { MapOptions::new().tenant(self).map(&self.pager, file) }
    }

    /// Memory of `len` bytes, all zeroes, that is charged to this tenant and may be larger than
    /// its budget; [`MapOptions`] has choices.
    ///
    /// # Errors
    /// As [`MapOptions::map_anon`].
    pub fn map_anon(&self, len: usize) -> Result<MapMut, MapError> {
        MapOptions::new().tenant(self).len(len).map_anon(&self.pager)
    }
}
