//! The exchange format as text.
//!
//! | file | concept |
//! |---|---|
//! | `reader.rs` | [`Reader`]: one line at a time, constant memory |
//! | `writer.rs` | [`Writer`]: the same the other way |

mod reader;
mod writer;

pub use reader::Reader;
pub(super) use reader::is_record;
pub use writer::Writer;

/// What the comment about the page is called: `# page_bytes: 4096`.
const PAGE_COMMENT: &str = "page_bytes";
/// What the comment about a sample is called: `# sampled: 1 in 64 by 8`.
const SAMPLE_COMMENT: &str = "sampled";
