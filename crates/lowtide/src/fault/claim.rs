//! What a thread that meets an absent page has of it: how it is accessed, the translations that are
//! its to resolve, and where the bytes arrive.

use crate::map::Landing;
use crate::pool::allocate::NewFolio;
use crate::space::Space;
use lowtide_core::{Owner, Task};
use lowtide_pin::translation::{Entry, State as EntryState};
use std::rc::Rc;

/// How a page is going to be accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// By a guard: as through a mapping. Sets the young bit.
    Mapped,
    /// By a store through a pointer to memory without a file: as `Mapped`, and what swap has of the
    /// page is void.
    Stored,
    /// By copying: as through a descriptor. Counts.
    Descriptor,
    /// By storing to a part of it through a descriptor: it is read first, for the store alone.
    Patched,
    /// By storing to all of it, through a descriptor if it is one of a file: nothing is read.
    Replaced,
    /// Not yet: it is read ahead.
    Ahead,
}

impl Access {
    pub(crate) const fn task(self) -> Task {
        match self {
            Self::Mapped | Self::Stored => Task::FAULT,
            Self::Descriptor | Self::Patched | Self::Replaced | Self::Ahead => Task::DESCRIPTOR,
        }
    }

    /// Whether it sets the young bit.
    pub(crate) const fn is_mapped(self) -> bool {
        matches!(self, Self::Mapped | Self::Stored)
    }
}

/// A translation, or several of one large folio, that this thread has made busy.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) page: u64,
    pub(crate) order: u8,
    /// The former values of the translations: the shadow of the page that was missed, then of all
    /// pages of a large folio.
    pub(super) shadow: u32,
    pub(super) shadows: Vec<u32>,
}

/// Where the bytes of a claim arrive.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    /// The first byte.
    pub(crate) at: *mut u8,
    /// What keeps it, if it is not the arena.
    pub(crate) _landing: Option<Rc<Landing>>,
}

impl Destination {
    /// A part of the same memory.
    pub(crate) fn part(&self, from: usize) -> Self {
        Self { at: self.at.wrapping_add(from), _landing: self._landing.clone() }
    }
}

/// A requested page is not resident, and this is what to do about it.
pub(crate) enum Miss {
    /// It came in meanwhile: its state, and the frame.
    Resident(EntryState, u32),
    /// This thread is to read it.
    Claimed(Claim),
    /// Another thread reads, evicts or stores to it: the state that was seen.
    Busy(EntryState),
}

impl Claim {
    /// A page whose translation the caller has just made busy.
    pub(crate) const fn of_one(page: u64, shadow: u32) -> Self {
        Self { page, order: 0, shadow, shadows: Vec::new() }
    }

    /// The last page of the claim.
    pub(crate) const fn last(&self) -> u64 {
        self.page + (1 << self.order) - 1
    }

    /// Changes the claimed translations; `has_waiters` is called for those that threads wait for.
    pub(super) fn each<'s>(
        &self,
        space: &'s Space,
        change: impl Fn(&Entry, u32) -> bool,
        mut has_waiters: impl FnMut(&'s Entry),
    ) {
        let single = [self.shadow];
        let shadows = if self.order == 0 { &single[..] } else { &self.shadows };
        for (page, &shadow) in (self.page..).zip(shadows) {
            let entry = space.table.entry(page);
            if change(entry, shadow) {
                has_waiters(entry);
            }
        }
    }

    /// Pages that are claimed.
    pub(crate) const fn pages(&self) -> u64 {
        1 << self.order
    }

    /// The page behind the last.
    pub(crate) const fn end(&self) -> u64 {
        self.page + self.pages()
    }

    pub(crate) fn new_folio(&self, space: &Space, access: Access) -> NewFolio {
        NewFolio {
            owner: Owner { space: space.id, page: self.page },
            order: self.order,
            shadow: self.shadow,
            task: match access {
                Access::Replaced if space.anon.is_some() => Task::FAULT,
                // As a kernel places what swap read-ahead brings in a fault: among the youngest. As
                // the oldest they would leave first, while a program that sweeps an array again and
                // again needs them, and colder memory would stay.
                Access::Ahead if space.anon.is_some() && space.mapped.is_some() => Task::FAULT,
                _ => access.task(),
            },
            replaced: access == Access::Replaced,
            touched: access != Access::Ahead,
            spare: access == Access::Ahead && space.anon.is_some(),
        }
    }
}
