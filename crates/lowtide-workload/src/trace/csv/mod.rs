//! The exchange format as text.
//!
//! | file | concept |
//! |---|---|
//! | `reader.rs` | [`Reader`]: one line at a time, constant memory |
//! | `writer.rs` | [`Writer`]: the same the other way |

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;
