//! A view: a file, page by page.

use crate::code::{Failure, LT_NESTED, LT_NOT_RESIDENT, Outcome, call, value};
use crate::flags::{
    self, LT_VIEW_CREATE, LT_VIEW_CREATE_NEW, LT_VIEW_NO_LOCK, LT_VIEW_NO_READ_AHEAD,
    LT_VIEW_NO_WAIT, LT_VIEW_SYNC, LT_VIEW_WRITE, Of,
};
use crate::handle::{Own, give, handle, of, of_or_none, take};
use crate::page::{lt_page, place, put};
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use crate::tenant::lt_tenant;
use crate::text::{array, buffer, descriptor, path, time};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{OpenOptions, View};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::ops::{ControlFlow, Range};
use std::time::Duration;

/// An open file under a pager. Like a file, it may be opened several times.
#[derive(Debug)]
pub struct lt_view(Own<View>);

handle!(lt_view: View);

/// A part of a file or of a mapping, in bytes. A pair of numbers: it has no `size`.
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
    /// LT_VIEW_WRITE and others that begin so.
    pub flags: u32,
    /// Pages come in 2^folio_order at a time.
    pub folio_order: u32,
    /// The tenant that pays. Null: the root.
    pub tenant: *const lt_tenant,
    /// With LT_VIEW_CREATE or LT_VIEW_CREATE_NEW: the file is made at least this long.
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

/// Gets a page of lt_view_get_many: `arg`, the position in the list, and the bytes, which are valid
/// during the call. 0 goes on; any other number ends the call, which returns it.
pub type lt_page_fn = Option<
    unsafe extern "C" fn(arg: *mut c_void, index: usize, data: *const c_void, len: usize) -> c_int,
>;

/// # Safety
/// The tenant is null or a handle.
unsafe fn opening(options: &lt_view_options) -> Outcome<OpenOptions> {
    flags::check(options.flags, Of::View)?;
    let mut open = OpenOptions::new();
    let set = |flag| options.flags & flag != 0;
    if set(LT_VIEW_WRITE) {
        open = open.write(true);
    }
    if set(LT_VIEW_CREATE) {
        open = open.create_with_len(options.create_size);
    }
    if set(LT_VIEW_CREATE_NEW) {
        open = open.create_new_with_len(options.create_size);
    }
    open = open.sync(set(LT_VIEW_SYNC)).lock(!set(LT_VIEW_NO_LOCK));
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
    if set(LT_VIEW_NO_READ_AHEAD) {
        open = open.read_ahead(0);
    } else if options.read_ahead > 0 {
        open = open.read_ahead(options.read_ahead);
    }
    if set(LT_VIEW_NO_WAIT) {
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
/// LT_NESTED: in a function that lt_view_get_many of this view calls; the handle is as it was. Else
/// as lt_view_flush; writes that failed are tried again until the pager is closed.
/// Threads: any; no other thread may use the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_close(view: *mut lt_view) -> c_int {
    call(|| {
        if Shown::is(view) {
            let text = "the view is in use by the call of lt_view_get_many that shows this page";
            return Err(Failure::new(LT_NESTED, text));
        }
        // SAFETY: the caller follows the header.
        unsafe { take(view) }?.map_or(Ok(()), |view| Ok(view.close()?))
    })
}

/// Bytes of the file when it was last looked at; 0 if the handle is null or of another process.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_len(view: *const lt_view) -> u64 {
    // SAFETY: the caller follows the header.
    value(0, || Ok(unsafe { of(view, "the view") }?.len()))
}

/// Copies `len` bytes at `offset` to a buffer. A large range is read in large transfers, several at
/// a time.
///
/// LT_OUT_OF_RANGE: the file ends before the range does; a part may be copied. LT_NO_ROOM.
/// LT_NESTED. LT_TIMEOUT. Else what the device says: EIO. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_read_at(
    view: *const lt_view,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { Ok(of(view, "the view")?.read_uninit(offset, buffer(buf, len)?)?) })
}

