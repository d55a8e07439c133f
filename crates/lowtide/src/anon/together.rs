//! Pages of a heap that come in together: read-ahead behind a pointer.
//!
//! What is touched in order is brought in by the window (`readahead.rs` finds the order, and says
//! how much), and what is touched in blocks by the block (`around.rs`). So a fault, a request to
//! the device and a copy into the program's memory are of many pages.
//!
//! ```text
//!   window ─► chosen ─► busy ─► charged, frames ─► loaded ─► installed ─► leave swap ─► resident
//!               │                  └─ no room: given up       a run of pages each
//!               └─ by slot: as few requests as may be
//! ```
//!
//! **By address, and by slot.** A window is pages that follow each other in memory. Where they are
//! in the file decides what they cost: those whose slots lie together are one request. So the page
//! that a thread waits for comes with those of the window that are in its request, and with no
//! other; the rest is read when that thread goes on, in at most [`REQUESTS`].
//!
//! **Zeroes.** Pages that are nowhere come in with a window, too, up to [`ZEROES`] of them: memory
//! that is filled in order would take a fault for each page. They are charged as any other. They
//! come only where the [`FILLED`] pages before were all stored to: what a program leaves out stays
//! nowhere, and a child of `fork` has no copy of it.
//!
//! **Nothing is waited for** while pages are busy, but the device. There is room for a window, or
//! reclaim makes some at once, or the window is shorter. Pages are charged before they are read,
//! and come in among the youngest, as the page that was missed.

use super::keeps_slot;
use crate::ahead::readahead::note_ahead;
use crate::fault::nested::{Nested, is_nested};
use crate::fault::pieces::{Piece, Wanted, frames_for};
use crate::fault::{Access, Claim};
use crate::map::{Arrival, Landing};
use crate::pool::Pool;
use crate::space::Space;
use crate::swap::Slot;
use lowtide_core::{FolioId, Task, ZswapEvents};
use lowtide_pin::translation::{Entry, State as EntryState};
use lowtide_swap::spans;
use std::ops::Range;

/// Requests to the file for pages that no thread waits for.
const REQUESTS: usize = 8;
/// Pages of zeroes that come with a window, at most: 256 KiB.
pub(crate) const ZEROES: usize = 64;
/// Pages before a window that are all somewhere where it may have zeroes.
const FILLED: u64 = 8;

/// A page that may come in.
#[derive(Clone, Copy, Debug)]
struct Choice {
    page: u64,
    shadow: u32,
    slot: Slot,
}

/// A page that comes in.
struct Coming {
    piece: Piece,
    slot: Slot,
    /// It keeps its slot, so its first store has to be seen.
    keeps: bool,
}

/// Brings in absent pages of a heap, and with `wanted`, which is one of them and which a thread
/// waits for, those alone that cost no request beside its own. `zeroes` is how many of them may be
/// nowhere, and less those that were. Returns how many came.
pub(crate) fn bring_together(
    pool: &Pool,
    space: &Space,
    pages: Range<u64>,
    wanted: Option<u64>,
    zeroes: &mut usize,
) -> u64 {
    let pages = pages.start..pages.end.min(space.pages());
    if is_nested() || pages.is_empty() {
        return 0;
    }
    let mut chosen = absent(pool, space, pages, zeroes);
    match wanted {
        Some(wanted) => with_one(&mut chosen, wanted),
        None => within_requests(&mut chosen),
    }
    if chosen.is_empty() || wanted.is_some() && chosen.len() == 1 {
        return 0;
    }
    let _nested = Nested::begin();
    let mut coming = claim(pool, space, &chosen);
    let placed = place(pool, space, &mut coming);
    for Coming { piece, .. } in coming.drain(placed..) {
        pool.abandon(space, &piece.claim, &Ok(()));
    }
    if coming.is_empty() { 0 } else { load(pool, space, coming, wanted) }
}

/// The pages that are not in memory, and where in swap they are.
fn absent(pool: &Pool, space: &Space, pages: Range<u64>, zeroes: &mut usize) -> Vec<Choice> {
    let slots = space.anon().slots.run(pages.clone());
    let mut is_filled = None;
    let choice = |(page, slot): (u64, Slot)| {
        let EntryState::Absent { shadow } = space.table.get(page)?.load() else { return None };
        if shadow != 0 {
            return (!slot.is_none()).then_some(Choice { page, shadow, slot });
        }
        if !*is_filled.get_or_insert_with(|| is_filled_before(pool, space, pages.start)) {
            return None;
        }
        *zeroes = zeroes.checked_sub(1)?;
        Some(Choice { page, shadow, slot: Slot::NONE })
    };
    pages.clone().zip(slots).filter_map(choice).collect()
}

