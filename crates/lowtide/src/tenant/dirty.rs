//! A tenant's dirty data: how much there may be, and how much there is.

use super::{Tenant, TenantError};
use crate::stat::dirty_stat;
use lowtide_core::DirtyLimits;
use lowtide_core::counters::DirtyStat;

impl Tenant {
    /// Limits its dirty data, and that of those below it, from now on. Nothing is written at once:
    /// its writers and the flusher use the new limits at their next check. For the root these are
    /// the limits of the whole pager, and the shares of tenants without limits of their own.
    ///
    /// # Errors
    /// [`TenantError::DirtyLimits`], [`TenantError::Gone`].
    pub fn set_dirty_limits(&self, limits: DirtyLimits) -> Result<(), TenantError> {
        let mut state = self.lock()?;
        state.engine.set_dirty_limits(self.id, limits).map_err(TenantError::from_dirty)
    }

    /// How much of it and those below it is dirty, how much may be, and how long its writers
    /// waited.
    /// Cost: O(tenants below).
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn dirty(&self) -> Result<DirtyStat, TenantError> {
        let state = self.lock()?;
        Ok(dirty_stat(&state.engine, self.id, self.pool().page_shift))
    }
}
