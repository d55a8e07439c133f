//! A sequential scan of a whole file, over and over.
//!
//! The worst case of recency: with less memory than the file, exact LRU evicts every page just
//! before it is needed again. The file is cut into one contiguous share per thread, and each thread
//! repeats its own.

use crate::distribution::DistributionError;
use crate::op::{Access, PageOp, SpaceId};
use std::num::NonZeroU32;
use std::ops::Range;

/// A repeated scan over the pages of one file, the space number 0.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    pages: u64,
    pages_per_op: NonZeroU32,
    access: Access,
}

impl Scan {
    /// A scan of `pages` pages in operations of `pages_per_op`, taking the way `access` to them.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `pages` is 0.
    pub const fn new(
        pages: u64,
        pages_per_op: NonZeroU32,
        access: Access,
    ) -> Result<Self, DistributionError> {
        if pages == 0 {
            return Err(DistributionError::NoItems);
        }
        Ok(Self { pages, pages_per_op, access })
    }

    /// The number of pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The share of thread number `thread` of `threads`: contiguous, equal up to one page, together
    /// the whole file.
    ///
    /// # Panics
    /// When `thread` is not below `threads`.
    #[must_use]
    pub fn share(&self, thread: u32, threads: u32) -> Range<u64> {
        assert!(thread < threads, "thread {thread} of {threads} threads");
        let cut = |n: u32| (u128::from(self.pages) * u128::from(n) / u128::from(threads)) as u64;
        cut(thread)..cut(thread + 1)
    }

    /// The stream of thread number `thread` of `threads`: endless, or empty when there are more
    /// threads than pages and its share has none.
    ///
    /// # Panics
    /// When `thread` is not below `threads`.
    #[must_use]
    pub fn stream(&self, thread: u32, threads: u32) -> ScanStream {
        let share = self.share(thread, threads);
        ScanStream {
            next: share.start,
            share,
            pages_per_op: self.pages_per_op,
            access: self.access,
        }
    }
}

/// One thread's scan of its share, over and over.
#[derive(Clone, Debug)]
pub struct ScanStream {
    share: Range<u64>,
    next: u64,
    pages_per_op: NonZeroU32,
    access: Access,
}

impl Iterator for ScanStream {
    type Item = PageOp;

    #[inline]
    fn next(&mut self) -> Option<PageOp> {
        if self.share.is_empty() {
            return None;
        }
        if self.next == self.share.end {
            self.next = self.share.start;
        }
        let left = self.share.end - self.next;
        let per_op = self.pages_per_op.get();
        // The last operation of a pass stops at the end of the share.
        let pages = u32::try_from(left).map_or(per_op, |left| left.min(per_op));
        let op =
            PageOp { kind: self.access.kind(false), space: SpaceId(0), page: self.next, pages };
        self.next += u64::from(pages);
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(pages: u64, pages_per_op: u32) -> Scan {
        Scan::new(pages, NonZeroU32::new(pages_per_op).unwrap(), Access::Descriptor).unwrap()
    }

    #[test]
    fn a_scan_repeats_from_its_start() {
        let ops: Vec<(u64, u32)> =
            scan(5, 2).stream(0, 1).take(7).map(|op| (op.page, op.pages)).collect();
        assert_eq!(ops, [(0, 2), (2, 2), (4, 1), (0, 2), (2, 2), (4, 1), (0, 2)]);
    }

    #[test]
    fn a_thread_without_a_share_does_nothing() {
        let total: usize = (0..8).map(|thread| scan(3, 1).stream(thread, 8).take(1).count()).sum();
        assert_eq!(total, 3);
    }

    proptest! {
        #[test]
        fn one_pass_of_all_threads_reads_every_page_once(
            pages in 1_u64..500, per_op in 1_u32..40, threads in 1_u32..20,
        ) {
            let workload = scan(pages, per_op);
            let mut read = Vec::new();
            for thread in 0..threads {
                let share = workload.share(thread, threads);
                let ops = (share.end - share.start).div_ceil(u64::from(per_op)) as usize;
                for op in workload.stream(thread, threads).take(ops) {
                    read.extend(op.page..=op.last_page());
                }
            }
            prop_assert_eq!(read, (0..pages).collect::<Vec<_>>());
        }
    }
}
