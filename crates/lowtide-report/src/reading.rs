//! What a store requested of the page cache, and what the device read for it.
//!
//! Every page that the device reads for the store was either *missing* (requested, and not in
//! memory) or *read ahead* (nothing had requested it). A page that was read ahead is used later, or
//! evicted before that, or still there at the end. All counts are of the measured operations alone.

use lowtide_sim::client::database::DatabaseResult;
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{KernelCounts, MachineStat};
use serde::Serialize;

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DatabaseRow {
    /// The machine's largest read-ahead window.
    pub read_ahead_bytes: u64,
    /// KiB that the device read, for each operation.
    pub read_kib_per_op: f64,
    /// KiB that reads of leaves requested, for each operation.
    pub asked_kib_per_op: f64,
    /// Pages requested that were not in memory.
    pub missing_pages: u64,
    /// Pages of those that had been in memory before.
    pub missing_again_pages: u64,
    /// Accesses that found a page with the read-ahead mark.
    pub marked_hits: u64,
    /// Windows that those opened.
    pub marked_windows: u64,
    /// Mean pages of those windows; 0 without any.
    pub mean_window_pages: f64,
    /// Pages that read-ahead brought in.
    pub readahead_pages: u64,
    /// Pages read ahead that were used later.
    pub readahead_used_pages: u64,
    /// Pages read ahead that were evicted before anything used them.
    pub readahead_unused_pages: u64,
    /// The part of the cached file pages that was dirty, on average.
    pub dirty_share_pct: f64,
}

impl DatabaseRow {
    /// That of a run on `machine`.
    pub fn of(result: &DatabaseResult, machine: &MachineSpec) -> Self {
        let per_op = |bytes: u64| bytes as f64 / 1024.0 / result.ops.max(1) as f64;
        let (began, ended): (&MachineStat, &MachineStat) = (&result.began, &result.ended);
        let since = |count: fn(&KernelCounts) -> u64| count(&ended.kernel) - count(&began.kernel);
        let windows = since(|kernel| kernel.marked_windows);
        Self {
            read_ahead_bytes: machine.readahead,
            read_kib_per_op: per_op(ended.device.read_bytes - began.device.read_bytes),
            asked_kib_per_op: per_op(result.asked_pages * machine.page),
            missing_pages: since(|kernel| kernel.missing),
            missing_again_pages: since(|kernel| kernel.missing_again),
            marked_hits: since(|kernel| kernel.marked_hits),
            marked_windows: windows,
            mean_window_pages: since(|kernel| kernel.marked_window_pages) as f64
                / windows.max(1) as f64,
            readahead_pages: since(|kernel| kernel.readahead),
            readahead_used_pages: since(|kernel| kernel.readahead_used),
            readahead_unused_pages: since(|kernel| kernel.readahead_unused),
            dirty_share_pct: 100.0 * result.dirty_share,
        }
    }
}
