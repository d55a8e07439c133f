//! Programs that run on the full machine.
//!
//! | file | program |
//! |---|---|
//! | `database.rs` | a document store with a cache of its own, as MongoDB's, under YCSB |
//! | `mix.rs` | readers of a mapped file beside threads that allocate and free: the aging OOM |
//! | `stream.rs` | threads that play operation streams and traces |
//! | `tenants.rs` | servers with large buffers, and their browsers, of tenants that share a machine |

pub mod database;
mod leaves;
pub mod mix;
pub mod stream;
pub mod tenants;
