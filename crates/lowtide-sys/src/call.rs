//! What the wrappers of system calls share: one form of `ioctl(2)`, and checks of address ranges.
//!
//! # Safety
//!
//! [`Exchange`] gives the kernel a structure that it reads and may change. That is sound where the
//! number of the request and the type of the structure belong together, which the caller of
//! [`exchange`] promises.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr;

use rustix::fd::BorrowedFd;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

/// A request whose argument is read and changed, and whose result is a number that matters.
struct Exchange<'a, T> {
    request: Opcode,
    argument: &'a mut T,
}

// SAFETY: The pointer refers to a live `T` that is borrowed mutably for the whole call; the result
// is the number that the kernel returns, and nothing is read through the pointer afterwards.
unsafe impl<T> Ioctl for Exchange<'_, T> {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.request
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_mut(self.argument).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<usize> {
        Ok(usize::try_from(out).unwrap_or(0))
    }
}

/// Calls `ioctl(fd, request, argument)`. The argument holds what the kernel wrote, after an error
/// too.
///
/// # Safety
///
/// For this descriptor `request` must mean a call that takes a `T`, and the values in `argument`
/// must make it sound (addresses in it may be written).
pub(crate) unsafe fn exchange<T>(
    fd: BorrowedFd<'_>,
    request: Opcode,
    argument: &mut T,
) -> rustix::io::Result<usize> {
    // SAFETY: The caller's promise is the one that the function asks for.
    unsafe { ioctl::ioctl(fd, Exchange { request, argument }) }
}

/// The length in bytes of a range of addresses, which must be ascending.
pub(crate) fn length(what: &str, range: &Range<usize>) -> io::Result<usize> {
    range.end.checked_sub(range.start).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("cannot {what} {range:#x?}: the range ends before it starts"),
        )
    })
}

/// A page as a pointer for a system call. It gives no right to use the memory.
pub(crate) fn address(of: usize) -> *mut c_void {
    ptr::without_provenance_mut(of)
}
