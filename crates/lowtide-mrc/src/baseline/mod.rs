//! Textbook caches, to hold the engine's policies against.
//!
//! Each is one file with its theory on top, over pages that are dense numbers, with every link in a
//! flat array: an access hashes nothing and allocates nothing. They have no dirty pages, no
//! readahead and no batches; what is left is the choice of the victim, and that is what a
//! miss-ratio curve compares.
//!
//! | file | holds |
//! |---|---|
//! | `cache.rs` | [`Cache`]: what every policy can do |
//! | `name.rs` | [`Baseline`]: the policies by name |
//! | `list.rs` | the index-linked lists that most of them are made of |
//! | `lru.rs` | [`Lru`]: strict recency |
//! | `clock.rs` | [`Clock`]: a queue with second chances |
//! | `sieve.rs` | [`Sieve`]: a hand that sifts a queue in place |
//! | `s3fifo.rs` | [`S3Fifo`]: a small queue as filter before the main one |
//! | `arc.rs` | [`ArcCache`]: recency against frequency, balanced by ghosts |
//! | `opt.rs` | [`Opt`]: Belady's bound, which knows the future |

mod arc;
mod cache;
mod clock;
mod list;
mod lru;
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
