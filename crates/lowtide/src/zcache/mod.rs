//! Clean pages of files that stay in memory compressed when they are evicted.
//!
//! An evicted page is dropped, since its file has it. Kept compressed it takes a third of the
//! memory, and comes back without its device: where pages compress, and come back soon enough, the
//! same budget holds more of them. The kernel's word for it was *zcache*, as that for anonymous
//! pages is zswap.
//!
//! ```text
//!   reclaim ─► victim locked ─► bytes copied, frame freed, translation busy    (pool's lock)
//!                                  └─ compressed, stored; translation absent   (without it)
//!
//!   fault ─► busy ─► frame ─► stored? decompressed, and not stored any more ─► resident
//!                               └─ otherwise read
//! ```
//!
//! **A page is in one place.** It is stored only while its translation is absent, or busy in the
//! thread that stores it, loads it or replaces it. So a store to the page never meets a stale copy:
//! the thread that takes the page out of *absent* takes the copy, too. Each change of a file
//! beneath absent pages (a cut, a hole, changes by others) drops the copies ([`OfSpace`]).
//!
//! **Part of the budget.** Each tenant has a store of its own, whose frames are charged to it. The
//! engine decides by measurement how many there may be, and which pages are tried
//! ([`lowtide_core::zcache`]); a frame is taken only where there is room as things are, since only
//! a copy is lost. The store is never a reason to evict, and gives frames back where reclaim finds
//! nothing else.
//!
//! **Which pages.** Those that came back once: a page that comes in for the first time, or ahead
//! of its use, and leaves again may never be needed. Pages of large folios are not among them, and
//! those behind pointers are in proofs only, where what an access costs decides nothing. A page
//! that shrinks to more than seven tenths is not kept, and after eight such pages in a row a region
//! of the file is left alone for a while, longer each time.
//!
//! | file | concept |
//! |---|---|
//! | `kept.rs` | what files and reclaim do with the compressed pages of a tenant |
//! | `cache.rs` | the compressed pages of one tenant |
//! | `of_space.rs` | what a file has of them |
//! | `leaving.rs` | pages on their way from reclaim to a store |
//! | `places.rs` | which group pays for which store |
//! | `frames.rs` | frames as the memory of a store |
//! | `common.rs` | what the pages of one file have in common |
//! | `clock.rs` | what storing, loading and reading costs |
//! | `size.rs`, `stat.rs` | choice, figures |

mod cache;
mod clock;
mod common;
mod frames;
mod kept;
mod leaving;
mod of_space;
mod places;
mod size;
mod stat;

pub(crate) use cache::{Zcache, give_up, maintain};
pub(crate) use leaving::Leaving;
pub(crate) use of_space::OfSpace;
pub(crate) use places::Zcaches;
pub(crate) use size::ZcacheSize;
pub use stat::ZcacheStat;
