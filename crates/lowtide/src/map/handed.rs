//! Streams that are handed to the kernel, which reads ahead of them in large pieces.
//!
//! What lowtide requests comes in page by page (`posix_fadvise(2)`), and each page is a fault, an
//! entry of a page table and a page to drop. The kernel's own read-ahead makes folios of up to
//! 2 MiB, which are mapped by one fault, begins to read in the thread that faults, and does not
//! fall behind where processors are busy. Its price is that of any read-ahead: at random places it
//! would read far too much. So what lies ahead of a stream that has gone on for a while is *handed*
//! to it, and is taken back behind the stream, or when the stream ends:
//!
//! ```text
//!   random, exact │ sequential, large folios                 │ random, exact
//!   ...dropped... │ ...touched...  next│   charged   │ spare │ ...absent...
//! ```
//!
//! Pages are charged before they are handed, as those that are requested are. A spare window is
//! handed uncharged: a reader that is faster than the thread that charges goes on at the kernel's
//! speed for so long, and exceeds the budget by no more than that.
//!
//! Only where the kernel's window is a small part of what may be ahead: it does not know of the
//! budget.

use super::watched::{State, Watched};
use lowtide_sys::page_cache::{self, Advice};
use std::ops::Range;

/// Dropped parts that are remembered: those of which pages are still charged.
const DROPPED: usize = 32;

/// Pages that the kernel reads ahead, of the mapping of an owner.
#[derive(Debug)]
pub(super) struct Handed {
    pages: Range<u64>,
    owner: u64,
}

impl Watched {
    /// Hands pages to the kernel's read-ahead. `make_coarse` lets faults at addresses bring in
    /// more than a page. Returns false where that cannot be: a file has several mappings, or the
    /// process as many as it may.
    pub(super) fn hand_over(&self, pages: Range<u64>, make_coarse: impl Fn(&Range<usize>)) -> bool {
        let mut state = self.state();
        let (true, Some(mapping)) = (state.is_mapped_once(), state.mappings.first()) else {
            return false;
        };
        let owner = mapping.owner;
        let ends = mapping.first + (mapping.addresses.len() >> self.page_shift) as u64;
        // Cut at multiples of a folio, so that one entry can map it.
        let end = pages.end.next_multiple_of(self.folio()).min(ends);
        let meets = |had: &Handed| had.pages.start <= end && pages.start <= had.pages.end;
        let known = state.handed.iter().position(|had| had.owner == owner && meets(had));
        let had = known.map(|at| state.handed[at].pages.clone());
        let goes_on = had.as_ref().filter(|had| had.start <= pages.start);
        let start = goes_on.map_or(pages.start, |had| had.end);
        let addresses = mapping.addresses_of(&(start..end), self.page_shift);
        if addresses.is_empty() {
            return known.is_some();
        }
        if page_cache::advise(addresses.clone(), Advice::Normal).is_err() {
            return false;
        }
        make_coarse(&addresses);
        (start / self.folio()..end.div_ceil(self.folio())).for_each(|part| state.folios.set(part));
        let had = had.unwrap_or(start..end);
        if let Some(at) = known {
            state.handed.swap_remove(at);
        }
        state.handed.push(Handed { pages: had.start.min(start)..had.end.max(end), owner });
        true
    }

    /// The page up to which the kernel reads ahead from this one on; 0 where it does not.
    pub(super) fn handed(&self, page: u64) -> u64 {
        let state = self.state();
        let handed = state.handed.iter().find(|handed| handed.pages.contains(&page));
        handed.map_or(0, |handed| handed.pages.end)
    }

    /// Drops pages that came in while they were handed, and all of the parts that they are in: no
    /// part of a folio can be dropped, and what a stream leaves behind leaves together. What is
    /// still charged of a part follows, and has nothing to drop then. Returns false if some of the
    /// pages came in otherwise.
    pub(super) fn drop_handed(&self, state: &mut State, pages: &Range<u64>) -> bool {
        let parts = pages.start / self.folio()..pages.end.div_ceil(self.folio());
        let is_known = |part| state.folios.is_set(part) || state.dropped.contains(&part);
        if !state.is_mapped_once() || !parts.clone().all(is_known) {
            return false;
        }
        let leave = self.company.may_leave(pages);
        parts.into_iter().all(|part| self.drop_part(state, part, leave))
    }

    fn drop_part(&self, state: &mut State, part: u64, leave: bool) -> bool {
        let pages = part * self.folio()..(part + 1) * self.folio();
        let is_gone = || self.cachestat(&pages).is_ok_and(|stat| stat.cached == 0);
        if is_gone() {
            return true;
        }
        if !state.folios.is_set(part) {
            return false;
        }
        self.zap(state, &pages, |_| ());
        let shared = pages.clone().filter(|page| state.elsewhere.take(*page)).count();
        if shared > 0 || leave || self.are_dirty(&pages) {
            // To drop dirty ones is to write them, and to wait for the device. `sweep.rs` does.
            return true;
        }
        self.drop_uncharged(pages.clone());
        if is_gone() {
            state.folios.take(part);
            state.dropped.truncate(DROPPED - 1);
            state.dropped.push_front(part);
        }
        true
    }

    /// Takes pages back from the kernel's read-ahead. `from` says from which page on handed pages
    /// stay handed, if any of them do; `make_exact` undoes `make_coarse`.
    pub(super) fn take_back(
        &self,
        from: impl Fn(&Range<u64>) -> Option<u64>,
        make_exact: impl Fn(&Range<usize>),
    ) {
        let mut state = self.state();
        for Handed { mut pages, owner } in std::mem::take(&mut state.handed) {
            let from = from(&pages).map_or(pages.end, |page| page / self.folio() * self.folio());
            let from = from.clamp(pages.start, pages.end);
            for mapping in state.mappings.iter().filter(|mapping| mapping.owner == owner) {
                let addresses = mapping.addresses_of(&(pages.start..from), self.page_shift);
                if !addresses.is_empty() {
                    // Best effort: the kernel may have no room for one more mapping.
                    drop(page_cache::advise(addresses.clone(), Advice::Random));
                    make_exact(&addresses);
                }
            }
            pages.start = from;
            if !pages.is_empty() {
                state.handed.push(Handed { pages, owner });
            }
        }
    }
}
