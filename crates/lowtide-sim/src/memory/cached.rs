//! What the page cache's index holds for a page: 4 bytes.

use lowtide_core::{FolioId, Shadow};

/// A resident page's frame, or what is remembered of a page that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached(u32);

const RESIDENT: u32 = 1 << 31;
const SHADOW: u32 = 1 << 30;

impl Cached {
    /// Never seen, or forgotten.
    pub const ABSENT: Self = Self(0);
    /// Frames that fit: 8 TiB of 4 KiB pages.
    pub const FRAMES_MAX: u32 = RESIDENT;

    pub const fn resident(frame: FolioId) -> Self {
        Self(RESIDENT | frame.0)
    }

    pub const fn gone(shadow: Shadow) -> Self {
        Self(SHADOW | shadow.to_bits())
    }

    /// The frame, if the page is resident.
    #[inline]
    pub const fn frame(self) -> Option<FolioId> {
        if self.0 & RESIDENT == 0 { None } else { Some(FolioId(self.0 & !RESIDENT)) }
    }

    /// The word itself, to compare two runs by.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The page was evicted. A page of a heap is in swap then, and nowhere else.
    pub const fn is_gone(self) -> bool {
        self.0 & (RESIDENT | SHADOW) == SHADOW
    }

    /// What is remembered, if the page was evicted.
    pub const fn shadow(self) -> Option<Shadow> {
        if self.0 & (RESIDENT | SHADOW) == SHADOW {
            Shadow::from_bits(self.0 & !SHADOW)
        } else {
            None
        }
    }
}

const _: () = assert!(Shadow::BITS <= 30, "a shadow fits beside the two marks");
