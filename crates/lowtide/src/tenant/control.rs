//! Changes of a tenant that is in use: limits, reclaim on request, moving, renaming, removing.
//!
//! Setting a limit is immediate: every charge from then on sees it. What is above it is evicted by
//! the thread that set it, in bounded pieces between which others run, until usage has come down,
//! nothing can be evicted any more, another thread has changed the limit, or the pager's timeout
//! ends. Source: `docs/kernel/memcg.md` §4.3, 4.4, 9.

use super::limits::{Settled, pages};
use super::names;
use super::{Tenant, TenantError, TenantLimits};
use crate::events;
use crate::pool::reclaim::{PIECE, piece};
use crate::pool::{State, StateGuard};
use crate::swap::{is_over_share, push_out};
use lowtide_core::limits::{MAX_RECLAIM_RETRIES, SWAP_CLUSTER_MAX};
use lowtide_core::{Engine, GroupError, Limits, MemcgId, Reason, Size};
use lowtide_io::Deadline;
use std::sync::Arc;
use std::time::Duration;

/// Time between two attempts to remove a tenant.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// The limit that usage is to come down to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ceiling {
    Max,
    High,
}

impl Ceiling {
    fn of(self, limits: &Limits) -> u64 {
        match self {
            Self::Max => limits.max,
            Self::High => limits.high,
        }
    }
}

