//! Players: they perform the operations of a workload through a
//! [`DataAccess`](super::access::DataAccess), and check the results.
//!
//! | file | workloads | content |
//! |---|---|---|
//! | `record.rs` | `ycsb-a`, `ycsb-b`, `ycsb-c` | records |
//! | `page.rs` | `random-read`, `scan` | blocks, or a file of the user's |
//! | `gather.rs` | `gather` | words, or a file of the user's |
//! | `job.rs` | a job, its script and its players | |
//! | `popularity.rs` | popularity of records | |
//! | `slice.rs` | one slice of a job | |

pub mod gather;
pub mod job;
pub mod page;
pub mod popularity;
pub mod record;
pub mod slice;
