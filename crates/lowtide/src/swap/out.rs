//! The part of a reclaim pass that compresses.
//!
//! A page is compressed; one that does not compress, or for which there is no room in memory, is
//! written to the swap file, if there is one. When memory is full the coldest pages in it go to the
//! file first (`spill.rs`), so that the file has what is not needed soon.
//!
//! The victims' translations are locked and no slot of a reader is on them, so their bytes stay as
//! they are while the pool's lock is given back. Pages behind a pointer are protected from stores
//! before: a thread that stores to one waits until it is gone, or stays. What could not be stored
//! is dirty as before, gives its slot up, and goes back among the young, as in a kernel whose swap
//! refuses a page (`docs/kernel/fault-and-writeback.md` C3, step 5).

use super::slot::{Refused, Slot, Store};
use super::spill::make_room;
use crate::anon::give_some_up;
use crate::map::Landing;
use crate::pool::{Pool, StateGuard};
use crate::space::Space;
use lowtide_core::{FolioId, Owner, Task, Unmapped, Victim, ZswapEvents};
use lowtide_pin::translation::Taken;
use lowtide_sys::tell;
use std::io;
use std::sync::Arc;

/// Pages of a batch that are refused before no more are tried.
const TRIES: u32 = 4;

/// A victim on its way to swap.
struct Leaving {
    /// Its place among the victims.
    at: usize,
    space: Arc<Space>,
    page: u64,
    frame: u32,
    /// Where it is in swap, if it was stored.
    slot: Option<Slot>,
    /// There is a place to note where it is in swap.
    expected: bool,
    /// It could not be written, or not even be protected or read.
    failed: bool,
}

impl Leaving {
    /// What it has. Of a page behind a pointer it is a copy, for which there is room: the page is
    /// resident until this thread says otherwise, and protected from stores.
    fn bytes<'a>(&self, pool: &'a Pool, room: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let Some(stored) = self.space.stored() else { return Ok(pool.bytes(self.frame)) };
        stored.read(self.page << pool.page_shift, room).inspect_err(|error| {
            tell!(error, %error, page = self.page, "a page of a heap cannot be read, and stays \
                in memory");
        })?;
        Ok(room)
    }

    fn owner(&self) -> Owner {
        Owner { space: self.space.id, page: self.page }
    }
}

/// Stores the victims that go to swap and that were unmapped. Gives the lock back meanwhile.
/// Returns whether there were some, and none of them could be stored.
pub(crate) fn swap_out<'a>(
    pool: &'a Pool,
    mut state: StateGuard<'a>,
    victims: &mut [Victim],
) -> (StateGuard<'a>, bool) {
    let mut leaving = Vec::new();
    let goes = |v: &Victim| v.to_swap && v.outcome == Unmapped::Done;
    for (at, victim) in victims.iter_mut().enumerate().filter(|(_, v)| goes(v)) {
        let id = victim.owner.space.0 as usize;
        let space = state.spaces[id].clone().expect("a folio's space is open");
        if !state.engine.start_writeback(victim.folio) {
            // It has come from the file and was not stored to: its slot has it as it is.
            let kept = !space.anon().slots.get(victim.owner.page).is_none();
            assert!(kept, "{:?} goes to swap, and there is nothing to write", victim.owner);
            space.anon().note_gone();
            continue;
        }
        victim.outcome = Unmapped::Writing;
        let (page, frame) = (victim.owner.page, victim.folio.0);
        let (slot, expected, failed) = (None, false, false);
        leaving.push(Leaving { at, space, page, frame, slot, expected, failed });
    }
    if leaving.is_empty() {
        return (state, false);
    }
    drop(state);
    protect(&mut leaving);
    expect(pool, &mut leaving);
    keep(pool, &mut leaving);
    let refused = write(pool, &mut leaving);
    let mut state = pool.lock();
    let nothing_stored = leaving.iter().all(|page| page.slot.is_none());
    if pool.is_poisoned() {
        return (state, nothing_stored);
    }
    let group = state.engine.group_of_space(leaving[0].space.id);
    if nothing_stored {
        state.swaps.note_refusal(group, leaving.len() as u64, refused);
    } else {
        state.swaps.note_stored(group);
    }
    for Leaving { at, space, page, frame, slot, expected, .. } in &leaving {
        let id = FolioId(*frame);
        state.engine.end_writeback(id, slot.is_some(), Task::DESCRIPTOR);
        match slot {
            Some(slot) => {
                space.anon().slots.set(*page, *slot);
                if !slot.is_in_file() {
                    let group = state.engine.group_of_space(space.id);
                    let stored = ZswapEvents::stored(1);
                    state.engine.count_zswap(group, &stored);
                }
            }
            None => {
                if *expected {
                    space.anon().slots.stays(*page);
                }
                state.engine.swap_fault(id, true, Task::DESCRIPTOR);
                victims[*at].outcome = Unmapped::Pinned;
                let entry = space.table.entry(*page);
                if entry.unlock(Taken::idle(*frame)) {
                    pool.waits.complete(entry, &Ok(()));
                }
            }
        }
    }
    (state, nothing_stored)
}

