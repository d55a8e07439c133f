//! Which files change only by system calls of this kernel.
//!
//! A lease stops the processes of this machine. The server of a network file system, or another
//! machine, knows nothing of it. An overlay is as local as its layers are: what a lower layer on
//! NFS has may change without any call here. Layers that cannot be seen, as in many containers, are
//! not taken for local.

use rustix::fs::{fstatfs, statfs};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

/// By the magic number of `statfs(2)`: ext2 to ext4, XFS, Btrfs, F2FS, EROFS, squashfs, ISO 9660.
const LOCAL: [u32; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xe0f5_e1e2, 0x7371_7368, 0x9660];
/// Memory, which may be a layer of an overlay: tmpfs.
const MEMORY: u32 = 0x0102_1994;
const OVERLAY: u32 = 0x794c_7630;
/// File systems whose files are memory: tmpfs, ramfs, hugetlbfs; and those that have no pages to
/// drop: proc, sysfs.
const IN_MEMORY: [u32; 5] = [MEMORY, 0x8584_58f6, 0x9584_58f6, 0x9fa0, 0x6265_6572];

/// Whether a file has no pages that could be dropped and read again.
#[must_use]
pub fn lives_in_memory(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).is_ok_and(|system| IN_MEMORY.contains(&(system.f_type as u32)))
}

/// Whether a file, which the calling thread has open, is such a one.
pub(crate) fn is_local(file: BorrowedFd<'_>) -> bool {
    match fstatfs(file).map(|system| system.f_type as u32) {
        Ok(OVERLAY) => layers(file).is_some_and(|layers| {
            let is_local = |path: &String| {
                let kind = statfs(path.as_str()).map(|system| system.f_type as u32);
                kind.is_ok_and(|kind| kind == MEMORY || LOCAL.contains(&kind))
            };
            !layers.is_empty() && layers.iter().all(is_local)
        }),
        Ok(kind) => LOCAL.contains(&kind),
        Err(_) => false,
    }
}

/// The folders of the overlay that a file is in.
fn layers(file: BorrowedFd<'_>) -> Option<Vec<String>> {
    let number = file.as_raw_fd();
    let about = fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}")).ok()?;
    let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().to_owned();
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&mount))?;
    let (_, system) = line.split_once(" - ")?;
    Some(layers_of(system.split(' ').nth(2)?))
}

/// The folders that the options of a mount name.
fn layers_of(options: &str) -> Vec<String> {
    let named = |option: &str| {
        let (name, value) = option.split_once('=')?;
        matches!(name, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir").then(|| value.to_owned())
    };
    let folders = options.split(',').filter_map(named);
    let each = folders.flat_map(|value| value.split(':').map(unescape).collect::<Vec<_>>());
    each.filter(|folder| !folder.is_empty()).collect()
}

/// What the kernel writes for characters that separate fields.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_an_overlay_are_its_upper_folder_and_all_lower_ones() {
        let options = "rw,lowerdir=/a\\040b:/c,upperdir=/u,workdir=/w";
        assert_eq!(layers_of(options), ["/a b", "/c", "/u"]);
        assert_eq!(layers_of("ro,lowerdir+=/a,datadir+=/d"), ["/a", "/d"]);
        assert!(layers_of("rw,relatime").is_empty());
    }
}
