//! Memory without a file behind a pointer: an anonymous region (`anon/`) in `userfault` mode.
//!
//! The mirror is the region's memory. A touch of a missing page is a message, as of a file; what
//! answers it is swap, or zeroes. What differs is the way out. A page of a file is clean when it
//! goes, because write-back has protected and written it before. A page of a heap is written
//! *while* it goes:
//!
//! ```text
//!   locked ─► protected ─► compressed, or written ─► noted ─► punched, absent
//!                │                └─ refused ─► unlocked, still protected
//!                └─ a store now ─► message ─► waits for the lock ─┬─► absent: brought in
//!                                                                 └─► resident: unprotected
//! ```
//!
//! # No store is lost
//!
//! A page that keeps its slot in the swap file comes in protected: until its first store it can
//! leave without a write (`anon/kept.rs`). Others come in without protection, so first stores cost
//! nothing.
//!
//! Setting protection returns when no processor has an older entry in use: a store has landed by
//! then, and is among the bytes that are kept, or it faults. Protection is ended by a server thread
//! alone, under the pool's lock, where the translation is *resident* and no slot is left. A pass of
//! reclaim locks the translation under the pool's lock, and protects after that. So either the pass
//! finds the page without protection and protects it, or the server thread sees that it is locked.
//!
//! Loads go on until the page is punched. One that comes later finds it missing.
//!
//! What a device stores past the page tables (a read with `O_DIRECT` into the memory, a registered
//! buffer of io_uring) is not noticed, and is lost if the page leaves meanwhile.

use super::area::{Area, Memory};
use super::error::MapError;
use super::mirror::Mirror;
use super::mode::MapMode;
use super::options::MapOptions;
use super::serve::{Opened, begin, server_of};
use super::space::{Body, check_page_size};
use crate::ahead::readahead::window_pages;
use crate::anon::{Open, discard_pages};
use crate::pager::Pager;
use crate::space::whole::Parts;
use lowtide_sys::page_cache;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// The largest window of what is touched in order, unless the user wants another.
const WINDOW_BYTES: u64 = 2 << 20;

impl Area {
    /// See [`MapOptions::map_anon`].
    pub(super) fn heap(options: &MapOptions, pager: &Pager) -> Result<Self, MapError> {
        let pool = &pager.inner.pool;
        check_page_size(pool)?;
        if options.mode == MapMode::PageCache {
            let why = "memory without a file is not in the page cache; use `userfault`".to_owned();
            return Err(MapError::Mode { mode: MapMode::PageCache, why });
        }
        let len = options.len.unwrap_or(0);
        let room = options.growth.max(len).checked_next_multiple_of(pool.page_bytes());
        let room = room.filter(|&room| isize::try_from(room).is_ok()).ok_or(MapError::Range {
            offset: 0,
            len: len as u64,
            why: "no address space is as large",
        })?;
        let mut area = Self {
            base: NonNull::dangling(),
            len,
            memory: Memory::Nothing,
            pager: pager.clone(),
            options: options.clone(),
            process: std::process::id(),
        };
        if room == 0 {
            return Ok(area);
        }
        let group = options.group(pager)?;
        let server = server_of(pager)?;
        let pages = 0..(room >> pool.page_shift) as u64;
        let mirror = Self::mirror(pool, &server, &pages, Some((0..room as u64, true)))?;
        let mirror = Arc::new(mirror);
        let body: Body = Arc::<Mirror>::clone(&mirror);
        let region = Open::new(pager, group, None, len as u64..room as u64, Some(body))?;
        let window = options.read_ahead.unwrap_or(WINDOW_BYTES);
        let window = window_pages(pool, Some(window));
        let (space, wishes) = (Arc::clone(region.space()), (window, options.on_error.clone()));
        // SAFETY: the window was just made, for this memory alone.
        #[expect(unsafe_code, reason = "the mirror decides what its memory contains")]
        let served = unsafe { begin(&server, mirror, space, Opened::Region(region), wishes)? };
        area.place(served.mirror.addresses().start);
        area.memory = Memory::Mirror { served, server };
        area.dump(0..len, page_cache::Advice::DoDump)?;
        Ok(area)
    }

    /// Whether it has no file.
    pub(super) fn is_heap(&self) -> bool {
        matches!(&self.memory, Memory::Mirror { served, .. } if served.mirror.is_heap())
    }

    /// Makes a part zeroes. Other threads that use it find what was there, or zeroes.
    pub(super) fn discard(&self, part: Range<usize>) -> io::Result<()> {
        let part = self.part(part)?;
        if part.is_empty() {
            return Ok(());
        }
        self.check_own()?;
        let Memory::Mirror { served, .. } = &self.memory else { return Err(has_file()) };
        if !served.mirror.is_heap() {
            return Err(has_file());
        }
        let pool = &self.pager.inner.pool;
        let bytes = part.start as u64..part.end as u64;
        let Parts { head, whole, tail } = Parts::of(&bytes, self.len as u64, pool.page_shift);
        for edge in [head, tail] {
            self.zero(edge.start as usize..edge.end as usize);
        }
        // The length changes only where the map is borrowed alone, so all of them stay whole.
        let discarded = discard_pages(pool, &served.space, whole.clone(), u64::MAX);
        served.mirror.forget(whole);
        Ok(discarded?)
    }

    /// Whether a core dump has a part: addresses that nothing was given yet would be zeroes by the
    /// gigabyte.
    fn dump(&self, part: Range<usize>, advice: page_cache::Advice) -> Result<(), MapError> {
        let (start, page) = (self.base.addr().get(), self.pager.inner.pool.page_bytes());
        let whole = part.start.next_multiple_of(page)..part.end.next_multiple_of(page);
        if whole.is_empty() {
            return Ok(());
        }
        page_cache::advise(start + whole.start..start + whole.end, advice)
            .map_err(MapError::kernel("madvise(2)"))
    }

    /// Stores zeroes to a part, if there is one.
    fn zero(&self, part: Range<usize>) {
        let at = self.base.as_ptr().wrapping_add(part.start);
        if part.start < part.end {
            // SAFETY: the part lies in the memory, which permits stores; the caller has the map
            // for itself, or accepts what a store beside others means.
            #[expect(unsafe_code, reason = "memory behind a pointer")]
            unsafe {
                at.write_bytes(0, part.len());
            }
        }
    }

    /// Another length, in place.
    pub(super) fn resize_heap(&mut self, len: usize) -> Result<(), MapError> {
        let Memory::Mirror { served, .. } = &self.memory else { return Ok(()) };
        let pool = &self.pager.inner.pool;
        let served = Arc::clone(served);
        if len as u64 > served.mirror.pages() << pool.page_shift {
            let why = "it has addresses for less: `MapOptions::growth` reserves them";
            return Err(MapError::Range { offset: 0, len: len as u64, why });
        }
        if !served.mirror.is_writable() {
            let why = "memory that is read-only keeps its length".to_owned();
            return Err(MapError::Mode { mode: MapMode::Userfault, why });
        }
        if len < self.len {
            // What it grows by later is zeroes again.
            self.discard(len..self.len).map_err(MapError::kernel("giving pages up"))?;
        }
        let _one_at_a_time = served.space.growing()?;
        served.space.set_known_len(len as u64)?;
        if len < self.len {
            self.dump(len..self.len, page_cache::Advice::DontDump)?;
        } else {
            self.dump(self.len..len, page_cache::Advice::DoDump)?;
        }
        self.len = len;
        self.options.len = Some(len);
        Ok(())
    }
}

fn has_file() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a map of a file keeps what the file has")
}
