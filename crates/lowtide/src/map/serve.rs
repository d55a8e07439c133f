//! Beginning to serve the faults of a mirror.

use super::error::MapError;
use super::mirror::Mirror;
use super::mode::MapMode;
use super::on_error::OnError;
use super::options::MapOptions;
use super::run::manner::Counted;
use super::server::{Served, Server};
use super::space::{Body, open_space};
use super::stores::Storing;
use super::sweep::drop_at_once;
use super::sweeper::sweeper_of;
use crate::ahead::readahead::{ReadAhead, window_pages};
use crate::anon::{self, StoresInOrder};
use crate::pager::Pager;
use crate::space::Space;
use crate::view::Open;
use crate::warm::reader::{opened, read};
use lowtide_sys::room::Own;
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// The pager's server; started if need be.
pub(super) fn server_of(pager: &Pager) -> Result<Arc<Server>, MapError> {
    pager.inner.threads.service(Server::start).map_err(|(step, source)| {
        match source.raw_os_error() {
            // Used up for now, which says nothing about the way.
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => {
                MapError::Kernel { step, source }
            }
            _ => {
                MapError::Mode { mode: MapMode::Userfault, why: format!("{step} failed: {source}") }
            }
        }
    })
}

/// Serves the faults of a mirror of these pages of a file from now on.
pub(super) fn serve(
    options: &MapOptions,
    pager: &Pager,
    file: (&Own<File>, Option<BorrowedFd<'_>>),
    (server, mirror): (&Server, Mirror),
    pages: &Range<u64>,
) -> Result<Arc<Served>, MapError> {
    let pool = &pager.inner.pool;
    let (group, writes) = (options.group(pager)?, mirror.is_stored_to());
    let sweeper = sweeper_of(pager)?;
    let mirror = Arc::new(mirror);
    let body: Body = Arc::<Mirror>::clone(&mirror);
    let space = open_space(pool, group, file, (body, MapMode::Userfault, writes), pages.end)?;
    let open = Opened::File(Open::new(pager.clone(), Arc::clone(&space)));
    if writes {
        space.decide_stable(None);
        pool.attach_device(&space)?;
    }
    let wishes = (window_pages(pool, options.read_ahead), options.on_error.clone());
    // SAFETY: the window was just made, for this map alone, and no thread has a pointer to it; of a
    // mirror that is placed the caller has promised that (`MapOptions::serve`).
    #[expect(unsafe_code, reason = "the mirror decides what its memory contains")]
    let served = unsafe { begin(server, mirror, space, open, wishes) }?;
    drop_at_once(&served.space);
    opened(pool, &pager.inner.threads, &served.space, Box::new(read));
    sweeper.add(&served.space, None);
    Ok(served)
}

/// What a mirror keeps open.
pub(super) enum Opened {
    File(Open),
    Region(anon::Open),
}

/// Serves the faults of a mirror from now on. `window` is how many pages it reads ahead at most;
/// `on_error` hears of pages that cannot be brought in.
///
/// # Safety
/// As [`Server::add`].
#[expect(unsafe_code, reason = "the mirror decides what its memory contains")]
pub(super) unsafe fn begin(
    server: &Server,
    mirror: Arc<Mirror>,
    space: Arc<Space>,
    opened: Opened,
    (window, on_error): (u64, Option<OnError>),
) -> Result<Arc<Served>, MapError> {
    let cursor = AtomicU64::new(lowtide_pin::sync::lock(&space.ledger).cursor());
    let (open, region) = match opened {
        Opened::File(open) => (Some(open), None),
        Opened::Region(region) => (None, Some(region)),
    };
    let served = Arc::new(Served {
        space,
        mirror,
        ahead: ReadAhead::behind_pointer(window),
        error: Mutex::default(),
        on_error,
        faults: AtomicU64::new(0),
        came: Counted::default(),
        storing: Storing::default(),
        in_order: StoresInOrder::default(),
        cursor,
        open,
        region,
    });
    // SAFETY: as the caller has promised.
    let added = unsafe { server.add(&served) };
    added.map_err(MapError::kernel("registering with userfaultfd(2)"))?;
    Ok(served)
}
