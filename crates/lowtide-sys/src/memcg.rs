//! Where the memory cgroup of this process is, and what limits it: `/proc/self/mountinfo` and
//! `/proc/self/cgroup`.
//!
//! Both files name paths inside the hierarchy, seen from this process's cgroup namespace; a
//! mount may show only a part of the hierarchy (its *root* field, as in containers). The directory
//! of this process's group is the mount point plus what is left of the group's path when the
//! mount's root is taken off its front.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Which cgroup interface serves the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy a controller.
    V1,
    /// The unified hierarchy.
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1 => "v1",
            Version::V2 => "v2",
        })
    }
}

/// A limit on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// The directory of the group that has it.
    pub group: PathBuf,
}

/// The smallest limit on memory that binds this process: of its own group, or of one above it that
/// can be seen. Above it the kernel kills. `None` if there is none.
#[must_use]
pub fn own_limit() -> Option<Limit> {
    let place = Place::find().ok()?;
    place.smallest(match place.version {
        Version::V1 => &["memory.limit_in_bytes"],
        Version::V2 => &["memory.max"],
    })
}

/// As [`own_limit`], where a group of version 2 has a `memory.high` that too: above that the kernel
/// makes the process wait while it reclaims.
#[must_use]
pub fn own_limit_or_high() -> Option<Limit> {
    let place = Place::find().ok()?;
    place.smallest(match place.version {
        Version::V1 => &["memory.limit_in_bytes"],
        Version::V2 => &["memory.high", "memory.max"],
    })
}

/// What of a limit on memory is for pages: all but an eighth, which is for the program's own
/// memory. Were it all, the kernel would reclaim first, or kill.
#[must_use]
pub const fn part_for_pages(limit: u64) -> u64 {
    limit - limit / 8
}

/// Why a process has no place in a hierarchy of memory cgroups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlace {
    /// No mounted hierarchy has the memory controller.
    #[error("{reason}")]
    NoController {
        /// The controller or mount that was not found.
        reason: String,
    },
    /// The highest group that this process sees, as in a container, is given no memory controller
    /// by the group above it.
    #[error("the group above {} gives it no memory controller", root.display())]
    NotGiven {
        /// Its directory.
        root: PathBuf,
    },
    /// A file of the process cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What a limit's file says. Version 2 writes `max` for none; version 1 the largest multiple of a
/// page.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 60)
}

/// The memory hierarchy as this process sees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// The interface.
    pub version: Version,
    /// Where the hierarchy is mounted.
    pub mount_point: PathBuf,
    /// The directory of the group that this process is in.
    pub own: PathBuf,
}

impl Place {
    /// Reads both files of this process.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn find() -> Result<Place, NoPlace> {
        let read = |path| {
            std::fs::read_to_string(path).map_err(|source| NoPlace::Unreadable { path, source })
        };
        Place::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)?.with_memory()
    }

    /// Refuses a hierarchy of version 2 without the controller.
    fn with_memory(self) -> Result<Place, NoPlace> {
        let root = &self.mount_point;
        if self.version == Version::V1 || has_memory(&root.join("cgroup.controllers")) {
            return Ok(self);
        }
        if !is_hierarchy_root(root) {
            return Err(NoPlace::NotGiven { root: self.mount_point });
        }
        let reason = format!("the hierarchy at {} has no memory controller", root.display());
        Err(NoPlace::NoController { reason })
    }

    /// A version 1 hierarchy that has the memory controller wins, because then version 2 cannot
    /// have it.
    fn parse(mountinfo: &str, cgroup: &str) -> Result<Place, NoPlace> {
        let mounts: Vec<Mount> = mountinfo.lines().filter_map(Mount::parse).collect();
        for version in [Version::V1, Version::V2] {
            let Some(mount) = mounts.iter().find(|mount| mount.version == version) else {
                continue;
            };
            let Some(group) = own_group(cgroup, version) else { continue };
            // A group outside of what is mounted shows as a path that the mount's root is no prefix
            // of, or that climbs out of the namespace; the mount point is then the nearest that can
            // be reached.
            let inside = Path::new(&group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
            let climbs = inside.components().any(|part| part == Component::ParentDir);
            let at_mount = climbs || inside.as_os_str().is_empty();
            let own = if at_mount { mount.point.clone() } else { mount.point.join(inside) };
            return Ok(Place { version, mount_point: mount.point.clone(), own });
        }
        Err(NoPlace::NoController {
            reason: "no mounted cgroup hierarchy with the memory controller holds this process"
                .into(),
        })
    }

    /// The smallest limit in files of these names.
    fn smallest(&self, files: &[&str]) -> Option<Limit> {
        let limits = self.upward().flat_map(|group| {
            let of = |file: &&str| limit(&std::fs::read_to_string(group.join(file)).ok()?);
            let bytes = files.iter().filter_map(of).min();
            bytes.map(|bytes| Limit { bytes, group })
        });
        limits.min_by_key(|limit| limit.bytes)
    }

    /// This process's group and its ancestors, up to the mount point.
    pub fn upward(&self) -> impl Iterator<Item = PathBuf> {
        self.own
            .ancestors()
            .take_while(|dir| dir.starts_with(&self.mount_point))
            .map(Path::to_owned)
    }
}

/// Whether a directory of version 2 is the root of its hierarchy, and not only the highest group
/// that a container sees: the root has no type.
#[must_use]
pub fn is_hierarchy_root(dir: &Path) -> bool {
    !dir.join("cgroup.type").exists()
}

