//! What a measurement needs to know of a file: which file system has it, how much room is left
//! there, and that none of it is in the page cache.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::Advice;

/// The name of the file system that holds `path` (`ext4`, `xfs`, `tmpfs`, …), or its magic number
/// in hexadecimal. The three versions of ext share one number, and all answer `ext4`, which is what
/// serves them today.
///
/// # Errors
///
/// What `statfs(2)` says about the path.
pub fn fs_name(path: impl AsRef<Path>) -> io::Result<String> {
    // The numbers are 32 bits wide; where the field is wider the upper half is sign extension.
    let magic = rustix::fs::statfs(path.as_ref())?.f_type as u32;
    Ok(name_of(magic).map_or_else(|| format!("{magic:#x}"), str::to_owned))
}

/// Magic numbers as listed in `statfs(2)` and the kernel's `magic.h`.
fn name_of(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x2fc1_2fc1 => "zfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x9584_58f6 => "hugetlbfs",
        0x794c_7630 => "overlayfs",
        0x7371_7368 => "squashfs",
        0xe0f5_e1e2 => "erofs",
        0x6969 => "nfs",
        0xfe53_4d42 => "smb2",
        0xff53_4d42 => "cifs",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        0x00c3_6400 => "ceph",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x7366_746e => "ntfs3",
        0x9660 => "iso9660",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        0x0027_e0eb => "cgroup",
        0x6367_7270 => "cgroup2",
        _ => return None,
    })
}

/// Writes the file's dirty pages, waits, and asks the kernel to forget its cached pages, so that
/// the next reads come from the device.
///
/// The kernel keeps pages that are mapped, and pages of the whole file that other processes are
/// reading.
///
/// # Errors
///
/// What `fdatasync(2)` or `posix_fadvise(2)` says: `EIO` and `ENOSPC` for a write that failed,
/// `ESPIPE` or `EINVAL` for a descriptor that has no page cache.
pub fn drop_page_cache(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd();
    rustix::fs::fdatasync(fd)?;
    Ok(rustix::fs::fadvise(fd, 0, None, Advice::DontNeed)?)
}

/// Bytes that an unprivileged process may still write to the file system of `path`. `None` if it
/// does not count: ramfs and some others say that they have no blocks at all.
///
/// # Errors
///
/// What `statvfs(3)` says about the path.
pub fn free_bytes(path: impl AsRef<Path>) -> io::Result<Option<u64>> {
    let said = rustix::fs::statvfs(path.as_ref())?;
    Ok((said.f_blocks > 0).then(|| said.f_bavail.saturating_mul(said.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_sys::page_cache::cached_pages;
    use std::fs::File;

    #[test]
    fn file_systems_are_named() {
        assert_eq!(fs_name("/proc").unwrap(), "proc");
        assert_eq!(fs_name("/sys").unwrap(), "sysfs");
        assert_eq!(name_of(0xdead_beef), None);
        assert_eq!(fs_name("/nonexistent").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(free_bytes(std::env::temp_dir()).unwrap().is_some_and(|bytes| bytes > 0));
        assert_eq!(free_bytes("/proc").unwrap(), None, "it counts no blocks, as ramfs");
        let (pipe, _writer) = io::pipe().unwrap();
        assert!(drop_page_cache(&pipe).is_err());
    }

    #[test]
    fn a_dropped_cache_is_empty_and_the_contents_are_on_the_device() {
        let dir = tempfile::tempdir_in(".").unwrap();
        if fs_name(dir.path()).unwrap() == "tmpfs" {
            eprintln!("SKIPPED: the working directory is on tmpfs, whose page cache is the file");
            return;
        }
        let path = dir.path().join("data");
        std::fs::write(&path, vec![9u8; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        let cached = || cached_pages(&file).unwrap();
        assert!(cached() > 0);
        drop_page_cache(&file).unwrap();
        assert_eq!(cached(), 0);
        assert_eq!(std::fs::read(&path).unwrap(), vec![9u8; 1 << 20]);
    }
}
