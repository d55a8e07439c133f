//! The allocator's functions: large allocations are blocks, everything else is the program's
//! allocator's.
//!
//! The C library maps large allocations itself, past the functions that a library can stand in
//! front of. So they are taken here. A block is known by its address.
//!
//! `reallocarray(3)` is not among them: the C library's calls `realloc` by its name, which is this
//! one, or that of an allocator that is part of the program.
//!
//! Without `--anon`, and for small sizes, this costs a comparison and a jump.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::blocks::Kind;
use crate::{heap, real_memory as real};
use libc::{c_int, c_void, size_t};
use std::ptr;

/// What the program gets for a block; null is none.
fn block(size: usize, align: usize) -> *mut c_void {
    let got = heap::allocate(size, align, Kind::Allocated);
    got.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    if heap::is_large(size) {
        let got = block(size, 1);
        if !got.is_null() {
            return got;
        }
    }
    // SAFETY: the program's arguments.
    unsafe { real::malloc(size) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    if let Some(bytes) = count.checked_mul(size)
        && heap::is_large(bytes)
    {
        // A new block is all zeroes.
        let got = block(bytes, 1);
        if !got.is_null() {
            return got;
        }
    }
    // SAFETY: the program's arguments.
    unsafe { real::calloc(count, size) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(old: *mut c_void) {
    match heap::size_of(old) {
        Some(len) => heap::release(&(old as usize..old as usize + len)),
        // SAFETY: the program's arguments.
        None => unsafe { real::free(old) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realloc(old: *mut c_void, size: size_t) -> *mut c_void {
    let Some(len) = heap::size_of(old) else {
        // SAFETY: the program's arguments.
        return unsafe { grow_small(old, size) };
    };
    let start = old as usize;
    if size == 0 {
        heap::release(&(start..start + len));
        return ptr::null_mut();
    }
    if heap::resize(start, len, size) {
        return old;
    }
    // SAFETY: any size.
    let new = unsafe { malloc(size) };
    if !new.is_null() {
        heap::shift(&(start..start + len), new as usize);
    }
    new
}

/// As `realloc`, of what is not a block.
///
/// # Safety
/// As `realloc`.
unsafe fn grow_small(old: *mut c_void, size: size_t) -> *mut c_void {
    if heap::is_large(size) {
        let new = block(size, 1);
        if !new.is_null() {
            if !old.is_null() {
                // SAFETY: the program's block.
                let len = unsafe { real::malloc_usable_size(old) };
                // SAFETY: both have as many bytes, and do not overlap.
                unsafe { ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), len.min(size)) };
                // SAFETY: the program's block, which it gives up.
                unsafe { real::free(old) };
            }
            return new;
        }
    }
    // SAFETY: the program's arguments.
    unsafe { real::realloc(old, size) }
}

/// A large aligned allocation; null is none.
fn aligned(align: usize, size: usize) -> *mut c_void {
    if heap::is_large(size) && align.is_power_of_two() {
        block(size, align)
    } else {
        ptr::null_mut()
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    let got = aligned(align, size);
    // SAFETY: the program's arguments.
    if got.is_null() { unsafe { real::memalign(align, size) } } else { got }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    let got = aligned(align, size);
    // SAFETY: the program's arguments.
    if got.is_null() { unsafe { real::aligned_alloc(align, size) } } else { got }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    let is_valid = align.is_multiple_of(size_of::<usize>());
    let got = if is_valid { aligned(align, size) } else { ptr::null_mut() };
    if got.is_null() {
        // SAFETY: the program's arguments.
        return unsafe { real::posix_memalign(to, align, size) };
    }
    // SAFETY: the program's place for the result.
    unsafe { to.write(got) };
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> size_t {
    match heap::size_of(block) {
        Some(len) => len,
        // SAFETY: the program's arguments.
        None => unsafe { real::malloc_usable_size(block) },
    }
}
