//! What a pager counts.

use crate::code::{Failure, call};
use crate::handle::of;
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use lowtide::Stat;
use std::ffi::{c_char, c_int};

/// Counters of a pager since it was opened, and sizes now, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_stats {
    /// sizeof(lt_stats).
    pub size: usize,
    /// The budget.
    pub budget: u64,
    /// What is charged to it: pages, in use and on their way.
    pub usage: u64,
    /// Memory of the system that its frames take.
    pub resident: u64,
    /// What tables of the pager take on top of the budget.
    pub metadata: u64,
    /// Pages of files.
    pub file: u64,
    /// Pages of regions.
    pub anon: u64,
    /// Pages that wait to be written, and that are being written.
    pub unwritten: u64,
    /// Pages whose last write failed.
    pub failed_pages: u64,
    /// Reads of pages that were in memory. An estimate: one hit of 1024 is counted, for all.
    pub hits: u64,
    /// Reads of pages that waited for the device.
    pub misses: u64,
    /// Reads of the device, and what they brought.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Pages that were read ahead.
    pub ahead_pages: u64,
    /// Those of them that were evicted unused.
    pub ahead_wasted: u64,
    /// Pages of files that came back soon after they were evicted.
    pub refaults: u64,
    /// Nanoseconds that threads slept because a tenant was over a limit.
    pub throttled_ns: u64,
    /// 1 if the pager met a defect, after which most figures are zero.
    pub poisoned: u64,
}

// SAFETY: zeroes are numbers.
unsafe impl WithSize for lt_stats {}

fn of_stat(stat: &Stat) -> lt_stats {
    let bytes = |pages: u64| pages * stat.memory.page_bytes;
    lt_stats {
        size: size_of::<lt_stats>(),
        budget: stat.budget_bytes,
        usage: bytes(stat.memory.current),
        resident: stat.resident_bytes,
        metadata: stat.frame_metadata_bytes + stat.translation_bytes,
        file: bytes(stat.memory.file),
        anon: bytes(stat.memory.anon),
        unwritten: stat.unwritten_bytes,
        failed_pages: stat.failed_pages,
        hits: stat.hits,
        misses: stat.misses,
        reads: stat.io.reads,
        read_bytes: stat.io.read_bytes,
        writes: stat.io.writes,
        written_bytes: stat.io.write_bytes,
        ahead_pages: stat.io.ahead_pages,
        ahead_wasted: stat.io.ahead_wasted,
        refaults: stat.memory.events.workingset_refault_file,
        throttled_ns: stat.io.throttled_ns,
        poisoned: u64::from(stat.poisoned),
    }
}

/// One snapshot of the counters; takes about a millisecond. Set `size` of the structure before.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_stat(pager: *const lt_pager, stats: *mut lt_stats) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { sized::write(stats, &of_stat(&of(pager, "the pager")?.stat())) })
}

/// The same as the text of a memory.stat, with hits and misses. Writes what fits into `len` bytes,
/// the last of which is zero, and to `needed`, if that is not null, the bytes that all of it takes.
///
/// ERANGE: it did not fit. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_stat_text(
    pager: *const lt_pager,
    buf: *mut c_char,
    len: usize,
    needed: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let text = format!("{}\n", unsafe { of(pager, "the pager") }?.stat());
        let whole = text.len() + 1;
        // SAFETY: the caller follows the header.
        if let Some(needed) = unsafe { needed.as_mut() } {
            *needed = whole;
        }
        if buf.is_null() && len > 0 {
            return Err(Failure::argument("the buffer is null"));
        }
        if len > 0 {
            let fits = text.len().min(len - 1);
            // SAFETY: the buffer has `len` bytes, and more than `fits`.
            unsafe {
                buf.copy_from_nonoverlapping(text.as_ptr().cast(), fits);
                buf.add(fits).write(0);
            }
        }
        if len < whole {
            let text = format!("the text takes {whole} bytes, and the buffer has {len}");
            return Err(Failure::new(libc::ERANGE, text));
        }
        Ok(())
    })
}
