//! Where in swap a page is, and what keeps it there.

use lowtide_core::Owner;
use lowtide_swap::StoreStat;
use std::fmt;
use std::io;

/// Where in swap a page is, in one word; 0 is nowhere. What else is in it is the store's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Slot(pub(super) u64);

impl Slot {
    pub(crate) const NONE: Self = Self(0);

    /// Whether it is nowhere.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A page did not go to swap: there is no room for it.
#[derive(Debug)]
pub(crate) struct Refused;

/// What keeps the pages of one tenant that are in swap. Called, and dropped, without the pool's
/// lock: it takes frames and gives them back.
pub(crate) trait Store: Send + Sync + fmt::Debug {
    /// Stores a page.
    ///
    /// # Errors
    /// There is no room for it.
    fn store(&self, owner: Owner, bytes: &[u8]) -> Result<Slot, Refused>;

    /// Loads a page, which stays in swap.
    ///
    /// # Errors
    /// What was stored cannot be read, or is not what was stored.
    fn load(&self, slot: Slot, to: &mut [u8]) -> io::Result<()>;

    /// Drops a page.
    fn free(&self, slot: Slot);

    /// Moves compressed pages together, so that some frames come free. Returns how many. Cost: some
    /// tens of microseconds a frame.
    fn compact(&self, frames: usize) -> usize;

    /// Figures.
    fn stat(&self) -> StoreStat;
}
