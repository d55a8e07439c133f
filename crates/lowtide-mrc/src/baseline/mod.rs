//! Textbook caches, for comparison with the engine's policies.
//!
//! Each is one file that begins with its theory. Pages are dense numbers and links are in flat
//! arrays, so an access neither hashes nor allocates. The caches have no dirty pages, no readahead
//! and no batches; only the choice of victims is left, and a miss-ratio curve compares just that.
//!
//! | file | holds |
//! |---|---|
//! | `cache.rs` | [`Cache`]: the interface of every policy |
//! | `name.rs` | [`Baseline`]: the policies by name |
//! | `list.rs` | the index-linked lists that most of them use |
//! | `marked.rs` | what CLOCK and SIEVE have in common |
//! | `lru.rs` | [`Lru`]: strict recency |
//! | `clock.rs` | [`Clock`]: a queue with second chances |
//! | `sieve.rs` | [`Sieve`]: a hand that sifts a queue in place |
//! | `s3fifo.rs` | [`S3Fifo`]: a small queue as a filter in front of the main one |
//! | `arc.rs` | [`ArcCache`]: recency against frequency, balanced by ghosts |
//! | `opt.rs` | [`Opt`]: Belady's bound, which uses the future |

mod arc;
mod cache;
mod clock;
mod list;
mod lru;
mod marked;
mod name;
mod opt;
mod s3fifo;
mod sieve;
#[cfg(test)]
mod testing;

pub use arc::ArcCache;
pub use cache::{Cache, NEVER};
pub use clock::Clock;
pub use lru::Lru;
pub use name::{Baseline, UnknownBaseline};
pub use opt::Opt;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
