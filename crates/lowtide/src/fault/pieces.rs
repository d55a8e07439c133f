//! The folios of one call's reads, and the frames that they get.
//!
//! A *piece* is a claim that is read together with others. Frames of several are taken under one
//! acquisition of the pool's lock, in ascending order, so that neighbours in the file are often
//! neighbours in memory.

use super::{Access, Claim, Destination};
use crate::ahead::readahead::free_pages;
use crate::map::Arrival;
use crate::pool::account::Stall;
use crate::pool::payer::{Effort, Payer};
use crate::pool::{Pool, State};
use crate::space::Space;
use lowtide_core::MemcgId;

/// Pages read ahead are evicted for together up to this part of their tenant's pages of files, or
/// of those without one.
const TOGETHER_PART: u64 = 64;

/// Pages that the caller wants: `count` neighbours, with as many neighbouring positions in its
/// list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) index: usize,
    pub(crate) page: u64,
    pub(crate) count: u32,
}

impl Wanted {
    pub(crate) fn pages(self) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        (0..self.count).map(move |k| (self.index + k as usize, self.page + u64::from(k)))
    }
}

/// One folio of a run.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) claim: Claim,
    pub(crate) wanted: Wanted,
    /// It is read together with the piece before it.
    pub(crate) joins: bool,
    /// Given by [`frames_for`].
    pub(crate) frame: u32,
    /// Given when it is requested.
    pub(crate) to: Option<Destination>,
    /// Its bytes are where a pointer finds them already, and how they came there.
    pub(crate) installed: Option<Arrival>,
    pub(crate) stall: Option<Stall>,
}

/// Takes frames for pieces, without waiting, for as many from the first on as there is room for.
/// Returns their number.
///
/// A large folio for which there is no contiguous room becomes a single page, alone in its run;
/// further pages that were wanted of it go to `refused`.
pub(crate) fn frames_for(
    pool: &Pool,
    space: &Space,
    mut run: &mut [Piece],
    access: Access,
    refused: &mut Vec<(usize, u64)>,
) -> usize {
    let mut state = pool.lock();
    let mut placed = 0;
    while placed < run.len() {
        let pieces = &mut run[placed..];
        let (payer, task) = (Payer::Space(space.id), access.task());
        let mut singles = singles_ahead(&state, space, pieces, access);
        let mut result;
        if singles > 0 {
            let pages = 1 + singles as u64;
            (state, result) = pool.charge(state, payer, pages, task, Effort::ReclaimOnce);
        } else {
            let pages = pieces[0].claim.pages();
            (state, result) = pool.charge(state, payer, pages, task, Effort::Reclaim);
        }
        if result.is_err() && singles > 0 {
            singles = 0;
            (state, result) = pool.charge(state, payer, 1, task, Effort::Reclaim);
        }
        let got = match result {
            Ok(group) => place_pieces(pool, &mut state, space, pieces, access, (group, singles)),
            Err(_) => 0,
        };
        placed += got;
        if got > 0 {
            continue;
        }
        if placed > 0
            || run[0].claim.order == 0
            || space.is_closed()
            || space.is_cut(run[0].claim.page)
        {
            break;
        }
        let piece = &mut run[0];
        pool.shrink_claim(space, piece.wanted.page, &mut piece.claim);
        refused.extend(piece.wanted.pages().skip(1));
        piece.wanted.count = 1;
        // What follows is not its neighbour any more.
        run = &mut run[..1];
    }
    placed
}

/// Pieces behind the first that are charged together with it. Reclaim for the whole of a run that
/// is read ahead keeps the run in one: else it would be cut where its first pages have used up what
/// one step of reclaim gave. Where there is no room, only a [`TOGETHER_PART`] of what may have to
/// go for them: of a small budget a large part would go.
fn singles_ahead(state: &State, space: &Space, pieces: &[Piece], access: Access) -> usize {
    if access != Access::Ahead || pieces[0].claim.order > 0 {
        return 0;
    }
    let Some(group) = state.group_of(Payer::Space(space.id)) else { return 0 };
    let free = free_pages(state, group);
    let stat = state.engine.stat(group);
    let others = if space.anon.is_some() { stat.anon } else { stat.file };
    let most = free.max(others / TOGETHER_PART).saturating_sub(1);
    pieces[1..].iter().take_while(|piece| piece.claim.order == 0).take(most as usize).count()
}

