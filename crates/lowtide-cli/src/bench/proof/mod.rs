//! `lowtide bench` as a proof: killed, cut off and lied to, without losing a byte that was called
//! durable.
//!
//! | file | concept |
//! |---|---|
//! | `crash`, `victim` | processes that are killed, and the file they leave |
//! | `cut` | pagers whose power is cut |
//! | `report` | how large a proof is, its result in words and as JSON |
//! | `coverage` | what it has covered, as tables and as rows of the JSON |
//!
//! What is promised, what is checked and the disk are in [`lowtide_proof`]. Here is what belongs to
//! the command: its options, processes to kill, progress, tables.

mod coverage;
pub(crate) mod crash;
pub(crate) mod cut;
mod report;
pub(crate) mod victim;
