//! The compact format: our exchange format in binary, a few bytes a record, and no damage goes
//! unnoticed.
//!
//! ```text
//! file    = header block* end
//! header  = magic[8]  version:u8  columns:u8  page:u8  0:u8  crc:u32
//! block   = bytes:u32  records:u32  content_crc:u32  crc:u32  content[bytes]
//! end     = 0:u32  0:u32  records_in_all:u64  crc:u32
//! ```
//!
//! `crc` is that of the bytes before it: 12 in a header and a block, 16 at the end.
//!
//! The page is the binary logarithm of its bytes, 0 for a trace that does not have it; version 1
//! never does, and has 0 there. Numbers are little-endian; checksums are CRC-32 (the polynomial of
//! gzip). The header of a block has a checksum of its own, so that a damaged length is not used;
//! the end mark has the number of records, so that neither a cut nor a lost block goes unnoticed. A
//! single damaged byte is always found, because a CRC-32 finds every error of up to 32 bits in a
//! row.
//!
//! The content is a sequence of entries, each beginning with a tag byte:
//!
//! | bits | of a record | of a name |
//! |---|---|---|
//! | 0..3 | the operation, 0 to 5 as in [`OpKind::ALL`] | 6: a space; 7: a tenant |
//! | 3 | another space than the record before: its number follows | 0 |
//! | 4 | more than one page: their number follows | 0 |
//! | 5 | has a time: its difference to the last time follows | 0 |
//! | 6 | another thread than the record before: its number + 1, or 0 for none, follows | 0 |
//! | 7 | another tenant than the record before: its number + 1, or 0 for none, follows | 0 |
//!
//! A space follows as `file:NAME` or `anon:NAME`. After the tag of a record come, in this order and
//! if the tag has their bit: space, page (always), pages, time, thread, tenant. All are
//! variable-length numbers, seven bits to a byte with the low ones first. The page is the
//! difference to the page behind the last operation on the same space, so that a scan costs one
//! byte; differences are signed, in zigzag. A name is its length and its text, and comes before the
//! first record that uses it; names are numbered in order of appearance. Nothing is forgotten
//! between blocks: they are units of checking, not of seeking.
//!
//! [`OpKind::ALL`]: crate::OpKind::ALL

mod reader;
mod varint;
mod writer;

pub(super) use reader::Reader;
pub use writer::CompactWriter;

use super::record::Columns;

/// The first bytes: the first not ASCII, so that it is no text; the last ends a listing on some
/// systems, and a transfer that changes line breaks or strips high bits is noticed.
pub(super) const MAGIC: [u8; 8] = *b"\x89LTIDE\r\n";
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 16;
const BLOCK_HEADER_BYTES: usize = 16;
const END_BYTES: usize = 20;
/// A block is closed when it has this much content: enough that its header costs nothing, and in
/// the second-level cache. Not tuned.
const BLOCK_BYTES: usize = 64 << 10;
/// The longest name.
const NAME_BYTES_MAX: usize = 64 << 10;
/// No block is longer: what is there when a block is closed, one record, and two names.
const BLOCK_BYTES_MAX: usize = 4 * BLOCK_BYTES;

const TAG_KIND: u8 = 0b111;
const TAG_SPACE_NAME: u8 = 6;
const TAG_TENANT_NAME: u8 = 7;
const TAG_OTHER_SPACE: u8 = 1 << 3;
const TAG_PAGES: u8 = 1 << 4;
const TAG_TIME: u8 = 1 << 5;
const TAG_OTHER_THREAD: u8 = 1 << 6;
const TAG_OTHER_TENANT: u8 = 1 << 7;

/// The columns as the header has them; they are also the tags that may occur.
const fn flags(columns: Columns) -> u8 {
    (if columns.time_ns { TAG_TIME } else { 0 })
        | (if columns.thread { TAG_OTHER_THREAD } else { 0 })
        | (if columns.tenant { TAG_OTHER_TENANT } else { 0 })
}

/// What of the record before the next one builds on; the same in reader and writer.
#[derive(Debug, Default)]
struct Memory {
    space: u32,
    /// For each space, the page behind its last operation.
    behind: Vec<u64>,
    time_ns: u64,
    /// The number + 1; 0 is none.
    thread: u64,
    tenant: u64,
}
