//! A heap for collections that may be larger than its tenant's budget. Needs the feature `alloc`.
//!
//! A [`TenantArena`] hands out memory of one region behind a pointer
//! ([`MapOptions::map_anon`](crate::map::MapOptions::map_anon)). It implements `Allocator` of the
//! crate `allocator-api2`, which is the standard library's trait as it will be, so the collections
//! that take an allocator take an arena:
//!
//! ```
//! use allocator_api2::vec::Vec;
//! use lowtide::{Size, Pager, SwapOptions, alloc::TenantArena};
//!
//! let swap = SwapOptions::compressed(Size::mib(2));
//! let pager = Pager::builder().max(Size::mib(4)).swap(swap).build()?;
//! let tenant = pager.tenant("sort").max(Size::mib(2)).create()?;
//! let arena = match TenantArena::new(&tenant, 64 << 20) {
//! #   Err(lowtide::map::MapError::Mode { .. }) => return Ok(()),
//!     arena => arena?,
//! };
//! let mut numbers = Vec::with_capacity_in(1_000_000, &arena);     // 8 MB
//! numbers.extend((0..1_000_000_u64).rev().map(|n| n / 100));
//! numbers.sort_unstable();
//! assert_eq!(numbers[500_000], 5000);
//! assert!(tenant.usage()? <= 2 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What costs what
//!
//! An access is a load or a store; one of a page that is in swap is a page fault that a thread of
//! lowtide serves. The arena's own records lie between the blocks (`talc`), so allocating and
//! freeing may touch a page of a neighbour. One lock protects them.
//!
//! A block of [`LARGE`] bytes or more gives its pages up when it is freed, and is not cleared
//! before it is given out as zeroes. Pages of smaller blocks stay until they are used again, or
//! until all of the arena is dropped.
//!
//! # When there is no room
//!
//! An allocation takes addresses, and fails when there are none left. Memory is taken by touching
//! it. If the tenant has no room then, and swap has none either, the touch is `SIGBUS`, as in any
//! map, and [`TenantArena::error`] has the reason: so give an arena a swap file that has room for
//! all of it.

use crate::error::Error;
use crate::map::{MapError, MapMut, MapOptions, MapReport};
use crate::tenant::Tenant;
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use lowtide_pin::sync;
use lowtide_sys::tell;
use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Mutex;
use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

/// Bytes from which on a block gives its pages up when it is freed.
pub const LARGE: usize = 64 << 10;

/// Memory for collections, charged to a tenant, that may be larger than the tenant's budget. See
/// the [module](self).
///
/// Collections borrow it (`&TenantArena` is an allocator), so they end before it does.
pub struct TenantArena {
    blocks: Mutex<Talc<Manual, DefaultBinning>>,
    /// What the blocks are in. After them, so that it outlives them.
    memory: MapMut,
}

impl TenantArena {
    /// An arena of `bytes` bytes of addresses. It takes memory as blocks are touched.
    ///
    /// # Errors
    /// As [`MapOptions::map_anon`]; [`MapError::Range`] for fewer bytes than its records need: some
    /// KiB.
    pub fn new(tenant: &Tenant, bytes: usize) -> Result<Self, MapError> {
        Self::with(&MapOptions::new().tenant(tenant).len(bytes), &tenant.pager)
    }

    fn with(options: &MapOptions, pager: &crate::Pager) -> Result<Self, MapError> {
        let mut memory = options.map_anon(pager)?;
        let (base, len) = (memory.as_mut_ptr(), memory.len());
        let mut blocks = Talc::new(Manual);
        let small = || MapError::Range {
            offset: 0,
            len: len as u64,
            why: "an arena needs some KiB for its records",
        };
        if len < talc::min_first_heap_size::<DefaultBinning>() {
            return Err(small());
        }
        // SAFETY: the memory is this arena's alone, at addresses that do not change while it lives,
        // and is reached through the blocks only.
        unsafe { blocks.claim(base, len) }.ok_or_else(small)?;
        Ok(Self { blocks: Mutex::new(blocks), memory })
    }

    /// Bytes of addresses.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Figures of memory and swap.
    #[must_use]
    pub fn report(&self) -> MapReport {
        self.memory.report()
    }

