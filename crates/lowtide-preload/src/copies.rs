//! Does a read from this descriptor copy?
//!
//! A read is a copy if the kernel has the bytes in memory of its own, and stores them to the
//! program's addresses while the program waits. Then a page that is out comes in, as for a store of
//! the program. Otherwise the kernel *pins* the pages of the program's buffer and something else
//! stores to them later, past the page tables: a device, a server in user space, a cipher. Nothing
//! tells this library which pages are pinned (decision 12); one that leaves meanwhile is lost, with
//! what was read. So a descriptor of which it is not known that it copies is not read into memory
//! that is kept, but elsewhere (`elsewhere.rs`).
//!
//! | descriptor | |
//! |---|---|
//! | pipes, event descriptors, `/proc`, `/sys` and their like | copies |
//! | sockets of Unix, IP, netlink, packets, virtual machines | copies |
//! | with a protocol above TCP (TLS of the kernel); `AF_ALG`; other sockets | elsewhere |
//! | files of file systems that read through the page cache | copies |
//! | with `O_DIRECT`, whatever it is | elsewhere |
//! | FUSE, 9p, SMB, overlays (of unknown layers), ZFS, NFS, other file systems | elsewhere |
//! | block devices | copies, without `O_DIRECT` |
//! | memory devices (major 1) and terminals | copies |
//! | other character devices | elsewhere |
//!
//! The file system is asked once for each mount: an answer of NFS or FUSE is one of its server. A
//! mount is known by a number that is never used twice (Linux 6.8); before, local file systems are
//! asked each time.
//!
//! # Safety
//!
//! Descriptors of the program are borrowed for system calls, which say so if there is none.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use libc::{c_int, c_void, socklen_t};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fstatfs, statx};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a descriptor is read into memory that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As the program says.
    Copies,
    /// Elsewhere, a piece at a time: a short read is the end.
    Pieces,
    /// Elsewhere, and at once: each read is a message.
    Whole,
}

/// File systems whose reads without `O_DIRECT` are copies, by the magic number of `statfs(2)`.
const COPYING: [u32; 30] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs, memfd
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
    0x9660,      // ISO 9660
    0x1501_3346, // UDF
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // EROFS
    0x28cd_3d45, // cramfs
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS
    0x3153_464a, // JFS
    0x3434,      // NILFS
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x1cd1,      // devpts
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0x1980_0202, // message queues
    0xcafe_4a11, // bpf
    0x6e73_6673, // name spaces
    0x0904_1934, // event descriptors
];

/// Major numbers of memory devices, consoles and terminals.
const MEMORY: u32 = 1;
const TERMINALS: [u32; 10] = [4, 5, 136, 137, 138, 139, 140, 141, 142, 143];

/// `STATX_MNT_ID_UNIQUE`.
const MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// `TCP_ULP`: the protocol above TCP.
const PROTOCOL_ABOVE: c_int = 31;
const SMC: c_int = 43;

/// Mounts that were asked: twice the number, and whether reads copy. A place is overwritten by
/// another mount that is as likely to be in it.
static MOUNTS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// How this descriptor is read. An error is one of the read, which fails elsewhere as well.
pub(crate) fn of(fd: c_int) -> Manner {
    if fd < 0 {
        return Manner::Copies;
    }
    // SAFETY: not -1, and borrowed for system calls, which say so if it is none.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(stat) = statx(fd, c"", flags, StatxFlags::TYPE | MOUNT) else { return Manner::Whole };
    let is_direct = || !fcntl_getfl(fd).is_ok_and(|flags| !flags.contains(OFlags::DIRECT));
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        // There `O_DIRECT` says that the pipe has messages.
        FileType::Fifo => Manner::Copies,
        FileType::Socket => of_socket(fd),
        FileType::RegularFile if is_direct() => Manner::Pieces,
        FileType::RegularFile => {
            let mount = (stat.stx_mask & MOUNT.bits() != 0).then_some(stat.stx_mnt_id);
            if file_system_copies(fd, mount) { Manner::Copies } else { Manner::Pieces }
        }
        FileType::BlockDevice if is_direct() => Manner::Pieces,
        FileType::BlockDevice | FileType::Directory => Manner::Copies,
        FileType::CharacterDevice => {
            let major = stat.stx_rdev_major;
            let copies = major == MEMORY || is_terminal(major);
            if copies { Manner::Copies } else { Manner::Whole }
        }
        // Event descriptors have no type.
        _ if stat.stx_mode >> 12 == 0 => Manner::Copies,
        _ => Manner::Whole,
    }
}

