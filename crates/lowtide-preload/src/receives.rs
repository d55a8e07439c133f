//! Receiving into memory that is kept: from sockets, as `calls.rs` from descriptors.
//!
//! Nearly all sockets copy. What does not (`copies.rs`) is received elsewhere, a message at a time:
//! `recvmmsg(2)` of such a socket is a loop, as it is in the kernel.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::calls::{checked, may_be_kept, parts};
use crate::copies::{self, Manner};
use crate::{elsewhere, real_memory};
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use std::time::{Duration, Instant};

/// Whether messages from here must go elsewhere, if they go to these parts.
fn pins(fd: c_int, parts: &[iovec]) -> bool {
    parts.iter().any(|part| may_be_kept(part.iov_base, part.iov_len))
        && copies::of(fd) != Manner::Copies
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let part = [iovec { iov_base: to, iov_len: len }];
    if !pins(fd, &part) {
        // SAFETY: the program's arguments.
        return unsafe { real_memory::recv(fd, to, len, flags) };
    }
    elsewhere::read_into(Manner::Whole, &part, |to, _| {
        // SAFETY: room elsewhere.
        unsafe { real_memory::recv(fd, to[0].iov_base, to[0].iov_len, flags) }
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let part = [iovec { iov_base: to, iov_len: len }];
    if !pins(fd, &part) {
        // SAFETY: the program's arguments.
        return unsafe { real_memory::recvfrom(fd, to, len, flags, from, from_len) };
    }
    elsewhere::read_into(Manner::Whole, &part, |to, _| {
        let (to, len) = (to[0].iov_base, to[0].iov_len);
        // SAFETY: room elsewhere, and the program's other arguments.
        unsafe { real_memory::recvfrom(fd, to, len, flags, from, from_len) }
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's message.
    let all = unsafe { parts_of(message) };
    if !pins(fd, all) {
        // SAFETY: the program's arguments.
        return unsafe { real_memory::recvmsg(fd, message, flags) };
    }
    // SAFETY: as above.
    unsafe { receive(fd, message, all, flags) }
}

/// # Safety
/// As `recvmsg`.
unsafe fn parts_of<'a>(message: *const msghdr) -> &'a [iovec] {
    // SAFETY: the program's message, or none.
    let Some(message) = (unsafe { message.as_ref() }) else { return &[] };
    // SAFETY: its parts.
    unsafe { parts(message.msg_iov, message.msg_iovlen) }
}

/// One message, elsewhere: what the kernel says beside its bytes is stored where the program wants
/// it.
///
/// # Safety
/// As `recvmsg`.
unsafe fn receive(fd: c_int, message: *mut msghdr, all: &[iovec], flags: c_int) -> ssize_t {
    // SAFETY: the program's message.
    let program = unsafe { (*message).msg_iov };
    let got = elsewhere::read_into(Manner::Whole, all, |to, _| {
        // SAFETY: the message is this thread's while it waits for it.
        unsafe { (*message).msg_iov = to.as_ptr().cast_mut() };
        // SAFETY: room elsewhere, in as many parts.
        unsafe { real_memory::recvmsg(fd, message, flags) }
    });
    // SAFETY: as above.
    unsafe { (*message).msg_iov = program };
    got
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    all: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    within: *mut timespec,
) -> c_int {
    let message = |number: c_uint| all.wrapping_add(number as usize);
    let header = |number: c_uint| -> *mut msghdr { message(number).cast() };
    // SAFETY: the program's messages, which begin with their headers.
    let to = |number| unsafe { parts_of(header(number)) };
    let is_some = !all.is_null() && count > 0;
    if !is_some || !(0..count).any(|number| pins(fd, to(number))) {
        // SAFETY: the program's arguments.
        return unsafe { real_memory::recvmmsg(fd, all, count, flags, within) };
    }
    let begun = Instant::now();
    // SAFETY: the program's time, if there is one.
    let within = unsafe { within.as_ref() };
    let within = within.map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
    let waits_for_one = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    for number in 0..count {
        // SAFETY: the program's message.
        let got = unsafe { receive(fd, header(number), to(number), flags) };
        if got < 0 {
            return if number == 0 { -1 } else { number as c_int };
        }
        // SAFETY: as above.
        unsafe { (*message(number)).msg_len = got as c_uint };
        if waits_for_one {
            flags |= libc::MSG_DONTWAIT;
        }
        // The time is looked at between messages, as the kernel does.
        if within.is_some_and(|within| begun.elapsed() >= within) {
            return number as c_int + 1;
        }
    }
    count as c_int
}

/// What checked headers call.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's arguments.
    unsafe { recv(fd, to, checked(len, room), flags) }
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's arguments.
    unsafe { recvfrom(fd, to, checked(len, room), flags, from, from_len) }
}
