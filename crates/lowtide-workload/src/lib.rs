//! Workloads: one description that the runtime and the simulator both play.
//!
//! A *workload* is a deterministic stream of operations: the same seed and the same thread number
//! always give the same operations, whether the runtime plays them on real memory or the simulator
//! on virtual memory. Nothing in this crate reads a clock, starts a thread or touches the memory
//! under test; the only input and output are trace files.
//!
//! Where to read, in order:
//!
//! | module | contents |
//! |---|---|
//! | [`op`] | the vocabulary: spaces, page operations, the two ways to reach a page |
//! | [`prng`] | the one source of randomness, and how it is split among threads |
//! | [`zipf`] | skewed popularity: exact table, closed form, the two ways to scramble ranks |
//! | [`distribution`] | the choice of the next item: uniform or one of the two skews |
//! | [`catalog`] | the workloads by name |
//! | [`ycsb`], [`random`], [`gather`], [`scan`] | the streams behind those names |
//! | [`record`], [`block`] | the bytes of records and pages: every read is verified |
//! | [`trace`] | recorded streams: our exchange format, and the formats of other tools |

#![forbid(unsafe_code)]

pub mod block;
pub mod catalog;
pub mod distribution;
pub mod gather;
mod nearest;
pub mod op;
pub mod prng;
pub mod random;
pub mod record;
pub mod scan;
pub mod trace;
pub mod ycsb;
pub mod zipf;

pub use catalog::{UnknownWorkload, Workload};
pub use distribution::{Distribution, DistributionError, Sampler};
pub use gather::Gather;
pub use nearest::nearest;
pub use op::{Access, OpKind, PageOp, SPACE_PAGES_MAX, Space, SpaceId, SpaceKind};
pub use prng::SplitMix64;
pub use random::RandomRead;
pub use scan::Scan;
pub use ycsb::{Letter, RecordOp, RecordOpKind, Ycsb};