    /// Why a page could not be brought in, if that ever happened: the first such error.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.memory.error()
    }

    /// Where in the memory a part of a block lies.
    fn place(&self, ptr: NonNull<u8>, part: Range<usize>) -> Range<usize> {
        let at = ptr.addr().get() - self.memory.as_ptr().addr();
        at + part.start..at + part.end
    }

    /// Gives up the whole pages of a part of a block that is about to be freed.
    fn give_up(&self, ptr: NonNull<u8>, part: Range<usize>) {
        if part.len() < LARGE {
            return;
        }
        let (page, place) = (lowtide_sys::memory::page_size(), self.place(ptr, part));
        let whole = place.start.next_multiple_of(page)..place.end / page * page;
        if let Err(error) = self.memory.clear_own(whole) {
            tell!(warn, %error, "pages of a freed block stay in memory or swap");
        }
    }

    /// Makes a part of a block zeroes.
    ///
    /// # Safety
    /// The block is the caller's, and has the part.
    unsafe fn zero(&self, ptr: NonNull<u8>, part: Range<usize>) {
        if part.len() >= LARGE && self.memory.clear_own(self.place(ptr, part.clone())).is_ok() {
            return;
        }
        let at = ptr.as_ptr().wrapping_add(part.start);
        // SAFETY: the caller's promise.
        unsafe { at.write_bytes(0, part.len()) };
    }

    /// Grows a block where it is, if there is room behind it.
    ///
    /// # Safety
    /// As [`Allocator::grow`].
    unsafe fn grow_in_place(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> bool {
        if old.size() == 0 || new.align() > old.align() {
            return false;
        }
        // SAFETY: the caller's promise: the block is of this arena and has the old layout.
        unsafe { sync::lock(&self.blocks).try_grow_in_place(ptr.as_ptr(), old, new.size()) }
    }
}

/// A block without bytes.
fn empty(layout: Layout) -> NonNull<[u8]> {
    let align = NonZero::new(layout.align()).expect("an alignment is not zero");
    NonNull::slice_from_raw_parts(NonNull::without_provenance(align), 0)
}

// SAFETY: blocks lie in memory that stays where it is while the arena lives, do not overlap, and
// stay as they are until they are freed; moving the arena moves none of them.
unsafe impl Allocator for TenantArena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: the size is not zero.
        let block = unsafe { sync::lock(&self.blocks).allocate(layout) };
        block.map(|at| NonNull::slice_from_raw_parts(at, layout.size())).ok_or(AllocError)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = self.allocate(layout)?;
        // SAFETY: the block was just made, of that size.
        unsafe { self.zero(block.cast(), 0..layout.size()) };
        Ok(block)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        // Before another can have it.
        self.give_up(ptr, 0..layout.size());
        // SAFETY: the caller's promise: the block is of this arena and has this layout.
        unsafe { sync::lock(&self.blocks).deallocate(ptr.as_ptr(), layout) };
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        if unsafe { self.grow_in_place(ptr, old, new) } {
            return Ok(NonNull::slice_from_raw_parts(ptr, new.size()));
        }
        let block = self.allocate(new)?;
        // SAFETY: both blocks are the caller's and do not overlap, and the new one is no smaller.
        unsafe { block.cast::<u8>().copy_from_nonoverlapping(ptr, old.size()) };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(ptr, old) };
        Ok(block)
    }

    unsafe fn grow_zeroed(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        let block = unsafe { self.grow(ptr, old, new) }?;
        // SAFETY: the block has the new size.
        unsafe { self.zero(block.cast(), old.size()..new.size()) };
        Ok(block)
    }

    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if new.size() > 0 && new.align() <= old.align() {
            self.give_up(ptr, new.size()..old.size());
            // SAFETY: the caller's promise: the block is of this arena and has the old layout.
            unsafe { sync::lock(&self.blocks).shrink(ptr.as_ptr(), old, new.size()) };
            return Ok(NonNull::slice_from_raw_parts(ptr, new.size()));
        }
        let block = self.allocate(new)?;
        // SAFETY: both blocks are the caller's and do not overlap, and the old one is no smaller.
        unsafe { block.cast::<u8>().copy_from_nonoverlapping(ptr, new.size()) };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(ptr, old) };
        Ok(block)
    }
}

impl fmt::Debug for TenantArena {
    /// Touches none of the memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantArena").field("memory", &self.memory).finish_non_exhaustive()
    }
}
