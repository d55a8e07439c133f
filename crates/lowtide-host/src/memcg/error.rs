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
    /// There is one, and this process may not make a group in it.
    #[error("may not make a memory cgroup in {path} ({reason}); {advice}")]
    NotPermitted {
        /// The directory that the group would have been made in.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
        /// What to do about it.
        advice: &'static str,
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

    pub(super) fn not_permitted(
        path: &Path,
        reason: impl Into<String>,
        version: Version,
    ) -> MemcgError {
        let advice = match version {
            Version::V1 => {
                "run as root, or have root create a group there and give it to this user (chown)"
            }
            Version::V2 => {
                "run as root, or inside a delegated group: `systemd-run --user --scope -p \
                 Delegate=yes COMMAND`"
            }
        };
        MemcgError::NotPermitted { path: path.to_owned(), reason: reason.into(), advice }
    }
}

/// Whether the kernel's error means "not permitted" or "not in this place", as opposed to a
/// failure.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
        || error.raw_os_error() == Some(libc::EBUSY)
}
