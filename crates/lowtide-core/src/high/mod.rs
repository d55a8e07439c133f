//! `memory.high` and what a task pays for being over a limit.
//!
//! * `overage.rs`: the kernel's penalty, the square of the overage.
//! * `recency.rs`: the penalty of a proposed patch, to be compared with.
//! * `stall_debt.rs`: ours: measured refault stall, a price for it, debts of tasks.
//! * `handler.rs`: what an over-limit task does on its way back: reclaim, sleep.
//! * `advice.rs`: how much more memory would be enough.
//! * `decay.rs`: sums that halve with time, in integers.
//!
//! Source: `memcg.md` §6, 7, 8.

pub mod decay;
pub mod overage;
pub mod recency;
pub mod stall_debt;

const NS_PER_SEC: u64 = 1_000_000_000;
