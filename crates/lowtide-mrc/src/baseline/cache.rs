//! What every policy can do.

/// The position of an access that never comes.
pub const NEVER: u64 = u64::MAX;

/// A cache of a fixed number of pages with some way to choose its victims.
///
/// Pages are dense numbers, from 0 to below the number given at construction, which is at most
/// 2^31. Every access admits its page (demand paging: no page may bypass it), at the price of a
/// victim if the cache is full.
pub trait Cache {
    /// Accesses `page` and returns whether it was resident before.
    ///
    /// `next` is the position of the next access that finds this page's content still wanted,
    /// [`NEVER`] if there is none: no further access, or a [`remove`](Self::remove) before it.
    /// Positions grow from access to access. Only [`Opt`](super::Opt) looks at it; for the
    /// others any value does.
    ///
    /// # Panics
    /// When `page` is not below the number of pages given at construction.
    fn access(&mut self, page: u32, next: u64) -> bool;

    /// Forgets `page`: whether it was resident, and any history of it. Its room stays free until
    /// the next miss.
    ///
    /// # Panics
    /// When `page` is not below the number of pages given at construction.
    fn remove(&mut self, page: u32);

    /// How many pages are resident, at most the capacity.
    fn resident(&self) -> u64;
}
