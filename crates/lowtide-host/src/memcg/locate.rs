//! Where a memory cgroup can be made: below the group of this process, or beside it.
//!
//! In version 2 a group may be made below one that hands the memory controller down to its
//! children. Where none above this process does yet, as on a system without systemd, one that has
//! the controller can be made to; but the kernel refuses that to a group with processes, unless it
//! is the root.

use std::fs;
use std::path::{Path, PathBuf};

pub(super) use lowtide_sys::memcg::Place;
pub use lowtide_sys::memcg::Version;
use lowtide_sys::memcg::{NoPlace, has_memory, is_hierarchy_root};
use rustix::fs::Access;

use super::MemcgError;
use super::error::{Obstacle, is_refusal};

/// What a group hands down to its children.
const HANDED_DOWN: &str = "cgroup.subtree_control";

/// A place where this process may make a memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The interface of that place.
    pub version: Version,
    /// The directory that the new group will be made in.
    pub parent: PathBuf,
}

/// A directory that could hold the new group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) dir: PathBuf,
    version: Version,
    /// It does not hand the controller down yet.
    enables: bool,
}

impl Parent {
    /// Whether this process may make a group in it, judged by permissions.
    fn judge(&self) -> Result<(), MemcgError> {
        let refused = |error: rustix::io::Errno| self.refused(&error.into());
        let access = |path: &Path, rights| rustix::fs::access(path, rights).map_err(refused);
        if self.enables {
            access(&self.dir.join(HANDED_DOWN), Access::WRITE_OK)?;
            let processes = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            if !is_hierarchy_root(&self.dir) && !processes.trim().is_empty() {
                return Err(self.obstructed(Obstacle::Processes));
            }
        }
        access(&self.dir, Access::WRITE_OK | Access::EXEC_OK)
    }

    /// Makes it hand the controller down.
    ///
    /// # Errors
    /// [`MemcgError::NotPermitted`], [`MemcgError::Io`].
    pub(super) fn hand_down(&self) -> Result<(), MemcgError> {
        if !self.enables {
            return Ok(());
        }
        let path = self.dir.join(HANDED_DOWN);
        fs::write(&path, "+memory").map_err(|error| {
            if is_refusal(&error) {
                return self.refused(&error);
            }
            MemcgError::io("write \"+memory\" to", path, error)
        })
    }

    /// The kernel's refusal to make a group in it.
    pub(super) fn refused(&self, error: &std::io::Error) -> MemcgError {
        self.obstructed(Obstacle::of(error))
    }

    fn obstructed(&self, obstacle: Obstacle) -> MemcgError {
        MemcgError::not_permitted(&self.dir, obstacle, self.version)
    }
}

/// Where [`Memcg::create`](super::Memcg::create) would try first, judged by permissions, without
/// making anything.
///
/// # Errors
///
/// [`MemcgError::NoController`], [`MemcgError::NotGiven`] and [`MemcgError::NotPermitted`], as
/// `create` would say.
pub fn offered() -> Result<Offer, MemcgError> {
    offered_in(&find()?)
}

fn offered_in(place: &Place) -> Result<Offer, MemcgError> {
    let parent = first_of(place, |parent| parent.judge().map(|()| parent.dir.clone()))?;
    Ok(Offer { version: place.version, parent })
}

/// The smallest limit on memory that binds this process: of its own group, or of one above it that
/// can be seen. `None` if there is none.
#[must_use]
pub fn own_limit() -> Option<u64> {
    lowtide_sys::memcg::own_limit().map(|limit| limit.bytes)
}

/// As [`own_limit`], with `memory.high` where a group has one.
#[must_use]
pub fn own_limit_or_high() -> Option<u64> {
    lowtide_sys::memcg::own_limit_or_high().map(|limit| limit.bytes)
}

/// The memory hierarchy as this process sees it.
pub(super) fn find() -> Result<Place, MemcgError> {
    Place::find().map_err(|none| match none {
        NoPlace::Unreadable { path, source } => MemcgError::io("read", path, source),
        NoPlace::NotGiven { root } => MemcgError::NotGiven { root },
        other => MemcgError::NoController { reason: other.to_string() },
    })
}

/// What `make` makes of the first directory that may hold the new group. If none may, the reason of
/// the one of which the most can be done.
pub(super) fn first_of<T>(
    place: &Place,
    mut make: impl FnMut(&Parent) -> Result<T, MemcgError>,
) -> Result<T, MemcgError> {
    let mut refused: Option<(Obstacle, MemcgError)> = None;
    for parent in parents(place) {
        match make(&parent) {
            Err(error @ MemcgError::NotPermitted { obstacle, .. }) => {
                if refused.as_ref().is_none_or(|(before, _)| obstacle > *before) {
                    refused = Some((obstacle, error));
                }
            }
            done => return done,
        }
    }
    Err(refused.map_or_else(
        || MemcgError::not_permitted(&place.own, Obstacle::NotGiven, place.version),
        |(_, error)| error,
    ))
}

