//! What pages are charged for, and the answer when there is no room for them.

use lowtide_core::{MemcgId, SpaceId};

/// Something that pages are charged for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payer {
    /// The pages of an open file.
    Space(SpaceId),
    /// A reservation, by its place in [`Reservations`](crate::tenant::Reservations).
    Reservation(usize),
    /// The memory of a store of compressed pages, by its place in [`Swaps`](crate::swap::Swaps).
    Swap(usize),
}

/// No room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    /// The group that is full.
    pub(crate) over: MemcgId,
    /// The group that was to pay.
    pub(crate) payer: MemcgId,
    /// Waiting could help, but this thread must not wait for others.
    pub(crate) nested: bool,
}
