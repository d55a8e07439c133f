//! The bytes of a page.
//!
//! ```text
//!   0  magic    "lowtide" and a zero
//!   8  version  of the format, u32            12  writer   thread that writes, u32
//!  16  sequence u64: odd while the page is being written
//!  24  length   bytes of the text, u64        32  start    of the process, ticks, u64
//!  40  space    number of the namespace of process numbers, u64
//!  48  sum      CRC-32 of the text, u32       52  zeroes
//!  64  text     the status as JSON
//! ```
//!
//! All numbers are in the byte order of the machine. A writer makes `sequence` odd, writes, and
//! makes it even. A reader reads the header, the text, and the header again: if both are the same
//! and even, the text is of one piece. The sum guards against processors that reorder loads of
//! different calls.
//!
//! *Start* and *writer* say whose page it is: a process with the same number that started at
//! another time is another one, and one without that thread has become another program by
//! `execve(2)`, or no longer writes.

use crate::status::VERSION;

/// Bytes of a page at most, with its header.
pub const PAGE_BYTES_MAX: usize = 256 << 10;

/// Bytes before the text.
pub(crate) const HEADER: usize = 64;

/// Bytes of the text at most.
pub(crate) const TEXT_MAX: usize = PAGE_BYTES_MAX - HEADER;

const MAGIC: [u8; 8] = *b"lowtide\0";

/// What is before the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) writer: u32,
    pub(crate) sequence: u64,
    pub(crate) length: u64,
    pub(crate) start: u64,
    pub(crate) space: u64,
    pub(crate) sum: u32,
}

/// Why some bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Short,
    Magic,
    Newer(u32),
    Length,
}

impl Header {
    /// For a text, by the calling thread, of a process.
    pub(crate) fn new(text: &[u8], sequence: u64, start: u64, space: u64) -> Self {
        Self {
            version: VERSION,
            writer: rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(),
            sequence,
            length: text.len() as u64,
            start,
            space,
            sum: crc32fast::hash(text),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(8, &self.version.to_ne_bytes());
        put(12, &self.writer.to_ne_bytes());
        put(16, &self.sequence.to_ne_bytes());
        put(24, &self.length.to_ne_bytes());
        put(32, &self.start.to_ne_bytes());
        put(40, &self.space.to_ne_bytes());
        put(48, &self.sum.to_ne_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Wrong> {
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let short = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.len() < HEADER {
            return Err(Wrong::Short);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(Wrong::Magic);
        }
        let header = || {
            Some(Self {
                version: short(8)?,
                writer: short(12)?,
                sequence: long(16)?,
                length: long(24)?,
                start: long(32)?,
                space: long(40)?,
                sum: short(48)?,
            })
        };
        let header = header().ok_or(Wrong::Short)?;
        if header.version > VERSION {
            return Err(Wrong::Newer(header.version));
        }
        if header.length > TEXT_MAX as u64 { Err(Wrong::Length) } else { Ok(header) }
    }

    /// Whether the page is of one piece, if this header was read before and after the text.
    pub(crate) fn fits(&self, text: &[u8]) -> bool {
        self.sequence.is_multiple_of(2)
            && text.len() as u64 == self.length
            && crc32fast::hash(text) == self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_others_are_refused() {
        let header = Header::new(b"{}", 4, 77, 9);
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Ok(header));
        assert!(header.fits(b"{}") && !header.fits(b"[]") && !header.fits(b"{} "));
        assert!(!Header { sequence: 5, ..header }.fits(b"{}"), "it is being written");
        assert_eq!(Header::parse(&bytes[..HEADER - 1]), Err(Wrong::Short));
        assert_eq!(Header::parse(&[0; HEADER]), Err(Wrong::Magic));
        let newer = Header { version: VERSION + 1, ..header };
        assert_eq!(Header::parse(&newer.to_bytes()), Err(Wrong::Newer(VERSION + 1)));
        let longer = Header { length: PAGE_BYTES_MAX as u64, ..header };
        assert_eq!(Header::parse(&longer.to_bytes()), Err(Wrong::Length));
    }
}
