//! Reading past memory that is kept: into memory of the kernel's, and from there to the program's
//! addresses.
//!
//! The second step is a copy that the kernel makes (`process_vm_readv(2)` of the process itself),
//! so that a page comes in as at a `read`, and an address that is none is `EFAULT` and no signal.
//!
//! A file is read in pieces of [`PIECE`]: a read of a gigabyte takes no gigabyte beside the budget.
//! A piece that is short is the last one. What is read as a message is read at once, into as much
//! address space as the program has room, of which the kernel takes as much as comes.
//!
//! No value with a destructor lives across the program's own call: a thread may be cancelled in it,
//! or leave it by `siglongjmp`. Then the memory of this one read is lost.
//!
//! # Safety
//!
//! The program's buffers are touched by the kernel only. The memory here is of this file.

#![allow(unsafe_code)]

use crate::copies::Manner;
use crate::interpose::Errno;
use libc::{c_int, c_ulong, iovec, ssize_t};
use std::{ptr, slice};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// The kernel's limit of parts of a read.
pub(crate) const PARTS: usize = 1024;
/// The kernel's limit of bytes of a read.
const MOST: usize = 0x7fff_f000;

/// Memory of the kernel's. It has no destructor: see above.
#[derive(Clone, Copy)]
pub(crate) struct Elsewhere {
    pub(crate) start: *mut u8,
    len: usize,
}

impl Elsewhere {
    /// Zeroes.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is demanded, so this replaces nothing.
        let got =
            unsafe { libc::syscall(libc::SYS_mmap, 0_usize, len, prot, flags, -1_isize, 0_usize) };
        let start = ptr::with_exposed_provenance_mut(got as usize);
        (got != -1).then_some(Self { start, len })
    }

    /// Gives the memory up.
    pub(crate) fn end(self) {
        let _errno = Errno::save();
        // SAFETY: a mapping of ours.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, self.len) };
    }
}

/// Copies bytes of ours to the program's parts, from a place in them on: how many.
///
/// # Errors
/// `EFAULT`: not one could be stored.
pub(crate) fn copy_out(from: &[iovec], to: &[iovec], bytes: usize) -> Result<usize, c_int> {
    if bytes == 0 {
        return Ok(0);
    }
    let _errno = Errno::save();
    let (local, remote) = (to.as_ptr(), from.as_ptr());
    let (locals, remotes) = (to.len() as c_ulong, from.len() as c_ulong);
    // SAFETY: asks for a number.
    let own = unsafe { libc::getpid() };
    // SAFETY: the kernel checks the program's parts; ours are memory of this file.
    let done = unsafe { libc::process_vm_readv(own, local, locals, remote, remotes, 0) };
    match usize::try_from(done) {
        Ok(done) => Ok(done),
        Err(_) if Errno::now() == libc::EFAULT => Err(libc::EFAULT),
        Err(_) => Ok(copy_by_hand(from, to, bytes)),
    }
}

/// The same without the kernel, where a sandbox or the kernel's configuration has not that call.
/// Both have the same parts.
fn copy_by_hand(from: &[iovec], to: &[iovec], bytes: usize) -> usize {
    let mut left = bytes;
    for (from, to) in from.iter().zip(to) {
        let len = to.iov_len.min(from.iov_len).min(left);
        // SAFETY: the program says that it has room there, and ours has these bytes.
        unsafe { ptr::copy_nonoverlapping(from.iov_base.cast::<u8>(), to.iov_base.cast(), len) };
        left -= len;
    }
    bytes - left
}

/// A place in a list of parts.
#[derive(Clone, Copy)]
struct Place {
    part: usize,
    offset: usize,
}

/// Room for one piece: two lists of parts, the program's and ours, and the bytes of ours.
struct Room {
    memory: Elsewhere,
    bytes: *mut u8,
}

/// Two lists.
const LISTS: usize = 2 * PARTS * size_of::<iovec>();

impl Room {
    fn new(bytes: usize, parts: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        let lists = LISTS.next_multiple_of(page);
        // Each part may begin and end within a page.
        let len = lists.checked_add(bytes)?.checked_add(2 * page * parts)?;
        let memory = Elsewhere::new(len)?;
        Some(Self { memory, bytes: memory.start.wrapping_add(lists) })
    }

    /// Both lists for the next `most` bytes: the program's parts, ours, and their bytes.
    ///
    /// Ours are at the same place in a page: a device may demand that, or refuse it.
    fn lay_out(&self, parts: &[iovec], from: Place, most: usize) -> ([&[iovec]; 2], usize) {
        let page = rustix::param::page_size();
        let lists: *mut iovec = self.memory.start.cast();
        let (mut count, mut bytes, mut at) = (0, 0, self.bytes);
        for (number, part) in parts.iter().enumerate().skip(from.part) {
            let skipped = if number == from.part { from.offset } else { 0 };
            let len = (part.iov_len - skipped).min(most - bytes);
            let start = (part.iov_base as usize).wrapping_add(skipped);
            let ours = at.wrapping_add(start % page);
            let program = ptr::with_exposed_provenance_mut(start);
            for (list, iov_base) in [(0, program), (PARTS, ours.cast())] {
                let place = lists.wrapping_add(list + count);
                // SAFETY: there is room for all parts, twice.
                unsafe { place.write(iovec { iov_base, iov_len: len }) };
            }
            count += 1;
            bytes += len;
            at = at.wrapping_add((start % page + len).next_multiple_of(page));
            if bytes == most {
                break;
            }
        }
        let list = |from| {
            // SAFETY: written above.
            unsafe { slice::from_raw_parts(lists.wrapping_add(from).cast_const(), count) }
        };
        ([list(0), list(PARTS)], bytes)
    }
}