/// Stores `len` bytes at `offset`; past the end the file becomes longer. They are durable after
/// lt_view_flush.
///
/// LT_READ_ONLY. LT_HELD_HERE and LT_HELD_ELSEWHERE: the page is pinned. LT_NO_ROOM. LT_NESTED.
/// ENOSPC and others where the file cannot grow. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_write_at(
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
/// store to it waits. So unpin it soon, and do not wait for other threads before that.
///
/// EINVAL: the structure has a page already. LT_OUT_OF_RANGE. LT_NO_ROOM. LT_NESTED. LT_TIMEOUT.
/// Else what the device says. Threads: any; the same one unpins it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_pin(view: *const lt_view, page: u64, out: *mut lt_page) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let (view, out) = unsafe { (of(view, "the view")?, place(out)?) };
        put(out, view.page(page)?);
        Ok(())
    })
}

/// As lt_view_pin, without waiting for a device: LT_NOT_RESIDENT if the page is not in memory.
/// It reads nothing; lt_view_prefetch does that in the background. lt_last_error has no text
/// for it. Threads: any; the same one unpins it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_try_pin(
    view: *const lt_view,
    page: u64,
    out: *mut lt_page,
) -> c_int {
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

thread_local! {
    /// Addresses of the views whose pages are shown to functions by this thread, which it must not
    /// close.
    static SHOWN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While this lives the view is in [`SHOWN`].
struct Shown;

impl Shown {
    fn begin(view: *const lt_view) -> Self {
        let _ = SHOWN.try_with(|shown| shown.borrow_mut().push(view.addr()));
        Self
    }

    /// A thread that is ending has none.
    fn is(view: *const lt_view) -> bool {
        SHOWN.try_with(|shown| shown.borrow().contains(&view.addr())).unwrap_or(false)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = SHOWN.try_with(|shown| shown.borrow_mut().pop());
    }
}

/// Shows `n` pages to a function. Those in memory come first; the others are read with many reads
/// in flight, and come as they arrive. A sorted list is the cheapest.
///
/// In the function a call on this pager that would have to wait fails with LT_NESTED, and so does
/// lt_view_close of this view. It must return, and not leave by longjmp or an exception. A number
/// other than 0 ends the call: no further page is shown, and the number is returned, without a text
/// in lt_last_error.
///
/// LT_OUT_OF_RANGE and others of lt_view_pin, for the first page that fails; others may have been
/// shown. Threads: any; the function is called by this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_get_many(
    view: *const lt_view,
    pages: *const u64,
    n: usize,
    callback: lt_page_fn,
    arg: *mut c_void,
) -> c_int {
    let mut stopped = 0;
    let code = call(|| {
        let _shown = Shown::begin(view);
        // SAFETY: the caller follows the header.
        let (view, pages) = unsafe { (of(view, "the view")?, array(pages, n, "the list")?) };
        let callback = callback.ok_or_else(|| Failure::argument("the function is null"))?;
        let show = |index, bytes: &[u8]| {
            // SAFETY: the program gave the function for this.
            stopped = unsafe { callback(arg, index, bytes.as_ptr().cast(), bytes.len()) };
            if stopped == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        Ok(view.get_many(pages, show)?)
    });
    if stopped == 0 { code } else { stopped }
}

/// Says which parts of the file will be needed soon: they are read in the background, as far as
/// there is room. Does not wait. Parts past the end are ignored. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_prefetch(
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
/// Pages whose write failed stay in memory and are tried again. LT_TIMEOUT. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_flush(view: *const lt_view) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.flush()?))
}

/// As lt_view_flush, for a part of the file. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_flush_range(view: *const lt_view, offset: u64, len: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.flush_range(lt_range { offset, len }.bytes())?))
}

/// Makes the file longer, with zeroes, or shorter.
///
/// LT_READ_ONLY. LT_HELD_HERE and LT_HELD_ELSEWHERE: a page that goes is pinned. LT_TIMEOUT.
/// LT_NESTED. Else what the file system says; the file is as it was. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_set_len(view: *const lt_view, len: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.set_len(len)?))
}

/// Makes a part of the file zeroes, and gives its space on disk back where the file system can.
/// LT_READ_ONLY and others of lt_view_set_len. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_view_punch(view: *const lt_view, offset: u64, len: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(view, "the view") }?.punch(lt_range { offset, len }.bytes())?))
}
