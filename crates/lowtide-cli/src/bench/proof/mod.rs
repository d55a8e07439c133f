//! `lowtide bench` as a proof: killed, cut off and lied to, without losing a byte that was called
//! durable.
//!
//! | file | concept |
//! |---|---|
//! | `crash`, `victim` | processes that are killed, and the file they leave |
//! | `cut`, `faults` | pagers whose power is cut, and what their disk does before |
//! | `report` | how large a proof is, its result in words and as JSON |
//! | `files` | where they are |
//! | `coverage` | which faults happened, and which places that deal with them were reached |
//!
//! What is promised, what is checked and the disk are in [`lowtide_proof`]. Here is what belongs to
//! the command: its options, processes to kill, progress, tables.

mod coverage;
pub(crate) mod crash;
pub(crate) mod cut;
mod faults;
mod files;
mod report;
pub(crate) mod victim;
