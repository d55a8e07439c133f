//! Programs that run on the full machine.
//!
//! | file | program |
//! |---|---|
//! | `checkpoints.rs` | readers and a few updates of a mapped file, which is made durable now and then |
//! | `database.rs` | a document store with a cache of its own, as MongoDB's, under YCSB |
//! | `dd.rs` | one that writes a file in a group smaller than it: the throttling OOM, and how fast files are filled |
//! | `mix.rs` | readers of a mapped file beside threads that allocate and free: the aging OOM |
//! | `stream.rs` | threads that play operation streams and traces |
//! | `noisy.rs` | tenants with working sets, and one that scans, under one budget |
//! | `thrash.rs` | threads that thrash above `memory.high`, and a neighbour on the same device |
//! | `tenants.rs` | servers with large buffers, and their browsers, of tenants that share a machine |

pub mod checkpoints;
pub mod database;
pub mod dd;
mod leaves;
pub mod mix;
pub mod noisy;
pub mod stream;
pub mod tenants;
pub mod thrash;
