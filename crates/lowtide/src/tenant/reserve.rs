//! Reservations: memory that the program allocates itself, paid from the same budget as its pages.
//!
//! A reservation is charged in small pieces through the charge path that pages take, so it makes
//! room by evicting pages of the tenant, and it never pushes a group above its limit. No frames are
//! taken: those that the budget no longer allows stay free. Once the tenant is removed, its parent
//! pays.

use super::reservations::Place;
use super::{Tenant, TenantError};
use crate::error::Error;
use crate::events;
use crate::pager::Pager;
use crate::pool::oom::out_of_budget;
use crate::pool::payer::{Effort, Full, Payer};
use lowtide_core::{MemcgId, Size, Task};
use std::fmt;

/// Pages charged at a time: few enough that any progress of reclaim is worth another try.
const PIECE: u64 = 8;

/// Memory of the program's own that is charged to a tenant, until this is dropped. Made by
/// [`Tenant::reserve`].
#[must_use = "the memory is charged only as long as the reservation lives"]
pub struct Reservation {
    pager: Pager,
    index: usize,
    bytes: u64,
}

impl Tenant {
    /// Charges memory that the program allocates itself, rounded up to whole pages, so that heap
    /// and pages share one budget. Pages of the tenant are evicted to make room.
    ///
    /// What is shared is the budget: usage of pages and of the program's own memory together stays
    /// below the limits. Frames that may not be used while something is reserved give their memory
    /// back to the system within seconds, unless the pager was
    /// [populated](crate::PagerBuilder::populate).
    ///
    /// ```
    /// # use lowtide::{Pager, Size};
    /// # let pager = Pager::builder().max(Size::mib(8)).build()?;
    /// let tenant = pager.tenant("query").max(Size::mib(1)).create()?;
    /// let reserved = tenant.reserve(Size::kib(256))?;
    /// let buffer = vec![0_u8; 256 << 10];
    /// assert!(tenant.usage()? >= 256 << 10);
    /// drop((buffer, reserved));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBudget`] when there is no room and none can be made; nothing is charged.
    /// [`Error::Tenant`] when the tenant is gone.
    pub fn reserve(&self, bytes: impl Into<Size>) -> Result<Reservation, Error> {
        let mut state = self.pool().lock();
        self.pool().check()?;
        if !state.engine.alive(self.id) {
            return Err(TenantError::Gone.into());
        }
        let index = state.reservations.begin(self.id);
        drop(state);
        let mut reservation = Reservation { pager: self.pager.clone(), index, bytes: 0 };
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Reservation {
    /// Bytes reserved.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves more.
    ///
    /// # Errors
    /// [`Error::OutOfBudget`]; the reservation is unchanged.
    pub fn grow(&mut self, more: impl Into<Size>) -> Result<(), Error> {
        let pool = &self.pager.inner.pool;
        let total = self.bytes.saturating_add(more.into().bytes());
        let needed = total.div_ceil(pool.page_bytes() as u64);
        let payer = Payer::Reservation(self.index);
        let mut state = pool.lock_sound()?;
        let had = state.reservations.place(self.index).pages;
        let group = state.reservations.place(self.index).group;
        // What cannot fit even into an empty budget evicts nothing.
        let mut levels = std::iter::successors(Some(group), |&at| state.engine.parent(at));
        if let Some(over) = levels.find(|&at| needed > state.engine.max(at)) {
            let full = Full { over, payer: group, nested: false };
            let error = out_of_budget(&mut state, full, needed - had, pool.page_shift);
            drop(state);
            events::gave_up(&error);
            return Err(error);
        }
        let mut pages = had;
        while pages < needed {
            let piece = (needed - pages).min(PIECE);
            let charged;
            (state, charged) = pool.charge(state, payer, piece, Task::DESCRIPTOR, Effort::Wait);
            match charged {
                Ok(group) => state.engine.reserve(group, piece),
                Err(full) => {
                    let error = out_of_budget(&mut state, full, needed - pages, pool.page_shift);
                    give_back(&mut state, self.index, pages - had);
                    drop(state);
                    pool.freed.wake_all();
                    events::gave_up(&error);
                    return Err(error);
                }
            }
            pages += piece;
            state.reservations.set_pages(self.index, pages);
        }
        self.bytes = total;
        if state.engine.margin(MemcgId::ROOT) < pool.watermarks(&state).low {
            pool.kswapd.wake_all();
        }
        drop(state);
        if pool.owes() { pool.settle_high() } else { Ok(()) }
    }

    /// Gives a part back; all of it, if `less` is more than there is.
    pub fn shrink(&mut self, less: impl Into<Size>) {
        let pool = &self.pager.inner.pool;
        self.bytes = self.bytes.saturating_sub(less.into().bytes());
        let keep = self.bytes.div_ceil(pool.page_bytes() as u64);
        let Ok(mut state) = pool.lock_sound() else { return };
        let pages = state.reservations.place(self.index).pages;
        give_back(&mut state, self.index, pages.saturating_sub(keep));
        drop(state);
        pool.freed.wake_all();
    }
}

fn give_back(state: &mut crate::pool::State, index: usize, pages: u64) {
    let &mut Place { group, pages: had } = state.reservations.place(index);
    assert!(pages <= had, "{pages} pages of a reservation of {had} are given back");
    state.reservations.set_pages(index, had - pages);
    state.engine.release_reserved(group, pages);
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(Size::MAX);
        let pool = &self.pager.inner.pool;
        if let Ok(mut state) = pool.lock_sound() {
            state.reservations.end(self.index);
        }
    }
}
