//! Players: they perform the operations of a workload through a
//! [`DataAccess`](super::access::DataAccess), and check the results.
//!
//! | file | workloads | content |
//! |---|---|---|
//! | `record.rs` | `ycsb-a`, `ycsb-b`, `ycsb-c` | records |
//! | `page.rs` | `random-read`, `scan` | blocks, or a file of the user's |
//! | `gather.rs` | `gather` | words, or a file of the user's |
//! | `checkpoint.rs` | `mixed`: `record.rs` with checkpoints | records |
//! | `replay.rs` | `replay` | blocks |
//! | `job.rs` | a job, and its players | |
//! | `popularity.rs` | popularity of records | |
//! | `slice.rs` | one slice of a job | |

pub mod checkpoint;
pub mod gather;
pub mod job;
pub mod page;
pub mod popularity;
pub mod record;
pub mod replay;
pub mod slice;
