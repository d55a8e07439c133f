//! How much memory there is for copies: the machine's, and that of the memory cgroups above this
//! process.
//!
//! A cgroup that is over its limit gets no error: a process in it is killed. So a copy is not
//! begun where it does not fit. The files are opened at the beginning and kept, because a program
//! may confine itself later (`chroot`), or use its descriptors up.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Memory that is left when a copy is made.
const SPARE: u64 = 64 << 20;

/// Files of one cgroup.
struct Group {
    limit: File,
    usage: File,
    stat: File,
    /// Names of the lines of `stat` that say how many bytes can be dropped.
    droppable: [&'static str; 2],
}

/// Where the numbers are.
pub(crate) struct Room {
    machine: Option<File>,
    groups: Vec<Group>,
}

impl Room {
    /// Opens what there is. What cannot be opened does not limit.
    pub(crate) fn open() -> Self {
        let text = |name: &str| fs::read_to_string(format!("/proc/thread-self/{name}"));
        let (cgroups, mounts) = (text("cgroup"), text("mountinfo"));
        let groups = folders(&cgroups.unwrap_or_default(), &mounts.unwrap_or_default());
        let machine = File::open("/proc/meminfo").ok();
        Self { machine, groups: groups.iter().filter_map(|(path, v2)| open(path, *v2)).collect() }
    }

    /// Whether there is room for this number of bytes, and some more.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        let wanted = bytes.saturating_add(SPARE);
        let fits = |free: Option<u64>| free.is_none_or(|free| wanted <= free);
        let machine = self.machine.as_ref().and_then(|file| {
            let line = line(&text(file)?, "MemAvailable:")?;
            line.checked_mul(1024)
        });
        fits(machine) && self.groups.iter().all(|group| fits(group.free()))
    }
}

impl Group {
    /// Bytes up to the limit, with those that can be dropped.
    fn free(&self) -> Option<u64> {
        let number = |file| text(file)?.trim().parse::<u64>().ok();
        let (limit, usage) = (number(&self.limit)?, number(&self.usage)?);
        let stat = text(&self.stat).unwrap_or_default();
        let droppable: u64 = self.droppable.iter().filter_map(|name| line(&stat, name)).sum();
        Some(limit.saturating_sub(usage.saturating_sub(droppable)))
    }
}

/// The text of a small file of /proc or of a cgroup, which is kept open.
pub(crate) fn text(file: &File) -> Option<String> {
    let mut bytes = [0; 8 << 10];
    let count = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// The number in the line that begins with a name.
pub(crate) fn line(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', '\t']))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn open(folder: &Path, v2: bool) -> Option<Group> {
    let file = |name: &str| File::open(folder.join(name)).ok();
    let (limit, usage) = if v2 {
        ("memory.max", "memory.current")
    } else {
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
    };
    let droppable = if v2 {
        ["inactive_file", "active_file"]
    } else {
        ["total_inactive_file", "total_active_file"]
    };
    Some(Group { limit: file(limit)?, usage: file(usage)?, stat: file("memory.stat")?, droppable })
}

/// Folders of the process's memory cgroup and of those above it, as far as they can be seen; and
/// whether they are of version 2.
fn folders(cgroups: &str, mounts: &str) -> Vec<(PathBuf, bool)> {
    let mut found = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(own)) = (fields.next(), fields.next()) else { continue };
        let v2 = controllers.is_empty();
        if !v2 && !controllers.split(',').any(|one| one == "memory") {
            continue;
        }
        for (root, point) in mounts.lines().filter_map(|line| hierarchy(line, v2)) {
            // What is mounted may be a part of the hierarchy, as in a container.
            let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
            let depth = below.components().count();
            let folders = Path::new(point).join(below);
            found.extend(folders.ancestors().take(depth + 1).map(|path| (path.to_owned(), v2)));
        }
    }
    found
}

/// The root and the place of a mount that has memory cgroups of a version.
fn hierarchy(line: &str, v2: bool) -> Option<(&str, &str)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let mut system = system.split(' ');
    let (kind, options) = (system.next()?, system.nth(1)?);
    let has_memory = || options.split(',').any(|one| one == "memory");
    let is_one = if v2 { kind == "cgroup2" } else { kind == "cgroup" && has_memory() };
    is_one.then(|| Some((mount.next()?, mount.next()?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_above_a_process_are_found_where_they_are_mounted() {
        let mounts = "\
            30 20 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n\
            31 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 20 0:28 /box /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let of = |cgroups| folders(cgroups, mounts);
        let paths = |v2: bool, all: &[&str]| -> Vec<_> {
            all.iter().map(|path| (PathBuf::from(path), v2)).collect()
        };
        assert_eq!(
            of("5:cpu:/x\n4:memory:/a/b\n"),
            paths(
                false,
                &["/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]
            )
        );
        assert_eq!(
            of("0::/box/one\n"),
            paths(true, &["/sys/fs/cgroup/unified/one", "/sys/fs/cgroup/unified"])
        );
        assert_eq!(line("file 1\ninactive_file 20\n", "inactive_file"), Some(20));
        assert_eq!(line("MemAvailable:   30 kB", "MemAvailable:"), Some(30));
    }

    #[test]
    fn what_is_larger_than_the_machine_has_no_room() {
        let room = Room::open();
        assert!(room.has(0) && !room.has(1 << 50));
    }
}
