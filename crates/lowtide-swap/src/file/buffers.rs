//! Buffers that begin at a multiple of a page, as direct I/O needs, a few of them kept for later.
//!
//! A buffer is a vector a page longer than it must be, of which the aligned middle is used: so no
//! allocation needs unsafe code. Requests of up to a cluster gather pages from anywhere in memory
//! into one buffer; the copy costs a tenth of what the device takes.

use crate::lock::lock;
use crate::source::PAGE_BYTES;
use std::sync::Mutex;

/// Buffers that are kept.
const SPARE_MAX: usize = 4;

/// Bytes that begin at a multiple of a page: memory of its own for a [`Backing`](super::Backing)
/// whose requests outlive the call.
#[derive(Debug)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Zeroes.
    #[must_use]
    pub fn new(len: usize) -> AlignedBuffer {
        let bytes = vec![0; len + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        assert!(start < PAGE_BYTES, "bytes can be aligned");
        AlignedBuffer { bytes, start, len }
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Buffers of one size, for threads that come and go.
pub(super) struct Buffers {
    spare: Mutex<Vec<AlignedBuffer>>,
    len: usize,
}

impl Buffers {
    pub(super) const fn new(len: usize) -> Buffers {
        Buffers { spare: Mutex::new(Vec::new()), len }
    }

    /// Calls a function with the first `len` bytes of a buffer, whatever they are.
    pub(super) fn with<T>(&self, len: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let kept = lock(&self.spare).pop();
        let mut buffer = kept.unwrap_or_else(|| AlignedBuffer::new(self.len));
        let done = f(&mut buffer.bytes()[..len]);
        let mut spare = lock(&self.spare);
        if spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_used_again() {
        let buffers = Buffers::new(3 * PAGE_BYTES);
        let address = |bytes: &mut [u8]| bytes.as_ptr() as usize;
        let first = buffers.with(PAGE_BYTES, |bytes| {
            let other = buffers.with(3 * PAGE_BYTES, address);
            assert_eq!((bytes.len(), other % PAGE_BYTES), (PAGE_BYTES, 0));
            address(bytes)
        });
        assert_eq!(first % PAGE_BYTES, 0);
        assert_eq!(buffers.with(PAGE_BYTES, address), first, "the last one that was given back");
    }
}