/// Whether a file that lists controllers names `memory`.
#[must_use]
pub fn has_memory(list: &Path) -> bool {
    std::fs::read_to_string(list)
        .is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"))
}

/// The path of this process's group in the memory hierarchy of one version (`ID:CONTROLLERS:PATH`
/// lines).
fn own_group(cgroup: &str, version: Version) -> Option<String> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mine = match version {
            Version::V1 => controllers.split(',').any(|name| name == "memory"),
            Version::V2 => id == "0" && controllers.is_empty(),
        };
        // A group that was removed while this process was in it is marked so; it is no place for a
        // child.
        mine.then(|| path.trim_end_matches(" (deleted)").to_owned())
    })
}

/// One line of mountinfo that may hold the memory controller.
struct Mount {
    version: Version,
    /// The part of the hierarchy that the mount shows.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// `ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAGS…] - TYPE SOURCE SUPER_OPTIONS`
    /// (`proc_pid_mountinfo(5)`).
    fn parse(line: &str) -> Option<Mount> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (fs_type, _source, options) = (kind.next()?, kind.next()?, kind.next()?);
        let version = match fs_type {
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        Some(Mount { version, root: unescape(root).into(), point: unescape(point).into() })
    }
}

/// Undoes the octal escapes of mountinfo (space, tab, newline and backslash).
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn own(mountinfo: &str, cgroup: &str) -> (Version, String) {
        let place = Place::parse(mountinfo, cgroup).unwrap();
        (place.version, place.own.display().to_string())
    }

    #[test]
    fn a_program_keeps_a_part_of_its_container_for_itself() {
        assert_eq!(part_for_pages(1 << 30), 896 << 20);
    }

    #[test]
    fn no_limit_is_written_in_two_ways() {
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit("9223372036854771712\n"), None);
        assert_eq!(limit("1073741824\n"), Some(1 << 30));
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_those_above_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (root, own) = (dir.path().to_owned(), dir.path().join("a/b"));
        std::fs::create_dir_all(&own).unwrap();
        let write = |dir: &Path, file, text| std::fs::write(dir.join(file), text).unwrap();
        write(&own, "memory.max", "max\n");
        write(&own, "memory.high", "4096\n");
        write(&root.join("a"), "memory.max", "8192\n");
        let place = Place { version: Version::V2, mount_point: root.clone(), own: own.clone() };
        let limit = |files: &[&str]| place.smallest(files).map(|limit| (limit.bytes, limit.group));
        assert_eq!(limit(&["memory.max"]), Some((8192, root.join("a"))));
        assert_eq!(limit(&["memory.high", "memory.max"]), Some((4096, own)));
        assert_eq!(limit(&["memory.low"]), None);
    }

    #[test]
    fn a_version_1_memory_hierarchy_wins_over_an_empty_version_2() {
        let group = "8:pids:/\n4:memory:/jobs/7\n0::/\n";
        assert_eq!(own(HYBRID, group), (Version::V1, "/sys/fs/cgroup/memory/jobs/7".into()));
    }

    #[test]
    fn version_2_is_found_alone() {
        let mounts =
            "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            own(mounts, "0::/user.slice/x.scope\n"),
            (Version::V2, "/sys/fs/cgroup/user.slice/x.scope".into())
        );
        let place = Place::parse(mounts, "0::/user.slice/x.scope\n").unwrap();
        let upward: Vec<_> = place.upward().collect();
        assert_eq!(
            upward,
            ["/sys/fs/cgroup/user.slice/x.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]
                .map(PathBuf::from)
        );
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        let mounts =
            "35 31 0:32 /docker/ab /sys/fs/cgroup/mem\\040ory ro - cgroup cgroup rw,memory\n";
        assert_eq!(own(mounts, "4:memory:/docker/ab\n").1, "/sys/fs/cgroup/mem ory");
        assert_eq!(own(mounts, "4:memory:/docker/ab/sub\n").1, "/sys/fs/cgroup/mem ory/sub");
        assert_eq!(own(mounts, "4:memory:/elsewhere\n").1, "/sys/fs/cgroup/mem ory");
    }

    #[test]
    fn a_group_outside_the_namespace_falls_back_to_the_mount_point() {
        let mounts = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(own(mounts, "0::/../../init.scope\n").1, "/sys/fs/cgroup");
    }

    #[test]
    fn a_container_that_is_given_no_controller_is_told_apart_from_a_kernel_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let place = || Place { version: Version::V2, mount_point: root.into(), own: root.into() };
        std::fs::write(root.join("cgroup.controllers"), "cpu pids\n").unwrap();
        assert!(matches!(place().with_memory(), Err(NoPlace::NoController { .. })));
        std::fs::write(root.join("cgroup.type"), "domain\n").unwrap();
        let error = place().with_memory().unwrap_err();
        assert!(matches!(error, NoPlace::NotGiven { .. }), "{error}");
        std::fs::write(root.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        assert_eq!(place().with_memory().unwrap(), place());
    }

    #[test]
    fn nothing_mounted_and_nonsense_are_errors() {
        for (mounts, group) in
            [("", "0::/\n"), (HYBRID, ""), ("garbage - cgroup2", "0::/"), ("1 2 3", "::::")]
        {
            let error = Place::parse(mounts, group).unwrap_err();
            assert!(matches!(error, NoPlace::NoController { .. }));
            assert!(error.to_string().contains("mount"), "{error}");
        }
    }
}
