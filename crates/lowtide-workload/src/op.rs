//! The vocabulary: the operations of a workload.
//!
//! An operation names a *space* (a file or a heap), a run of pages in it and what happens to them.
//! Pages are counted in the base pages of the player; the stream itself does not depend on their
//! size.
//!
//! The kernel distinguishes two kinds of access, and so does the engine: an access *through the
//! descriptor* (`read(2)`, `write(2)`) is counted when it happens, and one *through a mapping*
//! leaves only a young bit that aging and reclaim find later. That is why reading appears twice in
//! [`OpKind`].

use std::fmt;

/// What is done to a run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Copy the pages out through the descriptor.
    Read,
    /// Copy whole pages in through the descriptor.
    Write,
    /// Read from the pages through a mapping.
    Load,
    /// Write to the pages through a mapping.
    Store,
    /// Make the pages durable.
    Sync,
    /// Give the pages up: their content is no longer needed.
    Free,
}

impl OpKind {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Load, Self::Store, Self::Sync, Self::Free];

    /// The name used in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Load => "load",
            Self::Store => "store",
            Self::Sync => "sync",
            Self::Free => "free",
        }
    }

    /// Whether the operation dirties the pages.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Store)
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which way an access takes to its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Through a mapping or a guard: [`OpKind::Load`] and [`OpKind::Store`].
    Mapped,
    /// Through the descriptor: [`OpKind::Read`] and [`OpKind::Write`].
    Descriptor,
}

impl Access {
    /// The operation that reads (or, with `write`, writes) this way.
    #[inline]
    #[must_use]
    pub const fn kind(self, write: bool) -> OpKind {
        match (self, write) {
            (Self::Mapped, false) => OpKind::Load,
            (Self::Mapped, true) => OpKind::Store,
            (Self::Descriptor, false) => OpKind::Read,
            (Self::Descriptor, true) => OpKind::Write,
        }
    }
}

/// The most pages that a space can have: 2^32, which are 16 TiB of 4 KiB pages. What plays
/// operations keeps a few bytes for each page, and a larger number is most likely a damaged trace
/// or one that was misread.
pub const SPACE_PAGES_MAX: u64 = 1 << 32;

/// The number of a space within one workload or trace: an index into its table of [`Space`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u32);

/// What backs a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// A file: a clean page can be dropped and read again.
    File,
    /// Anonymous memory: a page that was written needs swap before it can go.
    Anon,
}

impl SpaceKind {
    /// The name used in traces, before the colon.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Anon => "anon",
        }
    }
}

/// A space that operations refer to by its [`SpaceId`].
///
/// Displays as in traces: `file:NAME` or `anon:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// What backs it.
    pub kind: SpaceKind,
    /// A name without meaning to the engine: a player may use it as a file name.
    pub name: String,
}

impl Space {
    /// A file called `name`.
    #[must_use]
    pub fn file(name: impl Into<String>) -> Self {
        Self { kind: SpaceKind::File, name: name.into() }
    }

    /// Anonymous memory called `name`.
    #[must_use]
    pub fn anon(name: impl Into<String>) -> Self {
        Self { kind: SpaceKind::Anon, name: name.into() }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.name)
    }
}

/// One operation on the pages `page..page + pages` of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageOp {
    /// What happens.
    pub kind: OpKind,
    /// Where.
    pub space: SpaceId,
    /// The first page, counted from the start of the space.
    pub page: u64,
    /// How many pages, at least one.
    pub pages: u32,
}

impl PageOp {
    /// An operation on one page.
    #[inline]
    #[must_use]
    pub const fn one(kind: OpKind, space: SpaceId, page: u64) -> Self {
        Self { kind, space, page, pages: 1 }
    }

    /// Whether it is on at least one page and ends within the [`SPACE_PAGES_MAX`] pages of a space,
    /// as all operations of streams and traces of this crate do.
    #[inline]
    #[must_use]
    pub const fn range_is_possible(&self) -> bool {
        self.pages > 0
            && self.page < SPACE_PAGES_MAX
            && self.page + self.pages as u64 <= SPACE_PAGES_MAX
    }

    /// The last page touched. For a range that is not possible the result saturates.
    #[inline]
    #[must_use]
    pub const fn last_page(&self) -> u64 {
        self.page.saturating_add((self.pages as u64).saturating_sub(1))
    }
}
