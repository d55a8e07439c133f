//! Programs that run on the full machine.
//!
//! | file | program |
//! |---|---|
//! | `dd_oom.rs` | one that writes a file in a group smaller than it, to a device that takes its time: the throttling OOM |
//! | `database.rs` | a document store with a cache of its own, as MongoDB's, under YCSB |
//! | `mix.rs` | readers of a mapped file beside threads that allocate and free: the aging OOM |
//! | `stream.rs` | threads that play operation streams and traces |
//! | `noisy.rs` | tenants with working sets, and one that scans, under one budget |
//! | `thrash.rs` | threads that thrash above `memory.high`, and a neighbour on the same device |
//! | `tenants.rs` | servers with large buffers, and their browsers, of tenants that share a machine |

pub mod database;
pub mod dd_oom;
mod leaves;
pub mod mix;
pub mod noisy;
pub mod stream;
pub mod tenants;
pub mod thrash;
