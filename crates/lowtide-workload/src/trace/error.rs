//! What can be wrong with a trace, and where.

use super::format::Format;
use super::record::{OPTIONAL, REQUIRED};
use crate::op::OpKind;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A trace that cannot be read further, and the place.
#[derive(Debug, Error)]
#[error("{}byte {byte_offset}{}: {what}", before(*line), after(*line))]
pub struct TraceError {
    /// The line, counted from 1; a header is line 1. `None` in binary formats.
    pub line: Option<u64>,
    /// The offset of the line's, record's or block's first byte, after decompression.
    pub byte_offset: u64,
    /// What is wrong there.
    pub what: TraceFault,
}

fn before(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!("line {line} ("))
}

const fn after(line: Option<u64>) -> &'static str {
    if line.is_some() { ")" } else { "" }
}

/// A header for records with this many fields, as far as there are columns.
fn header_for(fields: usize) -> String {
    REQUIRED
        .into_iter()
        .chain(OPTIONAL)
        .take(fields.max(REQUIRED.len()))
        .collect::<Vec<_>>()
        .join(",")
}

/// What is wrong at a place of a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// There is nothing.
    #[error("the trace is empty")]
    Empty,
    /// The content is in no format that is known.
    #[error(
        "the format is not recognised; name one with --format ({})",
        Format::ALL.map(Format::name).join(", ")
    )]
    UnknownFormat,
    /// There is no first line.
    #[error("the trace is empty; its first line must be the header `{}`", REQUIRED.join(","))]
    NoHeader,
    /// A comment about the page that says nothing possible.
    #[error(
        "`{text}` is not a page size; write `# page_bytes: N`, a power of two from 512 to 65536"
    )]
    BadPage {
        /// What follows the colon.
        text: String,
    },
    /// A second comment about the page.
    #[error("the page size is given twice; give it once")]
    PageTwice,
    /// A record in the place of the header.
    #[error(
        "the first line must be the header, but it is a record; add the line `{}` before it",
        header_for(*fields)
    )]
    HeaderMissing {
        /// How many fields the record has.
        fields: usize,
    },
    /// A required column is not in the header.
    #[error("the header has no column `{column}`; it must have {}", REQUIRED.join(","))]
    MissingColumn {
        /// The column.
        column: &'static str,
    },
    /// A column that the format does not have.
    #[error(
        "the header has an unknown column `{column}`; columns are {}, {}",
        REQUIRED.join(", "), OPTIONAL.join(", ")
    )]
    UnknownColumn {
        /// The column.
        column: String,
    },
    /// A column that is in the header twice.
    #[error("the header has the column `{column}` twice")]
    DuplicateColumn {
        /// The column.
        column: &'static str,
    },
    /// A line with another number of fields than the header.
    #[error("{found} fields, but the header has {expected}")]
    FieldCount {
        /// Columns of the header.
        expected: usize,
        /// Fields of the line.
        found: usize,
    },
    /// An operation that the format does not have.
    #[error("unknown op `{text}`; ops are {}", OpKind::ALL.map(OpKind::name).join(", "))]
    UnknownOp {
        /// The field.
        text: String,
    },
    /// A space that is neither `file:NAME` nor `anon:NAME`.
    #[error("`{text}` is not a space; write file:NAME or anon:NAME, without line breaks")]
    BadSpace {
        /// The field.
        text: String,
    },
    /// A tenant whose name is not text of one line.
    #[error("`{text}` is not a tenant's name; it must be UTF-8 without line breaks")]
    BadTenant {
        /// The field.
        text: String,
    },
    /// A number that is not one, or too large for its column.
    #[error("column `{column}`: `{text}` is not a whole number up to {max}")]
    BadNumber {
        /// The column.
        column: &'static str,
        /// The field.
        text: String,
        /// The largest possible value.
        max: u64,
    },
    /// An operation on no pages.
    #[error("`pages` is 0; an operation is on at least one page")]
    NoPages,
    /// An operation that would end beyond the last page that a space can have.
    #[error(
        "{pages} pages from page {page} on end beyond page 2^32, the largest that a space can have"
    )]
    TooFar {
        /// The first page.
        page: u64,
        /// How many pages.
        pages: u32,
    },
    /// An object that no memory holds.
    #[error("an object of {bytes} bytes; the largest accepted has {max}")]
    ObjectTooLarge {
        /// Its size.
        bytes: u64,
        /// The largest possible size.
        max: u64,
    },
    /// A header of objects without one of the columns that it must have.
    #[error("the header has no column {names}; it must have an id and a size")]
    NoObjectColumn {
        /// What the column may be called.
        names: String,
    },
    /// A line, or a part of it, that the format does not have.
    #[error("`{text}` is not {expected}")]
    BadLine {
        /// The line or its part.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A last record without its end.
    #[error("the last record has {found} of {expected} bytes; the trace is truncated")]
    CutRecord {
        /// Bytes there are.
        found: usize,
        /// Bytes of a record.
        expected: usize,
    },
    /// A compact trace without its end mark.
    #[error("the trace ends without its end mark; it is truncated, or its writer did not finish")]
    NoEnd,
    /// A part of a compact trace whose checksum does not match.
    #[error("the trace is damaged: the checksum of {part} does not match")]
    DamagedPart {
        /// The part.
        part: &'static str,
    },
    /// A compact trace that cannot be as it is.
    #[error("the trace is damaged: {what}")]
    Damaged {
        /// In what way.
        what: &'static str,
    },
    /// A compact trace of a later version.
    #[error(
        "the trace has version {found} of the compact format; this program reads version {known}"
    )]
    Version {
        /// The trace's.
        found: u8,
        /// The latest known.
        known: u8,
    },
    /// A last line without its line break.
    #[error(
        "the last line has no line break, so the trace may be truncated; if it is complete, add one"
    )]
    Truncated,
    /// A line, or a quoted name, without an end in sight.
    #[error("a line of more than {max} bytes; is this a trace?")]
    LineTooLong {
        /// How far was read.
        max: usize,
    },
    /// More spaces or tenants than can be numbered.
    #[error("more than 2^32 different names")]
    TooManyNames,
    /// The bytes cannot be read or decompressed.
    #[error("cannot read on: {source}; a compressed file may be damaged or truncated")]
    Io {
        /// Why.
        source: io::Error,
    },
}

