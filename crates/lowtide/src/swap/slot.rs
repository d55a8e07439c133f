//! Where in swap a page is, and what keeps it there.

use lowtide_core::{Owner, SpaceId};
use lowtide_swap::{ReadAhead, StoreStat};
use std::fmt;
use std::io;

/// In a slot: the page is in the file.
pub(super) const IN_FILE: u64 = 1 << 40;

/// Where in swap a page is, in one word; 0 is nowhere. What else is in it is the store's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Slot(pub(super) u64);

impl Slot {
    pub(crate) const NONE: Self = Self(0);

    /// Some slot.
    #[cfg(test)]
    pub(crate) const fn of(word: u64) -> Self {
        Self(word)
    }

    /// Whether it is in the swap file, and not in memory.
    pub(crate) const fn is_in_file(self) -> bool {
        self.0 & IN_FILE != 0
    }

    /// The slot of the file, if it is there.
    pub(crate) fn in_file(self) -> Option<lowtide_swap::Slot> {
        self.is_in_file().then(|| lowtide_swap::Slot::from_bits(self.0 as u32))
    }

    /// Whether it is nowhere.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// What the owner of a stored page is called in a store.
pub(crate) const fn tag(owner: Owner) -> u64 {
    (owner.space.0 as u64) << TAG_SHIFT | owner.page
}

/// The owner of a page that is called so.
pub(crate) const fn owner(tag: u64) -> Owner {
    Owner { space: SpaceId((tag >> TAG_SHIFT) as u32), page: tag & ((1 << TAG_SHIFT) - 1) }
}

/// Bits of a tag for the page.
const TAG_SHIFT: u32 = 40;
const _: () = assert!(Owner::PAGES_MAX <= 1 << TAG_SHIFT && Owner::SPACES_MAX as u64 <= 1 << 24);

/// A page was not taken into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// There is no room for it; there may be, when others have gone.
    Full,
    /// It does not compress, so there is no gain.
    Incompressible,
}

/// What a fault does with the neighbours of its page in the file.
pub(crate) trait Around {
    /// Whether a page is worth reading.
    fn wants(&mut self, owner: Owner, slot: Slot) -> bool;

    /// One that was wanted has arrived.
    fn arrived(&mut self, owner: Owner, bytes: &[u8]);
}

/// What keeps the pages of one tenant that are in swap: in memory, then in a file. Called, and
/// dropped, without the pool's lock: it takes frames and gives them back.
pub(crate) trait Store: Send + Sync + fmt::Debug {
    /// Keeps a page in memory.
    ///
    /// # Errors
    /// [`Refused`].
    fn keep(&self, owner: Owner, bytes: &[u8]) -> Result<Slot, Refused>;

    /// Writes pages to the file. Waits for the device.
    ///
    /// # Errors
    /// There is no file, or no room in it for all of them, or it cannot be written: none of them
    /// was.
    fn write(&self, pages: &[(Owner, &[u8])]) -> io::Result<Vec<Slot>>;

    /// Whether there is a file.
    fn has_file(&self) -> bool;

    /// Loads a page, which stays in swap. Waits for the device, if it is in the file.
    ///
    /// # Errors
    /// What was stored cannot be read, or is not what was stored.
    fn load(&self, slot: Slot, to: &mut [u8]) -> io::Result<()>;

    /// Loads pages, which stay in swap: those in the file with as few requests as their slots allow
    /// ([`lowtide_swap::spans`]). Returns a result for each.
    ///
    /// # Errors
    /// Each as of [`load`](Store::load).
    fn load_many(&self, pages: &mut [(Slot, &mut [u8])]) -> Vec<io::Result<()>>;

    /// As [`load`](Store::load); of a page in the file also those of its neighbours that are
    /// wanted, in the same request.
    ///
    /// # Errors
    /// As [`load`](Store::load).
    fn load_with(
        &self,
        slot: Slot,
        to: &mut [u8],
        ahead: &ReadAhead,
        neighbours: &mut dyn Around,
    ) -> io::Result<()>;

    /// Counts pages that were read with others: taken, touched, and gone before a touch.
    fn count_ahead(&self, taken: u64, hits: u64, wasted: u64);

    /// Loads a page from memory, without an effect on its age.
    ///
    /// # Errors
    /// As [`load`](Store::load).
    fn peek(&self, slot: Slot, to: &mut [u8]) -> io::Result<()>;

    /// Whether a page that was loaded, and is the same in memory, may keep its slot: it is in the
    /// file, of which not more than half is used.
    fn may_keep(&self, slot: Slot) -> bool;

    /// Whether there is no room in the file for that number of pages.
    fn is_file_full(&self, pages: usize) -> bool;

    /// Drops a page.
    fn free(&self, slot: Slot);

    /// Drops pages.
    fn free_many(&self, slots: &[Slot]);

    /// Charges a frame for a table of slots to the tenant. `None` if there is no room.
    fn pay_for_slots(&self) -> Option<u32>;

    /// Gives such frames back.
    fn give_back_slots(&self, frames: &[u32]);

    /// The pages in memory that were not used for longest, and where they are.
    fn coldest(&self, count: usize) -> Vec<(Owner, Slot)>;

    /// Moves compressed pages together, so that some frames come free. Returns how many. Cost: some
    /// tens of microseconds a frame.
    fn compact(&self, frames: usize) -> usize;

    /// Looks after what is in memory, now and then: what has been cold for long becomes smaller,
    /// and blocks that are partly used become fewer. Cost: some milliseconds.
    fn maintain(&self);

    /// Figures of what is in memory.
    fn stat(&self) -> StoreStat;
}
