//! What happens above a limit: the policy that decides how long threads sleep, programs that decide
//! instead; curves, advice, and budgets that are divided by them.
//!
//! A program is whatever implements [`LimitHooks`]: Rust, or an eBPF object (`lowtide-bpf`). Its
//! answers are clamped: it can make threads wait, up to 2 s at a time, and choose which tenants are
//! spared first. It cannot make a charge fail. Reclaim that a program wants in advance is done
//! every two seconds. Source: `docs/kernel/memcg.md` §7, 8, 15.

use super::{Share, Tenant, TenantError};
use crate::budget::{Advice, Curve};
use crate::pool::divide::divide_one;
use crate::pool::{StateGuard, looks};
use lowtide_core::MemcgId;
use lowtide_core::high::handler::HighPolicy;
use lowtide_core::hooks::LimitHooks;
use lowtide_core::psi::Pressure;

impl Tenant {
    /// Sets what threads pay for being over a limit of this tenant. Default: stall debt.
    ///
    /// # Errors
    /// [`TenantError::Gone`], [`TenantError::Root`].
    pub fn set_high_policy(&self, policy: HighPolicy) -> Result<(), TenantError> {
        self.limited()?.engine.set_high_policy(self.id, policy);
        Ok(())
    }

    /// Lets a program decide for this tenant and those below it that have none of their own, from
    /// the next charge on; `None` takes it away. Returns the one that decided before. Hooks are
    /// called under the pager's lock: see [`LimitHooks`]. The crate `lowtide-bpf` has hooks that
    /// are eBPF programs.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    ///
    /// # Examples
    /// A tenant whose threads never sleep, and that counts how often they would have:
    /// ```
    /// use lowtide::hooks::{LimitHooks, LimitSnapshot, ThrottleAnswer};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// #[derive(Debug)]
    /// struct Awake(Arc<AtomicU64>);
    ///
    /// impl LimitHooks for Awake {
    ///     fn throttle(&mut self, _: &LimitSnapshot) -> ThrottleAnswer {
    ///         self.0.fetch_add(1, Relaxed);
    ///         ThrottleAnswer::Exactly(0)
    ///     }
    /// }
    ///
    /// # use lowtide::{Pager, Size};
    /// # let pager = Pager::builder().max(Size::mib(4)).build()?;
    /// let tenant = pager.tenant("batch").high(Size::mib(1)).create()?;
    /// let spared = Arc::new(AtomicU64::new(0));
    /// tenant.set_hooks(Some(Box::new(Awake(spared.clone()))))?;
    /// let _held = tenant.reserve(Size::mib(2))?;
    /// assert!(spared.load(Relaxed) > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_hooks(
        &self,
        hooks: Option<Box<dyn LimitHooks>>,
    ) -> Result<Option<Box<dyn LimitHooks>>, TenantError> {
        Ok(self.lock()?.engine.set_hooks(self.id, hooks))
    }

    /// How much time is lost waiting for memory; `Display` is the text of `memory.pressure`. It
    /// counts reclaim for this tenant and those below, and reads of pages that a limit of theirs
    /// had evicted.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn pressure(&self) -> Result<Pressure, TenantError> {
        let now = self.pool().now();
        Ok(self.lock()?.engine.pressure(self.id, now))
    }

    /// The budget in bytes with which nine tenths of the waiting for evicted pages over the last
    /// minutes would have been avoided; the tenant's usage, if no thread waited. An upper estimate.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn budget_for_stalls(&self) -> Result<u64, TenantError> {
        let now = self.pool().now();
        let pages = self.lock()?.engine.advice(self.id, now);
        Ok(self.to_bytes(pages))
    }

    /// How many accesses of it and those below would miss at other sizes; `None` before the first
    /// access was looked at.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn curve(&self) -> Result<Option<Curve>, TenantError> {
        let pool = self.pool();
        let state = looks::look_now(pool, self.lock()?);
        let curve = state.reuse.of_group(self.id);
        let mapped = state.spaces.iter().flatten().any(|space| space.mapped.is_some());
        drop(state);
        let is_whole = self.id == MemcgId::ROOT && !mapped;
        let counted = is_whole.then(|| (pool.io.hits() + pool.io.misses()) as f64);
        Ok(curve.map(|curve| Curve::new(curve, pool.page_shift, counted)))
    }

    /// How large its budget should be, for at most this share of its accesses to miss besides first
    /// accesses: 0.02 is 2 %. `None` before the first access was looked at. It is what
    /// [`curve`](Self::curve) says; for the waiting that its own limits have caused see
    /// [`budget_for_stalls`](Self::budget_for_stalls).
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn budget_for_misses(&self, target: f64) -> Result<Option<Advice>, TenantError> {
        Ok(self.curve()?.map(|curve| curve.advice(target)))
    }

    /// Sets how the tenants directly below this one share its budget. Back to `Common`, they keep
    /// the `low` that they have. Cost, by benefit: every two seconds O(samples × tenants below).
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn set_share(&self, share: Share) -> Result<(), TenantError> {
        let mut state = self.lock()?;
        match share {
            Share::Common => state.by_benefit.remove(&self.id),
            Share::ByBenefit => state.by_benefit.insert(self.id),
        };
        divide_one(&mut state, self.id);
        Ok(())
    }

    /// How they share it.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn share(&self) -> Result<Share, TenantError> {
        let is_divided = self.lock()?.by_benefit.contains(&self.id);
        Ok(if is_divided { Share::ByBenefit } else { Share::Common })
    }

    /// The pool's lock, with a tenant that can have limits.
    fn limited(&self) -> Result<StateGuard<'_>, TenantError> {
        if self.id == MemcgId::ROOT { Err(TenantError::Root) } else { self.lock() }
    }
}
