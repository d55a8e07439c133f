//! Files, and memory, behind a plain pointer.

use crate::code::{Failure, Outcome, call, value};
use crate::handle::{Own, give, handle, of, of_or_none, take};
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use crate::tenant::lt_tenant;
use crate::text::{array, choice, descriptor};
use crate::view::{LT_NO_READ_AHEAD, lt_range};
use lowtide::map::{Advice, Map, MapMut, MapOptions};
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;

/// Addresses that lt_map has made.
#[derive(Debug)]
pub struct lt_mapping(Own<Mapping>);

handle!(lt_mapping: Mapping);

/// A map of either kind. The pointer of one that is stored to is C's alone.
#[derive(Debug)]
pub enum Mapping {
    Read(Map),
    Write { map: MapMut, at: Pointer },
}

/// The first byte.
#[derive(Debug)]
pub struct Pointer(*mut c_void);

// SAFETY: nothing is read or written through it here.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// Stores reach the file. Without this and the next flag the mapping is for reading.
pub const LT_MAP_WRITE: u32 = 1;
/// Stores are the mapping's own, as with MAP_PRIVATE; pages that were stored to are not in the
/// budget.
pub const LT_MAP_COPY: u32 = 2;
/// Reads the beginning before the call returns, as far as there is room.
pub const LT_MAP_POPULATE: u32 = 4;

/// What is read in order is read ahead.
pub const LT_ADVICE_NORMAL: c_int = 0;
/// Nothing is read ahead.
pub const LT_ADVICE_RANDOM: c_int = 1;
/// It is read in order.
pub const LT_ADVICE_SEQUENTIAL: c_int = 2;

/// The choices for a mapping, and for one that is adopted. Zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_map_options {
    /// sizeof(lt_map_options).
    pub size: usize,
    /// LT_MAP_WRITE, LT_MAP_COPY, LT_MAP_POPULATE, LT_NO_READ_AHEAD. Of a mapping that is adopted
    /// only the last.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// "auto" (the default); "userfault": the budget is exact; "pagecache": works everywhere, and
    /// the budget may be exceeded for moments. Not for lt_adopt, which is "pagecache".
    pub mode: *const c_char,
    /// The tenant that pays. Null: the root.
    pub tenant: *const lt_tenant,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Its bytes. 0: up to the end of the file. Not for lt_adopt.
    pub len: u64,
    /// Bytes that are read ahead at a time, at most. 0: 8 MiB.
    pub read_ahead: u64,
}

// SAFETY: zeroes are numbers and null pointers.
unsafe impl WithSize for lt_map_options {}

/// # Safety
/// Handles and texts of the options are such.
pub(crate) unsafe fn choices(options: &lt_map_options) -> Outcome<MapOptions> {
    let mut map = MapOptions::new().offset(options.offset);
    if options.len > 0 {
        let large = |_| Failure::argument("no address space is as large");
        map = map.len(usize::try_from(options.len).map_err(large)?);
    }
    // SAFETY: the caller's promise.
    if let Some(mode) = unsafe { choice(options.mode, "the mode") }? {
        map = map.mode(mode);
    }
    // SAFETY: the caller's promise.
    if let Some(tenant) = unsafe { of_or_none(options.tenant) }? {
        map = map.tenant(tenant);
    }
    if options.flags & LT_MAP_POPULATE != 0 {
        map = map.populate();
    }
    if options.flags & LT_NO_READ_AHEAD != 0 {
        map = map.read_ahead(0);
    } else if options.read_ahead > 0 {
        map = map.read_ahead(options.read_ahead);
    }
    Ok(map)
}

/// Maps a file, whose descriptor may be closed afterwards, or, with the descriptor -1, memory
/// without a file, for which the options must have a length. A page that cannot be read is SIGBUS
/// at the touch, as with mmap(2); lt_map_error says why.
///
/// While the mapping lives, no program may change what is mapped for reading, or make the file
/// shorter. Memory without a file has to be given swap when the pager is opened, or stays.
///
/// EBADF. EACCES: stores through a descriptor without the right. EINVAL: a range that is not in a
/// file. LT_NOT_POSSIBLE: a mode that this machine, or this kind, does not have. LT_LOCKED.
/// LT_GONE. LT_TOO_NEW. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map(
    pager: *const lt_pager,
    fd: c_int,
    options: *const lt_map_options,
    out: *mut *mut lt_mapping,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let pager = of(pager, "the pager")?;
            let options = sized::read(options)?;
            let choices = choices(&options)?;
            if fd == -1 {
                if options.len == 0 {
                    return Err(Failure::argument("memory without a file needs a length"));
                }
                return Ok(writable(choices.map_anon(pager)?));
            }
            let file = descriptor(fd)?;
            let set = |flag| options.flags & flag != 0;
            Ok(match (set(LT_MAP_WRITE), set(LT_MAP_COPY)) {
                (false, false) => Mapping::Read(choices.map(pager, file)?),
                (true, false) => writable(choices.map_mut(pager, file)?),
                (false, true) => writable(choices.map_copy(pager, file)?),
                (true, true) => {
                    let text = "stores reach the file, or are the mapping's own: not both";
                    return Err(Failure::argument(text));
                }
            })
        })
    })
}

