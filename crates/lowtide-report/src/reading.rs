//! What a store requested of the page cache, and what the device read for it.
//!
//! Every page that the device reads for the store was either *missing* (requested, and not in
//! memory) or *read ahead* (nothing had requested it). A page that was read ahead is used later, or
//! evicted before that, or still there at the end. All counts are of the measured operations alone.

use serde::Serialize;

/// What rows about a document store say.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DatabasePart {
    /// What a document store requested, and what the device read for it.
    pub database: Option<DatabaseRow>,
}

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
