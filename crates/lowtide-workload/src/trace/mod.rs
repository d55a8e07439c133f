//! Recorded operation streams: the exchange format, plain or compressed.
//!
//! A trace is CSV with a header. Four columns are required, three are optional, in any order:
//!
//! | column | value |
//! |---|---|
//! | `op` | `read`, `write`, `load`, `store`, `sync` or `free`: see [`OpKind`](crate::OpKind) |
//! | `space` | `file:NAME` or `anon:NAME`; every new name is a new space |
//! | `page` | the first page, counted from 0 |
//! | `pages` | how many pages, at least 1 |
//! | `time_ns` | optional: nanoseconds from any fixed point |
//! | `thread` | optional: the thread's number |
//! | `tenant` | optional: the tenant's name |
//!
//! An optional value may be empty. Names may hold anything but line breaks, quoted as CSV quotes. Every
//! line, the last one too, ends in a line break: without that rule, a trace cut off in the middle of a
//! number would be read as a smaller number.
//!
//! ```text
//! op,space,page,pages,thread
//! read,file:index,17,1,0
//! store,anon:heap,4,2,1
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `format.rs` | [`TraceRecord`], [`Names`], [`Columns`]: what a line says |
//! | `reader.rs`, `writer.rs` | [`Reader`], [`Writer`]: one line at a time, constant memory |
//! | `error.rs` | [`TraceError`]: line, byte offset, what is wrong |
//! | `open.rs` | [`open`]: files, compressed or not |
//! | `survey.rs` | [`survey()`]: how large each space is, before anything is played |

mod error;
mod format;
mod open;
mod reader;
mod survey;
mod writer;

pub use error::{TraceError, TraceFault, TraceFileError, WriteError};
pub use format::{Columns, Names, TenantId, TraceRecord};
pub use open::{FileReader, decompressed, open};
pub use reader::Reader;
pub use survey::{SpaceSurvey, Survey, survey};
pub use writer::Writer;
