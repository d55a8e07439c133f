//! Taking frames for a folio: charging, making room, finding frames, placing the folio in them.
//!
//! ```text
//!   charge (charge.rs) ──► take_frames ──► place_in: the engine knows the folio
//!     └─ full                └─ no frame, or no memory behind it: the charge is given back
//! ```

use super::account::Stall;
use super::oom::out_of_budget;
use super::payer::{Effort, Full, Payer};
use super::sample::Placed;
use super::{Pool, State};
use crate::error::Error;
use crate::events;
use crate::space::Space;
use lowtide_core::{FolioId, LruType, MemcgId, Owner, Task};
use lowtide_pin::translation::State as EntryState;
use std::sync::Arc;

/// The result of an allocation.
#[derive(Debug)]
pub(crate) enum Allocated {
    /// The first frame, and the stall that begins, if the page had been evicted for a limit.
    Frame(u32, Option<Stall>),
    /// There is no room for a folio that large: a smaller one may fit.
    TooLarge,
    /// The file has been closed.
    Closed,
    /// The page is about to be cut off.
    Cut,
    /// There is no room, and this thread must not wait for others to make some.
    Nested,
    /// [`Error::OutOfBudget`].
    Failed(Error),
}

/// A frame that was taken and charged, but belongs to no folio yet, or to one whose page is being
/// read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFolio {
    pub(crate) owner: Owner,
    pub(crate) order: u8,
    pub(crate) shadow: u32,
    pub(crate) task: Task,
    /// All of it is about to be stored to: it is dirty from the start, and no thread waits for its
    /// contents.
    pub(crate) replaced: bool,
    /// It is accessed now, and not only read ahead.
    pub(crate) touched: bool,
    /// It comes back from swap although no thread needs it now: room for it is not waited for.
    pub(crate) spare: bool,
}

impl Pool {
    /// Takes frames for a folio, charged and known to the engine. Its translation must be busy
    /// until the contents are there.
    ///
    /// Reclaims when a group is full, and waits for frames when there is nothing to reclaim, but
    /// not longer than the pool's timeout; for a large folio not at all.
    pub(crate) fn allocate(&self, space: &Space, new: &NewFolio) -> Allocated {
        let pages = 1 << new.order;
        let payer = Payer::Space(space.id);
        let mut state = self.lock();
        // One that comes back from swap may have a frame of the reserve, and need not wait.
        let from_swap = space.anon.is_some() && new.shadow != 0;
        let mut may_borrow =
            from_swap && state.group_of(payer).is_some_and(|group| state.swaps.can_borrow(group));
        let may_wait = new.order == 0 && !new.spare;
        let group = loop {
            let effort = if may_wait && !may_borrow { Effort::Wait } else { Effort::Reclaim };
            let charged;
            (state, charged) = self.charge(state, payer, pages, new.task, effort);
            match charged {
                Ok(group) => break group,
                Err(_) if self.is_poisoned() => return Allocated::Failed(Error::Poisoned),
                Err(_) if !may_wait => return Allocated::TooLarge,
                // What it takes in swap is free soon.
                Err(full) if from_swap && let Some(frame) = state.swaps.borrow(full.payer) => {
                    if space.mapped.is_some() {
                        // Its page has memory elsewhere.
                        self.unback(&mut state, frame);
                    }
                    let stall = self.place_in(&mut state, new, full.payer, frame);
                    return Allocated::Frame(frame, stall);
                }
                // Other threads have the reserve by now.
                Err(_) if may_borrow => may_borrow = false,
                Err(Full { nested: true, .. }) => return Allocated::Nested,
                Err(full) => {
                    let error = out_of_budget(&mut state, full, pages, self.page_shift);
                    drop(state);
                    events::gave_up(&error);
                    return Allocated::Failed(error);
                }
            }
        };
        match self.place(&mut state, space, new, group) {
            Some((frame, stall)) => Allocated::Frame(frame, stall),
            None if space.is_closed() => Allocated::Closed,
            None if new.order == 0
                && let Some(refused) = state.resident.refused.take() =>
            {
                Allocated::Failed(Error::NoMemory { source: Arc::new(refused) })
            }
            None if space.is_cut(new.owner.page) => Allocated::Cut,
            None => Allocated::TooLarge,
        }
    }

