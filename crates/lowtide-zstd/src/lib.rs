//! zstd for pages, in memory of Rust's allocator.
//!
//! The C library of zstd allocates its contexts with `malloc`. In a program that `lowtide run`
//! keeps, that may be an allocator of the program, one of whose locks is held by a thread that
//! waits for a page that is being decompressed. So contexts here are in memory that is given to
//! zstd, which then allocates nothing ([`Compressor`], [`Decompressor`]).
//!
//! A few contexts are kept for later by all threads ([`Shelf`]). A process may fork at any
//! instruction, and its child has none of the threads: a place of the shelf is empty or full, and
//! taking is one atomic step, so there is no lock that could stay taken. A context that a thread
//! has at that moment is lost to the child, and that is all.
//!
//! # Safety
//!
//! A context is in a block that it owns, is as large as zstd demands and aligned to eight bytes,
//! and never moves, since the block is on the heap. A place of a shelf owns what its pointer refers
//! to.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use zstd_sys::{
    ZSTD_CCtx, ZSTD_DCtx, ZSTD_compressCCtx, ZSTD_decompressDCtx,
    ZSTD_estimateCCtxSize_usingCParams, ZSTD_estimateDCtxSize, ZSTD_getCParams,
    ZSTD_initStaticCCtx, ZSTD_initStaticDCtx, ZSTD_isError,
};

/// Memory for a context. `None` without memory.
fn room(bytes: usize) -> Option<Box<[u64]>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes.div_ceil(8)).ok()?;
    room.resize(bytes.div_ceil(8), 0);
    Some(room.into_boxed_slice())
}

/// What a call of zstd says: a length, or an error.
fn length(result: usize) -> Option<usize> {
    // SAFETY: any number.
    (unsafe { ZSTD_isError(result) } == 0).then_some(result)
}

/// Compresses up to a number of bytes at a time.
#[derive(Debug)]
pub struct Compressor {
    context: NonNull<ZSTD_CCtx>,
    level: i32,
    most: usize,
    _room: Box<[u64]>,
}

// SAFETY: the context is owned, and zstd knows no threads.
unsafe impl Send for Compressor {}

impl Compressor {
    /// For up to `most` bytes at a time. `None` if there is no memory.
    #[must_use]
    pub fn new(level: i32, most: usize) -> Option<Self> {
        // SAFETY: any level and any length.
        let parameters = unsafe { ZSTD_getCParams(level, most as u64, 0) };
        // SAFETY: parameters of zstd's own.
        let bytes = length(unsafe { ZSTD_estimateCCtxSize_usingCParams(parameters) })?;
        let mut room = room(bytes)?;
        let (start, len) = (room.as_mut_ptr().cast(), room.len() * 8);
        // SAFETY: the block lives as long as the context, and is touched by nothing else.
        let context = NonNull::new(unsafe { ZSTD_initStaticCCtx(start, len) })?;
        Some(Self { context, level, most, _room: room })
    }

    /// Compresses bytes into a buffer: the length, if there is room.
    pub fn compress(&mut self, from: &[u8], into: &mut [u8]) -> Option<usize> {
        if from.len() > self.most {
            return None;
        }
        let (to, room, source) = (into.as_mut_ptr().cast(), into.len(), from.as_ptr().cast());
        let context = self.context.as_ptr();
        // SAFETY: both buffers have their lengths, and do not overlap.
        length(unsafe { ZSTD_compressCCtx(context, to, room, source, from.len(), self.level) })
    }
}

/// Decompresses what [`Compressor`] has made.
#[derive(Debug)]
pub struct Decompressor {
    context: NonNull<ZSTD_DCtx>,
    _room: Box<[u64]>,
}

// SAFETY: the context is owned, and zstd knows no threads.
unsafe impl Send for Decompressor {}

impl Decompressor {
    /// `None` if there is no memory.
    #[must_use]
    pub fn new() -> Option<Self> {
        // SAFETY: the function has no conditions.
        let mut room = room(unsafe { ZSTD_estimateDCtxSize() })?;
        let (start, len) = (room.as_mut_ptr().cast(), room.len() * 8);
        // SAFETY: the block lives as long as the context, and is touched by nothing else.
        let context = NonNull::new(unsafe { ZSTD_initStaticDCtx(start, len) })?;
        Some(Self { context, _room: room })
    }

    /// Decompresses bytes into a buffer: the length, if they are what zstd makes and there is room.
    pub fn decompress(&mut self, from: &[u8], into: &mut [u8]) -> Option<usize> {
        let (to, room, source) = (into.as_mut_ptr().cast(), into.len(), from.as_ptr().cast());
        // SAFETY: both buffers have their lengths, and do not overlap.
        length(unsafe { ZSTD_decompressDCtx(self.context.as_ptr(), to, room, source, from.len()) })
    }
}

/// Places of a shelf.
const PLACES: usize = 4;

/// A few values that are kept for later, for all threads. No lock.
#[derive(Debug)]
pub struct Shelf<T> {
    places: [AtomicPtr<T>; PLACES],
}

impl<T: Send> Shelf<T> {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { places: [const { AtomicPtr::new(ptr::null_mut()) }; PLACES] }
    }

    /// Takes a value, if there is one.
    pub fn take(&self) -> Option<Box<T>> {
        self.places.iter().find_map(|place| {
            let value = place.swap(ptr::null_mut(), Ordering::Acquire);
            // SAFETY: it is of a box that was given up here, and now this thread has it alone.
            (!value.is_null()).then(|| unsafe { Box::from_raw(value) })
        })
    }

    /// Keeps a value, or drops it where there is no place.
    pub fn put(&self, value: Box<T>) {
        let (free, value) = (ptr::null_mut(), Box::into_raw(value));
        let is_kept = self.places.iter().any(|place| {
            place.compare_exchange(free, value, Ordering::Release, Ordering::Relaxed).is_ok()
        });
        if !is_kept {
            // SAFETY: made above, and no place has it.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T: Send> Default for Shelf<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Shelf<T> {
    fn drop(&mut self) {
        for place in &mut self.places {
            let value = *place.get_mut();
            if !value.is_null() {
                // SAFETY: a place owns its value.
                drop(unsafe { Box::from_raw(value) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_what_is_too_long_is_refused() {
        let text: Vec<u8> =
            (0..4096_usize).map(|n| b"evicted pages of "[n * n % 97 % 17]).collect();
        let mut packer = Compressor::new(3, 4096).expect("memory");
        let mut unpacker = Decompressor::new().expect("memory");
        let (mut packed, mut back) = (vec![0; 4096], vec![0; 4096]);
        for round in 0..100 {
            let len = packer.compress(&text[round..], &mut packed).expect("room");
            assert!(len < 2000, "{len}");
            let got = unpacker.decompress(&packed[..len], &mut back);
            assert_eq!(got, Some(4096 - round));
            assert_eq!(back[..4096 - round], text[round..]);
        }
        assert_eq!(packer.compress(&[0; 4097], &mut packed), None);
        assert_eq!(packer.compress(&text, &mut packed[..10]), None);
        assert_eq!(unpacker.decompress(b"no frame", &mut back), None);
    }

    #[test]
    fn a_shelf_keeps_a_few_and_drops_the_rest() {
        let shelf = Shelf::new();
        let value = std::sync::Arc::new(());
        (0..10).for_each(|_| shelf.put(Box::new(value.clone())));
        assert_eq!(std::sync::Arc::strong_count(&value), 1 + PLACES);
        let taken = shelf.take();
        assert!(taken.is_some());
        drop(taken);
        drop(shelf);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}
