//! A program that writes a new file from start to end, in a group that is smaller than the file:
//! `fill` and `dd-oom`, described once for both worlds.
//!
//! ```text
//!   group (max) ── N x { a block is made ── write() }  [ fsync ]
//! ```
//!
//! A group is soon full of pages that are dirty or being written, so the writer waits for the
//! device: with an ordinary one this measures how near a writer comes to its bandwidth, with one
//! whose writes take a second whether the writer survives (`docs/kernel/workloads.md` §4). The
//! simulator's player is `crate::client::dd`; the runtime's writes through a view.

use std::time::Duration;

/// What is written. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Budget of the group.
    pub max: u64,
    /// Size of the file.
    pub file: u64,
    /// Processor time that the program takes to make a block, besides what writing it costs. On
    /// real memory it copies the block from other memory instead.
    pub work: Duration,
    /// Whether the file is made durable, and that time counts.
    pub durable: bool,
}

impl Writer {
    /// Bytes of one `write()`, as with `dd bs=1M`.
    pub const BLOCK: u64 = 1 << 20;

    /// The published reproducer of the throttling OOM.
    #[must_use]
    pub const fn published() -> Self {
        let work = Duration::from_micros(60);
        Self { max: 128 << 20, file: 192 << 20, work, durable: false }
    }

    /// A durable file of four times the budget.
    #[must_use]
    pub const fn fill(max: u64) -> Self {
        Self { max, file: 4 * max, durable: true, ..Self::published() }
    }

    /// Number of blocks, the last of which may be shorter.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.file.div_ceil(Self::BLOCK)
    }
}
