//! Rejects budgets that do not fit in memory, before any file is created.

use crate::error::BenchError;

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