/// Places the first piece and the `charged` single pages behind it, which are charged, and if it is
/// a single page those behind them that have room as things are. Returns how many. If it is none,
/// the charge was given back. While room was made the lock was free: a file that was closed
/// meanwhile gets no page, and one that is about to be cut none behind its new end.
fn place_pieces(
    pool: &Pool,
    state: &mut State,
    space: &Space,
    pieces: &mut [Piece],
    access: Access,
    (group, charged): (MemcgId, usize),
) -> usize {
    let stays = |piece: &Piece| !space.is_closed() && !space.is_cut(piece.claim.page);
    let single = |piece: &Piece| piece.claim.order == 0 && stays(piece);
    let mut singles = pieces[..1 + charged].iter().take_while(|piece| single(piece)).count();
    // What is charged for the first piece is given back, if need be, where it is placed.
    state.engine.uncharge(group, (1 + charged - singles.max(1)) as u64);
    while singles > 0
        && pieces.get(singles).is_some_and(single)
        && let Some(over_high) = state.engine.charge_if_room(group, 1, access.task())
    {
        if over_high > 0 {
            pool.owe(Payer::Space(space.id), over_high);
        }
        singles += 1;
    }
    if singles <= 1 {
        let new = pieces[0].claim.new_folio(space, access);
        let Some((frame, stall)) = pool.place(state, space, &new, group) else { return 0 };
        (pieces[0].frame, pieces[0].stall) = (frame, stall);
        return 1;
    }
    // The lowest frame for the first page: what was evicted together is often contiguous.
    let mut frames: Vec<u32> =
        (0..singles).map_while(|_| pool.take_frames(state, space, 0)).collect();
    frames.sort_unstable();
    if frames.len() < singles {
        state.engine.uncharge(group, (singles - frames.len()) as u64);
    }
    for (piece, &frame) in pieces.iter_mut().zip(&frames) {
        piece.frame = frame;
        piece.stall = pool.place_in(state, &piece.claim.new_folio(space, access), group, frame);
    }
    frames.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Miss;
    use crate::{OpenOptions, Pager, Size, View};
    use std::sync::Arc;

    /// Pages of a run that was charged as a whole, of which some are placed after `meanwhile`.
    fn placed_after(meanwhile: impl FnOnce(&Space, View) -> Option<View>) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let pager = Pager::builder().max(Size::mib(1)).background(false).build().unwrap();
        let path = dir.path().join("file");
        let view = OpenOptions::new().create_with_len(64 * 4096).open(&pager, path).unwrap();
        let pool = &pager.inner.pool;
        let space: Arc<Space> = pool.lock().spaces.iter().flatten().next().unwrap().clone();
        let claimed = |page| match pool.claim(&space, page, space.table.entry(page)) {
            Miss::Claimed(claim) => claim,
            _ => panic!("page {page} is there"),
        };
        let piece = |page| Piece {
            claim: claimed(page),
            wanted: Wanted { index: 0, page, count: 1 },
            joins: page > 0,
            frame: 0,
            to: None,
            installed: None,
            stall: None,
        };
        let mut run: Vec<_> = (0..4).map(piece).collect();
        let singles = singles_ahead(&pool.lock(), &space, &run, Access::Ahead);
        let (pages, payer, task) = (run.len() as u64, Payer::Space(space.id), Access::Ahead.task());
        let (state, charged) = pool.charge(pool.lock(), payer, pages, task, Effort::ReclaimOnce);
        let charged = (charged.unwrap(), singles);
        drop(state);
        let view = meanwhile(&space, view);
        let mut state = pool.lock();
        let placed = place_pieces(pool, &mut state, &space, &mut run, Access::Ahead, charged);
        let resident = state.engine.stat(MemcgId::ROOT).file;
        assert_eq!(resident, placed as u64, "pages that the engine has");
        drop(state);
        assert_eq!(pager.root().usage().unwrap(), placed as u64 * 4096, "the rest is given back");
        run[..placed].iter().for_each(|piece| pool.give_back(piece.frame, 0));
        run.iter().for_each(|piece| pool.abandon(&space, &piece.claim, &Ok(())));
        if space.is_cut(u64::MAX - 1) {
            space.cut_from(u64::MAX);
        }
        drop(view);
        placed
    }

    #[test]
    fn a_run_gets_no_page_of_a_file_that_was_closed_or_cut_while_room_was_made() {
        let cut = |from: u64| {
            placed_after(|space, view| {
                space.cut_from(from);
                Some(view)
            })
        };
        assert_eq!([4, 3, 1, 0].map(cut), [4, 3, 1, 0]);
        let closed = placed_after(|_, view| {
            drop(view);
            None
        });
        assert_eq!(closed, 0);
    }
}
