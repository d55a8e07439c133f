//! What all kinds of maps do alike: advice, locks and a new length; and flushes, of those with
//! stores.
//!
//! The three types are different in what their bytes may be used for, and each has an interface of
//! its own in memmap2. So the methods are written once, and given to each.

use crate::{Advice, Mmap, MmapMut, MmapRaw, RemapOptions, UncheckedAdvice};
use std::fmt;
use std::io;

macro_rules! maps {
    ($($map:ident),*) => {$(
        impl $map {
            /// Says how the map will be used.
            ///
            /// # Errors
            /// What the kernel refuses.
            pub fn advise(&self, advice: Advice) -> io::Result<()> {
                self.0.advise(0, self.0.len(), advice as i32)
            }

            /// As [`advise`](Self::advise), with advice that may change bytes.
            ///
            /// # Errors
            /// What the kernel refuses.
            ///
            /// # Safety
            /// No reference to the bytes that it changes lives.
            pub unsafe fn unchecked_advise(&self, advice: UncheckedAdvice) -> io::Result<()> {
                self.0.advise(0, self.0.len(), advice as i32)
            }

            /// Says how a part of the map, in bytes, will be used.
            ///
            /// # Errors
            /// `InvalidInput` for what is no part of the map; else what the kernel refuses.
            pub fn advise_range(
                &self,
                advice: Advice,
                offset: usize,
                len: usize,
            ) -> io::Result<()> {
                self.0.advise(offset, len, advice as i32)
            }

            /// As [`advise_range`](Self::advise_range), with advice that may change bytes.
            ///
            /// # Errors
            /// As `advise_range`.
            ///
            /// # Safety
            /// As [`unchecked_advise`](Self::unchecked_advise).
            pub unsafe fn unchecked_advise_range(
                &self,
                advice: UncheckedAdvice,
                offset: usize,
                len: usize,
            ) -> io::Result<()> {
                self.0.advise(offset, len, advice as i32)
            }

            /// Keeps the whole map in memory (`mlock(2)`). It is outside the budget from then on.
            ///
            /// # Errors
            /// What the kernel refuses: more than the limit on locked memory.
            pub fn lock(&self) -> io::Result<()> {
                self.0.lock()
            }

            /// Ends that (`munlock(2)`).
            ///
            /// # Errors
            /// What the kernel refuses.
            pub fn unlock(&self) -> io::Result<()> {
                self.0.unlock()
            }

            /// Makes the map longer or shorter.
            ///
            /// # Errors
            /// What the kernel refuses: it would have to move and may not. The map is as it was.
            ///
            /// # Safety
            /// A touch past the end of the file is `SIGBUS`; pointers into a map that moves dangle.
            pub unsafe fn remap(
                &mut self,
                new_len: usize,
                options: RemapOptions,
            ) -> io::Result<()> {
                // SAFETY: the map is borrowed alone, so nothing refers to its bytes.
                unsafe { self.0.remap(new_len, options) }
            }
        }

        impl fmt::Debug for $map {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($map))
                    .field("ptr", &self.0.start().cast_const())
                    .field("len", &self.0.len())
                    .finish()
            }
        }
    )*};
}

macro_rules! with_stores {
    ($($map:ident),*) => {$(
        impl $map {
            /// Writes all stores to the file, and returns when they are durable.
            ///
            /// # Errors
            /// `EIO`, `ENOSPC` and others where writing failed.
            pub fn flush(&self) -> io::Result<()> {
                self.flush_range(0, self.0.len())
            }

            /// Starts to write all stores, and does not wait.
            ///
            /// # Errors
            /// As [`flush`](Self::flush), as far as errors are known already.
            pub fn flush_async(&self) -> io::Result<()> {
                self.flush_async_range(0, self.0.len())
            }

            /// As [`flush`](Self::flush), for a part of the map in bytes.
            ///
            /// # Errors
            /// `InvalidInput` for what is no part of the map; else as [`flush`](Self::flush).
            pub fn flush_range(&self, offset: usize, len: usize) -> io::Result<()> {
                self.0.flush(offset, len, libc::MS_SYNC)
            }

            /// As [`flush_async`](Self::flush_async), for a part of the map in bytes.
            ///
            /// # Errors
            /// As [`flush_range`](Self::flush_range).
            pub fn flush_async_range(&self, offset: usize, len: usize) -> io::Result<()> {
                self.0.flush(offset, len, libc::MS_ASYNC)
            }
        }
    )*};
}

maps!(Mmap, MmapMut, MmapRaw);
with_stores!(MmapMut, MmapRaw);
