//! Whether there are addresses for mirrors.
//!
//! A mirror takes the addresses of a mapping twice, and threads that serve faults reserve more for
//! their memory. A program whose addresses are limited (`RLIMIT_AS`, `ulimit -v`) counts on those
//! that it has: its own `mmap` would fail. So mirrors leave it half of them, or there are none. A
//! mirror that is there when a program limits itself stays.

use rustix::process::{Resource, getrlimit};
use std::fs;

/// What threads of ours reserve: the C library takes 64 MiB for the small blocks of each.
const THREADS: u64 = 1 << 30;

/// Whether addresses are too few for a mirror of this length, if they are limited to `limit`. In
/// the thread of the keeper: it reads a file, where there is a limit.
pub(crate) fn are_few(limit: Option<u64>, len: u64) -> bool {
    let Some(limit) = limit else { return false };
    let used = used().unwrap_or(0);
    used.saturating_add(len).saturating_add(THREADS) > limit / 2
}

/// The limit that is in force.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Bytes of addresses that this process has; `None` without `/proc`.
fn used() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/statm").ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_leave_half_of_limited_addresses_to_the_program() {
        let used = used().expect("/proc is there");
        assert!(used > 1 << 20, "{used}");
        assert!(!are_few(None, 1 << 40));
        assert!(are_few(Some(512 << 20), 4096) && are_few(Some(2 << 30), 4096));
        assert!(!are_few(Some(1 << 46), 1 << 30) && are_few(Some(1 << 46), 1 << 45));
    }
}
