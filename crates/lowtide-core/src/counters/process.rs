//! A tenant and a process, as their status page shows them to others.

use super::table::{Rendering::Metric, numbers};

numbers! {
    /// A tenant, with those below it.
    pub struct TenantStat {
        usage_bytes: u64 = bytes("Bytes charged to the tenant and those below it").now();
        peak_bytes: u64 = bytes("The most bytes that were ever charged").now();
        max_bytes: Option<u64> = bytes("The budget, where there is one").now();
        high_bytes: Option<u64> =
            bytes("Above it threads that charge evict first, where it is set").now();
        /// 0 where there is none.
        low_bytes: u64 = bytes("Best-effort protection").now();
        /// 0 where there is none.
        min_bytes: u64 = bytes("Hard protection").now();
        swap_bytes: u64 = bytes("Bytes of pages in swap, before compression").now();
        file_bytes: u64 = bytes("Bytes of pages of files").now();
        anon_bytes: u64 = bytes("Bytes of pages without a file").now();
        dirty_bytes: u64 = bytes("Bytes that wait to be written").now();
        writeback_bytes: u64 = bytes("Bytes that are being written").now();
        faults: u64 = events("Pages that came in");
        refaults: u64 = events("Pages that came in again after they had been evicted");
        scanned: u64 = pages("Pages scanned for reclaim");
        evicted: u64 = pages("Pages that were evicted");
        /// In nanoseconds: `total` of `memory.pressure`.
        stall_some_ns: u64 = time("Time in which some thread waited for memory");
        stall_some_avg10: f64 =
            share("The share of the last 10 seconds in which some thread waited, in percent")
            .now().hidden(&[Metric]);
        /// In nanoseconds.
        stall_full_ns: u64 = time("Time in which all threads waited for memory");
        high_events: u64 = events("Charges that met high");
        max_events: u64 = events("Charges that met the budget");
        oom_events: u64 = events("Charges that failed for want of room");
    }
}

numbers! {
    /// What the kernel counts for a process.
    #[derive(Eq)]
    pub struct ProcessStat {
        /// Each is a stall.
        major_faults: u64 = events("Page faults of the process that waited for a read")
            .summary("major_faults").phrase("faults that waited {}");
        /// For whatever purpose.
        device_read_bytes: u64 = bytes("Bytes that devices read for the process")
            .summary("device_read_bytes").phrase("devices read {}");
        device_write_bytes: u64 =
            bytes("Bytes that the process caused to be written to devices")
            .metric_name("device_written_bytes").phrase("written {}");
    }
}
