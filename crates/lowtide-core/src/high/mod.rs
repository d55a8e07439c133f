//! `memory.high` and what a task pays for being over a limit.
//!
//! * [`overage`]: the kernel's penalty, the square of the overage.
//! * [`recency`]: the penalty of a proposed patch, for comparison.
//! * [`stall_debt`]: ours: measured refault stall, a price for it, debts of tasks.
//! * [`handler`]: what an over-limit task does before it goes on: reclaim, sleep.
//! * [`advice`]: how much more memory would be enough.
//! * [`decay`]: sums that halve with time, in integers.
//! * `account`: what a group remembers of its limits.
//! * `payment`: the handler on the engine's tree.
//! * `programs`: calling the programs that are attached to groups.
//!
//! The public modules are arithmetic on their arguments: no engine type, no clock, no floating
//! point. Source: `docs/kernel/memcg.md` §6, 7, 8.

mod account;
pub mod advice;
pub mod decay;
pub mod handler;
pub mod overage;
mod payment;
mod programs;
pub mod recency;
pub mod stall_debt;

pub(crate) use account::GroupHigh;
pub use account::{Payer, Refaulted};
pub use payment::{HighNext, Payment};
pub(crate) use programs::Spared;
