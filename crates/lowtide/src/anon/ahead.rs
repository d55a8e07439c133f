//! Pages that come back from the swap file together with one that is needed.
//!
//! Pages that were evicted together are neighbours in the file, and are often needed together. The
//! window around the needed page is as large as the last ones were useful
//! ([`ReadAhead`](lowtide_swap::ReadAhead)): a hit is the first touch of a page that came early.
//!
//! A neighbour is made busy before it is read, as a fault makes it, so no other thread loads, drops
//! or moves it meanwhile. This thread owns several busy pages then: it takes frames for them only
//! where there is room, or where reclaim makes some at once, and waits for nothing but the device.
//!
//! As every page that comes back, a neighbour keeps its slot while there is room (`kept.rs`), so
//! one that is evicted again before a touch needs no write. A wrong guess costs the frame and the
//! copy, and the window shrinks to the needed page alone where guesses are wrong.

use super::fill::{give_back, leave_swap};
use super::keeps_slot;
use crate::ahead::marks::Ahead;
use crate::ahead::readahead::{budget_of, note_ahead};
use crate::fault::nested::is_nested;
use crate::fault::{Access, Claim};
use crate::pool::Pool;
use crate::pool::account::Stall;
use crate::pool::allocate::Allocated;
use crate::space::Space;
use crate::swap::{Around, Slot};
use lowtide_core::Owner;
use lowtide_pin::translation::State as EntryState;

/// The part of the smallest budget that the neighbours of one fault may take.
const BUDGET_PART: u64 = 64;

/// A neighbour that this thread has made busy.
struct Neighbour {
    claim: Claim,
    frame: u32,
    stall: Option<Stall>,
    arrived: bool,
}

/// The neighbours of one fault. To be [published](Neighbours::publish) when the read has ended.
pub(super) struct Neighbours<'a> {
    pool: &'a Pool,
    space: &'a Space,
    busy: Vec<Neighbour>,
    /// How many there may be, once that is known.
    most: Option<u64>,
}

impl<'a> Neighbours<'a> {
    pub(super) const fn new(pool: &'a Pool, space: &'a Space) -> Self {
        Self { pool, space, busy: Vec::new(), most: None }
    }

    /// Makes the pages that have arrived resident, and gives up the others.
    pub(super) fn publish(self) {
        let (pool, space) = (self.pool, self.space);
        let mut taken = 0;
        for Neighbour { claim, frame, stall, arrived } in self.busy {
            let page = claim.page;
            pool.stall_ends(stall, 0);
            if !arrived {
                give_back(pool, space, page, frame);
                pool.abandon(space, &claim, &Ok(()));
                continue;
            }
            let keeps = keeps_slot(space, page, Access::Ahead);
            leave_swap(pool, space, (page, frame), keeps);
            note_ahead(pool, frame..frame + 1, Some(Ahead::Seen));
            let entry = space.table.entry(page);
            if entry.finish_read(frame, false) {
                pool.waits.complete(entry, &Ok(()));
            }
            taken += 1;
        }
        if taken > 0 {
            space.anon().store().count_ahead(taken, 0, 0);
        }
    }

    /// A frame for a page that is busy, if there is room.
    fn frame(&self, claim: &Claim) -> Option<(u32, Option<Stall>)> {
        match self.pool.allocate(self.space, &claim.new_folio(self.space, Access::Ahead)) {
            Allocated::Frame(frame, stall) => Some((frame, stall)),
            _ => None,
        }
    }
}

impl Around for Neighbours<'_> {
    fn wants(&mut self, owner: Owner, slot: Slot) -> bool {
        let (pool, space, page) = (self.pool, self.space, owner.page);
        if owner.space != space.id || is_nested() {
            return false;
        }
        let most = *self.most.get_or_insert_with(|| budget_of(pool, space) / BUDGET_PART);
        if self.busy.len() as u64 >= most {
            return false;
        }
        let Some(entry) = space.table.get(page) else { return false };
        let EntryState::Absent { shadow } = entry.load() else { return false };
        if shadow == 0 || entry.try_begin_read(shadow).is_err() {
            return false;
        }
        let claim = Claim::of_one(page, shadow);
        // It may have come in and gone to another slot meanwhile.
        if space.anon().slots.get(page) == slot {
            if let Some((frame, stall)) = self.frame(&claim) {
                self.busy.push(Neighbour { claim, frame, stall, arrived: false });
                return true;
            }
            // Where there is no room for one, there is none for others.
            self.most = Some(0);
        }
        pool.abandon(space, &claim, &Ok(()));
        false
    }

    fn arrived(&mut self, owner: Owner, bytes: &[u8]) {
        let found = self.busy.iter_mut().find(|neighbour| neighbour.claim.page == owner.page);
        let Some(neighbour) = found else { return };
        // SAFETY: the frame is this thread's until it is published: it is charged, no translation
        // leads to it, and both have the bytes of a page.
        #[expect(unsafe_code, reason = "frames are raw memory until they are published")]
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.pool.frame_ptr(neighbour.frame),
                bytes.len(),
            );
        }
        neighbour.arrived = true;
    }
}
