//! The name of a stored page: which shard of the table, and which entry of it.

use std::fmt;

/// Shards of the table.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
/// Bits of a handle that name its shard.
pub(crate) const SHARD_BITS: u32 = 4;
/// A stored page: below [`Handle::MAX`], so that two bits of a word of 32 are left to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u32);

impl Handle {
    /// No handle is larger.
    pub const MAX: u32 = (1 << 30) - 1;

    /// The handle as a word, at most [`Handle::MAX`].
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// A handle from [`to_bits`](Handle::to_bits). Any other word is a handle behind which nothing
    /// is stored, or another page.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Handle {
        Handle(bits & Handle::MAX)
    }

    pub(crate) const fn new(shard: usize, index: u32) -> Handle {
        Handle(index << SHARD_BITS | shard as u32)
    }

    pub(crate) const fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    pub(crate) const fn index(self) -> u32 {
        self.0 >> SHARD_BITS
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle {:#x}", self.0)
    }
}
