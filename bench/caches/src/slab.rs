//! Pooled page buffers: what a careful program gives a cache as its values.
//!
//! A cache of `Vec<u8>` would pay malloc and free for each miss, and direct I/O needs aligned
//! memory. So pages live in one mapping, as lowtide's frames do and with the same request for huge
//! pages; the value in the cache is a [`Slot`], a counted reference of 16 bytes. The count of a
//! slot is a word in an array beside the pages; while the slot is free, the word links it to the
//! next free one. So taking and giving back a buffer is one compare-and-swap each, and the pool
//! costs 4 bytes a page.
//!
//! A slab never has more pages than it was made for, so what a system takes is known. A cache that
//! frees its victims late has to free them when no buffer is left.
//!
//! # Safety
//!
//! A slot's page is written only through [`Fresh`], the only reference to it, and read only through
//! [`Slot`], after `Fresh` has become one. A slab is never freed (its pages are given back by
//! [`Slab::retire`], its address space stays), because the caches free evicted values when they
//! like, even after they were dropped themselves.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use lowtide_sys::memory::{HugePages, Mapping};

use crate::error::Error;

/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

/// Page buffers of one system.
#[derive(Debug)]
pub struct Slab {
    pages: Mapping,
    /// References to a slot, or the next free slot.
    words: Mapping,
    page_bytes: usize,
    slots: u32,
    /// First free slot in the low half; in the high half a number that changes each time, so that
    /// a compare-and-swap notices a slot that was taken and given back meanwhile.
    free: AtomicU64,
    /// Slots that were used at least once.
    touched: AtomicU32,
    /// Slots in use.
    out: AtomicUsize,
}

impl Slab {
    /// Room for `slots` pages.
    ///
    /// # Errors
    /// [`Error::Memory`] when there is no address space for them.
    pub fn leaked(slots: u32, page_bytes: usize) -> Result<&'static Self, Error> {
        let map = |bytes, huge| {
            Mapping::new(bytes, huge).map_err(|source| Error::Memory { bytes, source })
        };
        Ok(Box::leak(Box::new(Self {
            pages: map(slots as usize * page_bytes, HugePages::Yes)?,
            words: map(slots as usize * size_of::<AtomicU32>(), HugePages::Never)?,
            page_bytes,
            slots,
            free: AtomicU64::new(NONE.into()),
            touched: AtomicU32::new(0),
            out: AtomicUsize::new(0),
        })))
    }

    /// Bytes of all pages and their words.
    pub fn bytes(&self) -> u64 {
        u64::from(self.slots) * (self.page_bytes + size_of::<AtomicU32>()) as u64
    }

    /// Gives the memory back. The cache is gone; what it frees later finds its words.
    pub fn retire(&self) {
        // On failure the memory stays, and shows in the figure for resident memory.
        let _ = self.pages.discard(0..self.pages.len());
        if self.out.load(Ordering::Acquire) == 0 {
            let _ = self.words.discard(0..self.words.len());
        }
    }

    /// An unused buffer; `None` if all are in use.
    pub fn take(&'static self) -> Option<Fresh> {
        let index = self.pop().or_else(|| self.bump())?;
        self.out.fetch_add(1, Ordering::Relaxed);
        Some(Fresh(Slot { slab: self, index }))
    }

    fn pop(&self) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            if index == NONE {
                return None;
            }
            let next = u64::from(self.word(index).load(Ordering::Relaxed));
            let after = (head >> 32).wrapping_add(1) << 32 | next;
            match self.free.compare_exchange_weak(head, after, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => {
                    self.word(index).store(1, Ordering::Relaxed);
                    return Some(index);
                }
                Err(now) => head = now,
            }
        }
    }

    /// The first slot that was never used.
    fn bump(&self) -> Option<u32> {
        let more = |touched| (touched < self.slots).then_some(touched + 1);
        let index = self.touched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.word(index).store(1, Ordering::Relaxed);
        Some(index)
    }

    fn push(&self, index: u32) {
        self.out.fetch_sub(1, Ordering::Release);
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            self.word(index).store(head as u32, Ordering::Relaxed);
            let after = (head >> 32).wrapping_add(1) << 32 | u64::from(index);
            match self.free.compare_exchange_weak(head, after, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    #[inline]
    fn word(&self, index: u32) -> &AtomicU32 {
        debug_assert!(index < self.slots);
        // SAFETY: The mapping holds `slots` words, is aligned to a page, begins as zeroes, and is
        // never unmapped.
        unsafe { &*self.words.as_ptr().cast::<AtomicU32>().add(index as usize) }
    }

    #[inline]
    fn page(&self, index: u32) -> *mut u8 {
        debug_assert!(index < self.slots);
        // SAFETY: The mapping holds `slots` pages.
        unsafe { self.pages.as_ptr().add(index as usize * self.page_bytes) }
    }
}

/// A buffer that is referred to by its owner alone.
#[derive(Debug)]
pub struct Fresh(Slot);

impl Fresh {
    /// The bytes, to be written.
    pub fn bytes(&mut self) -> &mut [u8] {
        let slab = self.0.slab;
        // SAFETY: The page is inside the mapping, and this is the only reference to the slot: it
        // was taken with a count of one and has not been cloned.
        unsafe { std::slice::from_raw_parts_mut(slab.page(self.0.index), slab.page_bytes) }
    }

    /// The page, complete: from now on it is only read.
    pub fn done(self) -> Slot {
        self.0
    }
}

/// A counted reference to a page that does not change.
#[derive(Debug)]
pub struct Slot {
    slab: &'static Slab,
    index: u32,
}

impl Deref for Slot {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: The page is inside the mapping; while its count is not zero nothing writes to it.
        unsafe { std::slice::from_raw_parts(self.slab.page(self.index), self.slab.page_bytes) }
    }
}

impl Clone for Slot {
    #[inline]
    fn clone(&self) -> Self {
        self.slab.word(self.index).fetch_add(1, Ordering::Relaxed);
        Self { slab: self.slab, index: self.index }
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        if self.slab.word(self.index).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.slab.push(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_returns_when_its_last_reference_is_dropped() {
        let slab = Slab::leaked(2, 4096).unwrap();
        let mut fresh = slab.take().unwrap();
        fresh.bytes().fill(7);
        let slot = fresh.done();
        let copy = slot.clone();
        drop(slot);
        assert_eq!(copy[4095], 7);
        let other = slab.take().unwrap();
        assert!(slab.take().is_none(), "both are in use");
        drop(copy);
        assert!(slab.take().is_some());
        drop(other);
        assert_eq!(slab.bytes(), 2 * 4100);
    }

    #[test]
    fn threads_never_share_a_fresh_page() {
        let slab = Slab::leaked(64, 1024).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let mut taken: Vec<Fresh> = (0..8).filter_map(|_| slab.take()).collect();
                        for page in &mut taken {
                            page.bytes().fill(thread);
                        }
                        for page in taken {
                            assert!(page.done().iter().all(|&byte| byte == thread));
                        }
                    }
                });
            }
        });
        assert_eq!(slab.out.load(Ordering::Relaxed), 0);
    }
}
