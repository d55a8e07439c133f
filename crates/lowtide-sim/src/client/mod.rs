//! Programs that run on the full machine.
//!
//! | file | program |
//! |---|---|
//! | `database.rs` | a document store with a cache of its own, as MongoDB's, under YCSB |
//! | `stream.rs` | threads that play operation streams and traces |

pub mod database;
mod leaves;
pub mod stream;
