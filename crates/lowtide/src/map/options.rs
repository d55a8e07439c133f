//! How a file is mapped.

use super::area::{Area, Stores};
use super::error::MapError;
use super::handle::Map;
use super::on_error::OnError;
use super::writable::MapMut;
use crate::anon::ExtentOf;
use crate::error::Error;
use crate::pager::Pager;
use crate::tenant::Tenant;
use lowtide_core::MemcgId;
use lowtide_core::Size;
use std::fmt;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::Arc;

/// How a map gets its pages, and how its budget is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum MapMode {
    /// `userfault` where system calls may use the memory, otherwise `pagecache`.
    #[default]
    Auto,
    /// The program's page faults are served by this process, from a mirror of the file. The budget
    /// is exact.
    Userfault,
    /// The kernel's own mapping of the file, watched and trimmed. Everything works as with any
    /// mapping; the budget may be exceeded for moments (`watch.rs` says by how much).
    PageCache,
}

/// A text that is not the name of a mode.
#[derive(Clone, Debug, thiserror::Error)]
#[error("unknown map mode `{0}`: expected auto, userfault or pagecache")]
pub struct UnknownMapMode(String);

impl FromStr for MapMode {
    type Err = UnknownMapMode;

    fn from_str(text: &str) -> Result<Self, UnknownMapMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "userfault" => Ok(Self::Userfault),
            "pagecache" => Ok(Self::PageCache),
            _ => Err(UnknownMapMode(text.to_owned())),
        }
    }
}

impl fmt::Display for MapMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Userfault => "userfault",
            Self::PageCache => "pagecache",
        })
    }
}

/// How a part of a map will be used, as `madvise(2)` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing special: what is read in order is read ahead.
    Normal,
    /// Nothing is read ahead from now on.
    Random,
    /// It is read in order.
    Sequential,
    /// Soon wanted: it is read in the background, as far as there is room.
    WillNeed,
    /// Wanted now: it is read before the call returns. What is more than the budget is evicted
    /// again.
    PopulateRead,
    /// Not part of a core dump.
    DontDump,
    /// Children of `fork` do not have it: a touch there is `SIGSEGV`. A map in `userfault` mode
    /// is never in children.
    DontFork,
}

/// How to map a file. Mirrors `MmapOptions` of the crate `memmap2`.
#[derive(Clone, Debug, Default)]
pub struct MapOptions {
    pub(super) offset: u64,
    pub(super) len: Option<usize>,
    pub(super) populate: bool,
    pub(super) tenant: Option<Tenant>,
    pub(super) mode: MapMode,
    pub(super) read_ahead: Option<u64>,
    pub(super) growth: usize,
    pub(super) extent: Option<ExtentOf>,
    pub(super) on_error: Option<OnError>,
}

impl MapOptions {
    /// The whole file, charged to the root of the pager.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins at this byte of the file (default 0). It need not be a multiple of anything.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Maps this number of bytes (default: up to the end of the file). A touch of a page that lies
    /// wholly past the end of the file is `SIGBUS`.
    #[must_use]
    pub fn len(mut self, len: usize) -> Self {
        self.len = Some(len);
        self
    }

    /// Reads the beginning before `map` returns, as far as there is room in the budget.
    #[must_use]
    pub fn populate(mut self) -> Self {
        self.populate = true;
        self
    }

    /// Charges the pages to a tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: &Tenant) -> Self {
        self.tenant = Some(tenant.clone());
        self
    }

    /// How pages come in (default: [`MapMode::Auto`]).
    #[must_use]
    pub fn mode(mut self, mode: MapMode) -> Self {
        self.mode = mode;
        self
    }

    /// How much may be read ahead at a time where the map is read in order, in bytes; 0 is nothing.
    /// The default is that of [`OpenOptions::read_ahead`](crate::OpenOptions::read_ahead), and
    /// 2 MiB of memory without a file.
    #[must_use]
    pub fn read_ahead(mut self, bytes: impl Into<Size>) -> Self {
        self.read_ahead = Some(bytes.into().bytes());
        self
    }

    /// Calls this for every page that cannot be brought in, before a touch of it is `SIGBUS`: to
    /// write a message, or to note what the handler of the signal needs. Only `userfault` mode
    /// knows of such pages; [`Map::error`] keeps the first error.
    ///
    /// The call is made by a thread that serves page faults of this pager: it must not touch maps
    /// of the pager, and pages of others wait meanwhile.
    #[must_use]
    pub fn on_error(mut self, call: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(OnError::new(call));
        self
    }

    /// Bytes that memory of [`map_anon`](Self::map_anon) can become long by [`MapMut::remap`]. Only
    /// addresses are reserved. Default: as long as it is.
    #[must_use]
    pub fn growth(mut self, bytes: impl Into<Size>) -> Self {
        self.growth = usize::try_from(bytes.into().bytes()).unwrap_or(usize::MAX);
        self
    }

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
    /// program waits, by the dirty limits of the [tenant](crate::Tenant::set_dirty_limits). What a
    /// device stores past the page cache (a read with `O_DIRECT` into the map, a registered buffer
    /// of io_uring) is not noticed there.
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

    pub(super) fn group(&self, pager: &Pager) -> Result<MemcgId, MapError> {
        match &self.tenant {
            Some(other) if !Arc::ptr_eq(&other.pager.inner, &pager.inner) => {
                Err(crate::tenant::TenantError::OtherPager.into())
            }
            Some(tenant) => Ok(tenant.id),
            None => Ok(MemcgId::ROOT),
        }
    }
}

/// Memory of these options is several blocks: `end_of` says, of an offset in bytes, where the block
/// ends that has it. Zeroes that come before they are touched stay within it: past its end they
/// would be no block's, and would be charged.
///
/// It is called by threads that serve page faults, so it waits for nothing that a thread of the
/// program has while it touches this memory: it says 0 instead, which is that none come.
#[must_use]
pub fn with_blocks(
    mut options: MapOptions,
    end_of: impl Fn(u64) -> u64 + Send + Sync + 'static,
) -> MapOptions {
    options.extent = Some(ExtentOf::new(end_of));
    options
}
