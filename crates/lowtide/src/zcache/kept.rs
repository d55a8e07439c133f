//! What files and reclaim do with the compressed pages of a tenant.
//!
//! A trait, so that the state of a pool, which has its files, knows nothing of how pages are kept,
//! which needs the pool.

use super::clock::Clock;
use super::common::Common;
use super::stat::ZcacheStat;
use lowtide_core::{Owner, SpaceId};
use lowtide_swap::Dictionary;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The compressed pages of one tenant. Called without the pool's lock, but for
/// [`wants`](Kept::wants).
pub(crate) trait Kept: fmt::Debug + Send + Sync {
    /// What storing, loading and reading pages costs.
    fn clock(&self) -> &Clock;

    /// Whether a page that is evicted, and came back once, is to be stored or looked at.
    /// `collects`: samples of its file are wanted.
    fn wants(&self, owner: Owner, collects: bool, now: &dyn Fn() -> u64) -> bool;

    /// Stores a page whose translation this thread has made busy, or only tries how small it
    /// becomes.
    fn store(&self, owner: Owner, bytes: &[u8], common: &Arc<Common>);

    /// A page is not in use: it is about to be loaded, or read.
    fn missed(&self, owner: Owner);

    /// Fills a page if it is stored, and stores it no more.
    fn load(&self, owner: Owner, to: &mut [u8], with: Option<&Dictionary>) -> bool;

    /// Drops a page.
    fn forget(&self, owner: Owner);

    /// Drops pages of a file.
    fn forget_range(&self, space: SpaceId, pages: Range<u64>);

    /// A file is closed, of which nothing is stored any more, and for which bytes were charged.
    fn file_ends(&self, charged: usize);

    /// Decides again how much memory compressed pages may take, if it is time to, and gives back
    /// what they have beyond that.
    fn adapt(&self);

    /// Does what takes long.
    fn maintain(&self);

    /// Gives some frames back.
    fn shrink(&self);

    /// Adds what was stored and loaded since the last time to the counters of its group.
    fn count(&self);

    /// Adds its figures.
    fn add_to(&self, sum: &mut ZcacheStat, page_shift: u32);
}