/// Fails, as a call of the C library does.
fn failed(errno: c_int) -> ssize_t {
    Errno::set(errno);
    -1
}

/// Reads into parts of memory, elsewhere. `read` gets parts, and how many bytes were read before.
pub(crate) fn read_into(
    manner: Manner,
    parts: &[iovec],
    read: impl Fn(&[iovec], usize) -> ssize_t,
) -> ssize_t {
    let all = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.iov_len));
    let all = all.min(MOST);
    let most = if manner == Manner::Pieces { all.min(PIECE) } else { all };
    let Some(room) = Room::new(most, parts.len()) else { return failed(libc::ENOMEM) };
    let mut done = 0;
    let result = loop {
        let place = after(parts, done);
        let ([_, ours], wanted) = room.lay_out(parts, place, most.min(all - done));
        let Ok(got) = usize::try_from(read(ours, done)) else {
            break if done > 0 { done as ssize_t } else { -1 };
        };
        // What came, and no more. A message may say that it is longer than the room for it.
        let ([program, ours], came) = room.lay_out(parts, place, got.min(wanted));
        match copy_out(ours, program, came) {
            Ok(copied) if copied < came => break (done + copied) as ssize_t,
            Ok(_) => done += got,
            Err(_) if done > 0 => break done as ssize_t,
            Err(errno) => break failed(errno),
        }
        if manner != Manner::Pieces || got < wanted || done >= all {
            break done as ssize_t;
        }
    };
    room.memory.end();
    result
}

/// The place after this number of bytes.
fn after(parts: &[iovec], bytes: usize) -> Place {
    let mut offset = bytes;
    for (part, one) in parts.iter().enumerate() {
        if offset < one.iov_len {
            return Place { part, offset };
        }
        offset -= one.iov_len;
    }
    Place { part: parts.len(), offset: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(of: &mut [Vec<u8>]) -> Vec<iovec> {
        let one =
            |part: &mut Vec<u8>| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
        of.iter_mut().map(one).collect()
    }

    /// A file of bytes that count, read into parts: what came, and the calls that were made.
    fn read(manner: Manner, file: usize, sizes: &[usize]) -> (isize, Vec<u8>, usize) {
        let mut buffers: Vec<Vec<u8>> = sizes.iter().map(|size| vec![OLD; *size]).collect();
        let calls = std::cell::Cell::new(0);
        let list = parts(&mut buffers);
        let got = read_into(manner, &list, |to, from| {
            calls.set(calls.get() + 1);
            let mut at = from;
            for part in to {
                let len = part.iov_len.min(file - at);
                let place: *mut u8 = part.iov_base.cast();
                // SAFETY: the part has room for its bytes.
                let bytes = unsafe { slice::from_raw_parts_mut(place, len) };
                bytes.iter_mut().enumerate().for_each(|(n, to)| *to = byte(at + n));
                at += len;
            }
            (at - from) as isize
        });
        (got, buffers.concat(), calls.get())
    }

    /// What no byte of the file is.
    const OLD: u8 = 0xff;

    fn byte(at: usize) -> u8 {
        (at * 131 % 251) as u8
    }

    fn check(got: isize, bytes: &[u8], expected: usize) {
        assert_eq!(got, expected as isize);
        let wrong = bytes[..expected].iter().enumerate().find(|(at, found)| **found != byte(*at));
        assert_eq!(wrong, None);
        assert!(bytes[expected..].iter().all(|byte| *byte == OLD), "more than was read");
    }

    #[test]
    fn a_file_comes_in_pieces_until_one_is_short() {
        let long = 2 * PIECE + 100;
        let (got, bytes, calls) = read(Manner::Pieces, long, &[4 * PIECE]);
        check(got, &bytes, long);
        assert_eq!(calls, 3);
        let (got, bytes, calls) = read(Manner::Pieces, long, &[PIECE - 3, 5, 0, PIECE, 7]);
        check(got, &bytes, 2 * PIECE + 9);
        assert_eq!(calls, 3);
        let (got, bytes, _) = read(Manner::Pieces, 10, &[3, 3]);
        check(got, &bytes, 6);
    }

    #[test]
    fn a_message_comes_at_once() {
        let (got, bytes, calls) = read(Manner::Whole, 3 * PIECE, &[2 * PIECE, PIECE + 50]);
        check(got, &bytes, 3 * PIECE);
        assert_eq!(calls, 1);
    }

    #[test]
    fn addresses_that_are_none_are_an_error_and_no_signal() {
        let nowhere = [iovec { iov_base: ptr::with_exposed_provenance_mut(4096), iov_len: 100 }];
        let got = read_into(Manner::Whole, &nowhere, |_, _| 100);
        assert_eq!((got, Errno::now()), (-1, libc::EFAULT));
    }

    #[test]
    fn a_read_that_fails_later_says_what_came_before() {
        let mut buffers = [vec![0; 2 * PIECE]];
        let list = parts(&mut buffers);
        let got =
            read_into(Manner::Pieces, &list, |_, from| if from == 0 { PIECE as isize } else { -1 });
        assert_eq!(got, PIECE as isize);
        let got = read_into(Manner::Pieces, &list, |_, _| failed(libc::EIO));
        assert_eq!((got, Errno::now()), (-1, libc::EIO));
    }
}
