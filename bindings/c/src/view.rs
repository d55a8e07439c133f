//! A view: a file, page by page.

use crate::code::{Failure, LT_NOT_RESIDENT, Outcome, call, value};
use crate::handle::{Own, give, handle, of, of_or_none, take};
use crate::page::{lt_page, place, put};
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use crate::tenant::lt_tenant;
use crate::text::{array, buffer, descriptor, path, time};
use lowtide::{OpenOptions, View};
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::time::Duration;

/// An open file under a pager. Like a file, it may be opened several times.
#[derive(Debug)]
pub struct lt_view(Own<View>);

handle!(lt_view: View);

/// For reading and writing.
pub const LT_WRITE: u32 = 1;
/// Makes the file if there is none, and as long as `create_size`. Implies LT_WRITE.
pub const LT_CREATE: u32 = 2;
/// Makes the file, or fails with EEXIST. Implies LT_WRITE.
pub const LT_CREATE_NEW: u32 = 4;
/// lt_write_at returns when the bytes are durable.
pub const LT_SYNC: u32 = 8;
/// Takes no lock on the file. The program makes sure that no other one writes it.
pub const LT_NO_LOCK: u32 = 16;
/// Does not wait for the lock.
pub const LT_NO_WAIT: u32 = 32;
/// Reads nothing ahead. Also a flag of mappings.
pub const LT_NO_READ_AHEAD: u32 = 64;

/// A part of a file or of a mapping, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct lt_range {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

impl lt_range {
    pub(crate) fn bytes(self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }
}

/// The choices for a view. Zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_view_options {
    /// sizeof(lt_view_options).
    pub size: usize,
    /// LT_WRITE and others.
    pub flags: u32,
    /// Pages come in 2^folio_order at a time.
    pub folio_order: u32,
    /// The tenant that pays. Null: the root.
    pub tenant: *const lt_tenant,
    /// With LT_CREATE or LT_CREATE_NEW: the file is made at least this long.
    pub create_size: u64,
    /// Bytes by which the file may grow while it is open. 0: 1 TiB.
    pub growth: u64,
    /// Bytes that are read ahead at a time, at most. 0: 8 MiB.
    pub read_ahead: u64,
    /// How long another program's lock is waited for, in milliseconds. 0: 10 s.
    pub lock_timeout_ms: u64,
}

// SAFETY: zeroes are numbers and null pointers.
unsafe impl WithSize for lt_view_options {}

/// Gets a page of lt_get_many: what was given there, the position in the list, and the bytes, which
/// are valid during the call.
pub type lt_page_fn =
    Option<unsafe extern "C" fn(arg: *mut c_void, index: usize, data: *const c_void, len: usize)>;

/// # Safety
/// The tenant is null or a handle.
unsafe fn opening(options: &lt_view_options) -> Outcome<OpenOptions> {
    let mut open = OpenOptions::new();
    let set = |flag| options.flags & flag != 0;
    if set(LT_WRITE) {
        open = open.write(true);
    }
    if set(LT_CREATE) {
        open = open.create(options.create_size);
    }
    if set(LT_CREATE_NEW) {
        open = open.create_new(options.create_size);
    }
    open = open.sync(set(LT_SYNC)).lock(!set(LT_NO_LOCK));
    if options.folio_order > 0 {
        open = open.folio_order(u8::try_from(options.folio_order).unwrap_or(u8::MAX));
    }
    // SAFETY: the caller's promise.
    if let Some(tenant) = unsafe { of_or_none(options.tenant) }? {
        open = open.tenant(tenant);
    }
    if options.growth > 0 {
        open = open.growth(options.growth);
    }
    if set(LT_NO_READ_AHEAD) {
        open = open.read_ahead(0);
    } else if options.read_ahead > 0 {
        open = open.read_ahead(options.read_ahead);
    }
    if set(LT_NO_WAIT) {
        open = open.lock_timeout(Duration::ZERO);
    } else if let Some(limit) = time(options.lock_timeout_ms) {
        open = open.lock_timeout(limit);
    }
    Ok(open)
}

/// Opens a file. `options` may be null: for reading.
///
/// ENOENT, EACCES and others of open(2). EINVAL: not a file with pages, or an impossible folio.
/// LT_LOCKED. LT_GONE: the tenant. LT_TOO_NEW. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_open(
    pager: *const lt_pager,
    name: *const c_char,
    options: *const lt_view_options,
    out: *mut *mut lt_view,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let (pager, name) = (of(pager, "the pager")?, path(name)?);
            Ok(opening(&sized::read(options)?)?.open(pager, name)?)
        })
    })
}

/// Opens the file of a descriptor, which stays the program's and may be closed. EBADF; else as
/// lt_view_open. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_open_fd(
    pager: *const lt_pager,
    fd: c_int,
    options: *const lt_view_options,
    out: *mut *mut lt_view,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let (pager, file) = (of(pager, "the pager")?, descriptor(fd)?.try_clone_to_owned()?);
            Ok(opening(&sized::read(options)?)?.open_file(pager, file)?)
        })
    })
}

