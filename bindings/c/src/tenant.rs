//! Tenants: budgets within the budget.

use crate::code::{Failure, Outcome, call};
use crate::handle::{Own, give, handle, of, of_or_none, take};
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use crate::text::name;
use lowtide::{Pager, Settled, Size, Tenant, TenantBuilder, TenantError};
use std::ffi::{c_char, c_int};

/// A budget within the budget of a pager.
#[derive(Debug)]
pub struct lt_tenant(Own<Tenant>);

handle!(lt_tenant: Tenant);

/// No limit: lt_tenant_set takes it for LT_LIMIT_HIGH, LT_LIMIT_MAX and LT_LIMIT_SWAP.
pub const LT_UNLIMITED: u64 = u64::MAX;
/// Hard protection, in bytes.
pub const LT_LIMIT_MIN: c_int = 1;
/// Best-effort protection.
pub const LT_LIMIT_LOW: c_int = 2;
/// Above it a thread evicts before it goes on.
pub const LT_LIMIT_HIGH: c_int = 3;
/// Usage never exceeds it.
pub const LT_LIMIT_MAX: c_int = 4;
/// Bytes that may be in swap.
pub const LT_LIMIT_SWAP: c_int = 5;

/// The limits of a new tenant, in bytes. Zero is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_tenant_options {
    /// sizeof(lt_tenant_options).
    pub size: usize,
    /// Never evicted for others up to this usage.
    pub min: u64,
    /// Evicted for others up to this usage only if there is nothing else.
    pub low: u64,
    /// Above it a thread evicts pages of the tenant before it goes on.
    pub high: u64,
    /// Usage never exceeds it.
    pub max: u64,
}

// SAFETY: zeroes are numbers.
unsafe impl WithSize for lt_tenant_options {}

/// Counts of events at the limits of a tenant and below, as in the kernel's memory.events.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_event_counts {
    /// sizeof(lt_event_counts).
    pub size: usize,
    /// Visits of reclaim although usage was below `low`.
    pub low: u64,
    /// Reclaims because usage was above `high`.
    pub high: u64,
    /// Charges that met `max` and evicted for it.
    pub max: u64,
    /// Charges that found no room: LT_NO_ROOM.
    pub oom: u64,
}

// SAFETY: zeroes are numbers.
unsafe impl WithSize for lt_event_counts {}

/// Makes a tenant below `parent`, or below the root if that is null. `options` may be null.
///
/// EINVAL: a name with a slash, an empty one, too many tenants, or a parent of another pager.
/// LT_EXISTS. LT_GONE. LT_TOO_NEW.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_create(
    pager: *const lt_pager,
    parent: *const lt_tenant,
    label: *const c_char,
    options: *const lt_tenant_options,
    out: *mut *mut lt_tenant,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let pager = of(pager, "the pager")?;
            let label = name(label, "the name")?;
            let options = sized::read(options)?;
            let parent = who_pays(pager, parent)?;
            Ok(limited(parent.child(label), &options).create()?)
        })
    })
}

/// A tenant of this pager: its root for null.
///
/// # Safety
/// The pointer is null or a handle.
pub(crate) unsafe fn who_pays(pager: &Pager, tenant: *const lt_tenant) -> Outcome<Tenant> {
    let root = pager.root();
    // SAFETY: the caller's promise.
    match unsafe { of_or_none(tenant) }? {
        None => Ok(root),
        Some(tenant) if tenant.pager().root() == root => Ok(tenant.clone()),
        Some(_) => Err(TenantError::OtherPager.into()),
    }
}

fn limited(mut builder: TenantBuilder, options: &lt_tenant_options) -> TenantBuilder {
    builder = builder.min(options.min).low(options.low);
    if options.high > 0 {
        builder = builder.high(options.high);
    }
    if options.max > 0 {
        builder = builder.max(options.max);
    }
    builder
}

