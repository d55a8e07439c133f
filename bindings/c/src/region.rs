//! Memory without a file that may be larger than its budget, page by page.

use crate::code::{call, value};
use crate::handle::{Own, give, handle, of, take};
use crate::page::{lt_page, place, put};
use crate::pager::lt_pager;
use crate::sized::{self, WithSize};
use crate::tenant::{lt_tenant, who_pays};
use crate::text::{array, text};
use crate::view::lt_range;
use lowtide::{Region, RegionOptions};
use std::ffi::{c_char, c_int, c_void};

/// Memory whose pages are in swap when they are not in use.
#[derive(Debug)]
pub struct lt_region(Own<Region>);

handle!(lt_region: Region);

/// The choices for a region. Zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lt_region_options {
    /// sizeof(lt_region_options).
    pub size: usize,
    /// The tenant that pays. Null: the root.
    pub tenant: *const lt_tenant,
    /// Its name in errors and reports. Null: none.
    pub name: *const c_char,
    /// Bytes that it can grow to, if more than 64 GiB.
    pub growth: u64,
}

// SAFETY: zeroes are numbers and null pointers.
unsafe impl WithSize for lt_region_options {}

/// Makes a region of `bytes` zeroes, which take no memory before they are stored to. Pages leave
/// memory only if the pager was opened with swap. `options` may be null.
///
/// EINVAL: a tenant of another pager. LT_NO_ROOM. LT_GONE. EFBIG. LT_TOO_NEW. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_open(
    pager: *const lt_pager,
    bytes: u64,
    options: *const lt_region_options,
    out: *mut *mut lt_region,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        give(out, || {
            let pager = of(pager, "the pager")?;
            let options = sized::read(options)?;
            let mut region = RegionOptions::new().growth(options.growth);
            if let Some(name) = text(options.name, "the name")? {
                region = region.name(name);
            }
            Ok(region.create(&who_pays(pager, options.tenant)?, bytes)?)
        })
    })
}

/// Gives everything back. Unpin its pages before. Null is no error. Threads: any; no other thread
/// may use the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_close(region: *mut lt_region) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe { take(region) }.map(drop))
}

/// Bytes of the region; 0 if the handle is null or of another process. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_len(region: *const lt_region) -> u64 {
    // SAFETY: the caller follows the header.
    value(0, || Ok(unsafe { of(region, "the region") }?.len()))
}

/// Copies bytes from the region. LT_OUT_OF_RANGE. LT_NO_ROOM. EIO: a page cannot be brought back
/// from swap. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_read_at(
    region: *const lt_region,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let (region, buf) = unsafe { (of(region, "the region")?, crate::text::buffer(buf, len)?) };
        // A region is read into bytes that are initialised.
        buf.fill(std::mem::MaybeUninit::new(0));
        // SAFETY: all of them were just set.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buf.as_mut_ptr().cast(), len) };
        Ok(region.read_at(offset, bytes)?)
    })
}

/// Stores bytes to the region. LT_OUT_OF_RANGE. LT_HELD_HERE and LT_HELD_ELSEWHERE: the page is
/// pinned. LT_NO_ROOM. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_write_at(
    region: *const lt_region,
    offset: u64,
    buf: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| unsafe {
        let bytes = array(buf.cast::<u8>(), len, "the buffer")?;
        Ok(of(region, "the region")?.write_at(offset, bytes)?)
    })
}

/// Pins a page for reading, as lt_view_pin does. Threads: any; the same one unpins it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_pin(
    region: *const lt_region,
    page: u64,
    out: *mut lt_page,
) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let (region, out) = unsafe { (of(region, "the region")?, place(out)?) };
        put(out, region.page(page)?);
        Ok(())
    })
}

/// Makes bytes zeroes; whole pages among them take neither memory nor swap any more.
/// LT_OUT_OF_RANGE. LT_HELD_HERE and LT_HELD_ELSEWHERE. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_clear(region: *const lt_region, offset: u64, len: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(region, "the region") }?.clear(lt_range { offset, len }.bytes())?))
}

/// Makes the region longer by `bytes` zeroes. EFBIG or ENOMEM: longer than it can grow.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_region_grow(region: *const lt_region, bytes: u64) -> c_int {
    // SAFETY: the caller follows the header.
    call(|| Ok(unsafe { of(region, "the region") }?.grow(bytes).map(drop)?))
}
