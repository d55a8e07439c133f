//! What pages are charged for, how much is done for room, and the answer when there is none.

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

/// What a charge that finds no room may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Reclaim, and waiting for room until the pager's timeout ends.
    Wait,
    /// Reclaim, tried again as often as it frees something.
    Reclaim,
    /// One reclaim: for what can be done without.
    ReclaimOnce,
}
