//! Files, and memory, behind a plain pointer.

use crate::code::{Failure, Outcome, call, value};
use crate::flags::{self, LT_MAP_COPY, LT_MAP_NO_READ_AHEAD, LT_MAP_POPULATE, LT_MAP_WRITE, Of};
use crate::handle::{Own, give, handle, of, of_or_none, take};
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use crate::tenant::lt_tenant;
use crate::text::{array, choice, descriptor};
use crate::view::lt_range;
use lowtide::map::{Access, Map, MapMut, MapOptions};
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

/// Sequential accesses are read ahead.
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
    /// LT_MAP_WRITE and others that begin so. Only LT_MAP_NO_READ_AHEAD for lt_adopt.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// "auto" (the default); "userfault": the budget is exact; "pagecache": works everywhere, and
    /// the budget may be exceeded for moments. Not for lt_adopt, which is "pagecache".
    pub mode: *const c_char,
    /// The tenant that pays. Null: the root.
    pub tenant: *const lt_tenant,
    /// Where in the file it begins, in bytes. Not for lt_map_anon.
    pub offset: u64,
    /// Its bytes. 0: up to the end of the file. Not for lt_adopt and lt_map_anon.
    pub len: u64,
    /// Bytes that are read ahead at a time, at most. 0: 8 MiB.
    pub read_ahead: u64,
}

// SAFETY: zeroes are numbers and null pointers.
unsafe impl WithSize for lt_map_options {}

/// # Safety
/// Handles and texts of the options are such.
pub(crate) unsafe fn choices(options: &lt_map_options) -> Outcome<MapOptions> {
    flags::check(options.flags, Of::Map)?;
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
    if options.flags & LT_MAP_NO_READ_AHEAD != 0 {
        map = map.read_ahead(0);
    } else if options.read_ahead > 0 {
        map = map.read_ahead(options.read_ahead);
    }
    Ok(map)
}

/// Maps a file, whose descriptor may be closed afterwards. `options` may be null: the whole file,
/// for reading. A page that cannot be read is SIGBUS at the touch, as with mmap(2); lt_map_error
/// says why.
///
/// While the mapping lives, no program may change what is mapped for reading, or make the file
/// shorter.
///
/// The budget holds what the mapping has in memory: lt_pager_stat says how much. In "userfault"
/// mode that is memory of the library's own (shared memory in /proc/self/smaps), and what the page
/// cache has of the file from before, or through other programs, stays there.
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

/// Makes `len` bytes of zeroes without a file, behind a pointer. They can be stored to, take no
/// memory before that, and may be more than the budget: pages that are not in use are in swap,
/// which the pager has to be opened with, or they stay. `options` may be null; they have no
/// `offset` and `len`, and neither LT_MAP_WRITE nor LT_MAP_COPY.
///
/// EINVAL: a length of 0. LT_NOT_POSSIBLE, EPERM: this machine does not let the library serve page
/// faults. LT_GONE. LT_TOO_NEW. Threads: any. The other functions are those of lt_map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_map_anon(
    pager: *const lt_pager,
    len: usize,
    options: *const lt_map_options,
    out: *mut *mut lt_mapping,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let pager = of(pager, "the pager")?;
            let options = sized::read(options)?;
            let choices = choices(&options)?;
            let reason = "memory without a file is stored to, and has nothing to copy";
            flags::refuse(options.flags, LT_MAP_WRITE | LT_MAP_COPY, reason)?;
            if options.offset != 0 || options.len != 0 {
                let text = "`offset` or `len` is set: memory without a file has its length as an \
                            argument, and begins at its beginning";
                return Err(Failure::argument(text));
            }
            if len == 0 {
                return Err(Failure::argument("memory without a file needs a length"));
            }
            Ok(writable(choices.len(len).map_anon(pager)?))
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

fn advise(mapping: &Mapping, advice: Access, part: Range<usize>) -> Outcome {
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
            LT_ADVICE_NORMAL => Access::Normal,
            LT_ADVICE_RANDOM => Access::Random,
            LT_ADVICE_SEQUENTIAL => Access::Sequential,
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
            advise(mapping, Access::WillNeed, part(*range)?)?;
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
