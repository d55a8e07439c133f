//! Recorded operation streams: our exchange format, and the formats of other tools.
//!
//! [`open`] reads a trace of any format, plain, gzip or Zstandard, which it recognises by content;
//! [`create`] writes ours. In between is one vocabulary, [`TraceRecord`]: an operation on pages of
//! a space, with an optional time, thread and tenant. Both stream: a trace may be larger than
//! memory.
//!
//! # The exchange format
//!
//! As text it is CSV with a header; a comment before the header may say how many bytes a page has.
//! Four columns are required, three are optional, in any order:
//!
//! | column | value |
//! |---|---|
//! | `op` | `read`, `write`, `load`, `store`, `sync` or `free`: see [`OpKind`](crate::OpKind) |
//! | `space` | `file:NAME` or `anon:NAME`; every new name is a new space |
//! | `page` | the first page, counted from 0 |
//! | `pages` | how many pages, at least 1; the last page is below 2^32 |
//! | `time_ns` | optional: nanoseconds from any fixed point |
//! | `thread` | optional: the thread's number |
//! | `tenant` | optional: the tenant's name |
//!
//! An optional value may be empty. Names may hold anything but line breaks, quoted as CSV quotes.
//! Every line, the last one too, ends in a line break: without that rule, a trace cut off in the
//! middle of a number would be read as a smaller number.
//!
//! ```text
//! # page_bytes: 4096
//! op,space,page,pages,thread
//! read,file:index,17,1,0
//! store,anon:heap,4,2,1
//! ```
//!
//! The compact format has the same contents in a few bytes a record, with checksums and an end
//! mark, so that damage and truncation are noticed: `compact/mod.rs` describes it byte by byte.
//!
//! # Where things are
//!
//! | file | holds |
//! |---|---|
//! | `open.rs` | [`open`], [`read_from`], [`Trace`]: read any format, from any compression |
//! | `create.rs` | [`create`], [`TraceWriter`]: write ours, in the format of the file's name |
//! | `format.rs`, `recognise.rs` | [`Format`]: the formats by name; recognised by content |
//! | `record.rs` | [`TraceRecord`], [`Names`], [`Head`]: a record, and the head of a trace |
//! | `csv/` | [`Reader`], [`Writer`]: our format as text |
//! | `compact/` | [`CompactWriter`], and its reader: our format in binary |
//! | `foreign/` | libCacheSim, object and block CSV, Valgrind Lackey, page-cache events |
//! | `buffer.rs`, `input.rs` | bytes read ahead; decompressed and counted |
//! | `text.rs` | lines, fields, numbers of all text formats |
//! | `error.rs` | [`TraceError`]: line, byte offset, what is wrong |
//! | `survey.rs` | [`survey()`]: the size of each space, before the trace is played |

mod buffer;
mod compact;
mod create;
mod csv;
mod error;
mod foreign;
mod format;
mod input;
mod open;
mod recognise;
mod record;
mod survey;
mod text;

pub use compact::CompactWriter;
pub use create::{TraceWriter, check_path, create};
pub use csv::{Reader, Writer};
pub use error::{TraceError, TraceFault, TraceFileError, WriteError};
pub use foreign::PAGE_BYTES;
pub use foreign::filemap::Skipped;
pub use format::{Format, UnknownFormat};
pub use open::{Progress, Trace, open, read_from};
pub use record::{Columns, Head, Names, TenantId, TraceRecord, page_is_possible};
pub use survey::{SpaceSurvey, Survey, survey};
