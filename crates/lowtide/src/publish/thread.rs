//! The thread that writes the page of this process: one for all pagers that publish.
//!
//! It starts with the first of them and ends with the last, which takes the page away. It has no
//! handle of a pager, since its handle might be the last one, and files would be written here and
//! not where the program drops its own. It has pools, and gives one up while the pager that drops
//! it waits: under the lock that the thread holds while it looks at pools.
//!
//! A child of `fork(2)` has no such thread. Its parent's pagers are not its own, and nothing of
//! this is touched there.

use super::snapshot;
use crate::pool::Pool;
use crate::thread_locals;
use lowtide_pin::sync::lock;
use lowtide_status::{Error, Origin, Writer};
use lowtide_sys::tell;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two writes.
const PAUSE: Duration = Duration::from_secs(1);

/// All pagers of this process that publish.
#[derive(Debug, Default)]
struct Publisher {
    pools: Vec<Arc<Pool>>,
    thread: Option<JoinHandle<()>>,
    /// How often the page was written.
    rounds: u64,
}

static PUBLISHER: Mutex<Publisher> =
    Mutex::new(Publisher { pools: Vec::new(), thread: None, rounds: 0 });
/// A pager has begun or has ended.
static CHANGED: Condvar = Condvar::new();
/// The page was written.
static WRITTEN: Condvar = Condvar::new();

/// A pager's part in it: none until it begins to publish.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    begun: OnceLock<(u32, Arc<Pool>)>,
}

impl Publication {
    /// Begins to publish a pager. One that does already, goes on.
    ///
    /// # Errors
    /// Where no page can be made, or no thread started.
    pub(super) fn begin(&self, pool: &Arc<Pool>, origin: Origin) -> Result<(), Error> {
        let mut publisher = lock(&PUBLISHER);
        if self.begun.get().is_some() {
            return Ok(());
        }
        // A thread that has ended with the last pager is no thread.
        if publisher.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            publisher.thread = Some(start(origin)?);
        }
        publisher.pools.push(Arc::clone(pool));
        let _ = self.begun.set((std::process::id(), Arc::clone(pool)));
        CHANGED.notify_all();
        // The pager is in the page when this returns, unless the file system takes its time.
        let before = publisher.rounds;
        let waits = |publisher: &mut Publisher| publisher.rounds == before;
        drop(WRITTEN.wait_timeout_while(publisher, PAUSE, waits));
        Ok(())
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        let Some((process, pool)) = self.begun.take() else { return };
        if process != std::process::id() {
            return;
        }
        let mut publisher = lock(&PUBLISHER);
        publisher.pools.retain(|other| !Arc::ptr_eq(other, &pool));
        if publisher.pools.is_empty() {
            CHANGED.notify_all();
            let ends = publisher.thread.take();
            drop(publisher);
            // The last pager may be dropped by a thread of its own, but never by this one.
            if let Some(ends) = ends {
                let _ = ends.join();
            }
        }
    }
}

/// Starts the thread, which makes the page.
fn start(origin: Origin) -> Result<JoinHandle<()>, Error> {
    let (made, is_made) = mpsc::sync_channel(1);
    let thread = thread_locals::spawn("lowtide-status", move || {
        let writer = Writer::create(origin);
        match writer {
            Ok(writer) => {
                let _ = made.send(Ok(()));
                drop(made);
                run(writer);
            }
            Err(error) => drop(made.send(Err(error))),
        }
    });
    let refused = |source| Error::Io { path: PathBuf::from("a thread"), source };
    let thread = thread.map_err(refused)?;
    match is_made.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::NoPlace),
    }
}

/// Writes until the last pager has ended.
fn run(mut writer: Writer) {
    let this = thread::current().id();
    loop {
        let mut publisher = lock(&PUBLISHER);
        let is_mine = publisher.thread.as_ref().is_some_and(|thread| thread.thread().id() == this);
        if !is_mine {
            // The page is another thread's, should the next pager have begun already.
            return;
        }
        let pagers = publisher.pools.iter().map(|pool| snapshot::of(pool)).collect();
        if let Err(error) = writer.publish(pagers) {
            tell!(debug, %error, "status page");
        }
        publisher.rounds += 1;
        WRITTEN.notify_all();
        drop(CHANGED.wait_timeout(publisher, PAUSE).unwrap_or_else(PoisonError::into_inner));
    }
}