/// Whether pages that are nowhere may come, from `page` on: memory is filled there, and those that
/// no thread needs can leave again.
fn is_filled_before(pool: &Pool, space: &Space, page: u64) -> bool {
    let is_somewhere = |page| {
        let state = space.table.get(page).map(Entry::load);
        state.is_some_and(|state| state != EntryState::Absent { shadow: 0 })
    };
    page >= FILLED
        && (page - FILLED..page).all(is_somewhere)
        && pool.lock().engine.free_swap_pages() >= (16 * ZEROES) as u64
}

/// Leaves those that come with one page at no further cost to the thread that waits for it.
fn with_one(chosen: &mut Vec<Choice>, wanted: u64) {
    let Some(own) = chosen.iter().find(|choice| choice.page == wanted).copied() else {
        return chosen.clear();
    };
    match own.slot.in_file() {
        Some(slot) => {
            let mut slots = slots_of(chosen);
            slots.sort_unstable();
            let spans = spans(&slots);
            let span = spans.into_iter().find(|span| slots[span.clone()].contains(&slot));
            let of_span = span.map_or(&[][..], |span| &slots[span]);
            chosen.retain(|choice| choice.slot.in_file().is_some_and(|at| of_span.contains(&at)));
        }
        None => chosen.retain(|choice| choice.slot.in_file().is_none()),
    }
}

/// Leaves what a few requests bring: those of the first pages.
fn within_requests(chosen: &mut Vec<Choice>) {
    let mut slots = slots_of(chosen);
    slots.sort_unstable();
    let spans = spans(&slots);
    if spans.len() <= REQUESTS {
        return;
    }
    let span_of = |slot| {
        let at = slots.partition_point(|other| *other < slot);
        spans.partition_point(|span| span.end <= at)
    };
    let mut taken: Vec<usize> = Vec::with_capacity(REQUESTS);
    chosen.retain(|choice| {
        let Some(span) = choice.slot.in_file().map(span_of) else { return true };
        let known = taken.contains(&span);
        if !known && taken.len() < REQUESTS {
            taken.push(span);
        }
        known || taken.last() == Some(&span)
    });
}

fn slots_of(chosen: &[Choice]) -> Vec<lowtide_swap::Slot> {
    chosen.iter().filter_map(|choice| choice.slot.in_file()).collect()
}

/// Makes pages busy that are still where they were.
fn claim(pool: &Pool, space: &Space, chosen: &[Choice]) -> Vec<Coming> {
    let mut coming = Vec::with_capacity(chosen.len());
    for &Choice { page, shadow, slot } in chosen {
        if space.table.entry(page).try_begin_read(shadow).is_err() {
            continue;
        }
        let claim = Claim::of_one(page, shadow);
        if space.anon().slots.get(page) != slot {
            // It was in memory meanwhile, and has gone elsewhere, or nowhere.
            pool.abandon(space, &claim, &Ok(()));
            continue;
        }
        let wanted = Wanted { index: 0, page, count: 1 };
        let (frame, to, installed, stall) = (0, None, None, None);
        let piece = Piece { claim, wanted, joins: true, frame, to, installed, stall };
        coming.push(Coming { piece, slot, keeps: keeps_slot(space, page, Access::Mapped) });
    }
    coming
}

/// Takes frames for as many as there is room for, from the first on. Returns how many.
fn place(pool: &Pool, space: &Space, coming: &mut Vec<Coming>) -> usize {
    if coming.is_empty() {
        return 0;
    }
    let (mut pieces, rest): (Vec<_>, Vec<_>) =
        coming.drain(..).map(|Coming { piece, slot, keeps }| (piece, (slot, keeps))).unzip();
    let placed = frames_for(pool, space, &mut pieces, Access::Ahead, &mut Vec::new());
    let whole = pieces.into_iter().zip(rest);
    coming.extend(whole.map(|(piece, (slot, keeps))| Coming { piece, slot, keeps }));
    placed
}

