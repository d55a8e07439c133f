//! Rejects budgets that do not fit in memory, before any file is created.

use lowtide_host::memcg;

use crate::bench::error::BenchError;

/// Bytes that must be available in addition to the budgets: tables, threads, and a reserve for the
/// rest of the machine.
const HEADROOM_BYTES: u64 = 64 << 20;

/// Rejects budgets that do not fit in memory together, with `beside` further bytes.
///
/// # Errors
/// [`BenchError::NoMemory`].
pub fn check_memory(
    beside: u64,
    systems: usize,
    each: u64,
    available: u64,
) -> Result<(), BenchError> {
    let needed =
        each.saturating_mul(systems as u64).saturating_add(beside).saturating_add(HEADROOM_BYTES);
    if available > 0 && needed > available {
        return Err(BenchError::NoMemory { systems, each, needed, available });
    }
    Ok(())
}

/// Whether the page cache has room for a file beside the budgets, as far as is known.
pub fn can_cache(file: u64, systems: usize, each: u64, available: u64) -> bool {
    let limit = memcg::own_limit().unwrap_or(u64::MAX);
    check_memory(file, systems, each, available.min(limit)).is_ok()
}
