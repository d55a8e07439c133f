//! # Miss-ratio curves
//!
//! The misses of a stream, for every policy, at every size of memory.
//!
//! A trace is read once and packed into a [`Tape`], four bytes per access, which is then replayed
//! for each policy and size, on all cores.
//!
//! A *miss* is an access to a page that is not resident, whatever the operation: `read`, `write`,
//! `load` and `store` all count. `sync` is no access. `free` removes its pages, so the next access
//! to one of them misses at every size; such misses and the first one of each page are the *cold*
//! misses, a floor that no memory lowers.
//!
//! | file | holds |
//! |---|---|
//! | `words.rs` | [`Storage`]: a tape in memory or in a temporary file |
//! | `numbering.rs` | dense numbers for the pages of all spaces |
//! | `tape.rs` | [`Tape`]: the stream as 4-byte records |
//! | `next_use.rs` | [`NextUse`]: for each access, the next use of its page; for OPT |
//! | `stack.rs` | [`StackDistances`]: strict LRU at all sizes in one pass |
//! | `player.rs` | [`Player`], [`System`]: the interface for other policies |
//! | `curve.rs` | [`Curve`], [`spread`]: the result, and the choice of sizes |
//! | `replay.rs` | one replay of the tape: one policy at one size |
//! | `run.rs` | [`Run`]: jobs on several threads |
//! | `watch.rs` | [`Progress`], and cancellation |
//! | `advise.rs` | [`Advice`]: the smallest sufficient budget |
//! | `report.rs` | [`Table`], [`Row`]: results as text and JSON |
//! | `plain.rs` | the engine's policies, on the simulator's plain machine, as a [`Player`] |
//! | [`baseline`] | textbook caches, for comparison with the engine's policies |
#![forbid(unsafe_code)]

mod advise;
pub mod baseline;
mod curve;
mod next_use;
mod numbering;
mod plain;
mod player;
mod replay;
mod report;
mod run;
mod stack;
mod tape;
#[cfg(test)]
pub(crate) mod testing;
mod watch;
mod words;

pub use advise::{Advice, Verdict};
pub use curve::{Curve, Gap, Point, spread};
pub use next_use::NextUse;
pub use player::{MakePlayer, Player, PlayerError, System};
pub use report::{AdviceRow, Refusal, Row, Table, refusals, rows};
pub use run::{MrcError, Run};
pub use stack::StackDistances;
pub use tape::{PAGES_MAX, Record, RecordError, Tape};
pub use watch::Progress;
pub use words::{Chunk, SpillError, Storage};
