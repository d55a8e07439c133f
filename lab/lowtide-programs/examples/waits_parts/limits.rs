//! Programs that use up what a process may have, or give up what it may do.

use crate::{LEN, map_file, touch, wait};
use libc::c_int;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::process::Command;
use std::ptr;

/// Another user than root, who is on every machine.
const ANOTHER_USER: libc::uid_t = 65534;

/// Pages of a file that are cached.
fn cached(fd: RawFd) -> u64 {
    let (all, mut found) = ([0_u64; 2], [0_u64; 5]);
    const CACHESTAT: libc::c_long = 451;
    // SAFETY: a range and a place for the answer, of the sizes that cachestat(2) has.
    let failed = unsafe { libc::syscall(CACHESTAT, fd, all.as_ptr(), found.as_mut_ptr(), 0) };
    if failed == 0 { found[0] } else { 0 }
}

/// A worker of root's is another user before it maps the file, and reads all of it.
pub(crate) fn worker_of_another_user(fd: RawFd, path: &Path) {
    touch(map_file(fd));
    let len = std::fs::metadata(path).expect("the file").len() as usize;
    // SAFETY: the child reads, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: numbers.
        if unsafe { libc::setgid(ANOTHER_USER) | libc::setuid(ANOTHER_USER) } != 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(77) };
        }
        let (prot, none) = (libc::PROT_READ, ptr::null_mut());
        // SAFETY: no address is demanded.
        let start = unsafe { libc::mmap(none, len, prot, libc::MAP_SHARED, fd, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        for round in 0..3 {
            for page in (0..len / 4096).map(|page| (page * 7919 + round) % (len / 4096)) {
                // SAFETY: within the mapping.
                unsafe { start.cast::<u8>().add(page * 4096).read_volatile() };
            }
        }
        // SAFETY: ends the child, as a program ends.
        unsafe { libc::exit(0) };
    }
    match libc::WEXITSTATUS(wait(child)) {
        0 => println!("{} MiB are cached", cached(fd) >> 8),
        _ => println!("SKIPPED: no other user"),
    }
}

/// There are as many mappings as there may be when a child uses the file, and when another process
/// opens it for writing.
pub(crate) fn as_many_mappings_as_there_may_be(fd: RawFd, path: &Path) {
    let start = map_file(fd);
    touch(start);
    let mut writer = Command::new("sh");
    writer.env_remove("LD_PRELOAD").args(["-c", "sleep 1; exec 3<> \"$1\"", "sh"]).arg(path);
    let mut writer = writer.spawn().expect("a shell");
    let (kind, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, ptr::null_mut());
    let mut most = 0;
    for prot in [libc::PROT_NONE, libc::PROT_READ].into_iter().cycle() {
        // SAFETY: no address is demanded.
        if unsafe { libc::mmap(none, 4096, prot, kind, -1, 0) } == libc::MAP_FAILED {
            break;
        }
        most += 1;
        assert!(most < 10_000_000, "there is no limit of mappings");
    }
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
    // SAFETY: the child reads, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        touch(start.wrapping_byte_add(LEN / 2));
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let of_child: c_int = wait(child);
    let opened = writer.wait().expect("it has ended").success();
    touch(start.wrapping_byte_add(LEN / 4));
    println!("the child ends with {of_child}; opened for writing: {opened}");
}
