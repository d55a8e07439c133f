//! Reclaim: freeing pages of a group by taking the least useful folios.
//!
//! One *invocation* ([`Reclaim`]) makes *passes* at falling priorities until its goal is met; a
//! pass runs the *lruvec loop* of the policy for each group; the loop takes *batches*; the shrinker
//! decides the fate of each folio of a batch. One file for each:
//!
//! | file | level | section |
//! |---|---|---|
//! | `invocation.rs` | the state machine and the priority loop | §3.6 |
//! | `mglru_loop.rs` | budgets, aging, slices of the multi-gen loop | §3.1-3.3 |
//! | `classical_loop.rs` | scan counts and slices over the four lists | §5.3, 5.4 |
//! | `tide_loop.rs` | budgets and slices of `tide` | - |
//! | `evict.rs` | one multi-gen batch: isolate, put back | §2.10 |
//! | `batch.rs` | the folios of a batch, and what the driver is to do with them | |
//! | `shrink.rs` | the fate of each folio of a batch | §4.1, 5.5 |
//! | `throttle.rs` | writeback statistics, waking flushers, sleeps | §4.3, 4.4 |

mod batch;
mod classical_loop;
mod evict;
mod invocation;
mod mglru_loop;
mod shrink;
mod throttle;
mod tide_loop;

pub(crate) use batch::Batch;
pub use batch::{Freed, Unmapped, Victim};
pub use invocation::{Reason, Reclaim, Step};
pub use throttle::ThrottleReason;
