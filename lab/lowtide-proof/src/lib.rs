//! Proofs that no byte is lost which a flush has called durable.
//!
//! The proofs do not trust the runtime: they know from their own records what must be in a file,
//! and they play the disk. The runtime knows nothing of them; it only asks an
//! [`Inject`](lowtide::instruments::Inject) before each request.
//!
//! | file | concept |
//! |---|---|
//! | [`disk`] | a disk that fails, hangs and loses power, and what that may leave |
//! | [`layout`] | records of all sizes, and the pieces that a disk writes whole |
//! | [`ledger`] | what must be in the file, and comparing it with what is there |
//! | [`script`] | what the threads of a cycle change, from its seed alone |
//! | [`shape`] | which pages, folios, views and regions a cycle draws |
//! | [`access`] | what a thread stores through: a view, or a pointer |
//! | [`heap`] | a region beside the file, and what its bytes must be |
//! | [`writer`] | a thread that changes, reads, flushes, and knows what it was promised |
//! | [`schedule`] | what the disk does in one cycle, before its power is cut |
//! | [`power_cut`] | pagers whose power is cut, and the file that the next one finds |
//! | [`coverage`] | what was done, which faults happened, and which places were reached |
//! | [`files`], [`error`] | the files of a proof; what keeps one from going on |
//!
//! `lowtide-lab bench power-cut` plays the cycles of [`power_cut`]. The other proof, `lowtide bench
//! crash`, is in the command, because the processes that it kills are the command's own.
//!
//! # What is promised, and what is checked
//!
//! When a flush returns well, every byte whose `write_at` or store had ended before it began is on
//! the disk. What was written later may be there or not, whole or in part, in any mixture of bytes:
//! nothing keeps a program from storing to a page that is being written, and a device from stopping
//! anywhere. So a record may be old in one byte and new in another after a crash. Each sector's
//! *piece* of a record says whose it is and how new, and has bytes that only it has. A piece is
//! *lost* when it is older than what was promised, and *wrong* when it has a byte that is neither
//! of the promised record nor of one that was begun later. Where records are punched or cut off,
//! zeroes take the place of a record.
//!
//! A pointer that is stored to is no exception: what was stored when a flush begins is promised.
//! Unsafe code is denied here and allowed in `access.rs` alone, which has the pointer.

#![deny(unsafe_code)]

pub mod access;
pub mod coverage;
pub mod disk;
pub mod error;
pub mod files;
pub mod heap;
pub mod layout;
pub mod ledger;
pub mod power_cut;
pub mod schedule;
pub mod script;
pub mod shape;
pub mod writer;
