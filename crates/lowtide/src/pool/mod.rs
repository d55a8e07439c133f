//! The pool: the frames of a pager, the engine that decides about them, and the lock around both.
//!
//! | file | concept |
//! |---|---|
//! | `state` | [`Pool`], and what its lock protects |
//! | `lock`, `wakeup` | how long the lock is held; a condition that is cheap without waiters |
//! | `allocate`, `frames` | taking frames; which are free |
//! | `arena`, `resident` | their addresses; which of them have memory |
//! | `charge`, `payer`, `oom` | which group pays; waiting for room; the report if there is none |
//! | `high`, `account` | what a thread pays for being above `high`, and what it owes |
//! | `auto`, `setter` | limits that set themselves; the thread that does it |
//! | `reclaim`, `background` | carrying out the engine's reclaim; the threads of a pager |
//! | `miss_clock` | where the time of a miss goes |
//! | `poison` | after a panic of the engine |

pub(crate) mod account;
pub(crate) mod allocate;
mod arena;
pub(crate) mod auto;
pub(crate) mod background;
mod charge;
pub(crate) mod divide;
mod frames;
pub(crate) mod high;
pub(crate) mod lock;
pub(crate) mod looks;
pub(crate) mod miss_clock;
pub(crate) mod oom;
pub(crate) mod payer;
mod poison;
pub(crate) mod reclaim;
mod resident;
pub(crate) mod sample;
pub(crate) mod service;
pub(crate) mod setter;
mod state;
mod wakeup;

pub(crate) use state::{DirtiersLeft, Pool, State, StateGuard, end_orphans};
