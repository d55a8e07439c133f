//! Views: the pages of an open file, as a program sees them.
//!
//! | file | concept |
//! |---|---|
//! | `handle` | [`View`]: reading and writing by page, by offset, and at once |
//! | `hits` | the hit path, and only that |
//! | `unfenced` | which pages are pinned without a fence |
//! | `guard` | [`Page`]: the page stays while it lives |
//! | `flow` | [`Flow`]: closures that may end a call early |
//! | `reader` | [`PageCursor`]: one page at a time, at less cost |
//! | `many` | a list of pages, or the pages of a range |
//! | `adapters` | [`Cursor`]: the traits of the standard library |

mod adapters;
mod flow;
pub(crate) mod guard;
mod handle;
#[allow(unsafe_code, reason = "see the file's header")]
pub(crate) mod hits;
mod many;
mod reader;
pub(crate) mod unfenced;

pub use adapters::Cursor;
pub use flow::Flow;
pub use guard::Page;
pub(crate) use handle::Open;
pub use handle::View;
pub use reader::PageCursor;
