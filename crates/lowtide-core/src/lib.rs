//! # The lowtide engine
//!
//! Page reclaim as a value: which folio goes next, when to age, what a refault means, who pays,
//! what dirty pages do. It does no I/O, reads no clock, starts no thread and has no unsafe code; a
//! *driver* owns it and acts. There are two: the runtime (crate `lowtide`) on real memory, and the
//! simulator in virtual time. Both run the same decisions.
//!
//! ## Words
//!
//! * A **folio** is a piece of resident memory of `2^order` base pages, named by its first frame.
//! * A **memcg** is a budget. Its **lruvec** holds its folios: in up to four **generations**
//!   (multi-gen LRU), or on an active and an inactive list (classical), for each of two types,
//!   anonymous and file.
//! * **Swap** is where anonymous folios go: `swap.rs`.
//! * **Aging** makes a new generation out of young bits; **eviction** empties the oldest one.
//! * A **shadow** is what is remembered of an evicted page; meeting it again is a **refault**.
//!
//! ## The seam
//!
//! Reclaim is a state machine, [`Reclaim`], that the driver steps. It isolates a batch of victims;
//! the driver *settles* them (answers [`Facts`], drops translations); it puts back the rest.
//! Between two steps the driver may release the engine's lock, sleep, write, or let others run:
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
//! The facts about Linux that all this follows are cited as `docs/kernel/reclaim.md` with a section
//! number.
#![forbid(unsafe_code)]

mod batches;
mod charge;
mod check;
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
mod size;
mod stat;
mod swap;
#[cfg(test)]
mod testing;
mod text;
mod units;

pub use charge::{Charge, Next};
pub use dirty::{
    Balance, DeviceId, Dirtier, DirtyLimits, DirtyLimitsError, DirtyShare, DirtyState, DirtyTimers,
    DirtyTimersError, FlushReason, FlushWork, Thresholds, Throttled, WriteBudget,
};
pub use engine::{ConfigError, Engine, EngineConfig, Sequences};
pub use folio::{AccessCounts, Flags, Folio};
pub use lruvec::{AgeJob, Facts, FolioState, References, Shadow, Window};
pub use memcg::{GroupError, Limits};
pub use policy::{Lists, Policy, PolicyError, Switches};
pub use reclaim::{Freed, Reason, Reclaim, Step, ThrottleReason, Unmapped, Victim};
pub use size::{Size, SizeError, SizeProblem};
pub use stat::{Events, MemcgEvents, MemoryStat};
pub use swap::{Swap, SwapTooSmall};
pub use units::{FolioId, LruType, MemcgId, Owner, SpaceId, TableKey, Task};