/// A trace file that cannot be used, and which.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceFileError {
    /// The file cannot be opened, or its first bytes not read.
    #[error("cannot open trace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The content is not a trace.
    #[error("trace {}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: TraceError,
    },
    /// The name of a file to be written says neither format nor compression.
    #[error(
        "{} names no format; end it in .csv or .lt (compact), optionally followed by .gz or .zst",
        path.display()
    )]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be created, or not put in its place.
    #[error("cannot create trace {}: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record cannot be written.
    #[error("trace {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WriteError,
    },
}

/// A record that cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The record's space is not in the tables given with it.
    #[error("space number {id} is unknown, there are {known}; add it to the names first")]
    UnknownSpace {
        /// The space's number.
        id: u32,
        /// How many there are.
        known: usize,
    },
    /// The record's tenant is not in the tables given with it.
    #[error("tenant number {id} is unknown, there are {known}; add it to the names first")]
    UnknownTenant {
        /// The tenant's number.
        id: u32,
        /// How many there are.
        known: usize,
    },
    /// A name that a trace cannot hold.
    #[error(
        "`{name}` cannot be a name in a trace; a name has at least one character, no line breaks"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A name that is too long for the compact format.
    #[error("a name of {bytes} bytes; the compact format allows at most {max}")]
    NameTooLong {
        /// Its length.
        bytes: usize,
        /// The longest possible.
        max: usize,
    },
    /// A page of a size that no trace has.
    #[error("a trace cannot have pages of {bytes} bytes, only a power of two from 512 to 65536")]
    BadPage {
        /// The size.
        bytes: u64,
    },
    /// An operation on no pages, or one that ends beyond the last page that a space can have.
    #[error(
        "{pages} pages from page {page} on are not a valid range: at least 1 page, at most to 2^32"
    )]
    BadRange {
        /// The first page.
        page: u64,
        /// How many pages.
        pages: u32,
    },
    /// The bytes cannot be written.
    #[error("cannot write the trace: {0}")]
    Io(#[from] io::Error),
}