    /// Takes frames for a folio that has just been charged to `group`, and inserts it into the
    /// engine. If the space is being closed, or there is no contiguous room, the charge is given
    /// back.
    pub(crate) fn place(
        &self,
        state: &mut State,
        space: &Space,
        new: &NewFolio,
        group: MemcgId,
    ) -> Option<(u32, Option<Stall>)> {
        let gone = space.is_closed() || space.is_cut(new.owner.page);
        let frame = if gone { None } else { self.take_frames(state, space, new.order) };
        let Some(frame) = frame else {
            state.engine.uncharge(group, 1 << new.order);
            return None;
        };
        Some((frame, self.place_in(state, new, group, frame)))
    }

    /// Inserts a folio into the engine, in frames that were taken and charged to `group`. Returns
    /// the stall that begins.
    pub(crate) fn place_in(
        &self,
        state: &mut State,
        new: &NewFolio,
        group: MemcgId,
        frame: u32,
    ) -> Option<Stall> {
        assert!(
            frame.is_multiple_of(1 << new.order),
            "a folio of order {} at frame {frame}",
            new.order
        );
        state.zcaches.placed(frame, new.touched && new.shadow != 0);
        for frame in frame..frame + (1 << new.order) {
            // A page that was dropped before it was used may have left it.
            self.unused.take(frame);
        }
        let anon =
            state.spaces[new.owner.space.0 as usize].as_ref().is_some_and(|s| s.anon.is_some());
        let major = !new.replaced && (!anon || new.shadow != 0);
        if !new.spare {
            state.engine.count_fault(group, major);
        }
        let (id, payer) = (FolioId(frame), Payer::Space(new.owner.space));
        let shadow = lowtide_core::Shadow::from_bits(new.shadow);
        let space =
            state.spaces[new.owner.space.0 as usize].as_ref().expect("pages come into open spaces");
        space.table.note_used(new.owner.page, new.order);
        let kind = space.kind();
        let claimed = space.table.entry(new.owner.page).load();
        assert!(
            claimed == EntryState::Busy,
            "{:?} gets a frame while it is {claimed:?}",
            new.owner
        );
        let placed = Placed {
            space: new.owner.space,
            page: new.owner.page >> kind.order << kind.order,
            kind,
            payer: group,
            frame,
            order: new.order,
            touched: new.touched,
            missed: major,
        };
        if self.sample_marks.place(&state.reuse, &placed) {
            let State { reuse, engine, .. } = &mut *state;
            placed.note(reuse, self.now(), |id| engine.parent(id));
        }
        let engine = &mut state.engine;
        let refaulted = self.miss_clock.engine(|| match (anon, shadow) {
            (true, Some(_)) if new.replaced => {
                // What swap has of it is not read any more.
                engine.free_swap(group, 1);
                engine.insert(id, new.owner, new.order, LruType::Anon, group, None, new.task)
            }
            (true, Some(_)) => engine.swap_in(id, new.owner, new.order, group, shadow, new.task),
            (true, None) => {
                // Its contents are nowhere else.
                engine.insert(id, new.owner, new.order, LruType::Anon, group, None, new.task);
                engine.set_dirty(id);
                None
            }
            (false, _) => {
                engine.insert(id, new.owner, new.order, LruType::File, group, shadow, new.task)
            }
        });
        let stall = if new.replaced {
            state.engine.set_dirty(id);
            self.refault_without_wait(state, group, refaulted);
            None
        } else {
            self.stall_begins(state, payer, group, refaulted)
        };
        if state.engine.margin(MemcgId::ROOT) < self.watermarks(state).low {
            self.kswapd.wake_all_once(&*state);
        }
        stall
    }

    /// Gives back the frames of a folio that was allocated and not filled.
    pub(crate) fn give_back(&self, frame: u32, order: u8) {
        let mut state = self.lock();
        if self.is_poisoned() {
            return;
        }
        state.free_folio(FolioId(frame), order);
        drop(state);
        self.freed.wake_all();
    }
}
