//! Pages that stay cold, compressed again: by zstd, whose contexts are large and rarely used. A few
//! are kept for all threads, in memory of this process's Rust, and without a lock: both matter in a
//! program that `lowtide run` keeps.
//!
//! zstd is C, so it is the feature `zstd`. Without it no page is compressed again.

#[cfg(feature = "zstd")]
pub(crate) use zstd::{pack, unpack};

#[cfg(feature = "zstd")]
mod zstd {
    use crate::source::PAGE_BYTES;
    use lowtide_zstd::{Compressor, Decompressor, Shelf};

    /// Level of zstd: above 3 a page of 4 KiB gains little, and takes longer.
    const ZSTD_LEVEL: i32 = 3;

    /// Compresses a page with zstd into a buffer. Returns the length, if there was room.
    pub(crate) fn pack(page: &[u8], into: &mut [u8]) -> Option<usize> {
        let new = || Compressor::new(ZSTD_LEVEL, PAGE_BYTES);
        with(&ENCODERS, new, |one| one.compress(page, into))
    }

    /// Contexts that are large and rarely used: a few are kept for all threads. In memory of this
    /// process's Rust, and without a lock: both matter in a program that `lowtide run` keeps.
    static DECODERS: Shelf<Decompressor> = Shelf::new();
    static ENCODERS: Shelf<Compressor> = Shelf::new();

    /// Calls a function with a context. `None` if there is no memory for one.
    fn with<T: Send, R>(
        shelf: &Shelf<T>,
        new: impl FnOnce() -> Option<T>,
        f: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        let mut context = shelf.take().or_else(|| new().map(Box::new))?;
        let done = f(&mut context);
        shelf.put(context);
        done
    }

    /// Writes the page that an object is to `page`. Returns its bytes.
    pub(crate) fn unpack(object: &[u8], page: &mut [u8]) -> Option<usize> {
        with(&DECODERS, Decompressor::new, |one| one.decompress(object, page))
    }
}

#[cfg(not(feature = "zstd"))]
pub(crate) const fn pack(_page: &[u8], _into: &mut [u8]) -> Option<usize> {
    None
}

#[cfg(not(feature = "zstd"))]
pub(crate) const fn unpack(_object: &[u8], _page: &mut [u8]) -> Option<usize> {
    None
}
