//! Programs that run on the full machine. Streams and traces are [`lowtide_sim::stream`].
//!
//! | file | program |
//! |---|---|
//! | `checkpoints.rs` | readers and a few updates of a mapped file, with checkpoints |
//! | `database/` | a document store with a cache of its own, as MongoDB's, under YCSB |
//! | `dd.rs` | a writer in a group smaller than its file: the throttling OOM, filling of files |
//! | `fio.rs` | jobs that read blocks of mapped files at random |
//! | `heap.rs` | programs most of whose memory is heap: databases, compilers, apps |
//! | `mix.rs` | readers of a mapped file beside threads that allocate and free: the aging OOM |
//! | `scaling.rs` | readers of one file on more and more CPUs: where a lock becomes the limit |
//! | `script.rs` | threads that play a script, in groups with limits |
//! | `tenants.rs` | servers with large buffers, and their browsers, on one machine |
//! | `thrash.rs` | threads that map, read and unmap a file each: the retry storm |

pub mod checkpoints;
pub mod database;
pub mod dd;
pub mod fio;
pub mod heap;
pub mod mix;
pub mod scaling;
pub mod script;
pub mod tenants;
pub mod thrash;
