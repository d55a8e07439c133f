//! The interface of every policy.

/// The position of an access that never happens.
pub const NEVER: u64 = u64::MAX;

/// A cache of a fixed number of pages with a policy for the choice of victims.
///
/// Pages are dense numbers, from 0 to below the number given at construction, which is at most
/// 2^31. Every access admits its page (demand paging: no page may bypass the cache), and evicts a
/// victim if the cache is full.
pub trait Cache {
    /// Accesses `page` and returns whether it was resident before.
    ///
    /// `next` is the position of the next access that finds this page's content still wanted,
    /// [`NEVER`] if there is none: no further access, or a [`remove`](Self::remove) before it.
    /// Positions grow from access to access. Only [`Opt`](super::Opt) uses it; for
    /// the others any value is valid.
    ///
    /// # Panics
    /// When `page` is not below the number of pages given at construction.
    fn access(&mut self, page: u32, next: u64) -> bool;

    /// Removes `page` and any history of it. Its frame stays free until the next miss.
    ///
    /// # Panics
    /// When `page` is not below the number of pages given at construction.
    fn remove(&mut self, page: u32);

    /// Number of resident pages, at most the capacity.
    fn resident(&self) -> u64;
}
