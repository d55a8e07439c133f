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

use super::buffer::{BUFFER_BYTES, Buffer};
use flate2::bufread::MultiGzDecoder;
use std::fmt;
use std::io::{self, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The decompressed bytes of a trace.
pub(super) struct Source {
    bytes: Box<dyn Read + Send>,
    /// Bytes taken from the file.
    taken: Arc<AtomicU64>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// The buffered bytes of a trace. Offsets are those after decompression.
pub(super) type Input = Buffer<Source>;

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
        let bytes: Box<dyn Read + Send> = if gzip {
            Box::new(MultiGzDecoder::new(buffered(whole)))
        } else if zstd {
            Box::new(zstd::stream::read::Decoder::with_buffer(buffered(whole))?)
        } else {
            Box::new(whole)
        };
        Ok(Self::over(Source { bytes, taken }))
    }

    /// A counter of the bytes taken from the file so far, which is ahead of the consumed ones.
    pub(super) fn taken(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.source().taken)
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(out)
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