fn writable(mut map: MapMut) -> Mapping {
    let at = Pointer(map.as_mut_ptr().cast());
    Mapping::Write { map, at }
}

/// Ends a mapping: its addresses are gone, and so are its pages and its charge. Stores reach the
/// file, but are durable only after lt_map_flush. Null is no error. Threads: any; no other thread
/// may use the handle or the addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_unmap(mapping: *mut lt_mapping) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { take(mapping) }.map(drop))
}

/// The first byte; null if the handle is null or of another process. A mapping for reading must not
/// be stored to: that is SIGSEGV. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map_data(mapping: *const lt_mapping) -> *mut c_void {
    // SAFETY: the caller follows the header.
    value(std::ptr::null_mut(), || match unsafe { of(mapping, "the mapping") }? {
        Mapping::Read(map) => Ok(map.as_ptr().cast_mut().cast()),
        Mapping::Write { at, .. } => Ok(at.0),
    })
}

/// Bytes of the mapping; 0 if the handle is null or of another process. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map_len(mapping: *const lt_mapping) -> usize {
    // SAFETY: the caller follows the header.
    value(0, || match unsafe { of(mapping, "the mapping") }? {
        Mapping::Read(map) => Ok(map.len()),
        Mapping::Write { map, .. } => Ok(map.len()),
    })
}

/// A part in bytes, if there can be one.
fn part(range: lt_range) -> Outcome<Range<usize>> {
    let bytes = range.bytes();
    let ends = (usize::try_from(bytes.start), usize::try_from(bytes.end));
    let (Ok(start), Ok(end)) = ends else {
        return Err(Failure::argument("no address space is as large"));
    };
    Ok(start..end)
}

/// Returns when the stores to a part of the mapping are durable; one for reading has none.
///
/// EINVAL: no part of the mapping. EIO, ENOSPC and others where a write failed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map_flush(mapping: *const lt_mapping, offset: u64, len: u64) -> c_int {
    call(|| {
        let part = part(lt_range { offset, len })?;
        // SAFETY: the caller follows the header.
        match unsafe { of(mapping, "the mapping") }? {
            Mapping::Read(map) if part.end <= map.len() => Ok(()),
            Mapping::Read(_) => Err(Failure::argument("the bytes are not in the mapping")),
            Mapping::Write { map, .. } => Ok(map.flush_range(part)?),
        }
    })
}

fn advise(mapping: &Mapping, advice: Advice, part: Range<usize>) -> Outcome {
    match mapping {
        Mapping::Read(map) => Ok(map.advise_range(advice, part)?),
        Mapping::Write { map, .. } => Ok(map.advise_range(advice, part)?),
    }
}

/// Says how a part of the mapping will be used: LT_ADVICE_RANDOM and others. EINVAL. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map_advise(
    mapping: *const lt_mapping,
    offset: u64,
    len: u64,
    advice: c_int,
) -> c_int {
    call(|| {
        let advice = match advice {
            LT_ADVICE_NORMAL => Advice::Normal,
            LT_ADVICE_RANDOM => Advice::Random,
            LT_ADVICE_SEQUENTIAL => Advice::Sequential,
            _ => return Err(Failure::argument(format!("there is no advice {advice}"))),
        };
        // SAFETY: the caller follows the header.
        advise(unsafe { of(mapping, "the mapping") }?, advice, part(lt_range { offset, len })?)
    })
}

/// Says which parts of the mapping will be needed soon: they are read in the background, as far as
/// there is room. EINVAL: one is no part of the mapping; those before it are on their way.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map_prefetch(
    mapping: *const lt_mapping,
    ranges: *const lt_range,
    n: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let mapping = unsafe { of(mapping, "the mapping") }?;
        // SAFETY: the caller follows the header.
        for range in unsafe { array(ranges, n, "the list") }? {
            advise(mapping, Advice::WillNeed, part(*range)?)?;
        }
        Ok(())
    })
}

/// Why a page could not be brought in, if that ever happened: for a handler of SIGBUS that has
/// passed the news on. LT_OK: it did not. Threads: any, but not in the handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map_error(mapping: *const lt_mapping) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let error = match unsafe { of(mapping, "the mapping") }? {
            Mapping::Read(map) => map.error(),
            Mapping::Write { map, .. } => map.error(),
        };
        error.map_or(Ok(()), |error| Err(error.into()))
    })
}
