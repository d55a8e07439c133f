//! Structures that carry their size.
//!
//! A program is compiled with one header and may run with a newer library, or an older one. So each
//! structure begins with the size that the program knows of. What the library has beyond is zero,
//! which always is the default; what the program has beyond must be zero, or it is a choice that
//! this library does not know. The kernel does the same for `clone3(2)` and others.

use crate::code::{Failure, LT_TOO_NEW, Outcome};
use std::mem::MaybeUninit;

/// The largest structure that could be one.
const SIZE_MAX: usize = 4096;

/// A structure of C.
///
/// # Safety
/// It is `repr(C)`, begins with `size: usize`, and bytes of zero are a value of it.
pub(crate) unsafe trait WithSize: Copy {}

/// The size that the program wrote in the beginning.
///
/// # Safety
/// The pointer is one to a structure that begins with its size.
unsafe fn size_of_c<T: WithSize>(at: *const T) -> Outcome<usize> {
    // SAFETY: the caller's promise.
    let size = unsafe { at.cast::<usize>().read() };
    if (size_of::<usize>()..=SIZE_MAX).contains(&size) { Ok(size) } else { Err(wrong_size(size)) }
}

/// For a structure that the library keeps something in: an older one has no room for it.
///
/// # Safety
/// The pointer is one to a structure that begins with its size.
#[inline]
pub(crate) unsafe fn at_least_ours<T>(at: *const T) -> Outcome {
    // SAFETY: the caller's promise.
    let (size, ours) = (unsafe { at.cast::<usize>().read() }, size_of::<T>());
    if (ours..=SIZE_MAX).contains(&size) { Ok(()) } else { Err(wrong_size(size)) }
}

#[cold]
fn wrong_size(size: usize) -> Failure {
    let text = format!("a structure says that it has {size} bytes: set `size` to its sizeof");
    Failure::argument(text)
}

/// Reads choices; null stands for the defaults.
///
/// # Safety
/// The pointer is null or one to as many bytes as the structure says that it has.
pub(crate) unsafe fn read<T: WithSize>(from: *const T) -> Outcome<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    if !from.is_null() {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_c(from) }?;
        // SAFETY: as many bytes are there, and `value` has as many as are copied.
        unsafe {
            from.cast::<u8>().copy_to(value.as_mut_ptr().cast(), size.min(size_of::<T>()));
        }
        for at in size_of::<T>()..size {
            // SAFETY: it is below the size.
            if unsafe { from.cast::<u8>().add(at).read() } != 0 {
                let known = size_of::<T>();
                let text = format!("byte {at} of a structure is set; this library knows {known}");
                return Err(Failure::new(LT_TOO_NEW, text));
            }
        }
    }
    // SAFETY: bytes of zero are a value, and so is what the program wrote.
    Ok(unsafe { value.assume_init() })
}

/// Writes results, as far as the program knows of them.
///
/// # Safety
/// The pointer is null or one to as many bytes as the structure says that it has.
pub(crate) unsafe fn write<T: WithSize>(to: *mut T, value: &T) -> Outcome {
    if to.is_null() {
        return Err(Failure::argument("there is no place for the results: the pointer is null"));
    }
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_c(to) }?;
    let first = size_of::<usize>();
    // SAFETY: as many bytes are there, and the size itself stays.
    unsafe {
        let (from, to) = (std::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>());
        from.add(first).copy_to(to.add(first), size.min(size_of::<T>()) - first);
    }
    Ok(())
}
