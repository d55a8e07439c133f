//! Uniform random reads of single pages.
//!
//! All pages are equally likely, so no policy beats another: the workload measures the path of a
//! miss and the device. The hit ratio is the resident share of the file.

use crate::distribution::DistributionError;
use crate::op::{Access, PageOp, SpaceId};
use crate::prng::SplitMix64;

/// Uniform reads over the pages of one file, the space number 0.
#[derive(Clone, Copy, Debug)]
pub struct RandomRead {
    pages: u64,
    access: Access,
    root: SplitMix64,
}

impl RandomRead {
    /// Reads over `pages` pages, taking the way `access` to them.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `pages` is 0.
    pub const fn new(pages: u64, access: Access, seed: u64) -> Result<Self, DistributionError> {
        if pages == 0 {
            return Err(DistributionError::NoItems);
        }
        Ok(Self { pages, access, root: SplitMix64::new(seed) })
    }

    /// The number of pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The endless stream of thread number `thread` of `threads`; it depends on seed and thread
    /// alone.
    ///
    /// # Panics
    /// When `thread` is not below `threads`.
    #[must_use]
    pub fn stream(&self, thread: u32, threads: u32) -> RandomReadStream {
        assert!(thread < threads, "thread {thread} of {threads} threads");
        RandomReadStream {
            pages: self.pages,
            access: self.access,
            rng: self.root.fork(u64::from(thread)),
        }
    }
}

/// The endless reads of one thread.
#[derive(Clone, Debug)]
pub struct RandomReadStream {
    pages: u64,
    access: Access,
    rng: SplitMix64,
}

impl Iterator for RandomReadStream {
    type Item = PageOp;

    #[inline]
    fn next(&mut self) -> Option<PageOp> {
        Some(PageOp::one(self.access.kind(false), SpaceId(0), self.rng.below(self.pages)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::OpKind;
    use std::collections::HashSet;

    #[test]
    fn all_pages_are_read_and_nothing_else() {
        let workload = RandomRead::new(50, Access::Descriptor, 1).unwrap();
        let ops: Vec<PageOp> = workload.stream(0, 1).take(2000).collect();
        assert!(ops.iter().all(|op| op.kind == OpKind::Read && op.pages == 1));
        assert_eq!(ops.iter().map(|op| op.page).collect::<HashSet<_>>(), (0..50).collect());
    }

    #[test]
    fn threads_have_streams_of_their_own() {
        let workload = RandomRead::new(1 << 40, Access::Mapped, 1).unwrap();
        let pages =
            |thread| workload.stream(thread, 8).take(100).map(|op| op.page).collect::<Vec<_>>();
        assert_eq!(pages(2), pages(2));
        assert_ne!(pages(2), pages(3));
    }

    #[test]
    fn an_empty_file_is_an_error() {
        assert!(matches!(RandomRead::new(0, Access::Mapped, 1), Err(DistributionError::NoItems)));
    }
}
