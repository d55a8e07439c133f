//! What can be wrong with a trace, and where.

use super::format::{OPTIONAL, REQUIRED};
use crate::op::OpKind;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A trace that cannot be read further, and the place.
#[derive(Debug, Error)]
#[error("line {line} (byte {byte_offset}): {what}")]
pub struct TraceError {
    /// The line, counted from 1; the header is line 1.
    pub line: u64,
    /// The offset of the line's first byte, in the text after decompression.
    pub byte_offset: u64,
    /// What is wrong there.
    pub what: TraceFault,
}

/// What is wrong with a line of a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// There is no first line.
    #[error("the trace is empty; its first line must be the header `{}`", REQUIRED.join(","))]
    NoHeader,
    /// A required column is not in the header.
    #[error("the header has no column `{column}`; it must have {}", REQUIRED.join(","))]
    MissingColumn {
        /// The column.
        column: &'static str,
    },
    /// A column that the format does not have.
    #[error(
        "the header has an unknown column `{column}`; possible are {}, {}",
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
    #[error("{found} fields where the header has {expected}")]
    FieldCount {
        /// Columns of the header.
        expected: usize,
        /// Fields of the line.
        found: usize,
    },
    /// An operation that the format does not have.
    #[error("unknown op `{text}`; possible are {}", OpKind::ALL.map(OpKind::name).join(", "))]
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
    /// An operation that would end beyond the last page number.
    #[error("page {page} and {pages} pages from there end beyond 2^64 - 1")]
    RangeOverflow {
        /// The first page.
        page: u64,
        /// How many pages.
        pages: u32,
    },
    /// A last line without its line break.
    #[error("the last line has no line break, so the trace may be cut short; if it is whole, add one")]
    Truncated,
    /// A line, or a quoted name, without an end in sight.
    #[error("no end of the line within {max} bytes; is this a trace, and is every quote closed?")]
    LineTooLong {
        /// How far was read.
        max: usize,
    },
    /// More spaces or tenants than can be numbered.
    #[error("more than 2^32 different names")]
    TooManyNames,
    /// The bytes cannot be read or decompressed.
    #[error("cannot read further: {source}; a compressed file may be damaged or cut short")]
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
}

/// A record that cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The record's space is not in the tables given with it.
    #[error("space number {id} is not among the {known} known; add it to the names first")]
    UnknownSpace {
        /// The space's number.
        id: u32,
        /// How many there are.
        known: usize,
    },
    /// The record's tenant is not in the tables given with it.
    #[error("tenant number {id} is not among the {known} known; add it to the names first")]
    UnknownTenant {
        /// The tenant's number.
        id: u32,
        /// How many there are.
        known: usize,
    },
    /// A name that a trace cannot hold.
    #[error("`{name}` cannot stand in a trace; a name has at least one character and no line breaks")]
    BadName {
        /// The name.
        name: String,
    },
    /// An operation on no pages, or one that ends beyond the last page number.
    #[error("page {page} and {pages} pages from there are not a possible range")]
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
