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
//! What pages of one file have in common is in a [`Dictionary`], which is made of samples. That
//! alone allocates with `malloc`, while it is made.
//!
//! # Safety
//!
//! A context is in a block that it owns, is as large as zstd demands and aligned to eight bytes,
//! and never moves, since the block is on the heap. So is a dictionary, which is only read once it
//! is made. A place of a shelf owns what its pointer refers
//! to.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use zstd_sys::{
    ZDICT_isError, ZDICT_trainFromBuffer, ZSTD_CCtx, ZSTD_CDict, ZSTD_DCtx, ZSTD_DDict,
    ZSTD_compress_usingCDict, ZSTD_compressCCtx, ZSTD_decompress_usingDDict, ZSTD_decompressDCtx,
    ZSTD_dictContentType_e, ZSTD_dictLoadMethod_e, ZSTD_estimateCCtxSize_usingCParams,
    ZSTD_estimateCDictSize_advanced, ZSTD_estimateDCtxSize, ZSTD_estimateDDictSize,
    ZSTD_getCParams, ZSTD_initStaticCCtx, ZSTD_initStaticCDict, ZSTD_initStaticDCtx,
    ZSTD_initStaticDDict, ZSTD_isError,
};

/// Bytes of a dictionary, at most.
pub const DICTIONARY_BYTES: usize = 32 << 10;

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
        // With a dictionary the parameters are those that it was made with.
        let mut bytes = 0;
        for dictionary in [0, DICTIONARY_BYTES] {
            // SAFETY: any level and any length.
            let parameters = unsafe { ZSTD_getCParams(level, most as u64, dictionary) };
            // SAFETY: parameters of zstd's own.
            bytes = bytes.max(length(unsafe { ZSTD_estimateCCtxSize_usingCParams(parameters) })?);
        }
        let mut room = room(bytes)?;
        let (start, len) = (room.as_mut_ptr().cast(), room.len() * 8);
        // SAFETY: the block lives as long as the context, and is touched by nothing else.
        let context = NonNull::new(unsafe { ZSTD_initStaticCCtx(start, len) })?;
        Some(Self { context, level, most, _room: room })
    }

    /// Compresses bytes into a buffer, with a dictionary if there is one: the length, if there is
    /// room.
    pub fn compress(
        &mut self,
        from: &[u8],
        into: &mut [u8],
        dictionary: Option<&Dictionary>,
    ) -> Option<usize> {
        if from.len() > self.most {
            return None;
        }
        let (to, room, source) = (into.as_mut_ptr().cast(), into.len(), from.as_ptr().cast());
        let context = self.context.as_ptr();
        if let Some(dictionary) = dictionary {
            let with = dictionary.compress.as_ptr();
            // SAFETY: as below, and the dictionary is whole and only read.
            return length(unsafe {
                ZSTD_compress_usingCDict(context, to, room, source, from.len(), with)
            });
        }
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

    /// Decompresses bytes into a buffer, with the dictionary that they were compressed with: the
    /// length, if they are what zstd makes and there is room.
    pub fn decompress(
        &mut self,
        from: &[u8],
        into: &mut [u8],
        dictionary: Option<&Dictionary>,
    ) -> Option<usize> {
        let (to, room, source) = (into.as_mut_ptr().cast(), into.len(), from.as_ptr().cast());
        if let Some(dictionary) = dictionary {
            let (context, with) = (self.context.as_ptr(), dictionary.decompress.as_ptr());
            // SAFETY: as below, and the dictionary is whole and only read.
            return length(unsafe {
                ZSTD_decompress_usingDDict(context, to, room, source, from.len(), with)
            });
        }
        // SAFETY: both buffers have their lengths, and do not overlap.
        length(unsafe { ZSTD_decompressDCtx(self.context.as_ptr(), to, room, source, from.len()) })
    }
}

/// What pages of one kind have in common: with it small pages compress as large ones do.
#[derive(Debug)]
pub struct Dictionary {
    compress: NonNull<ZSTD_CDict>,
    decompress: NonNull<ZSTD_DDict>,
    rooms: [Box<[u64]>; 2],
}

// SAFETY: it is owned, and nothing of it changes after it is made.
unsafe impl Send for Dictionary {}
// SAFETY: as above.
unsafe impl Sync for Dictionary {}

