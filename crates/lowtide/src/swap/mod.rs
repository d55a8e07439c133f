//! Swap: where anonymous pages are while they are not in memory.
//!
//! A page of an anonymous region is in one of three places: nowhere (it reads as zeroes), in a
//! frame, or in swap. A page that a fault brings back gives its place in compressed memory up at
//! once: for the engine that is *synchronous* (`docs/kernel/fault-and-writeback.md` A7, C3). One
//! that comes from the file keeps its slot there until it is stored to (`anon/kept.rs`).
//!
//! ```text
//!   reclaim ─► victims locked ─┐ pool's lock ┌─► slot noted, frame freed, translation absent
//!                              └─ compress ──┘   rejected, also by the swap file: the victim goes
//!                                                back among the young
//!
//!   fault ─► busy ─► frame ─► decompress, or read ─► slot given up, or kept ─► resident
//! ```
//!
//! **Compressed memory is part of the budget.** The store of a tenant gets its memory as frames of
//! the arena, each charged to the tenant (`frames.rs`), so a limit holds for pages and compressed
//! pages together, at every instant. To store a page takes room before it frees some; so each
//! tenant that has regions keeps a few charged frames in *reserve*, which only the store takes,
//! and which is filled up first when frames come free.
//!
//! **No compression under the pool's lock.** Reclaim gives the lock back while it compresses the
//! victims of a batch. Their translations are locked, so no thread stores to them (pages behind
//! pointers are protected, and read until they are punched), and the folios of the batch stay
//! isolated: what wants to remove an anonymous folio meanwhile waits
//! ([`State::try_free_folio`](crate::pool::State)).
//!
//! Lock order: no call into a store that takes or gives frames is made under the pool's lock, which
//! that takes. Counting what read-ahead was good for takes the file's lock alone.
//!
//! | file | concept |
//! |---|---|
//! | `slot.rs` | where a page is, and what keeps it there |
//! | `config.rs` | the choices of a pager's builder |
//! | `places.rs` | which group pays for which store; the reserves |
//! | `frames.rs` | frames as the memory of a store |
//! | `file.rs` | the swap file |
//! | `spill.rs` | from memory to the file |
//! | `maintain.rs` | what the background thread does now and then |
//! | `tenant.rs` | the swap of one tenant: storing, loading and freeing pages |
//! | `stat.rs` | figures |
//! | `out.rs` | the part of a reclaim pass that compresses |

mod config;
mod file;
mod frames;
mod maintain;
mod out;
mod places;
mod slot;
mod spill;
mod stat;
mod tenant;

pub use config::SwapOptions;
pub(crate) use file::{Backing, Limits, create};
pub(crate) use frames::{Frame, Keeper, budget_of, charge_unused, fill_reserves, take_charged};
pub(crate) use maintain::maintain;
pub(crate) use out::swap_out;
pub(crate) use places::{REFUSAL, Swaps, Tried};
pub(crate) use slot::{Around, Slot, Store, owner, tag};
pub(crate) use spill::{is_over_share, push_out};
pub use stat::SwapStat;
pub(crate) use stat::{Kept, sum};
pub(crate) use tenant::TenantSwap;
