//! What a swap file reports about itself.

/// Figures of a swap file. Counts are of pages unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FileStat {
    /// Slots that there may be.
    pub slots: u32,
    /// Slots in use.
    pub used: u32,
    /// Pages written, all together.
    pub written: u64,
    /// Requests that wrote them.
    pub write_requests: u64,
    /// Batches that failed, for another reason than too few free slots.
    pub write_errors: u64,
    /// Batches for which there were too few free slots.
    pub refused: u64,
    /// Pages read because they were needed.
    pub read: u64,
    /// Requests that read.
    pub read_requests: u64,
    /// Pages that were needed and could not be read.
    pub read_errors: u64,
    /// Pages that were needed, or read ahead, with other contents than were written.
    pub corrupt: u64,
    /// Pages read ahead that the caller has taken.
    pub ahead: u64,
    /// … of which were touched later.
    pub ahead_hits: u64,
    /// … of which were freed, or had to be read again, before they were touched.
    pub ahead_unused: u64,
    /// Clusters punched out of the file.
    pub punched: u64,
    /// Clusters that could not be punched.
    pub punch_errors: u64,
}
