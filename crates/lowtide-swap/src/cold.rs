//! zstd for pages. Its contexts are large, so a few are kept for all threads, in memory of this
//! process's Rust, and without a lock: both matter in a program that `lowtide run` keeps.
//!
//! zstd is C, so it is the feature `zstd`. Without it lz4 is all there is.

#[cfg(not(feature = "zstd"))]
pub use without::Dictionary;
#[cfg(not(feature = "zstd"))]
pub(crate) use without::{Encoders, unpack};
#[cfg(feature = "zstd")]
pub use zstd::Dictionary;
#[cfg(feature = "zstd")]
pub(crate) use zstd::{Encoders, unpack};

/// Level for pages that stay cold: above 3 a page of 4 KiB gains little, and takes longer.
pub(crate) const COLD: i32 = 3;
/// Level for pages that are stored while a program waits.
pub(crate) const QUICK: i32 = 1;

#[cfg(feature = "zstd")]
mod zstd {
    use super::QUICK;
    use lowtide_zstd::{Compressor, Decompressor, Shelf};

    static DECODERS: Shelf<Decompressor> = Shelf::new();
    /// For each level and each size of pages. Those of a store would be a hundred KiB for each of
    /// many tenants.
    static CONTEXTS: [[Shelf<Compressor>; PAGE_SIZES]; 2] =
        [const { [const { Shelf::new() }; PAGE_SIZES] }; 2];
    /// Sizes of pages: powers of two from 512 bytes to 64 KiB.
    const PAGE_SIZES: usize = 8;

    /// What pages of one kind have in common, those of a file for example: a page that is packed
    /// tightly with it is smaller, and needs it to be loaded.
    #[derive(Debug)]
    pub struct Dictionary(lowtide_zstd::Dictionary);

    impl Dictionary {
        /// Makes one of pages that lie back to back; 256 are enough. `None` if they have nothing in
        /// common, or without the feature `zstd`. Takes a tenth of a second for a MiB.
        #[must_use]
        pub fn of(pages: &[u8], page_bytes: usize) -> Option<Dictionary> {
            lowtide_zstd::Dictionary::train(pages, page_bytes, QUICK).map(Dictionary)
        }

        /// Bytes of memory that it takes.
        #[must_use]
        pub fn bytes(&self) -> usize {
            self.0.bytes()
        }
    }

    /// Compresses pages of one size at one level.
    #[derive(Debug)]
    pub(crate) struct Encoders {
        level: i32,
        page_bytes: usize,
        contexts: &'static Shelf<Compressor>,
    }

    impl Encoders {
        pub(crate) fn new(level: i32, page_bytes: usize) -> Encoders {
            let size = (page_bytes.ilog2() as usize).saturating_sub(9).min(PAGE_SIZES - 1);
            Encoders { level, page_bytes, contexts: &CONTEXTS[usize::from(level == QUICK)][size] }
        }

        /// Compresses a page into a buffer. Returns the length, if there was room.
        pub(crate) fn pack(
            &self,
            page: &[u8],
            into: &mut [u8],
            with: Option<&Dictionary>,
        ) -> Option<usize> {
            let new = || Compressor::new(self.level, self.page_bytes);
            let common = with.map(|dictionary| &dictionary.0);
            one_of(self.contexts, new, |one| one.compress(page, into, common))
        }
    }

    /// Calls a function with a context. `None` if there is no memory for one.
    fn one_of<T: Send, R>(
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
    pub(crate) fn unpack(
        object: &[u8],
        page: &mut [u8],
        with: Option<&Dictionary>,
    ) -> Option<usize> {
        let common = with.map(|dictionary| &dictionary.0);
        one_of(&DECODERS, Decompressor::new, |one| one.decompress(object, page, common))
    }
}

#[cfg(not(feature = "zstd"))]
mod without {
    /// What pages of one kind have in common. Without the feature `zstd` there is none.
    #[derive(Debug)]
    pub enum Dictionary {}

    impl Dictionary {
        /// Needs the feature `zstd`.
        #[must_use]
        pub const fn of(_pages: &[u8], _page_bytes: usize) -> Option<Dictionary> {
            None
        }

        /// Bytes of memory that it takes.
        #[must_use]
        pub const fn bytes(&self) -> usize {
            match *self {}
        }
    }

    #[derive(Debug)]
    pub(crate) struct Encoders;

    impl Encoders {
        pub(crate) const fn new(_level: i32, _page_bytes: usize) -> Encoders {
            Encoders
        }

        pub(crate) const fn pack(
            &self,
            _page: &[u8],
            _into: &mut [u8],
            _with: Option<&Dictionary>,
        ) -> Option<usize> {
            None
        }
    }

    pub(crate) const fn unpack(
        _object: &[u8],
        _page: &mut [u8],
        _with: Option<&Dictionary>,
    ) -> Option<usize> {
        None
    }
}
