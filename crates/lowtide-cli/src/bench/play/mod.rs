//! Players: the operations of a workload, carried out through a [`DataAccess`](super::access::DataAccess) and
//! checked.
//!
//! | file | workloads | content |
//! |---|---|---|
//! | `record.rs` | `ycsb-a`, `ycsb-b`, `ycsb-c` | records |
//! | `page.rs` | `random-read`, `scan` | blocks, or a file of the user's |
//! | `checkpoint.rs` | `mixed`, which is `record.rs` beside checkpoints | records |
//! | `replay.rs` | `replay` | blocks |
//! | `job.rs` | what is to be played, and players for it | |
//! | `popularity.rs` | which records are used more | |
//! | `slice.rs` | one slice of it | |

pub(crate) mod checkpoint;
pub(crate) mod job;
mod page;
pub(crate) mod popularity;
mod record;
pub(crate) mod replay;
pub(crate) mod slice;