/// Loads pages, whose frames are charged, and makes them resident. Returns how many.
fn load(pool: &Pool, space: &Space, mut coming: Vec<Coming>, wanted: Option<u64>) -> u64 {
    let page_bytes = pool.page_bytes();
    let mut landing = Landing::take(coming.len() * page_bytes);
    let bytes = &mut landing.as_mut_slice()[..coming.len() * page_bytes];
    let mut from_swap = Vec::with_capacity(coming.len());
    let mut arrived = vec![true; coming.len()];
    let mut places = Vec::with_capacity(coming.len());
    for (at, (to, Coming { slot, .. })) in
        bytes.chunks_exact_mut(page_bytes).zip(&coming).enumerate()
    {
        if slot.is_none() {
            to.fill(0);
        } else {
            places.push(at);
            from_swap.push((*slot, to));
        }
    }
    if !from_swap.is_empty() {
        let loaded = space.anon().store().load_many(&mut from_swap);
        for (at, loaded) in places.into_iter().zip(loaded) {
            // The thread that needs it reads it by itself, and has the error.
            arrived[at] = loaded.is_ok();
        }
    }
    let mapped = space.mapped.as_ref().expect("a heap has memory behind a pointer");
    let mut first = 0;
    while first < coming.len() {
        let (page, keeps) = (coming[first].piece.claim.page, coming[first].keeps);
        let follows = |at: &usize| {
            let next = &coming[*at];
            arrived[*at]
                && next.piece.claim.page == page + (*at - first) as u64
                && next.keeps == keeps
        };
        let count = (first..coming.len()).take_while(follows).count();
        if count > 0 {
            let run = &bytes[first * page_bytes..(first + count) * page_bytes];
            let how = Arrival::ahead(count);
            // Not where pages are lent: the thread that needs one of them looks again.
            let there = mapped.install_run(page, run, how, keeps) as usize;
            for Coming { piece, .. } in &mut coming[first..first + there] {
                piece.installed = Some(how);
            }
        }
        first += count.max(1);
    }
    publish(pool, space, coming, wanted)
}

/// Makes resident what is installed, and gives up the rest. Returns how many pages came.
fn publish(pool: &Pool, space: &Space, coming: Vec<Coming>, wanted: Option<u64>) -> u64 {
    let (page_bytes, anon) = (pool.page_bytes() as u64, space.anon());
    let (there, failed): (Vec<_>, Vec<_>) =
        coming.into_iter().partition(|coming| coming.piece.installed.is_some());
    for Coming { piece, .. } in failed {
        pool.stall_ends(piece.stall, 0);
        super::give_back(pool, space, piece.claim.page, piece.frame);
        pool.abandon(space, &piece.claim, &Ok(()));
    }
    for Coming { piece, .. } in &there {
        let says = piece.installed.map(|how| how.says(piece.claim.page));
        note_ahead(pool, piece.frame..piece.frame + 1, says);
    }
    let mut left = Vec::new();
    {
        let mut state = pool.lock();
        for Coming { piece, slot, keeps } in &there {
            let (page, is_new) = (piece.claim.page, slot.is_none());
            let mut kept = false;
            if !pool.is_poisoned() {
                let group = state.engine.group_of_space(space.id);
                if wanted == Some(page) {
                    state.engine.count_fault(group, !is_new);
                }
                if !is_new && !slot.is_in_file() {
                    let loaded = ZswapEvents::loaded(1);
                    state.engine.count_zswap(group, &loaded);
                }
                if !is_new {
                    let id = FolioId(piece.frame);
                    kept = !state.engine.swap_fault_from(id, false, !keeps, Task::FAULT);
                }
            }
            if kept {
                anon.note_kept();
            } else if !is_new {
                left.push(anon.slots.take(page));
            }
        }
    }
    let count = there.len() as u64;
    anon.ahead_taken(count);
    // All of them are there before a thread that waits for one looks what it can do with the rest.
    let mut waited_for = Vec::new();
    for Coming { piece, .. } in there {
        let entry = space.table.entry(piece.claim.page);
        if entry.finish_read(piece.frame, false) {
            waited_for.push(entry);
        }
        pool.stall_ends(piece.stall, page_bytes);
    }
    waited_for.into_iter().for_each(|entry| pool.waits.complete(entry, &Ok(())));
    if !left.is_empty() {
        anon.store().free_many(&left);
    }
    count
}
