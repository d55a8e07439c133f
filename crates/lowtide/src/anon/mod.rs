//! Anonymous regions: memory of the program's own that may be larger than its budget.
//!
//! A region is pages without a file. A page that was never stored to is nowhere and reads as
//! zeroes; reading it takes no memory. The first store gives it a frame. From then on the policy
//! decides, together with the pages of files, whether it stays: one that goes is compressed into
//! swap ([`swap`](crate::swap)) and comes back at the next access.
//!
//! The words of the translation table are those of files (`translation/`), read like this:
//!
//! | word | the page is |
//! |---|---|
//! | absent without a shadow | nowhere: zeroes |
//! | absent with a shadow | in swap: reclaim has put it there and left the shadow |
//! | busy | on its way from swap, or being cleared for a first store |
//! | locked | being stored to, compressed or discarded by one thread |
//! | resident | in a frame, and nowhere else |
//!
//! DIRTY is not used: a page in a frame has no other copy, so for the engine its folio is always
//! dirty, and the word need not say so. So a store into a page in memory needs no lock of the pool.
//!
//! Which slot of swap a page has is in a table beside (`slots.rs`), and belongs to the thread that
//! has the translation busy or locked.
//!
//! | file | concept |
//! |---|---|
//! | `region.rs` | the handle: making and growing a region |
//! | `access.rs` | holding a page for reading, owning it for storing, copying |
//! | `page.rs` | the guard of a page that is stored to |
//! | `typed.rs` | elements of plain types instead of bytes |
//! | `fill.rs` | what a fault puts into a frame |
//! | `ahead.rs` | what comes back from the swap file with it |
//! | `together.rs` | what comes back together behind a pointer |
//! | `vec.rs` | a vector in a region |
//! | `discard.rs` | giving ranges up |
//! | `close.rs` | closing a region beside threads that reclaim its pages |
//! | `lazy.rs` | which pages were freed lazily |
//! | `kept.rs` | pages in memory that keep their slot in the file |
//! | `void.rs` | slots that were taken from pages, until they are freed |
//! | `pages.rs` | what a space has instead of a file |
//! | `slots.rs` | which slot of swap a page has |
//!
//! A region behind a pointer is a map in `userfault` mode (`map/heap.rs`) whose missing pages
//! come from [`fill.rs`](self) instead of a file. Its pages have memory of their own, as those of
//! maps do (`map/pages.rs`), and are copied from there when they are stored to swap.

mod access;
mod ahead;
mod close;
mod discard;
mod fill;
mod kept;
mod lazy;
mod page;
mod pages;
mod region;
mod slots;
mod together;
mod typed;
mod vec;
mod void;

pub(crate) use access::bring_in;
pub(crate) use discard::discard_pages;
pub(crate) use fill::{fill, give_back, leave_swap};
pub(crate) use kept::{StoresInOrder, give_some_up, keeps_slot, stored_through_a_pointer};
pub use page::PageMut;
pub(crate) use pages::AnonPages;
pub(crate) use region::Open;
pub use region::{Region, RegionOptions};
pub(crate) use together::{ZEROES, bring_together};
pub use typed::Elements;
pub use vec::TenantVec;
pub(crate) use void::Void;
