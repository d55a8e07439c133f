//! The file tier: slots of a file without a name.

use std::fmt;

/// A page of a swap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);

impl Slot {
    /// The slot as a word.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// A slot from [`to_bits`](Slot::to_bits).
    #[must_use]
    pub const fn from_bits(bits: u32) -> Slot {
        Slot(bits)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}
