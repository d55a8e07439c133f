//! The name of a page of a swap file.

use crate::source::PAGE_BYTES;
use std::fmt;

/// Slots of a cluster, and the most pages of one request.
pub const CLUSTER_SLOTS: usize = 64;

/// A page of a swap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(super) u32);

impl Slot {
    /// No slot is larger, so that two bits of a word of 32 are left to the caller.
    pub const MAX: u32 = (1 << 30) - 1;

    /// The slot as a word, at most [`Slot::MAX`].
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// A slot from [`to_bits`](Slot::to_bits). Any other word is a slot in which nothing is
    /// stored, or another page.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Slot {
        Slot(bits & Slot::MAX)
    }

    /// Where it is in the file, in bytes.
    pub(super) const fn offset(self) -> u64 {
        self.0 as u64 * PAGE_BYTES as u64
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}
