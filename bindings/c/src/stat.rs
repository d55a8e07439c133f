//! What a pager counts.

use crate::code::{Failure, call};
use crate::handle::of;
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use lowtide::Stat;
use lowtide_core::counters::Numbers;
use std::ffi::{c_char, c_int};

/// Numbers of the table of counters that C has.
const COUNTERS: usize = <Stat as Numbers>::C_PLACES;

/// Counters of a pager since it was opened, and sizes now, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_stats {
    /// sizeof(lt_stats).
    pub size: usize,
    /// Each in the place that the table gives it. In the header they are fields with the names of
    /// the table (`tests/header.rs`).
    pub counters: [u64; COUNTERS],
}

// SAFETY: zeroes are numbers.
unsafe impl WithSize for lt_stats {}

fn of_stat(stat: &Stat) -> lt_stats {
    let mut all = lt_stats { size: size_of::<lt_stats>(), counters: [0; COUNTERS] };
    stat.each(&mut |counter, value| {
        if let Some((place, _)) = counter.c {
            all.counters[place] = value.whole();
        }
    });
    all
}

/// One snapshot of the counters; takes about a millisecond. Set `size` of the structure before.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pager_stat(pager: *const lt_pager, stats: *mut lt_stats) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { sized::write(stats, &of_stat(&of(pager, "the pager")?.stat())) })
}

/// The same as the text of a memory.stat, with hits and misses. Writes what fits into `len` bytes,
/// the last of which is zero, and to `needed`, if that is not null, the bytes that all of it takes.
///
/// ERANGE: it did not fit. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pager_stat_text(
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
