//! The bytes of a trace: found, decompressed, buffered, and counted on both sides of the
//! decompressor.
//!
//! ```text
//! file or stdin ── counted ── gunzip / unzstd / nothing ── buffer ── a reader of some format
//!                    │                                       │
//!                  progress                              byte offset
//! ```
//!
//! Compression is recognised by the first bytes of a file, not by its name: gzip starts with `1f
//! 8b` (RFC 1952), Zstandard with `28 b5 2f fd` (RFC 8878). Files made by joining several
//! compressed files are read to the end of the last.
//!
//! The formats look ahead and decode in place, so this is not a `BufRead`, but a buffer that can
//! grow without giving up its contents.

use flate2::bufread::MultiGzDecoder;
use std::fmt;
use std::io::{self, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Bytes requested at a time: a few hundred system calls a second at the speed of a fast device,
/// and still in the second-level cache. Not tuned.
const BUFFER_BYTES: usize = 256 << 10;

/// A buffered source of decompressed bytes.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What is unread: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// The offset of `buffer[start]` after decompression.
    offset: u64,
    /// Bytes taken from the file.
    taken: Arc<AtomicU64>,
    /// The error that the source ended with. A decompressor asked again after an error may say
    /// that all is well.
    failed: Option<(io::ErrorKind, String)>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl Input {
    /// Reads `source`, which may be plain, gzip or Zstandard. Reads up to four bytes to tell.
    ///
    /// # Errors
    /// Those of reading `source`, and of setting up the decompressor.
    pub(super) fn new(source: impl Read + Send + 'static) -> io::Result<Self> {
        let taken = Arc::new(AtomicU64::new(0));
        let mut source = Counted { source, taken: Arc::clone(&taken) };
        // A pipe may deliver the magic in pieces, so it is collected and put back in front.
        let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
        source.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
        let (gzip, zstd) = (magic.starts_with(&GZIP_MAGIC), magic.starts_with(&ZSTD_MAGIC));
        let whole = Cursor::new(magic).chain(source);
        let buffered = |source| BufReader::with_capacity(BUFFER_BYTES, source);
        let source: Box<dyn Read + Send> = if gzip {
            Box::new(MultiGzDecoder::new(buffered(whole)))
        } else if zstd {
            Box::new(zstd::stream::read::Decoder::with_buffer(buffered(whole))?)
        } else {
            Box::new(whole)
        };
        Ok(Self { source, buffer: Vec::new(), start: 0, end: 0, offset: 0, taken, failed: None })
    }

    /// What is buffered and not consumed.
    #[inline]
    pub(super) fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads until `wanted` bytes are available or the input ends; whether they are.
    ///
    /// # Errors
    /// Those of the source, every time from the first on; what was available stays so.
    #[inline]
    pub(super) fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.end - self.start < wanted {
            if self.more()? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads some more behind what is available; 0 at the end of the input.
    ///
    /// # Errors
    /// Those of the source, every time from the first on; what was available stays so.
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

    /// Goes on behind the first `count` bytes available.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// The offset of the first byte available, after decompression.
    #[inline]
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// A counter of the bytes taken from the file so far, which is ahead of what was consumed.
    pub(super) fn taken(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.taken)
    }
}

impl Read for Input {
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

/// Counts what passes through.
struct Counted<R> {
    source: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(out)?;
        // A reading for a progress bar: nothing else is ordered by it.
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers one byte at a time, as a slow pipe may.
    struct Drip(Cursor<Vec<u8>>);

    impl Read for Drip {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let one = out.len().min(1);
            self.0.read(&mut out[..one])
        }
    }

    #[test]
    fn bytes_come_whole_from_a_pipe_that_drips_and_are_counted() {
        let text = b"some text that is longer than a magic".to_vec();
        for bytes in [text.clone(), zstd::encode_all(text.as_slice(), 1).unwrap()] {
            let mut input = Input::new(Drip(Cursor::new(bytes.clone()))).unwrap();
            assert!(input.fill(10).unwrap() && input.available().len() >= 10);
            input.consume(5);
            assert_eq!(input.offset(), 5);
            let mut rest = Vec::new();
            input.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, text[5..]);
            assert!(!input.fill(1).unwrap());
            assert_eq!(input.taken().load(Ordering::Relaxed), bytes.len() as u64);
        }
    }
}
