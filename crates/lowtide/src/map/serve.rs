//! Beginning to serve the faults of a mirror of a file.

use super::error::MapError;
use super::mirror::Mirror;
use super::options::{MapOptions, Way};
use super::server::{Served, Server};
use super::space::{Body, open_space};
use super::stores::Storing;
use crate::pager::Pager;
use crate::readahead::{ReadAhead, window_pages};
use crate::view::Open;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// The pager's server; started if need be.
pub(super) fn server_of(pager: &Pager) -> Result<Arc<Server>, MapError> {
    pager.inner.threads.server().map_err(|(step, source)| MapError::Way {
        way: Way::Userfault,
        why: format!("{step} failed: {source}"),
    })
}

/// Serves the faults of a mirror of these pages of a file from now on.
pub(super) fn serve(
    options: &MapOptions,
    pager: &Pager,
    file: BorrowedFd<'_>,
    (server, mirror): (&Server, Mirror),
    pages: &Range<u64>,
) -> Result<Arc<Served>, MapError> {
    let pool = &pager.inner.pool;
    let (group, writes) = (options.group(pager)?, mirror.is_stored_to());
    let mirror = Arc::new(mirror);
    let body: Body = Arc::<Mirror>::clone(&mirror);
    let space = open_space(pool, group, file, (body, Way::Userfault, writes), pages.end)?;
    let open = Some(Open::new(pager.clone(), Arc::clone(&space)));
    if writes {
        space.decide_stable(None);
        pool.attach_device(&space)?;
    }
    let cursor = AtomicU64::new(crate::sync::lock(&space.ledger).cursor());
    let served = Arc::new(Served {
        space,
        mirror,
        ahead: ReadAhead::new(window_pages(pool, options.read_ahead)),
        error: Mutex::default(),
        faults: AtomicU64::new(0),
        storing: Storing::default(),
        cursor,
        open,
        region: None,
    });
    // SAFETY: the window was just made, for this map alone, and is empty; of a mirror that is
    // placed the caller has promised that (`MapOptions::serve`).
    #[expect(unsafe_code, reason = "the mirror decides what its memory contains")]
    let added = unsafe { server.add(&served) };
    added.map_err(MapError::kernel("registering with userfaultfd(2)"))?;
    Ok(served)
}
