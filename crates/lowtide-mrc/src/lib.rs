//! # Miss-ratio curves
//!
//! How often a stream misses, for every policy, at every size of memory.
//!
//! A trace is read once and becomes a [`Tape`], four bytes an access; everything else plays the
//! tape, as often as there are policies and sizes, on all cores.
//!
//! A *miss* is an access to a page that is not resident, whatever the operation: `read`, `write`,
//! `load` and `store` all count. `sync` is no access. `free` removes its pages, so the next access
//! to one of them misses at every size; such misses and the first ones of each page are the *cold*
//! ones, a floor that no memory lowers.
//!
//! | file | holds |
//! |---|---|
//! | `words.rs` | [`Storage`]: where a tape is kept, in memory or in a temporary file |
//! | `numbering.rs` | dense numbers for the pages of all spaces |
//! | `tape.rs` | [`Tape`]: the stream as 4-byte records |
//! | `next_use.rs` | [`NextUse`]: for each access, when its page is used next; OPT needs it |
//! | `stack.rs` | [`StackDistances`]: strict LRU at all sizes in one pass |
//! | `player.rs` | [`Player`], [`Contender`]: how other policies, the engine's above all, join in |
//! | `curve.rs` | [`Curve`], [`spread`]: the result, and which sizes to measure |
//! | `replay.rs` | one policy at one size: the tape played once |
//! | `run.rs` | [`Run`]: the work as jobs over threads |
//! | `watch.rs` | [`Progress`], and how a run is stopped |
//! | `advise.rs` | [`Advice`]: the smallest budget that is good enough |
//! | `report.rs` | [`Table`], [`Row`]: results as text and JSON |
//! | `picture.rs` | [`chart`], [`page`]: results as SVG and HTML |
//! | `plain.rs` | the engine's policies, on the simulator's plain machine, as a [`Player`] |
//! | [`baseline`] | textbook caches, to hold the engine's policies against |
//! | [`plot`] | charts and pages |
#![forbid(unsafe_code)]

mod advise;
pub mod baseline;
mod curve;
mod next_use;
mod numbering;
mod picture;
mod plain;
mod player;
pub mod plot;
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
pub use picture::{chart, page};
pub use player::{Contender, MakePlayer, Player, PlayerError};
pub use report::{AdviceRow, Refusal, Row, Table, refusals, rows};
pub use run::{MrcError, Run};
pub use stack::StackDistances;
pub use tape::{PAGES_MAX, Record, RecordError, Tape};
pub use watch::Progress;
pub use words::{Chunk, SpillError, Storage};