/// Directories that could hold the new group, best first.
pub(super) fn parents(place: &Place) -> Vec<Parent> {
    let version = place.version;
    if version == Version::V1 {
        return vec![Parent { dir: place.own.clone(), version, enables: false }];
    }
    let (hand_down, others): (Vec<_>, Vec<_>) =
        place.upward().partition(|dir| has_memory(&dir.join(HANDED_DOWN)));
    let could = others.into_iter().filter(|dir| has_memory(&dir.join("cgroup.controllers")));
    let hand_down = hand_down.into_iter().map(|dir| (dir, false));
    let all = hand_down.chain(could.map(|dir| (dir, true)));
    all.map(|(dir, enables)| Parent { dir, version, enables }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcg::error::advice;
    use std::os::unix::fs::PermissionsExt;

    /// A group as the kernel shows it: what it has, what it hands down, and its processes. The root
    /// of a hierarchy has no type.
    fn group(dir: &Path, has: &str, hands_down: &str, processes: &str) {
        fs::create_dir_all(dir).unwrap();
        for (file, text) in [
            ("cgroup.controllers", has),
            (HANDED_DOWN, hands_down),
            ("cgroup.procs", processes),
            ("cgroup.type", "domain"),
        ] {
            fs::write(dir.join(file), text).unwrap();
        }
    }

    fn place(root: &Path, own: &Path) -> Place {
        Place { version: Version::V2, mount_point: root.to_owned(), own: own.to_owned() }
    }

    fn why_not(place: &Place) -> String {
        offered_in(place).unwrap_err().to_string()
    }

    #[test]
    fn the_nearest_group_that_hands_the_controller_down_is_offered() {
        let dir = tempfile::tempdir().unwrap();
        let (root, slice, scope) =
            (dir.path(), dir.path().join("slice"), dir.path().join("slice/scope"));
        group(root, "cpu memory", "cpu memory", "1");
        group(&slice, "cpu memory", "memory", "");
        group(&scope, "cpu memory", "", "77");
        assert_eq!(offered_in(&place(root, &scope)).unwrap().parent, slice);
        fs::write(slice.join(HANDED_DOWN), "cpu").unwrap();
        assert_eq!(offered_in(&place(root, &scope)).unwrap().parent, root);
    }

    /// The root group of a system without systemd, as root: the controller is enabled first.
    #[test]
    fn the_root_is_offered_and_made_to_hand_the_controller_down() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        group(root, "cpu memory", "", "1\n77");
        fs::remove_file(root.join("cgroup.type")).unwrap();
        let place = place(root, root);
        assert_eq!(offered_in(&place).unwrap().parent, root);
        let found = parents(&place);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].hand_down().unwrap();
        assert_eq!(fs::read_to_string(root.join(HANDED_DOWN)).unwrap(), "+memory");
    }

    /// A container, or a delegated group, whose only group has the processes.
    #[test]
    fn a_group_with_processes_is_to_be_emptied_first() {
        let dir = tempfile::tempdir().unwrap();
        group(dir.path(), "cpu memory", "", "77");
        let why = why_not(&place(dir.path(), dir.path()));
        let leaf = format!("mkdir {}/leaf", dir.path().display());
        assert!(why.contains("contains processes") && why.contains(&leaf), "{why}");
        assert!(!why.contains("systemd-run") && !why.contains("mount"), "{why}");
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        assert!(offered_in(&place(dir.path(), dir.path())).is_ok());
    }

    #[test]
    fn a_user_without_a_delegated_group_is_told_how_to_get_one() {
        if rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED in part: root may write to every file");
        } else {
            let dir = tempfile::tempdir().unwrap();
            group(dir.path(), "cpu memory", "memory", "77");
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
            let why = why_not(&place(dir.path(), dir.path()));
            assert!(why.contains("systemd-run --user"), "{why}");
        }
        let no = |error| Obstacle::of(&std::io::Error::from_raw_os_error(error));
        let why = |obstacle, is_root| advice(obstacle, Version::V2, is_root, Path::new("/g"));
        assert!(why(no(libc::EACCES), false).contains("systemd-run --user"));
        assert!(!why(no(libc::EACCES), true).contains("root,"), "it is root");
        assert!(why(no(libc::EROFS), true).contains("writable"));
        assert!(why(no(libc::EBUSY), true).contains("mkdir /g/leaf"));
    }

    #[test]
    fn groups_that_get_no_controller_hold_none() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        group(dir.path(), "memory", "", "1");
        group(&own, "cpu", "", "77");
        let why = why_not(&place(dir.path(), &own));
        assert!(why.contains(&dir.path().display().to_string()), "{why}");
        assert_eq!(parents(&place(dir.path(), &own)).len(), 1);
    }
}
