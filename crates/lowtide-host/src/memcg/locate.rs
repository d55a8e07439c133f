//! Where a memory cgroup can be made: below the group of this process, or beside it.

use std::path::PathBuf;

pub(super) use lowtide_sys::memcg::Place;
pub use lowtide_sys::memcg::Version;
use lowtide_sys::memcg::{NoPlace, has_memory};
use rustix::fs::Access;

use super::MemcgError;

/// A place where this process may make a memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The interface of that place.
    pub version: Version,
    /// The directory that the new group will be made in.
    pub parent: PathBuf,
}

/// Where [`Memcg::create`](super::Memcg::create) would try first, judged by permissions, without
/// making anything.
///
/// # Errors
///
/// [`MemcgError::NoController`] and [`MemcgError::NotPermitted`], as `create` would say.
pub fn offered() -> Result<Offer, MemcgError> {
    let place = find()?;
    let mut refused = None;
    for parent in parents(&place) {
        match rustix::fs::access(&parent, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => return Ok(Offer { version: place.version, parent }),
            Err(error) => {
                let error = MemcgError::not_permitted(&parent, error.to_string(), place.version);
                refused = refused.or(Some(error));
            }
        }
    }
    Err(refused.unwrap_or_else(|| not_handed_down(&place)))
}

/// The smallest limit on memory that binds this process: of its own group, or of one above it that
/// can be seen. `None` if there is none.
#[must_use]
pub fn own_limit() -> Option<u64> {
    lowtide_sys::memcg::own_limit().map(|limit| limit.bytes)
}

/// The memory hierarchy as this process sees it.
pub(super) fn find() -> Result<Place, MemcgError> {
    Place::find().map_err(|none| match none {
        NoPlace::Unreadable { path, source } => MemcgError::io("read", path, source),
        other => MemcgError::NoController { reason: other.to_string() },
    })
}

/// Directories that could hold the new group, best first.
pub(super) fn parents(place: &Place) -> Vec<PathBuf> {
    match place.version {
        Version::V1 => vec![place.own.clone()],
        Version::V2 => {
            place.upward().filter(|dir| has_memory(&dir.join("cgroup.subtree_control"))).collect()
        }
    }
}

/// The error of version 2 when no ancestor enables the controller for its children.
pub(super) fn not_handed_down(place: &Place) -> MemcgError {
    MemcgError::not_permitted(
        &place.own,
        "neither this group nor any above it enables the memory controller for its children",
        place.version,
    )
}
