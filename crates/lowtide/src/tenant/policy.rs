//! What happens above a limit: the policy that decides how long threads sleep, programs that decide
//! instead; curves, advice, and budgets that are divided by them.
//!
//! A program is an eBPF object (its header `lowtide_bpf.h` in `lowtide-bpf` shows what it sees). It
//! is checked when it is attached, runs in a virtual machine that can reach only its maps, and its
//! answers are clamped: it can make threads wait, up to 2 s at a time, and choose which tenants are
//! spared first. It cannot make a charge fail. Reclaim that a program requests in advance is done
//! every two seconds. Source: `docs/kernel/memcg.md` §7, 8, 15.

use super::{OnStall, Share, Tenant, TenantError};
use crate::budget::{Advice, Curve};
use crate::pool::divide::divide_one;
use crate::pool::{StateGuard, looks};
#[cfg(feature = "bpf")]
use lowtide_bpf::Programs;
use lowtide_core::MemcgId;
use lowtide_core::high::handler::HighPolicy;
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

    /// Sets how a thread reacts that would have to sleep. Default: it sleeps.
    ///
    /// # Errors
    /// [`TenantError::Gone`], [`TenantError::Root`].
    pub fn set_on_stall(&self, on_stall: OnStall) -> Result<(), TenantError> {
        self.limited()?.on_stall.insert(self.id, on_stall);
        self.pool().throttled.notify_all();
        Ok(())
    }

    /// Lets a program decide for this tenant and those below it that have none of their own. It
    /// replaces the one that was attached before, from the next charge on. The returned handle
    /// shares the program's state: its counters, its maps, whether it was switched off and why.
    ///
    /// # Errors
    /// [`TenantError::Program`] with the section, the instruction and the reason; the previous
    /// program stays. [`TenantError::Gone`].
    #[cfg(feature = "bpf")]
    pub fn attach(&self, object: &[u8], name: &str) -> Result<Programs, TenantError> {
        let programs = Programs::load(object, name)
            .map_err(|refused| TenantError::Program(Box::new(refused)))?;
        let mut state = self.lock()?;
        state.engine.set_hooks(self.id, Some(Box::new(programs.clone())));
        state.programs.insert(self.id, programs.clone());
        Ok(programs)
    }

    /// Takes the program away. Returns whether there was one.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    #[cfg(feature = "bpf")]
    pub fn detach(&self) -> Result<bool, TenantError> {
        let mut state = self.lock()?;
        state.programs.remove(&self.id);
        Ok(state.engine.set_hooks(self.id, None).is_some())
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
    pub fn stall_advice(&self) -> Result<u64, TenantError> {
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
    /// [`stall_advice`](Self::stall_advice).
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn advice(&self, target: f64) -> Result<Option<Advice>, TenantError> {
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
