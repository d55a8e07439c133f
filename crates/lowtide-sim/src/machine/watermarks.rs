//! Free frames that a machine without a group limit keeps (`kswapd.rs`).

use super::sched::TaskId;

/// Watermarks of free frames, and the task that maintains them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kswapd {
    /// The watermarks in pages, zero with a group limit.
    pub min: u64,
    pub low: u64,
    pub high: u64,
    pub task: Option<TaskId>,
    pub(super) asleep: bool,
}

impl Kswapd {
    /// Watermarks for a memory of `pages` pages of `page_bytes`.
    pub fn for_memory(pages: u64, page_bytes: u64) -> Self {
        let kib = pages * page_bytes / 1024;
        let min_kib = (kib * 16).isqrt().clamp(128, 262_144);
        let min = (min_kib * 1024 / page_bytes).min(pages / 8);
        let step = (min / 4).max(pages / 1000).min(pages / 16);
        Self { min, low: min + step, high: min + 2 * step, task: None, asleep: false }
    }
}
