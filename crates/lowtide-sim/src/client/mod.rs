//! Programs that run on the full machine.
//!
//! | file | program |
//! |---|---|
//! | `database.rs` | a document store with a cache of its own, as MongoDB's, under YCSB |
//! | `stream.rs` | threads that play operation streams and traces |
//! | `tenants.rs` | servers with large buffers, and their browsers, of tenants that share a machine |

pub mod database;
mod leaves;
pub mod stream;
pub mod tenants;
