//! Devices whose drivers may store into the program's memory.
//!
//! A driver may pin memory at an `ioctl(2)` and store into it later: graphics, network
//! cards with RDMA, SCSI commands. Which requests do so cannot be listed. So once the program opens
//! a device that is not known to be harmless, memory without a file is the kernel's, all of it: the
//! request may name any address.
//!
//! | device | |
//! |---|---|
//! | memory devices, terminals, input, loop | harmless |
//! | `/dev/fuse`, `/dev/kvm`, `/dev/net/tun`, `/dev/userfaultfd` | harmless: no page is pinned |
//! | any other | memory is given back |
//!
//! A device that was open before, or came from another process, is not noticed.
//!
//! # Safety
//!
//! Descriptors of the program are borrowed for a system call.

#![allow(unsafe_code)]

use crate::copies::is_terminal;
use crate::interpose::Errno;
use crate::judge::Reason;
use crate::{blocks, descriptors, globs, heap, state};
use libc::c_int;
use rustix::fs::{AtFlags, FileType, StatxFlags, fstat, major, makedev, minor, statx};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Major numbers: memory, input, and loop devices.
const MEMORY: u32 = 1;
const INPUT: u32 = 13;
const LOOP: u32 = 7;
/// The major number of devices that have only a minor one, and those: tun, fuse, kvm.
const MISC: u32 = 10;
const HARMLESS_MISC: [u32; 3] = [200, 229, 232];

/// Whether a driver may pin memory that a request names.
fn may_pin(kind: FileType, device: u64) -> bool {
    let number = major(device);
    match kind {
        FileType::BlockDevice => ![MEMORY, LOOP].contains(&number),
        FileType::CharacterDevice if number == MISC => {
            !HARMLESS_MISC.contains(&minor(device)) && Some(device) != page_faults()
        }
        FileType::CharacterDevice => ![MEMORY, INPUT].contains(&number) && !is_terminal(number),
        _ => false,
    }
}

/// The number of `/dev/userfaultfd`, which the kernel chooses.
fn page_faults() -> Option<u64> {
    let dir = rustix::fs::CWD;
    let stat = statx(dir, c"/dev/userfaultfd", AtFlags::empty(), StatxFlags::TYPE).ok()?;
    Some(makedev(stat.stx_rdev_major, stat.stx_rdev_minor))
}

/// What the program gets for a descriptor that it has opened.
///
/// # Errors
/// `ENOMEM`: it is such a device, and memory cannot be given back. The descriptor is the caller's
/// to close.
pub(crate) fn opened(fd: c_int) -> Result<(), c_int> {
    if fd < 0 || blocks::sum().0 == 0 || !state::get().is_some_and(|(_, own)| own.anon) {
        return Ok(());
    }
    // SAFETY: the program's descriptor, which is not -1, for a system call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let Ok(stat) = fstat(fd) else { return Ok(()) };
    if !may_pin(FileType::from_raw_mode(stat.st_mode), stat.st_rdev) {
        return Ok(());
    }
    say_once(fd);
    heap::end(Reason::Pinned)
}

/// Says on standard error that the budget ends.
fn say_once(fd: BorrowedFd<'_>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let _errno = Errno::save();
    let mut line = b"lowtide: memory without a file is the kernel's from now on, beyond the \
        budget: a driver may store to it, of "
        .to_vec();
    line.extend_from_slice(&globs::path_of(fd.as_raw_fd()));
    line.push(b'\n');
    descriptors::say(&line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_drivers_that_are_known_are_harmless() {
        let (block, character) = (FileType::BlockDevice, FileType::CharacterDevice);
        for (kind, major, minor, pins) in [
            (character, 1, 3, false),
            (character, 5, 0, false),
            (character, 136, 7, false),
            (character, 10, 229, false),
            (character, 10, 232, false),
            (character, 10, 200, false),
            (character, 10, 1, true),
            (character, 195, 0, true),
            (character, 21, 0, true),
            (block, 7, 0, false),
            (block, 8, 0, true),
            (FileType::RegularFile, 0, 0, false),
        ] {
            assert_eq!(may_pin(kind, makedev(major, minor)), pins, "{kind:?} {major}:{minor}");
        }
    }
}
