//! An entry of a page table: four bits. Where it leads to is in the page cache, since every mapping maps a whole object.

/// See the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pte(u8);

const PRESENT: u8 = 1;
const YOUNG: u8 = 2;
const WRITABLE: u8 = 4;
const DIRTY: u8 = 8;

impl Pte {
    /// Not mapped.
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    #[inline]
    pub(crate) const fn is_young(self) -> bool {
        self.0 & YOUNG != 0
    }

    /// Whether an access needs no fault.
    #[inline]
    pub(crate) const fn allows(self, store: bool) -> bool {
        let needed = if store { PRESENT | WRITABLE } else { PRESENT };
        self.0 & needed == needed
    }

    /// Whether there was a store through this entry since it was made, or since it was last protected.
    #[inline]
    pub(crate) const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// What the hardware does with an access that is allowed.
    #[inline]
    pub(crate) const fn access(&mut self, store: bool) {
        self.0 |= if store { YOUNG | DIRTY } else { YOUNG };
    }

    /// Clears the young bit. Returns whether it was set.
    #[inline]
    pub(crate) const fn take_young(&mut self) -> bool {
        let young = self.is_young();
        self.0 &= !YOUNG;
        young
    }

    /// Present and young; an entry that was writable stays so.
    pub(crate) const fn map(&mut self, writable: bool) {
        self.0 |= PRESENT | YOUNG | if writable { WRITABLE } else { 0 };
    }

    /// Present, its young bit as it is.
    pub(crate) const fn map_old(&mut self) {
        self.0 |= PRESENT;
    }

    /// Present as before, no longer writable, and clean.
    pub(crate) const fn protect(&mut self) {
        self.0 &= !(WRITABLE | DIRTY);
    }
}
