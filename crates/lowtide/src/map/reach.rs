//! The right to touch the addresses of a mirror.
//!
//! The addresses of a map may become something else while threads of the pager work: all of them,
//! when the map ends, or a part, that is *lent* to the program (`frozen.rs`). What is there then is
//! not the mirror's. Zapping it would lose bytes, and a page that is installed there would be
//! another's. So whatever touches addresses holds the right to do so meanwhile, for the pages that
//! it leads to, and taking it away waits for that.

use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What the addresses of a mirror lead to.
#[derive(Debug)]
pub(super) struct Reach(RwLock<Pages>);

/// See [`Reach`].
#[derive(Debug)]
pub(super) struct Pages {
    /// A pointer leads to the mirror.
    pub(super) attached: bool,
    /// But not to these pages of it: in order, without overlap, and apart from each other.
    lent: Vec<Range<u64>>,
}

impl Reach {
    pub(super) const fn new() -> Self {
        Self(RwLock::new(Pages { attached: true, lent: Vec::new() }))
    }

    /// The right to touch addresses, if a pointer leads to any.
    pub(super) fn get(&self) -> Option<RwLockReadGuard<'_, Pages>> {
        let pages = self.0.read().unwrap_or_else(PoisonError::into_inner);
        pages.attached.then_some(pages)
    }

    /// The right to change where they lead: no thread touches them meanwhile.
    pub(super) fn change(&self) -> RwLockWriteGuard<'_, Pages> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    /// Whether addresses lead to a page.
    pub(super) fn leads_to(&self, page: u64) -> bool {
        self.own(page..page + 1).next().is_some()
    }

    /// Those of some pages that addresses lead to, as runs.
    pub(super) fn own(&self, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.lent.partition_point(|lent| lent.end <= pages.start);
        let mut at = pages.start;
        let touching = self.lent[first..].iter().take_while(move |lent| lent.start < pages.end);
        let ends = touching.cloned().chain(std::iter::once(pages.end..pages.end));
        ends.filter_map(move |next| {
            let run = at..next.start;
            at = next.end;
            (run.start < run.end).then_some(run)
        })
    }

    /// Addresses lead to these pages no more.
    pub(super) fn lend(&mut self, pages: Range<u64>) {
        let mut all = pages;
        self.lent.retain(|lent| {
            let touches = lent.start <= all.end && all.start <= lent.end;
            if touches {
                all = all.start.min(lent.start)..all.end.max(lent.end);
            }
            !touches
        });
        let at = self.lent.partition_point(|lent| lent.end < all.start);
        self.lent.insert(at, all);
    }

    /// They do again.
    pub(super) fn take_back(&mut self, pages: &Range<u64>) {
        let rest = self.lent.iter().flat_map(|lent| {
            [
                lent.start..lent.end.min(pages.start.max(lent.start)),
                lent.start.max(pages.end.min(lent.end))..lent.end,
            ]
        });
        self.lent = rest.filter(|rest| rest.start < rest.end).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_pages_agree_with_a_list_of_pages() {
        let reach = Reach::new();
        let mut pages = reach.change();
        let mut model = [true; 40];
        let mut seed = 3_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            let start = draw(40);
            let range = start..(start + 1 + draw(6)).min(40);
            let is_lent = draw(2) == 0;
            if is_lent {
                pages.lend(range.clone());
            } else {
                pages.take_back(&range);
            }
            model[range.start as usize..range.end as usize].fill(!is_lent);
            assert!(pages.lent.windows(2).all(|two| two[0].end < two[1].start), "{pages:?}");
            let asked = draw(20)..20 + draw(20);
            let own: Vec<u64> = pages.own(asked.clone()).flatten().collect();
            let expected: Vec<u64> = asked.filter(|page| model[*page as usize]).collect();
            assert_eq!(own, expected, "{pages:?}");
            let page = draw(40);
            assert_eq!(pages.leads_to(page), model[page as usize]);
        }
    }
}
