//! Which files need stable pages: pages that do not change while they are written.
//!
//! A device reads a page from memory while the page is under write-back, and a store may change it
//! meanwhile. Mostly that does no harm: the page is dirty again and is written once more. It does
//! harm where something is computed from the bytes on their way: by a file system that keeps
//! checksums of its data, or by a device that does. The checksum is then of other bytes than those
//! that arrive, and until the page has been written again the block cannot be read, with all that
//! was flushed there long ago. The kernel's own page cache makes stores wait in that case (*stable
//! pages*), and so does write-back here: a store to a page that is being written waits until the
//! write has ended, and a write does not begin while a store has the page.
//!
//! It is decided once, when the file is first opened for writing: by the option
//! [`OpenOptions::stable_writes`](crate::OpenOptions::stable_writes), or by the file system, or by
//! the queue of the device.

use rustix::fs::fstatfs;
use std::fs::File;

/// File systems that keep checksums of file data, by the number that `statfs(2)` gives.
const CHECKSUMS: [(u32, &str); 3] =
    [(0x9123_683e, "btrfs"), (0x2fc1_2fc1, "ZFS"), (0xca45_1a4e, "bcachefs")];

/// Why a file needs stable pages; `None` if it does not, as far as can be known. `device` is the
/// number of the device with its data.
///
/// Cost: one system call, and one to three small files.
pub(crate) fn needed_by(file: &File, device: u64) -> Option<String> {
    let of_fs = fstatfs(file).ok().and_then(|fs| checksums(fs.f_type as u32));
    of_fs.map(|fs| format!("{fs} keeps checksums")).or_else(|| {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        // The second is of a partition, whose queue is its disk's.
        let block = format!("/sys/dev/block/{major}:{minor}");
        let sources = [
            format!("{block}/queue/stable_writes"),
            format!("{block}/../queue/stable_writes"),
            format!("/sys/class/bdi/{major}:{minor}/stable_pages_required"),
        ];
        let says_so =
            |path: &String| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
        sources.iter().any(says_so).then(|| "the device requires them".to_owned())
    })
}

fn checksums(magic: u32) -> Option<&'static str> {
    CHECKSUMS.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_with_checksums_are_known_by_their_numbers() {
        assert_eq!(checksums(0x9123_683e), Some("btrfs"));
        assert_eq!(checksums(0xef53), None, "ext4");
    }
}