/// Finds a tenant by its path, as "search/hot"; the empty path is the root.
///
/// ENOENT: there is none. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_find(
    pager: *const lt_pager,
    path: *const c_char,
    out: *mut *mut lt_tenant,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let (pager, path) = (of(pager, "the pager")?, name(path, "the path")?);
            if path.is_empty() {
                return Ok(pager.root());
            }
            let missing = || Failure::new(libc::ENOENT, format!("there is no tenant {path:?}"));
            pager.find(path).ok_or_else(missing)
        })
    })
}

/// Changes a limit (LT_LIMIT_MIN and others), in bytes. A lower `max` or `high` evicts before this
/// returns. Of the root only `max` can be set.
///
/// EINVAL: no such limit, or one that the root does not have. EBUSY: pages above the new limit
/// could not be evicted yet; the limit is set. LT_GONE. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_set(
    tenant: *const lt_tenant,
    limit: c_int,
    bytes: u64,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| set(unsafe { of(tenant, "the tenant") }?, limit, bytes))
}

fn set(tenant: &Tenant, limit: c_int, bytes: u64) -> Outcome {
    let size = if bytes == LT_UNLIMITED { Size::MAX } else { Size::new(bytes) };
    let settled = match limit {
        LT_LIMIT_MIN => tenant.set_min(size).map(|()| Settled::Yes),
        LT_LIMIT_LOW => tenant.set_low(size).map(|()| Settled::Yes),
        LT_LIMIT_HIGH => tenant.set_high(size),
        LT_LIMIT_MAX => tenant.set_max(size),
        LT_LIMIT_SWAP => tenant.set_swap_max(size).map(|()| Settled::Yes),
        _ => return Err(Failure::argument(format!("there is no limit {limit}"))),
    }?;
    if settled == Settled::Yes {
        return Ok(());
    }
    let text = "the limit is set, and some pages above it cannot be evicted yet: pinned or dirty";
    Err(Failure::new(libc::EBUSY, text))
}

/// Evicts up to `bytes` of the tenant now, and says in `evicted`, if that is not null, how many
/// were. LT_GONE. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_reclaim(
    tenant: *const lt_tenant,
    bytes: u64,
    evicted: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let count = unsafe { of(tenant, "the tenant") }?.reclaim(bytes)?;
        // SAFETY: the caller follows the header.
        if let Some(evicted) = unsafe { evicted.as_mut() } {
            *evicted = count;
        }
        Ok(())
    })
}

/// Bytes that are charged to the tenant and to those below it now. LT_GONE. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_usage(tenant: *const lt_tenant, bytes: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let usage = unsafe { of(tenant, "the tenant") }?.usage()?;
        // SAFETY: the caller follows the header.
        let Some(bytes) = (unsafe { bytes.as_mut() }) else {
            return Err(Failure::argument("there is no place for the bytes: the pointer is null"));
        };
        *bytes = usage;
        Ok(())
    })
}

/// Counts the events at the limits of the tenant and below. Set `size` of the structure before.
/// LT_GONE. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_events(
    tenant: *const lt_tenant,
    counts: *mut lt_event_counts,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let events = unsafe { of(tenant, "the tenant") }?.events()?;
        let size = size_of::<lt_event_counts>();
        let (low, high, max, oom) = (events.low, events.high, events.max, events.oom);
        // SAFETY: the caller follows the header.
        unsafe { sized::write(counts, &lt_event_counts { size, low, high, max, oom }) }
    })
}

/// Removes the tenant; its parent gets its pages. Handles of it stay valid, and get
/// LT_GONE.
///
/// EINVAL: the root. ENOTEMPTY: tenants below. EBUSY: try again. LT_GONE. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_remove(tenant: *const lt_tenant) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(tenant, "the tenant") }?.remove()?))
}

/// Closes the handle; the tenant stays. Null is no error. Threads: any; no other thread may use the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_tenant_close(tenant: *mut lt_tenant) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { take(tenant) }.map(drop))
}