/// From here on the bytes of pages behind pointers stay as they are. Neighbours go together.
fn protect(leaving: &mut [Leaving]) {
    leaving.sort_unstable_by_key(|page| (page.space.id, page.page));
    let next = |a: &Leaving, b: &Leaving| a.space.id == b.space.id && a.page + 1 == b.page;
    for run in leaving.chunk_by_mut(next) {
        let pages = run[0].page..run[run.len() - 1].page + 1;
        let protected = run[0].space.stored().map(|stored| stored.protect(pages));
        if let Some(Err(error)) = protected {
            tell!(error, %error, "pages of a heap cannot be protected, and stay in memory");
            run.iter_mut().for_each(|page| page.failed = true);
        }
    }
}

/// Ensures that the slots of pages can be noted. A page stays if the tenant has no room for the
/// table in which its slot would be; room is made once.
fn expect(pool: &Pool, leaving: &mut [Leaving]) {
    let mut full = false;
    for page in leaving.iter_mut().filter(|page| !page.failed) {
        let anon = page.space.anon();
        let store = anon.store();
        page.expected = anon.expect_slot(page.page, &*store)
            || (!full && make_room(pool, &store) > 0 && anon.expect_slot(page.page, &*store));
        page.failed = !page.expected;
        full |= page.failed;
    }
}

/// Keeps in memory what there is room for. Where there is none, room is made once for each tenant:
/// compressed pages move together, and the coldest go to the file. If that does not help, a few
/// more are tried, which may be smaller, and then no more: compressing for nothing takes long.
fn keep(pool: &Pool, leaving: &mut [Leaving]) {
    let mut full: Option<(Arc<dyn Store>, u32)> = None;
    let mut room = Landing::take(pool.page_bytes());
    for page in leaving.iter_mut().filter(|page| !page.failed) {
        let store = page.space.anon().store();
        let tries = match &full {
            Some((other, tries)) if Arc::ptr_eq(other, &store) => *tries,
            _ => 0,
        };
        if tries == TRIES {
            continue;
        }
        let Ok(bytes) = page.bytes(pool, &mut room.as_mut_slice()[..pool.page_bytes()]) else {
            page.failed = true;
            continue;
        };
        let mut kept = store.keep(page.owner(), bytes);
        if kept == Err(Refused::Full) && tries == 0 && make_room(pool, &store) > 0 {
            kept = store.keep(page.owner(), bytes);
        }
        if kept == Err(Refused::Full) {
            full = Some((store, tries + 1));
        }
        page.slot = kept.ok();
    }
}

/// Writes what memory has refused to the file, neighbours together. A write is all or nothing: one
/// that fails is tried with half of the pages, so that the last slots are used, too. Returns why
/// swap has no room for some, or how its device fails: not what passes, as that a tenant has no
/// frame to note where a page is.
fn write(pool: &Pool, leaving: &mut [Leaving]) -> Option<io::Error> {
    let (mut most, mut refused) = (usize::MAX, None);
    while let Some(first) = leaving.iter().find(|page| page.slot.is_none() && !page.failed) {
        let store = first.space.anon().store();
        let goes = |page: &Leaving| {
            let same = || Arc::ptr_eq(&store, &page.space.anon().store());
            page.slot.is_none() && !page.failed && same()
        };
        let chosen: Vec<_> =
            (0..leaving.len()).filter(|&at| goes(&leaving[at])).take(most).collect();
        let mut room = Landing::take(chosen.len() * pool.page_bytes());
        let mut pieces = Vec::with_capacity(chosen.len());
        let mut unread = None;
        for (&at, room) in chosen.iter().zip(room.as_mut_slice().chunks_mut(pool.page_bytes())) {
            match leaving[at].bytes(pool, room) {
                Ok(bytes) => pieces.push((leaving[at].owner(), bytes)),
                Err(_) => unread = Some(at),
            }
        }
        if let Some(at) = unread {
            leaving[at].failed = true;
            continue;
        }
        match store.write(&pieces) {
            Ok(slots) => {
                for (at, slot) in chosen.into_iter().zip(slots) {
                    leaving[at].slot = Some(slot);
                }
            }
            Err(_) if store.is_file_full(chosen.len()) && give_some_up(pool) > 0 => {}
            Err(_) if chosen.len() > 1 && store.has_file() => most = chosen.len() / 2,
            Err(error) => {
                let all: Vec<_> = (0..leaving.len()).filter(|&at| goes(&leaving[at])).collect();
                for at in all {
                    leaving[at].failed = true;
                }
                (most, refused) = (usize::MAX, Some(error));
            }
        }
    }
    refused
}
