//! Storing to pages that are absent, without reading them.
//!
//! The translation is claimed as for a read (absent → busy, `fault.rs`), and is this thread's
//! alone. The frame is charged, taken and inserted into the engine as for a read, dirty at once,
//! because a dirty translation must have a dirty folio. Until the translation leads to it the frame
//! is not written back, because write-back goes by translations, and not evicted, because reclaim
//! leaves alone what is not resident.
//!
//! The page may have been evicted a moment ago, so its shadow counts as it does for a read: the
//! refault is real, only no thread waits for it. It is no major fault.

use super::balance;
use super::{Batch, Part, copy};
use crate::error::Error;
use crate::fault::{Access, Claim};
use crate::pool::payer::Payer;
use crate::pool::{Pool, State, StateGuard};
use crate::space::Space;
use crate::space::whole::has_all;
use lowtide_pin::translation::{Entry, State as EntryState};

/// Pages that were claimed, from the batch's part `index` on, and their frames.
#[derive(Debug)]
struct Filled {
    index: usize,
    order: u8,
    frame: u32,
}

impl Batch<'_, '_> {
    /// Stores to all pages that are absent, replaced as a whole, and for which there is room.
    pub(super) fn fill(&mut self) {
        let (pool, space) = (self.pool, self.space);
        let mut state: Option<StateGuard<'_>> = None;
        let mut filled = Vec::new();
        let mut index = 0;
        while let Some(part) = self.parts.get(index) {
            let absent = space
                .table
                .get(part.page)
                .is_some_and(|e| matches!(e.load(), EntryState::Absent { .. }));
            if part.done || !absent {
                index += 1;
                continue;
            }
            let Some(claim) = claim_parts(pool, space, &self.parts[index..]) else {
                index += 1;
                continue;
            };
            let state = state.get_or_insert_with(|| pool.lock());
            match place_now(pool, state, space, claim) {
                Some((claim, frame)) => {
                    space.ends_hole(claim.last());
                    filled.push(Filled { index, order: claim.order, frame });
                    index += 1 << claim.order;
                }
                // There is no room without reclaim, and the thread must not wait while several
                // pages are busy.
                None => break,
            }
        }
        if let Some(mut state) = state {
            let pages = filled.iter().map(|f| 1 << f.order).sum();
            self.must_answer |= pages > 0 && balance::dirtied(pool, &mut state, space, pages);
        }
        for f in &filled {
            for (index, frame) in (f.index..f.index + (1 << f.order)).zip(f.frame..) {
                self.land(index, frame);
            }
        }
    }

    /// Stores to a page that was absent with a shadow, waiting for a frame. Returns false, having
    /// done nothing, if its other bytes are needed.
    ///
    /// # Errors
    /// [`Error::OutOfBudget`]
    pub(super) fn fill_alone(
        &mut self,
        index: usize,
        entry: &Entry,
        shadow: u32,
    ) -> Result<bool, Error> {
        let (pool, space) = (self.pool, self.space);
        if entry.try_begin_read(shadow).is_err() {
            // Another thread was faster: look again.
            return Ok(true);
        }
        let mut claim = Claim::of_one(self.parts[index].page, shadow);
        if !replaces(pool, space, &self.parts[index]) {
            pool.abandon(space, &claim, &Ok(()));
            return Ok(false);
        }
        let page = claim.page;
        // No thread waits for the contents: a stall has no time to begin.
        let Some((frame, _)) = pool.frames_for(space, page, &mut claim, Access::Replaced)? else {
            return Ok(true);
        };
        space.ends_hole(claim.last());
        self.must_answer |= balance::dirtied(pool, &mut pool.lock(), space, 1);
        self.land(index, frame);
        Ok(true)
    }

    /// Puts the bytes into the frame, and lets others see it.
    fn land(&mut self, index: usize, frame: u32) {
        let part = &mut self.parts[index];
        copy(self.pool, frame, part, true);
        part.done = true;
        if let Some(zcache) = &self.space.zcache {
            zcache.forget(part.page);
        }
        let entry = self.space.table.entry(part.page);
        if entry.finish_store(frame) {
            self.pool.waits.complete(entry, &Ok(()));
        }
        self.space.table.hint(part.page).note_dirty();
    }
}

/// Whether a store leaves nothing of what its page holds in the file. Valid only while this thread
/// has the translation busy.
fn replaces(pool: &Pool, space: &Space, part: &Part<'_>) -> bool {
    let end = (part.page << pool.page_shift) + (part.at + part.bytes.len()) as u64;
    let all = part.at == 0 && has_all(space, end, (part.page + 1) << pool.page_shift);
    all || space.is_hole(part.page)
}

/// Makes the first page busy, or the whole large folio that begins there if all of it is written.
/// `None` if others have it, or if its other bytes are needed.
fn claim_parts(pool: &Pool, space: &Space, parts: &[Part<'_>]) -> Option<Claim> {
    let page = parts[0].page;
    let whole = |part: &Part<'_>| !part.done && part.bytes.len() == pool.page_bytes();
    let folio = parts.get(..1 << space.order).filter(|_| page.is_multiple_of(1 << space.order));
    if space.order > 0
        && folio.is_some_and(|folio| folio.iter().all(whole))
        && let Some(claim) = pool.claim_folio(space, page)
    {
        return Some(claim);
    }
    let entry = space.table.get(page)?;
    let EntryState::Absent { shadow } = entry.load() else { return None };
    entry.try_begin_read(shadow).ok()?;
    let claim = Claim::of_one(page, shadow);
    if replaces(pool, space, &parts[0]) {
        return Some(claim);
    }
    pool.abandon(space, &claim, &Ok(()));
    None
}

/// Takes frames for a claim if there is room for them as things are; a large folio may become a
/// single page. Otherwise the claim is given up.
fn place_now(
    pool: &Pool,
    state: &mut State,
    space: &Space,
    mut claim: Claim,
) -> Option<(Claim, u32)> {
    let payer = Payer::Space(space.id);
    if pool.is_poisoned() {
        pool.abandon(space, &claim, &Err(Error::Poisoned));
        return None;
    }
    loop {
        let new = claim.new_folio(space, Access::Replaced);
        let group = state.group_of(payer);
        let charged = group.and_then(|g| {
            state.engine.charge_if_room(g, 1 << new.order, new.task).map(|over| (g, over))
        });
        if let Some((group, over_high)) = charged {
            if over_high > 0 {
                pool.owe(payer, over_high);
            }
            if let Some((frame, _)) = pool.place(state, space, &new, group) {
                return Some((claim, frame));
            }
        }
        if claim.order == 0 {
            pool.abandon(space, &claim, &Ok(()));
            return None;
        }
        let page = claim.page;
        pool.shrink_claim(space, page, &mut claim);
    }
}
