//! The errors of a memory cgroup: there is none, this process may not use it, or one of its files
//! cannot be read or written.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Version;

/// Why a memory cgroup could not be made or used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemcgError {
    /// No mounted hierarchy has the memory controller.
    #[error(
        "no memory cgroup here: {reason}; mount one (version 2: `mount -t cgroup2 none \
         /sys/fs/cgroup`, \
         version 1: `mount -t cgroup -o memory none DIR`), or boot without `cgroup_disable=memory`"
    )]
    NoController {
        /// The controller or mount that was not found.
        reason: String,
    },
    /// There is one, but the highest group that this process sees, as in a container, does not get
    /// it.
    #[error(
        "no memory cgroup here: the parent of {} does not enable the memory controller; do so \
         there (`echo +memory > cgroup.subtree_control`), outside of the container or session \
         that this process is in",
        root.display()
    )]
    NotGiven {
        /// The directory of that group.
        root: PathBuf,
    },
    /// There is one, and this process may not make a group in it.
    #[error("cannot create a memory cgroup in {} ({obstacle}); {advice}", path.display())]
    NotPermitted {
        /// The directory that the group would have been made in.
        path: PathBuf,
        /// What is in the way.
        obstacle: Obstacle,
        /// What to do about it.
        advice: String,
    },
    /// A file of the group could not be read or written.
    #[error("cannot {action} {path}: {source}{}", too_many(source))]
    Io {
        /// What was tried, as a verb and its object (`write "4096" to`).
        action: String,
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What to do when files run out, which is what fails first where many are open.
fn too_many(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EMFILE) => "; allow this process more open files (ulimit -n)",
        Some(libc::ENFILE) => "; the machine has too many open files (fs.file-max)",
        _ => "",
    }
}

impl MemcgError {
    pub(super) fn io(
        action: impl Into<String>,
        path: impl Into<PathBuf>,
        source: io::Error,
    ) -> MemcgError {
        MemcgError::Io { action: action.into(), path: path.into(), source }
    }

    pub(super) fn not_permitted(path: &Path, obstacle: Obstacle, version: Version) -> MemcgError {
        let is_root = rustix::process::geteuid().is_root();
        let advice = advice(obstacle, version, is_root, path);
        MemcgError::NotPermitted { path: path.to_owned(), obstacle, advice }
    }
}

/// Why no group can be made in a directory; what more can be done about comes later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// No group that this process sees has the controller to hand down.
    #[error("neither this group nor any of its ancestors has the memory controller")]
    NotGiven,
    /// It belongs to another user.
    #[error("permission denied")]
    Permission,
    /// The hierarchy is mounted for reading.
    #[error("read-only file system")]
    ReadOnly,
    /// A group with processes hands nothing down (version 2).
    #[error("it contains processes, so it cannot enable the memory controller for its children")]
    Processes,
}

impl Obstacle {
    /// That of a refusal.
    pub(super) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EBUSY) => Self::Processes,
            Some(libc::EROFS) => Self::ReadOnly,
            _ => Self::Permission,
        }
    }
}

/// What to do about an obstacle in the directory `path`.
pub(super) fn advice(obstacle: Obstacle, version: Version, is_root: bool, path: &Path) -> String {
    match (obstacle, version) {
        (Obstacle::Processes, _) => {
            let path = path.display();
            return format!(
                "move its processes into a group below it first: `mkdir {path}/leaf && for p in \
                 $(cat {path}/cgroup.procs); do echo $p > {path}/leaf/cgroup.procs; done`"
            );
        }
        (Obstacle::ReadOnly, _) => {
            "run outside of the container, or mount the hierarchy writable in it"
        }
        (Obstacle::NotGiven, _) => {
            "enable it in a group above them (`echo +memory > cgroup.subtree_control`)"
        }
        // Root of a container or of a user namespace.
        (Obstacle::Permission, _) if is_root => {
            "run outside of the container, or have the owner of that directory give it to this \
             user (chown)"
        }
        (Obstacle::Permission, Version::V1) => {
            "run as root, or have root create a group there and give it to this user (chown)"
        }
        (Obstacle::Permission, Version::V2) => {
            "run as root, or inside a delegated group: `systemd-run --user --scope -p \
             Delegate=yes COMMAND`"
        }
    }
    .to_owned()
}

/// Whether the kernel's error means "not permitted" or "not in this place", as opposed to a
/// failure.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
        || error.raw_os_error() == Some(libc::EBUSY)
}
