//! `lowtide bench` as a proof: killed, cut off and lied to, without losing a byte that was called
//! durable.
//!
//! | file | concept |
//! |---|---|
//! | `layout` | records of all sizes, and the pieces that a disk writes whole |
//! | `ledger` | what must be in the file, and comparing it with what is there |
//! | `script` | what the threads of a cycle change, from its seed alone |
//! | `writer` | a thread that changes, reads, flushes, and knows what it was promised |
//! | `crash`, `victim` | processes that are killed, and the file they leave |
//! | `cut`, `faults` | pagers whose power is cut, and what their disk does before |
//! | `report` | how large a proof is, its result in words and as JSON |
//! | `shape` | which pages, folios and views a cycle draws |
//! | `files` | where they are |
//! | `coverage` | which faults happened, and which places that deal with them were reached |
//!
//! # What is promised, and what is checked
//!
//! When a flush returns well, every byte whose `write_at` had returned before it began is on the
//! disk. What was written later may be there or not, whole or in part, and in any mixture of bytes:
//! nothing keeps a program from storing to a page that is being written, and a device from stopping
//! anywhere. So a record may be old in one byte and new in another after a crash. Each sector's
//! *piece* of a record says whose it is and how new, and has bytes that only it has. A piece is
//! *lost* when it is older than what was promised, and *wrong* when it has a byte that is neither
//! of the promised record nor of one that was begun later. Where records are punched or cut off,
//! zeroes take the place of a record.

mod coverage;
pub(crate) mod crash;
pub(crate) mod cut;
mod faults;
mod files;
mod layout;
mod ledger;
mod report;
mod script;
mod shape;
pub(crate) mod victim;
mod writer;