impl Dictionary {
    /// Makes one of samples, which are of one length and lie back to back, for compressing as much
    /// at this level. `None` if they have nothing in common, are too few, or there is no memory.
    ///
    /// Cost: about a second for 10 MiB of samples, and some times their memory until it is made.
    #[must_use]
    pub fn train(samples: &[u8], each: usize, level: i32) -> Option<Self> {
        let sizes = vec![each; samples.len() / each];
        let mut content = vec![0_u8; DICTIONARY_BYTES];
        let (to, room, from) = (content.as_mut_ptr(), content.len(), samples.as_ptr());
        // SAFETY: the samples are as many as there are sizes, and together no longer than they are;
        // the buffer has its length.
        let made = unsafe {
            ZDICT_trainFromBuffer(to.cast(), room, from.cast(), sizes.as_ptr(), sizes.len() as u32)
        };
        // SAFETY: any number.
        if unsafe { ZDICT_isError(made) } != 0 {
            return None;
        }
        Self::of(&content[..made], each, level)
    }

    fn of(content: &[u8], each: usize, level: i32) -> Option<Self> {
        let (copied, kind) =
            (ZSTD_dictLoadMethod_e::ZSTD_dlm_byCopy, ZSTD_dictContentType_e::ZSTD_dct_fullDict);
        let (from, len) = (content.as_ptr().cast(), content.len());
        // SAFETY: any level and any length.
        let parameters = unsafe { ZSTD_getCParams(level, each as u64, len) };
        // SAFETY: parameters of zstd's own.
        let bytes = unsafe { ZSTD_estimateCDictSize_advanced(len, parameters, copied) };
        let mut first = room(length(bytes)?)?;
        // SAFETY: any length.
        let mut second = room(length(unsafe { ZSTD_estimateDDictSize(len, copied) })?)?;
        let (to, size) = (first.as_mut_ptr().cast(), first.len() * 8);
        // SAFETY: the block lives as long as the dictionary, and is touched by nothing else; the
        // content is copied.
        let compress =
            unsafe { ZSTD_initStaticCDict(to, size, from, len, copied, kind, parameters) };
        let (to, size) = (second.as_mut_ptr().cast(), second.len() * 8);
        // SAFETY: as above.
        let decompress = unsafe { ZSTD_initStaticDDict(to, size, from, len, copied, kind) };
        Some(Self {
            compress: NonNull::new(compress.cast_mut())?,
            decompress: NonNull::new(decompress.cast_mut())?,
            rooms: [first, second],
        })
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rooms.iter().map(|room| room.len() * 8).sum()
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
            let len = packer.compress(&text[round..], &mut packed, None).expect("room");
            assert!(len < 2000, "{len}");
            let got = unpacker.decompress(&packed[..len], &mut back, None);
            assert_eq!(got, Some(4096 - round));
            assert_eq!(back[..4096 - round], text[round..]);
        }
        assert_eq!(packer.compress(&[0; 4097], &mut packed, None), None);
        assert_eq!(packer.compress(&text, &mut packed[..10], None), None);
        assert_eq!(unpacker.decompress(b"no frame", &mut back, None), None);
    }

    #[test]
    fn small_pages_of_one_kind_become_much_smaller_with_what_they_have_in_common() {
        let page = |n: usize| {
            let name =
                |n: usize| format!("{:x}", (n as u64 % 61 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let fields = (n..).map(|n| format!("\"{}\":\"{:x}\",", name(n), n * 7919));
            let text = fields.take(70).collect::<String>();
            text.as_bytes()[..1024].to_vec()
        };
        let samples: Vec<u8> = (0..256).flat_map(|n| page(n * 31)).collect();
        let dictionary = Dictionary::train(&samples, 1024, 1).expect("they have much in common");
        assert!((1..1 << 20).contains(&dictionary.bytes()));
        let mut packer = Compressor::new(1, 1024).expect("memory");
        let mut unpacker = Decompressor::new().expect("memory");
        let (mut packed, mut back) = (vec![0; 1024], vec![0; 1024]);
        for n in 0..100 {
            let page = page(n * 47 + 1_000_000);
            let alone = packer.compress(&page, &mut packed, None).expect("room");
            let len = packer.compress(&page, &mut packed, Some(&dictionary)).expect("room");
            assert!(len * 5 < alone * 4, "{len} bytes beside {alone}");
            let got = unpacker.decompress(&packed[..len], &mut back, Some(&dictionary));
            assert_eq!((got, &back), (Some(1024), &page));
            assert_eq!(unpacker.decompress(&packed[..len], &mut back, None), None);
        }
        assert!(Dictionary::train(&samples[..2048], 1024, 1).is_none(), "two are too few");
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
