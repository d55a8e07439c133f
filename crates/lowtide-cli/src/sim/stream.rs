//! The operation streams of `zipf`, `uniform` and `loop`: accesses to single pages of one file,
//! from a seed.
//!
//! Pages and kinds come from separate sub-streams, so the sequence of pages does not depend on the
//! share of writes.

use std::num::NonZeroU32;

use lowtide_workload::scan::ScanStream;
use lowtide_workload::{
    Access, Distribution, DistributionError, OpKind, PageOp, Sampler, Scan, SpaceId, SplitMix64,
};

/// The first sub-stream of kinds; sub-streams of pages have the threads' numbers.
const KINDS: u64 = 1 << 32;

/// Which page comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Zipf over the pages, exponent 0.99, scattered.
    Zipf,
    /// Uniform over the pages.
    Uniform,
    /// From start to end, repeatedly.
    Loop,
}

impl Pattern {
    /// The name of its workload.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf",
            Self::Uniform => "uniform",
            Self::Loop => "loop",
        }
    }

    /// One line for listings.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Zipf => "single pages, zipf popularity with exponent 0.99, scattered",
            Self::Uniform => "single pages, all alike (also called random-read)",
            Self::Loop => "all pages from start to end, over and over (also called scan)",
        }
    }
}

/// A pattern over a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    /// Which page comes next.
    pub(crate) pattern: Pattern,
    /// Pages of the file.
    pub(crate) pages: u64,
    /// The kind of access.
    pub(crate) access: Access,
    /// Percentage of accesses that write.
    pub(crate) write_percent: u64,
    pub(crate) seed: u64,
}

/// The endless accesses of one thread. A thread of a loop without pages of its own has none.
#[derive(Clone, Debug)]
pub(crate) struct PageStream {
    next: NextPage,
    kinds: SplitMix64,
    access: Access,
    write_percent: u64,
}

#[derive(Clone, Debug)]
enum NextPage {
    Drawn(Box<Sampler>, SplitMix64),
    Loop(ScanStream),
}

impl Pages {
    /// The accesses of thread number `thread` of `threads`. The threads of a loop divide the file.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when there are no pages.
    ///
    /// # Panics
    /// When `thread` is not below `threads`.
    pub(crate) fn stream(
        &self,
        thread: u32,
        threads: u32,
    ) -> Result<PageStream, DistributionError> {
        let root = SplitMix64::new(self.seed);
        let drawn = |distribution: Distribution| {
            let sampler = distribution.sampler(self.pages, self.seed)?;
            Ok(NextPage::Drawn(Box::new(sampler), root.fork(u64::from(thread))))
        };
        let next = match self.pattern {
            Pattern::Zipf => drawn(Distribution::default())?,
            Pattern::Uniform => drawn(Distribution::Uniform)?,
            Pattern::Loop => NextPage::Loop(
                Scan::new(self.pages, NonZeroU32::MIN, self.access)?.stream(thread, threads),
            ),
        };
        let kinds = root.fork(KINDS + u64::from(thread));
        Ok(PageStream { next, kinds, access: self.access, write_percent: self.write_percent })
    }
}

impl Iterator for PageStream {
    type Item = PageOp;

    #[inline]
    fn next(&mut self) -> Option<PageOp> {
        let page = match &mut self.next {
            NextPage::Drawn(sampler, rng) => sampler.draw(rng),
            NextPage::Loop(scan) => scan.next()?.page,
        };
        Some(PageOp::one(self.kind(), SpaceId(0), page))
    }
}

impl PageStream {
    #[inline]
    fn kind(&mut self) -> OpKind {
        let write = self.write_percent > 0 && self.kinds.below(100) < self.write_percent;
        self.access.kind(write)
    }
}

/// The share of thread number `thread` of `threads` in `total` accesses.
pub(crate) fn share(total: u64, thread: u32, threads: u32) -> u64 {
    let (thread, threads) = (u64::from(thread), u64::from(threads));
    total / threads + u64::from(thread < total % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pattern: Pattern, write_percent: u64) -> Pages {
        Pages { pattern, pages: 100, access: Access::Mapped, write_percent, seed: 7 }
    }

    fn first(pages: &Pages, thread: u32, threads: u32) -> Vec<PageOp> {
        pages.stream(thread, threads).unwrap().take(1000).collect()
    }

    #[test]
    fn writing_changes_kinds_and_not_pages() {
        for pattern in [Pattern::Zipf, Pattern::Uniform, Pattern::Loop] {
            let (reads, mixed) =
                (first(&pages(pattern, 0), 0, 1), first(&pages(pattern, 30), 0, 1));
            assert!(reads.iter().zip(&mixed).all(|(a, b)| a.page == b.page));
            assert!(reads.iter().all(|op| op.kind == OpKind::Load));
            let stores = mixed.iter().filter(|op| op.kind == OpKind::Store).count();
            assert!((200..400).contains(&stores), "{stores} of 1000 at 30 %");
        }
    }

    #[test]
    fn a_loop_is_shared_out_and_drawn_pages_are_not() {
        let ours = first(&pages(Pattern::Loop, 0), 1, 2);
        assert!(ours.iter().all(|op| op.page >= 50) && ours[0].page == ours[50].page);
        let zipf = pages(Pattern::Zipf, 0);
        assert_ne!(first(&zipf, 0, 2), first(&zipf, 1, 2));
        assert!(first(&zipf, 1, 2).iter().any(|op| op.page < 50));
    }

    #[test]
    fn shares_add_up() {
        for threads in [1, 3, 7] {
            let all: u64 = (0..threads).map(|thread| share(20, thread, threads)).sum();
            assert_eq!(all, 20);
        }
    }
}
