//! Making a tenant.

use super::names;
use super::{Tenant, TenantError, TenantLimits};
use lowtide_core::{DirtyLimits, Size};
use std::sync::Arc;

/// Collects the settings of a new [`Tenant`]: by default neither limited nor protected.
///
/// Contradictory limits are accepted, as in the kernel: a `min` above `max` does not protect a
/// tenant from its own `max`.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `create`"]
pub struct TenantBuilder {
    parent: Tenant,
    name: String,
    limits: TenantLimits,
    dirty: Option<DirtyLimits>,
}

impl TenantBuilder {
    pub(super) fn new(parent: Tenant, name: &str) -> Self {
        Self { parent, name: name.to_owned(), limits: TenantLimits::default(), dirty: None }
    }

    /// Hard protection: never evicted for others while it uses no more.
    pub fn min(mut self, min: impl Into<Size>) -> Self {
        self.limits.min = min.into();
        self
    }

    /// Best-effort protection: evicted for others only if there is nothing else.
    pub fn low(mut self, low: impl Into<Size>) -> Self {
        self.limits.low = low.into();
        self
    }

    /// Above it, a thread that charges evicts pages of the tenant before it goes on.
    pub fn high(mut self, high: impl Into<Size>) -> Self {
        self.limits.high = high.into();
        self
    }

    /// Usage never exceeds it.
    pub fn max(mut self, max: impl Into<Size>) -> Self {
        self.limits.max = max.into();
        self
    }

    /// How much of its memory may be dirty; its dirty pages are then written back, and its writers
    /// slowed down, on their own. Default: the pager's shares
    /// ([`PagerBuilder::dirty_limits`](crate::PagerBuilder::dirty_limits)) of the tenant's memory.
    pub const fn dirty_limits(mut self, limits: DirtyLimits) -> Self {
        self.dirty = Some(limits);
        self
    }

    /// Makes the tenant. Its name is any text without `/` and NUL that no sibling has. It can be at
    /// most 64 levels below the root.
    ///
    /// Cost: O(1), and about a kilobyte of memory. Memory for pages is taken when pages come in.
    ///
    /// # Errors
    /// [`TenantError`] says what is wrong with the name, the parent or the limits.
    pub fn create(self) -> Result<Tenant, TenantError> {
        names::check(&self.name)?;
        if let Some(limits) = self.dirty {
            limits
                .check(self.parent.pool().page_bytes() as u64)
                .map_err(TenantError::from_dirty)?;
        }
        let (pool, above) = (self.parent.pool(), self.parent.id);
        let mut state = self.parent.lock()?;
        if let Some(id) = state.names.find(above, &self.name) {
            return Err(TenantError::Exists { path: state.names.path(&state.engine, id) });
        }
        let created = state.engine.create_group(above);
        let id = created.map_err(|e| TenantError::from_group(e, pool.page_shift, String::new))?;
        self.limits.apply(&mut state.engine, id, pool.page_shift);
        if let Some(limits) = self.dirty {
            state
                .engine
                .set_dirty_limits(id, limits)
                .expect("they were checked, and the group is new");
        }
        state.names.insert(id, above, Arc::from(self.name));
        drop(state);
        Ok(Tenant { pager: self.parent.pager.clone(), id })
    }
}
