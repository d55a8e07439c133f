//! Folios: what the engine keeps for each piece of resident memory.

mod accesses;
mod batch;
mod flags;
mod list;
mod table;
mod trail;

pub use accesses::AccessCounts;
pub(crate) use batch::{Batches, Pending};
pub use flags::Flags;
pub(crate) use flags::tier_of_refs;
pub(crate) use list::ListHead;
pub use table::Folio;
pub(crate) use table::FolioTable;
