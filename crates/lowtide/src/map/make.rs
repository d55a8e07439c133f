//! Making a map, of each kind.

use super::area::{Area, Stores};
use super::error::MapError;
use super::handle::Map;
use super::options::MapOptions;
use super::writable::MapMut;
use crate::pager::Pager;
use std::os::fd::AsFd;

impl MapOptions {
    /// Maps a file for reading.
    ///
    /// Cost: a few system calls, and four bytes of addresses for each page; nothing is read.
    ///
    /// # Errors
    /// [`MapError`] says what is wrong with the range or the file, or what the kernel refuses.
    ///
    /// # Safety
    /// The bytes are those of the file at the moment at which each page comes in, and a page that
    /// was evicted comes in again. So while references to them live no process may change the file,
    /// or make it shorter.
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map(&self, pager: &Pager, file: impl AsFd) -> Result<Map, MapError> {
        Area::new(self, pager, file.as_fd(), Stores::Never).map(Map)
    }

    /// Maps a file for reading and writing, by default in `pagecache` mode:
    ///
    /// | | `pagecache` | `userfault` |
    /// |---|---|---|
    /// | a store is in the file | for all programs at once | when it is written |
    /// | and survives the end of this program | at once | then |
    /// | and a power cut | after [`MapMut::flush`] | after [`MapMut::flush`] |
    /// | the budget | is exceeded by what is dirty | holds: what is dirty is in it |
    /// | a write fails | the store may be lost | it stays, and is tried again |
    ///
    /// The second writes by [`MapMut::flush`], in the background, and on drop.
    ///
    /// In `pagecache` mode a page with stores that are not written yet stays in memory until the
    /// kernel has written it, so a program that stores faster than the device writes exceeds its
    /// budget, by what the kernel's own limits on dirty pages permit. In `userfault` mode such a
    /// program waits, by the dirty limits of the [tenant](crate::Tenant::set_dirty_limits). Stores
    /// of a device past the page cache (a read with `O_DIRECT` into the map, a registered buffer of
    /// io_uring) are not noticed there.
    ///
    /// # Errors
    /// As [`map`](Self::map); [`MapError::Mode`] for a file that is open for writing in this pager;
    /// [`MapError::Kernel`] for a descriptor that was not opened for reading and writing. In the
    /// way `userfault` the file is locked as by [`OpenOptions::lock`](crate::OpenOptions::lock)
    /// while it is mapped, and [`OpenError::Locked`](crate::OpenError::Locked) says that another
    /// program, or pager, has it: two mirrors would write over each other's pages.
    ///
    /// # Safety
    /// While references to the bytes live no other process, and no other map, may change them, and
    /// no process may make the file shorter.
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map_mut(&self, pager: &Pager, file: impl AsFd) -> Result<MapMut, MapError> {
        Area::new(self, pager, file.as_fd(), Stores::Shared).map(MapMut)
    }

    /// Maps a file for reading and writing where stores are the map's own: the file does not
    /// change. Pages that were only read are kept within the budget. A page that was stored to is
    /// memory of the program, is not charged, and stays until the map is dropped (`copy.rs` says
    /// why). The way is `pagecache`.
    ///
    /// # Errors
    /// As [`map`](Self::map); [`MapError::Mode`] for `userfault` mode.
    ///
    /// # Safety
    /// As [`map`](Self::map).
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map_copy(&self, pager: &Pager, file: impl AsFd) -> Result<MapMut, MapError> {
        Area::new(self, pager, file.as_fd(), Stores::Private).map(MapMut)
    }

    /// As [`map_copy`](Self::map_copy), for reading until [`Map::make_mut`].
    ///
    /// # Errors
    /// As [`map_copy`](Self::map_copy).
    ///
    /// # Safety
    /// As [`map`](Self::map).
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map_copy_read_only(
        &self,
        pager: &Pager,
        file: impl AsFd,
    ) -> Result<Map, MapError> {
        Area::new(self, pager, file.as_fd(), Stores::PrivateLater).map(Map)
    }

    /// Memory without a file, all zeroes, of [`len`](Self::len) bytes. It takes no memory before it
    /// is touched; where it is filled in order, up to 256 KiB come early. What leaves memory goes
    /// to the pager's [swap](crate::SwapOptions); without swap it stays. The way is `userfault`.
    /// The offset and `populate` mean nothing here.
    ///
    /// ```
    /// use lowtide::{Size, Pager, SwapOptions, map::MapOptions};
    ///
    /// let swap = SwapOptions::compressed(Size::kib(512));
    /// let pager = Pager::builder().max(Size::mib(1)).swap(swap).build()?;
    /// let mut memory = match MapOptions::new().len(4 << 20).map_anon(&pager) {
    /// #   Err(lowtide::map::MapError::Mode { .. }) => return Ok(()),
    ///     memory => memory?,
    /// };
    /// for (at, byte) in memory.iter_mut().enumerate() {       // four times the budget
    ///     *byte = (at >> 12) as u8;
    /// }
    /// assert!(memory.iter().enumerate().all(|(at, byte)| *byte == (at >> 12) as u8));
    /// assert!(pager.root().usage()? <= 1 << 20);
    /// memory.clear(0..1 << 20)?;                            // zeroes, and no memory
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`MapError::Mode`] where the kernel has no `userfaultfd`, or another way is named;
    /// [`MapError::Memory`] where the tenant is gone or has no room.
    pub fn map_anon(&self, pager: &Pager) -> Result<MapMut, MapError> {
        Area::heap(self, pager).map(MapMut)
    }
}
