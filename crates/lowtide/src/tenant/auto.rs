//! Limits that set themselves.

use super::limits::{AutoLimits, AutoStat, pages};
use super::{Tenant, TenantError};
use crate::pool::auto::Auto;
use crate::pool::setter::Setter;
use lowtide_core::MemcgId;

impl Tenant {
    /// Lets the limit set itself, from now on: the smallest with which threads wait no more than
    /// the target share of the time for pages that it has evicted. `high` moves between the bounds,
    /// and `max` becomes `most`. Below that no operation fails for want of memory. Memory that is
    /// given up goes back to the system.
    ///
    /// It begins with what the tenant uses, or `least`. Called again, it changes the bounds, and
    /// keeps what it has learned. `None` and [`set_high`](Tenant::set_high) end
    /// it; after `None` there is no `high`, and `max` stays. [`set_max`](Tenant::set_max) bounds it
    /// further. The root can have such a limit, too. `docs/auto.md` says how it decides, and what
    /// it does not do.
    ///
    /// Cost: four looks at the tenant a second, in a thread of the pager; for each page that comes
    /// back, a few nanoseconds.
    ///
    /// ```
    /// use lowtide::budget::AutoLimits;
    /// use lowtide::{Pager, Size};
    ///
    /// let pager = Pager::builder().max(Size::mib(64)).build()?;
    /// let index = pager.tenant("index").create()?;
    /// index.set_auto(AutoLimits::new(Size::mib(4), Size::mib(32)))?;
    /// assert_eq!(index.limits()?.high, Size::mib(4));
    /// println!("{:?}", index.auto()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TenantError::AutoLimits`], [`TenantError::NoBackground`], [`TenantError::NoThread`],
    /// [`TenantError::Gone`], and for the root [`TenantError::RootBudget`]: nothing has changed.
    pub fn set_auto(&self, limits: impl Into<Option<AutoLimits>>) -> Result<(), TenantError> {
        let Some(limits) = limits.into() else { return self.stop_auto() };
        let pool = self.pool();
        let least = pages(limits.least, pool.page_shift);
        let is_share = (1e-6..=1.0).contains(&limits.target);
        if !is_share || limits.most.is_max() || limits.least > limits.most || least == 0 {
            let AutoLimits { least, most, target } = limits;
            return Err(TenantError::AutoLimits { least, most, target: target.to_string() });
        }
        if !pool.background {
            return Err(TenantError::NoBackground);
        }
        self.pager.inner.threads.service(Setter::start)?;
        // `high` is what it holds; `max` only bounds it.
        let _settled = self.set_max(limits.most)?;
        let mut state = self.lock()?;
        let (usage, now) = (state.engine.usage(self.id), pool.now());
        let auto = match state.autos.remove(&self.id) {
            Some(mut auto) => {
                auto.set_limits(limits, pool.page_shift);
                auto
            }
            None => Auto::new(limits, usage, now, pool.page_shift),
        };
        state.engine.follow_waiting(self.id, true);
        state.engine.set_high(self.id, auto.limit());
        state.autos.insert(self.id, auto);
        pool.be_frugal(&mut state, least);
        Ok(())
    }

    fn stop_auto(&self) -> Result<(), TenantError> {
        let mut state = self.lock()?;
        if state.end_auto(self.id) {
            state.engine.set_high(self.id, u64::MAX);
        }
        Ok(())
    }

    /// The state of a limit that sets itself, with sums and means; `None` without one.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn auto(&self) -> Result<Option<AutoStat>, TenantError> {
        Ok(self.lock()?.autos.get(&self.id).map(|auto| auto.stat(self.pool().page_shift)))
    }
}

impl crate::pool::State {
    /// A tenant's limit does not set itself any more; whether it did.
    pub(super) fn end_auto(&mut self, id: MemcgId) -> bool {
        let ended = self.autos.remove(&id).is_some();
        if ended {
            self.engine.follow_waiting(id, false);
        }
        ended
    }
}
