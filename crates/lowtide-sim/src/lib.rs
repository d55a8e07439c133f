//! # The lowtide simulator
//!
//! The second driver of `lowtide-core`: the engine that the runtime drives on real memory in real
//! time is driven here on page tables that are arrays, in time that is a number. It makes the same
//! decisions, on machines that need not be at hand, and gives the same bytes of output for the same
//! seed on any machine.
#![forbid(unsafe_code)]

pub mod costs;
mod frames;
#[allow(missing_docs, reason = "state that programs of a laboratory look into; names say it")]
pub mod machine;
#[allow(missing_docs, reason = "as above")]
pub mod memory;
mod plain;
mod pool;
pub mod spec;
pub mod statistics;
pub mod stream;
mod unused;
mod zram;

pub use costs::Costs;
pub use machine::{
    Contention, DeviceCounts, KernelCounts, MachineConfig, MachineError, MachineStat, RetryTimes,
};
pub use plain::{Plain, PlainConfig, PlainCounts, PlainSwap, PlainZcache, PlayError};
