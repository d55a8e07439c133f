//! How a file is mapped.

use super::error::MapError;
use super::mode::MapMode;
use super::on_error::OnError;
use crate::error::Error;
use crate::pager::Pager;
use crate::tenant::Tenant;
use lowtide_core::MemcgId;
use lowtide_core::Size;
use std::sync::Arc;

/// How a part of a map will be accessed, as `madvise(2)` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
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
    pub(super) keep_kernel_read_ahead: bool,
    pub(super) growth: usize,
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

    /// Keeps the kernel's own read-ahead (default: false), and reads nothing ahead here: in
    /// [`MapMode::PageCache`], where otherwise the kernel brings in touched pages alone. Pages
    /// that it reads count only when they are noticed, so the budget is exceeded for longer.
    #[must_use]
    pub fn keep_kernel_read_ahead(mut self, keep: bool) -> Self {
        self.keep_kernel_read_ahead = keep;
        self
    }

    /// Calls this for every page that cannot be brought in, before a touch of it is `SIGBUS`: to
    /// write a message, or to note what the handler of the signal needs. Only `userfault` mode
    /// knows of such pages; [`Map::error`](super::Map::error) keeps the first error.
    ///
    /// The call is made by a thread that serves page faults of this pager: it must not touch maps
    /// of the pager, and pages of others wait until it returns.
    #[must_use]
    pub fn on_error(mut self, call: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(OnError::new(call));
        self
    }

    /// Bytes that memory of [`map_anon`](Self::map_anon) can become long by
    /// [`MapMut::remap`](super::MapMut::remap). Only
    /// addresses are reserved. Default: as long as it is.
    #[must_use]
    pub fn growth(mut self, bytes: impl Into<Size>) -> Self {
        self.growth = usize::try_from(bytes.into().bytes()).unwrap_or(usize::MAX);
        self
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
