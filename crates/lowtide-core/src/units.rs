//! Small types that keep an index from being mistaken for a count.
//!
//! Everything the engine counts is in *base pages*; only the driver knows how many bytes a base
//! page has. Time is a number of nanoseconds that the driver passes in.

/// Nanoseconds in a second.
pub(crate) const NS_PER_SEC: u64 = 1_000_000_000;

/// Index of a folio: the number of its first base-page frame.
///
/// A folio of order `k` owns the frames `id .. id + 2^k`, and `id` is a multiple of `2^k`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FolioId(pub u32);

impl FolioId {
    /// The index as a slice position.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A memory control group: one budget. The place of a removed group is used again, its name is not:
/// an old name finds no group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemcgId {
    pub(crate) slot: MemcgSlot,
    /// How many groups had the place before. The place is not used again after the last number.
    pub(crate) serial: u16,
}

impl MemcgId {
    /// The first group, which is never removed: the whole pool.
    pub const ROOT: Self = Self { slot: MemcgSlot(0), serial: 0 };

    /// A number that no other group of the engine has or will have.
    #[must_use]
    pub const fn number(self) -> u64 {
        (self.serial as u64) << 16 | self.slot.0 as u64
    }
}

/// The place of a group in the table of groups. State that belongs to an existing group may name
/// the group by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct MemcgSlot(pub(crate) u16);

impl MemcgSlot {
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<MemcgId> for MemcgSlot {
    #[inline]
    fn from(id: MemcgId) -> Self {
        id.slot
    }
}

/// Index of an address space: a set of translations that an aging pass walks as one (the kernel's
/// mm).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub u32);

/// Where a folio's contents belong: a space and the base page in it that the folio begins at.
///
/// Packed into one word in the folio table: 24 bits of space, 40 bits of page (4 PiB of 4 KiB
/// pages).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// The space the page belongs to.
    pub space: SpaceId,
    /// First base page of the folio within the space.
    pub page: u64,
}

impl Owner {
    /// Number of spaces that fit in the packed form.
    pub const SPACES_MAX: u32 = 1 << 24;
    /// Number of pages of one space that fit in the packed form.
    pub const PAGES_MAX: u64 = 1 << 40;

    /// Packs the owner into one word.
    ///
    /// # Panics
    /// When the space or the page is out of the range given by [`Owner::SPACES_MAX`] and
    /// [`Owner::PAGES_MAX`]; drivers refuse to open such files.
    #[must_use]
    pub const fn pack(self) -> u64 {
        assert!(self.space.0 < Self::SPACES_MAX && self.page < Self::PAGES_MAX);
        ((self.space.0 as u64) << 40) | self.page
    }

    /// The inverse of [`Owner::pack`].
    #[must_use]
    pub const fn unpack(word: u64) -> Self {
        Self { space: SpaceId((word >> 40) as u32), page: word & (Self::PAGES_MAX - 1) }
    }
}

/// Key of one table of translations (at most 512 neighbouring entries of one space): the unit that
/// an aging walk visits or skips, and that the Bloom filters remember.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableKey(pub u64);

/// The two kinds of memory that reclaim balances against each other (`docs/kernel/reclaim.md` §0).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum LruType {
    /// Swap-backed memory: anonymous and shared memory.
    Anon = 0,
    /// Everything that is not swap-backed: the page cache.
    File = 1,
}

impl LruType {
    /// Both types, in the order that scans visit them.
    pub const ALL: [Self; 2] = [Self::Anon, Self::File];
    #[inline]
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Anon => Self::File,
            Self::File => Self::Anon,
        }
    }
}

/// What the engine must know about the task that reclaims or takes a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Which per-CPU batches the task uses. A driver that runs the engine behind one lock may use
    /// 0.
    pub cpu: u16,
    /// The access that brings the folio in goes through a mapping whose accessed bits count
    /// ("in LRU fault", `docs/kernel/reclaim.md` §1.3). False for access through a descriptor.
    pub in_lru_fault: bool,
}

impl Task {
    /// A task that faults through a mapping.
    pub const FAULT: Self = Self { cpu: 0, in_lru_fault: true };
    /// A task that reads or writes through the descriptor.
    pub const DESCRIPTOR: Self = Self { cpu: 0, in_lru_fault: false };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_survives_packing() {
        let owner = Owner { space: SpaceId(Owner::SPACES_MAX - 1), page: Owner::PAGES_MAX - 1 };
        assert_eq!(Owner::unpack(owner.pack()), owner);
    }
}
