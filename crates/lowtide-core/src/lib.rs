//! # The lowtide engine
//!
//! Page reclaim as a value. It decides which folio is evicted next, when to age, what a refault
//! means, which group is charged, and how dirty pages are throttled. It does no I/O, reads no
//! clock, starts no thread and has no unsafe code; a *driver* owns it and carries out what it
//! decides. There are two drivers: the runtime (crate `lowtide`) on real memory, and the simulator
//! in virtual time. Both get the same decisions from it.
//!
//! ## Terms
//!
//! * A **folio** is a piece of resident memory of `2^order` base pages, named by its first frame.
//! * A **memcg** is a budget. Its **lruvec** holds its folios, separately for each of two types,
//!   anonymous and file: in up to four **generations** (multi-gen LRU), or on an active and an
//!   inactive list (classical).
//! * **Swap** is where anonymous folios are evicted to: `swap.rs`.
//! * **Aging** makes a new generation from young bits; **eviction** empties the oldest one.
//! * A **shadow** is what is remembered of an evicted page. A **refault** is a fault that finds
//!   one.
//!
//! ## The interface to a driver
//!
//! Reclaim is a state machine, [`Reclaim`], that the driver steps. It isolates a batch of victims;
//! the driver answers questions about them ([`Facts`]) and drops their translations; it puts the
//! rest back. Between two steps the driver may release the engine's lock, sleep, write, or let
//! other threads run:
//!
//! ```text
//!   Charge::next ──► Reclaim::step ─┬─► Walk      feed young bits to the aging job, table by table
//!        ▲                          ├─► Unmap     drop the translations of victims(), write those
//!        │                          │             that go to swap, report each outcome
//!        │                          ├─► Freed     freed(): remember the shadows, reuse the frames
//!        │                          ├─► WakeFlushers, Throttle, Yield
//!        └── reclaimed pages ───────┴─► Done
//! ```
//!
//! What the engine reproduces of Linux is described in `docs/kernel/reclaim.md`; sources cite its
//! sections.
#![forbid(unsafe_code)]

pub mod auto;
mod batches;
mod charge;
mod check;
pub mod counters;
mod dirty;
mod engine;
mod folio;
pub mod high;
pub mod hooks;
pub mod limits;
mod lruvec;
mod memcg;
mod policy;
pub mod psi;
mod reclaim;
pub mod reuse;
mod size;
mod swap;
#[cfg(test)]
mod testing;
mod units;
pub mod zcache;

pub use charge::{Charge, Next};
pub use counters::{AgeClass, Events, MemcgEvents, MemoryStat, SwapEvents, ZswapEvents};
pub use dirty::{
    Balance, DeviceId, Dirtier, DirtyLimits, DirtyLimitsError, DirtyShare, DirtyState, DirtyTimers,
    FlushReason, FlushWork, Thresholds, Throttled, WriteBudget,
};
pub use engine::{ConfigError, Engine, EngineConfig, Sequences};
pub use folio::{AccessCounts, Flags, Folio};
pub use lruvec::{AgeJob, Facts, FolioState, References, Shadow, Window};
pub use memcg::{GroupError, Limits};
pub use policy::{Lists, Policy, PolicyError, Switches};
pub use reclaim::{Freed, Reason, Reclaim, Step, ThrottleReason, Unmapped, Victim};
pub use size::{Size, SizeError};
pub use swap::{Swap, SwapTooSmall};
pub use units::{FolioId, LruType, MemcgId, Owner, SpaceId, TableKey, Task};
