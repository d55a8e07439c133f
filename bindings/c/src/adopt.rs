//! Mappings that the program has made itself, taken over.
//!
//! For loaders that map a file and hand pointers to many: the pointers stay what they are, and what
//! is in memory of the file comes under a budget.

use crate::code::{Failure, Outcome, call};
use crate::flags::{self, LT_MAP_NO_READ_AHEAD, Of};
use crate::handle::{Own, give, handle, of, take};
use crate::map::{choices, lt_map_options};
use crate::pager::lt_pager;
use crate::sized;
use crate::text::{array, descriptor};
use crate::view::lt_range;
use lowtide::map::Adopted;
use lowtide_sys::memory::page_size;
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// A mapping of the program that is kept within a budget.
#[derive(Debug)]
pub struct lt_adopted(Own<Adopted>);

handle!(lt_adopted: Adopted);

/// Takes over a mapping that the program made of `fd`, with mmap(2), at `addr`: its pages in memory
/// are charged and evicted from now on. The mapping stays the program's. It is shared, or private
/// and never stored to; `options`, which may be null, say where in the file it begins. The
/// descriptor may be closed.
///
/// Drops cached pages of the file that are not in use, so that later faults can be observed.
///
/// EBADF. EINVAL: a length of 0, an address that is no page's, or a choice that is for lt_map only.
/// LT_NOT_POSSIBLE: this machine does not say which pages are in memory. LT_GONE. LT_TOO_NEW.
/// Threads: any. Call lt_forget before the addresses are unmapped or get another mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_adopt(
    pager: *const lt_pager,
    fd: c_int,
    addr: *const c_void,
    len: usize,
    options: *const lt_map_options,
    out: *mut *mut lt_adopted,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let pager = of(pager, "the pager")?;
            let options = sized::read(options)?;
            flags::check(options.flags, Of::Map)?;
            let reason = "a mapping that is there has its kind and its length already";
            flags::refuse(options.flags, !LT_MAP_NO_READ_AHEAD, reason)?;
            if options.len != 0 || !options.mode.is_null() {
                return Err(Failure::argument(format!("`len` or `mode` is set: {reason}")));
            }
            if addr.is_null() {
                return Err(Failure::argument("the address is null"));
            }
            Ok(choices(&options)?.adopt(pager, descriptor(fd)?, addr.cast(), len)?)
        })
    })
}

/// Ends it: when this returns, nothing of the mapping is evicted any more, and the program may
/// unmap it. Null is no error. Threads: any; no other thread may use the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_forget(adopted: *mut lt_adopted) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { take(adopted) }.map(drop))
}

/// The addresses of a part; `None` where it has no bytes.
fn part(adopted: &Adopted, range: lt_range) -> Outcome<Option<Range<usize>>> {
    let (own, page) = (adopted.addresses(), page_size());
    let bytes = range.bytes();
    if bytes.end > own.len() as u64 {
        let text = format!("bytes {bytes:?} are not in a mapping of {} bytes", own.len());
        return Err(Failure::argument(text));
    }
    let (start, end) = (own.start + bytes.start as usize, own.start + bytes.end as usize);
    Ok((start < end).then(|| start / page * page..end.next_multiple_of(page)))
}

/// As lt_forget, for a part of the mapping, in bytes from its beginning; its whole pages and those
/// at its ends. The handle stays. EINVAL: no part of it. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_forget_range(
    adopted: *const lt_adopted,
    offset: u64,
    len: u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let adopted = unsafe { of(adopted, "the mapping") }?;
        if let Some(addresses) = part(adopted, lt_range { offset, len })? {
            adopted.forget(addresses);
        }
        Ok(())
    })
}

/// Says which parts of the mapping will be needed soon, in bytes from its beginning: they are read
/// in the background, as far as there is room, and no more than an eighth of the budget at a time.
/// EINVAL: one is no part of the mapping; those before it are on their way. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_adopted_prefetch(
    adopted: *const lt_adopted,
    ranges: *const lt_range,
    n: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let adopted = unsafe { of(adopted, "the mapping") }?;
        // SAFETY: the caller follows the header.
        for range in unsafe { array(ranges, n, "the list") }? {
            if let Some(addresses) = part(adopted, *range)? {
                adopted.will_need(addresses);
            }
        }
        Ok(())
    })
}

/// Bytes of the file that are known to be in memory. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_adopted_resident(adopted: *const lt_adopted, bytes: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let adopted = unsafe { of(adopted, "the mapping") }?;
        // SAFETY: the caller follows the header.
        let Some(bytes) = (unsafe { bytes.as_mut() }) else {
            return Err(Failure::argument("there is no place for the bytes: the pointer is null"));
        };
        *bytes = adopted.resident_bytes();
        Ok(())
    })
}