impl Tenant {
    /// Its settings, rounded down to whole pages.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn limits(&self) -> Result<TenantLimits, TenantError> {
        Ok(TenantLimits::from_pages(self.lock()?.engine.limits(self.id), self.pool().page_shift))
    }

    /// The pool's lock and the number of pages, for settings that the root does not have.
    fn below_root(&self, size: Size) -> Result<(StateGuard<'_>, u64), TenantError> {
        let state = self.lock()?;
        if self.id == MemcgId::ROOT {
            return Err(TenantError::Root);
        }
        Ok((state, pages(size, self.pool().page_shift)))
    }

    /// Reports a limit that has changed, without the lock meanwhile.
    fn changed<'a>(
        &'a self,
        state: StateGuard<'a>,
        limit: &str,
        before: u64,
        now: u64,
    ) -> StateGuard<'a> {
        if before == now || !events::limits_wanted() {
            return state;
        }
        let path = state.names.path(&state.engine, self.id);
        drop(state);
        events::limit_set(&path, limit, before, now, self.pool().page_shift);
        self.pool().lock()
    }

    /// Sets a limit that the root does not have, and above which nothing is to be done.
    fn set_limit(
        &self,
        name: &str,
        size: Size,
        of: fn(Limits) -> u64,
        set: fn(&mut Engine, MemcgId, u64),
    ) -> Result<(), TenantError> {
        let (mut state, pages) = self.below_root(size)?;
        let before = of(state.engine.limits(self.id));
        set(&mut state.engine, self.id, pages);
        drop(self.changed(state, name, before, pages));
        Ok(())
    }

    /// Sets hard protection.
    ///
    /// # Errors
    /// [`TenantError::Gone`], [`TenantError::Root`].
    pub fn set_min(&self, min: impl Into<Size>) -> Result<(), TenantError> {
        self.set_limit("min", min.into(), |limits| limits.min, Engine::set_min)
    }

    /// Sets best-effort protection.
    ///
    /// # Errors
    /// [`TenantError::Gone`], [`TenantError::Root`].
    pub fn set_low(&self, low: impl Into<Size>) -> Result<(), TenantError> {
        self.set_limit("low", low.into(), |limits| limits.low, Engine::set_low)
    }

    /// Sets how much may be in swap. Pages there already stay.
    ///
    /// # Errors
    /// [`TenantError::Gone`], [`TenantError::Root`].
    pub fn set_swap_max(&self, max: impl Into<Size>) -> Result<(), TenantError> {
        self.set_limit("swap_max", max.into(), |limits| limits.swap_max, Engine::set_swap_max)
    }

    /// Sets how much may be in swap before threads that bring pages in are slowed down, as above
    /// [`high`](Tenant::set_high). Nothing is pushed out of swap.
    ///
    /// # Errors
    /// [`TenantError::Gone`], [`TenantError::Root`].
    pub fn set_swap_high(&self, high: impl Into<Size>) -> Result<(), TenantError> {
        self.set_limit("swap_high", high.into(), |limits| limits.swap_high, Engine::set_swap_high)
    }

    /// Sets how willingly anonymous pages are evicted instead of pages of files: 0 (never) to 200,
    /// or 201 for nothing else. Larger numbers mean 201; 60 is the default. It makes no difference
    /// without [swap](crate::PagerBuilder::swap).
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn set_swappiness(&self, swappiness: u32) -> Result<(), TenantError> {
        self.lock()?.engine.set_swappiness(self.id, swappiness);
        Ok(())
    }

    /// Sets the level above which charges evict first, evicts what is above it now, and says
    /// whether usage has come down to it. A limit that [sets itself](Tenant::set_auto) ends with
    /// it.
    ///
    /// # Errors
    /// [`TenantError::Gone`], [`TenantError::Root`].
    pub fn set_high(&self, high: impl Into<Size>) -> Result<Settled, TenantError> {
        let (mut state, pages) = self.below_root(high.into())?;
        state.end_auto(self.id);
        let before = state.engine.limits(self.id).high;
        state.engine.set_high(self.id, pages);
        let state = self.changed(state, "high", before, pages);
        self.bring_down(state, Ceiling::High, pages)
    }

    /// Sets the budget, evicts what is above it, and says whether usage has come down to it. The
    /// coldest compressed pages are written to the swap file, if there is one.
    ///
    /// The budget of the root can be between 32 pages and what the pager was built with. Lowering
    /// it returns memory to the system, unless the pager was
    /// [populated](crate::PagerBuilder::populate).
    ///
    /// # Errors
    /// [`TenantError::Gone`]; [`TenantError::RootBudget`].
    pub fn set_max(&self, max: impl Into<Size>) -> Result<Settled, TenantError> {
        let pool = self.pool();
        let pages = pages(max.into(), pool.page_shift);
        let mut state = self.lock()?;
        let before = state.engine.max(self.id);
        let set = state.engine.set_max(self.id, pages);
        set.map_err(|e| TenantError::from_config(e, pool.page_shift, pool.budget_bytes()))?;
        let state = self.changed(state, "max", before, pages);
        let down = self.bring_down(state, Ceiling::Max, pages)?;
        if self.id == MemcgId::ROOT {
            drop(pool.trim(pool.lock()));
        }
        Ok(down)
    }

    fn bring_down<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        ceiling: Ceiling,
        pages: u64,
    ) -> Result<Settled, TenantError> {
        let pool = self.pool();
        let deadline = Deadline::after(pool.memory_timeout);
        let mut retries = MAX_RECLAIM_RETRIES;
        state.engine.drain_stocks_of(self.id);
        loop {
            if !state.engine.alive(self.id) {
                return Err(TenantError::Gone);
            }
            let usage = state.engine.usage(self.id);
            let replaced = ceiling.of(&state.engine.limits(self.id)) != pages;
            if usage <= pages || replaced {
                return Ok(if usage <= pages { Settled::Yes } else { Settled::Later });
            }
            // What is compressed is colder than what is in memory.
            let mut pushed = false;
            if is_over_share(&state, self.id, pages) {
                (state, pushed) = push_out(pool, state, self.id);
                // The lock was given back meanwhile.
                if !state.engine.alive(self.id) {
                    return Err(TenantError::Gone);
                }
            }
            let usage = state.engine.usage(self.id);
            let goal = usage.saturating_sub(pages).min(PIECE);
            let mut reclaimed = 0;
            if goal > 0 {
                (state, reclaimed) = piece(pool, state, self.id, goal, Reason::Direct);
            }
            if reclaimed == 0 && !pushed {
                (state, pushed) = push_out(pool, state, self.id);
            }
            if reclaimed == 0 && !pushed {
                if retries == 0 {
                    break;
                }
                retries -= 1;
                state = pool.await_room(state, self.id, MAX_RECLAIM_RETRIES - retries - 1);
            }
            if deadline.has_passed() {
                break;
            }
        }
        if ceiling == Ceiling::Max {
            state.engine.count_oom(self.id);
        }
        Ok(Settled::Later)
    }

    /// Evicts pages of the tenant and those below ahead of need: `memory.reclaim`. Returns the
    /// bytes that were freed: fewer than requested if nothing more could be found, or a few pages
    /// more. Pages that other threads bring in do not prolong the call: it ends when it has
    /// freed as much as was charged when it began.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn reclaim(&self, bytes: impl Into<Size>) -> Result<u64, TenantError> {
        let pool = self.pool();
        let mut state = self.lock()?;
        let wanted = pages(bytes.into(), pool.page_shift).min(state.engine.usage(self.id));
        let mut retries = MAX_RECLAIM_RETRIES;
        let mut done = 0;
        while done < wanted && state.engine.alive(self.id) {
            let goal = ((wanted - done) / 4).clamp(SWAP_CLUSTER_MAX, PIECE);
            let reclaimed;
            (state, reclaimed) = piece(pool, state, self.id, goal, Reason::Proactive);
            done += reclaimed;
            if reclaimed == 0 {
                if retries == 0 {
                    break;
                }
                retries -= 1;
                pool.publish_alone(&mut state);
            }
        }
        Ok(self.to_bytes(done))
    }

    /// Gives it another name.
    ///
    /// # Errors
    /// [`TenantError::InvalidName`], [`TenantError::Exists`], [`TenantError::Gone`],
    /// [`TenantError::Root`].
    pub fn rename(&self, name: &str) -> Result<(), TenantError> {
        names::check(name)?;
        let mut state = self.lock()?;
        let parent = state.engine.parent(self.id).ok_or(TenantError::Root)?;
        if let Some(other) = state.names.find(parent, name) {
            if other == self.id {
                return Ok(());
            }
            return Err(TenantError::Exists { path: state.names.path(&state.engine, other) });
        }
        state.names.remove(self.id, parent);
        state.names.insert(self.id, parent, Arc::from(name));
        Ok(())
    }

    /// Moves it, with everything below it, under another tenant of the same pager. Its usage is
    /// charged there from then on; pages that do not fit under the new ancestors are evicted first.
    ///
    /// # Errors
    /// [`TenantError::NoRoom`], [`TenantError::Cycle`], [`TenantError::TooDeep`],
    /// [`TenantError::Exists`], [`TenantError::OtherPager`], [`TenantError::Root`],
    /// [`TenantError::Gone`] for either.
    pub fn move_to(&self, parent: &Self) -> Result<(), TenantError> {
        if !Arc::ptr_eq(&self.pager.inner, &parent.pager.inner) {
            return Err(TenantError::OtherPager);
        }
        let pool = self.pool();
        let mut state = self.lock()?;
        let mut retries = MAX_RECLAIM_RETRIES;
        loop {
            if !state.engine.alive(self.id) || !state.engine.alive(parent.id) {
                return Err(TenantError::Gone);
            }
            let from = state.engine.parent(self.id).ok_or(TenantError::Root)?;
            let name = state.names.get(self.id).unwrap_or_default();
            if let Some(other) = state.names.find(parent.id, &name)
                && other != self.id
            {
                return Err(TenantError::Exists { path: state.names.path(&state.engine, other) });
            }
            match state.engine.move_group(self.id, parent.id) {
                Ok(()) => {
                    state.names.remove(self.id, from);
                    state.names.insert(self.id, parent.id, name);
                    return Ok(());
                }
                Err(GroupError::NoRoom { needed, margin }) if retries > 0 => {
                    let goal = (needed - margin).min(PIECE);
                    let reclaimed;
                    (state, reclaimed) = piece(pool, state, self.id, goal, Reason::Direct);
                    if reclaimed == 0 {
                        retries -= 1;
                        pool.publish_alone(&mut state);
                    }
                }
                Err(e) => return Err(TenantError::from_group(e, pool.page_shift, String::new)),
            }
        }
    }

    /// Removes it. Its pages, its reservations and the views that were opened in it belong to its
    /// parent from then on and go on as if nothing had happened. Cost: O(pages of the tenant).
    ///
    /// Waits for reclaim to release its pages, at most
    /// [`memory_timeout`](crate::PagerBuilder::memory_timeout).
    ///
    /// # Errors
    /// [`TenantError::HasChildren`], [`TenantError::Gone`], [`TenantError::Root`];
    /// [`TenantError::Busy`] when reclaim has pages of it for longer than that.
    pub fn remove(&self) -> Result<(), TenantError> {
        let pool = self.pool();
        let deadline = Deadline::after(pool.memory_timeout);
        let mut state = self.lock()?;
        loop {
            match self.try_remove(&mut state) {
                Err(TenantError::Busy) if !deadline.has_passed() => {
                    state = state.wait(|guard| pool.freed.wait(guard, BUSY_PAUSE));
                    pool.check().map_err(|_| TenantError::Poisoned)?;
                }
                removed => return removed,
            }
        }
    }

    fn try_remove(&self, state: &mut State) -> Result<(), TenantError> {
        let parent = state.engine.parent(self.id).ok_or(TenantError::Root)?;
        let State { engine, names, reservations, swaps, zcaches, autos, reuse, by_benefit, .. } =
            state;
        engine.remove_group(self.id).map_err(|e| {
            TenantError::from_group(e, self.pool().page_shift, || names.path(engine, self.id))
        })?;
        names.remove(self.id, parent);
        reservations.inherit(self.id, parent);
        swaps.inherit(self.id, parent);
        zcaches.inherit(self.id, parent);
        reuse.forget_group(self.id);
        by_benefit.remove(&self.id);
        autos.remove(&self.id);
        Ok(())
    }
}