/// Makes everything durable, and closes the handle, also where that fails. Unpin its pages before.
/// Null is no error.
///
/// As lt_flush; what could not be written is tried again until the pager is closed.
/// Threads: any; no other thread may use the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_close(view: *mut lt_view) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| match unsafe { take(view) }? {
        Some(view) => Ok(view.close()?),
        None => Ok(()),
    })
}

/// Bytes of the file when it was last looked at; 0 if the handle is null or of another process.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_len(view: *const lt_view) -> u64 {
    // SAFETY: the caller follows the header.
    value(0, || Ok(unsafe { of(view, "the view") }?.len()))
}

/// Copies `len` bytes at `offset` to a buffer. A large range is read in large transfers, several at
/// a time.
///
/// LT_OUT_OF_RANGE: the file ends before the range does; a part may be copied. LT_NO_ROOM.
/// LT_NESTED. LT_TIMEOUT. Else what the device says: EIO. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_read_at(
    view: *const lt_view,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { Ok(of(view, "the view")?.read_uninit(offset, buffer(buf, len)?)?) })
}

/// Stores `len` bytes at `offset`; past the end the file becomes longer. They are durable after
/// lt_flush.
///
/// LT_READ_ONLY. LT_HELD_HERE and LT_HELD_ELSEWHERE: the page is pinned. LT_NO_ROOM. LT_NESTED.
/// ENOSPC and others where the file cannot grow. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_write_at(
    view: *const lt_view,
    offset: u64,
    buf: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        let bytes = array(buf.cast::<u8>(), len, "the buffer")?;
        Ok(of(view, "the view")?.write_at(offset, bytes)?)
    })
}

/// Pins a page, by its number: its bytes stay where they are, and as they are, until lt_unpin. A
/// store to it waits. So unpin it soon, and do not wait for other threads meanwhile.
///
/// EINVAL: the structure has a page already. LT_OUT_OF_RANGE. LT_NO_ROOM. LT_NESTED. LT_TIMEOUT.
/// Else what the device says. Threads: any; the same one unpins it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_pin(view: *const lt_view, page: u64, out: *mut lt_page) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let (view, out) = unsafe { (of(view, "the view")?, place(out)?) };
        put(out, view.page(page)?);
        Ok(())
    })
}

/// As lt_pin, without waiting for a device: LT_NOT_RESIDENT if the page is not in memory. Nothing
/// is read then; lt_prefetch does that in the background. lt_last_error has no text for it.
/// Threads: any; the same one unpins it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_try_pin(view: *const lt_view, page: u64, out: *mut lt_page) -> c_int {
    let mut found = false;
    let code = call(|| {
        // SAFETY: the caller follows the header.
        let (view, out) = unsafe { (of(view, "the view")?, place(out)?) };
        if let Some(page) = view.try_page(page)? {
            put(out, page);
            found = true;
        }
        Ok(())
    });
    if code == 0 && !found { LT_NOT_RESIDENT } else { code }
}

/// Shows `n` pages to a function. Those in memory come first; the others are read with many reads
/// in flight, and come as they arrive. A sorted list is the cheapest.
///
/// In the function a call on this pager that would have to wait fails with LT_NESTED. It must
/// return, and not leave by longjmp or an exception.
///
/// LT_OUT_OF_RANGE and others of lt_pin, for the first page that fails; others may have been shown.
/// Threads: any; the function is called by this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_get_many(
    view: *const lt_view,
    pages: *const u64,
    n: usize,
    callback: lt_page_fn,
    arg: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let (view, pages) = unsafe { (of(view, "the view")?, array(pages, n, "the list")?) };
        let callback = callback.ok_or_else(|| Failure::argument("the function is null"))?;
        // SAFETY: the program gave the function for this.
        let show = |index, bytes: &[u8]| unsafe {
            callback(arg, index, bytes.as_ptr().cast(), bytes.len());
        };
        Ok(view.get_many(pages, show)?)
    })
}

/// Says which parts of the file will be needed soon: they are read in the background, as far as
/// there is room. Does not wait. Parts past the end are ignored. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_prefetch(
    view: *const lt_view,
    ranges: *const lt_range,
    n: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let (view, ranges) = unsafe { (of(view, "the view")?, array(ranges, n, "the list")?) };
        ranges.iter().for_each(|range| view.prefetch(range.bytes()));
        Ok(())
    })
}

/// Returns when all bytes that were stored before, through any handle of the file, are durable.
///
/// EIO, ENOSPC and others where a write failed, also earlier: each handle gets each incident once.
/// What could not be written stays in memory and is tried again. LT_TIMEOUT. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_flush(view: *const lt_view) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.flush()?))
}

/// As lt_flush, for a part of the file. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_flush_range(view: *const lt_view, offset: u64, len: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.flush_range(lt_range { offset, len }.bytes())?))
}

/// Makes the file longer, with zeroes, or shorter.
///
/// LT_READ_ONLY. LT_HELD_HERE and LT_HELD_ELSEWHERE: a page that goes is pinned. LT_TIMEOUT.
/// LT_NESTED. Else what the file system says; the file is as it was. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_set_len(view: *const lt_view, len: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.set_len(len)?))
}

/// Makes a part of the file zeroes, and gives its space on disk back where the file system can.
/// LT_READ_ONLY and others of lt_set_len. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_punch(view: *const lt_view, offset: u64, len: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.punch(lt_range { offset, len }.bytes())?))
}
