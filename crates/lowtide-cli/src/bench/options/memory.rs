//! Budgets that do not fit into the machine are refused before anything is made.

use crate::bench::error::BenchError;

/// Memory beside the budgets that must be available, in bytes: tables, threads, and a reserve for
/// the rest of the machine.
const HEADROOM_BYTES: u64 = 64 << 20;

/// Refuses budgets that do not fit into memory together, with `beside` bytes that are needed beside
/// them.
///
/// # Errors
/// [`BenchError::NoMemory`].
pub(crate) fn check_memory(
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
