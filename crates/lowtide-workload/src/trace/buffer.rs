//! Bytes read ahead of a decoder, which decodes them in place.
//!
//! Not a `BufRead`: a decoder that needs more bytes than are buffered gets them behind those that
//! it has, in one slice. So the buffer grows with the longest line or record, and its readers limit
//! that.

use std::fmt;
use std::io::{self, Read};

/// Bytes requested at a time: a few hundred system calls a second at the speed of a fast device,
/// and still in the second-level cache. Not tuned.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// A buffered source of bytes.
pub(super) struct Buffer<R> {
    source: R,
    buffer: Vec<u8>,
    /// The unread bytes: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// The offset of `buffer[start]` in the source.
    offset: u64,
    /// The error that the source ended with. A decompressor that is called again after an error may
    /// return success.
    failed: Option<(io::ErrorKind, String)>,
}

impl<R> fmt::Debug for Buffer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<R> Buffer<R> {
    /// Buffers `source`, of which nothing is read yet.
    pub(super) const fn over(source: R) -> Self {
        Self { source, buffer: Vec::new(), start: 0, end: 0, offset: 0, failed: None }
    }

    /// The source.
    pub(super) const fn source(&self) -> &R {
        &self.source
    }

    /// The bytes that are buffered and not consumed.
    #[inline]
    pub(super) fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes the first `count` available bytes.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// The offset of the first available byte in the source.
    #[inline]
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }
}

impl<R: Read> Buffer<R> {
    /// Reads until `wanted` bytes are available or the input ends; returns whether they are.
    ///
    /// # Errors
    /// Those of the source, every time from the first on. The available bytes stay available.
    #[inline]
    pub(super) fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.end - self.start < wanted {
            if self.more()? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads some bytes behind the available ones; 0 at the end of the input.
    ///
    /// # Errors
    /// Those of the source, every time from the first on. The available bytes stay available.
    #[cold]
    pub(super) fn more(&mut self) -> io::Result<usize> {
        if let Some((kind, what)) = &self.failed {
            return Err(io::Error::new(*kind, what.clone()));
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() - self.end < BUFFER_BYTES / 2 {
            self.buffer.resize(self.end + BUFFER_BYTES, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = Some((error.kind(), error.to_string()));
                    return Err(error);
                }
            }
        }
    }
}

impl<R: Read> Read for Buffer<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !out.is_empty() && !self.fill(1)? {
            return Ok(0);
        }
        let count = out.len().min(self.end - self.start);
        out[..count].copy_from_slice(&self.available()[..count]);
        self.consume(count);
        Ok(count)
    }
}