/// Whether a character device is a terminal, by its major number.
pub(crate) fn is_terminal(major: u32) -> bool {
    TERMINALS.contains(&major)
}

fn file_system_copies(fd: BorrowedFd<'_>, mount: Option<u64>) -> bool {
    let place = mount.map(|mount| (mount << 1, &MOUNTS[(mount % MOUNTS.len() as u64) as usize]));
    if let Some((key, place)) = place {
        let known = place.load(Ordering::Relaxed);
        if known & !1 == key {
            return known & 1 != 0;
        }
    }
    let copies = fstatfs(fd).is_ok_and(|system| COPYING.contains(&(system.f_type as u32)));
    if let Some((key, place)) = place {
        place.store(key | u64::from(copies), Ordering::Relaxed);
    }
    copies
}

/// How a socket is read. A socket has no end that a short read shows.
fn of_socket(fd: BorrowedFd<'_>) -> Manner {
    let _errno = Errno::save();
    let copies = match option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Some(libc::AF_UNIX | libc::AF_NETLINK | libc::AF_PACKET | libc::AF_VSOCK) => true,
        Some(libc::AF_INET | libc::AF_INET6) => {
            // Only TCP has the option; it is empty while nothing is above it.
            option(fd, libc::IPPROTO_TCP, PROTOCOL_ABOVE).is_none_or(|above| above == 0)
        }
        Some(SMC) => true,
        _ => false,
    };
    if copies { Manner::Copies } else { Manner::Whole }
}

/// The first bytes of an option of a socket.
fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let to: *mut c_void = (&raw mut value).cast();
    // SAFETY: there is room for the length that is said.
    let done = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, to, &raw mut len) };
    (done == 0).then_some(if len == 0 { 0 } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::net::UnixStream;

    fn manner(fd: &impl AsRawFd) -> Manner {
        of(fd.as_raw_fd())
    }

    #[test]
    fn pipes_sockets_events_and_files_of_memory_copy() {
        let (from, to) = std::io::pipe().expect("a pipe");
        assert_eq!((manner(&from), manner(&to)), (Manner::Copies, Manner::Copies));
        let (one, _other) = UnixStream::pair().expect("sockets");
        assert_eq!(manner(&one), Manner::Copies);
        assert_eq!(manner(&UdpSocket::bind("127.0.0.1:0").expect("a port")), Manner::Copies);
        assert_eq!(manner(&TcpListener::bind("127.0.0.1:0").expect("a port")), Manner::Copies);
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        assert_eq!(manner(&event.expect("an event descriptor")), Manner::Copies);
        for path in ["/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            assert_eq!(manner(&File::open(path).expect("a file")), Manner::Copies, "{path}");
        }
        for path in ["/dev/zero", "/dev/urandom", "/dev/ptmx"] {
            assert_eq!(manner(&File::open(path).expect("a device")), Manner::Copies, "{path}");
        }
    }

    #[test]
    fn what_pins_or_is_not_known_is_read_elsewhere() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x");
        std::fs::write(&path, b"bytes").expect("a file");
        let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
        assert_eq!(manner(&direct.expect("without the page cache")), Manner::Pieces);
        // SAFETY: makes a socket.
        let cipher = unsafe { libc::socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0) };
        if cipher >= 0 {
            assert_eq!(of(cipher), Manner::Whole);
            // SAFETY: the socket of this test.
            unsafe { libc::close(cipher) };
        } else {
            eprintln!("SKIPPED: the kernel has no AF_ALG");
        }
        for path in ["/dev/fuse", "/dev/kvm", "/dev/net/tun"] {
            match File::open(path) {
                Ok(device) => assert_eq!(manner(&device), Manner::Whole, "{path}"),
                Err(error) => eprintln!("SKIPPED: {path}: {error}"),
            }
        }
        assert_eq!(of(i32::MAX), Manner::Whole, "no descriptor");
    }

    #[test]
    fn the_file_system_of_this_test_copies_or_is_an_overlay() {
        let own = File::open(std::env::current_exe().expect("a path")).expect("this test");
        let system = fstatfs(&own).expect("its file system").f_type as u32;
        let expected = if COPYING.contains(&system) { Manner::Copies } else { Manner::Pieces };
        assert_eq!((manner(&own), manner(&own)), (expected, expected), "{system:#x}");
    }
}
