//! Which rings belong to which thread, and when they are closed.
//!
//! Every thread has one *cache* of rings for each backend that it has used. A ring is taken out for
//! a request or a batch and put back after it; it never leaves its thread (rings with a single
//! issuer would refuse). The thread owns its caches; each backend knows those that were made for
//! it:
//!
//! ```text
//!   thread-local list ──Arc──▶ cache { idle rings } ◀──Weak── backend
//! ```
//!
//! * The thread ends: its list goes, the caches go with it, the rings are closed.
//! * The backend goes while the thread lives: it empties and closes every cache, so no ring (and no
//!   registration of the arena) outlives it. The closed cache, a few words, leaves the list when
//!   the thread next makes a cache.
//!
//! The lock in a cache is contended only in that last case, so taking a ring costs two uncontended
//! atomic operations on a line that the thread owns.

use lowtide_sys::room::Own;
use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::super::psync::lock;
use super::ring::Ring;

/// How many idle rings a thread keeps. More are only in use when batches are nested deeper.
const IDLE_MAX: usize = 2;

thread_local! {
    static MINE: RefCell<Vec<(u64, Arc<RingCache>)>> = const { RefCell::new(Vec::new()) };
}

/// The idle rings of one thread for one backend.
#[derive(Debug, Default)]
struct RingCache(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    idle: Vec<Own<Ring>>,
    closed: bool,
}

/// All caches of one backend. Dropping it closes them.
#[derive(Debug)]
pub(super) struct RingCaches {
    /// Unique in the process and never used again, so that a stale cache is not mistaken for a new
    /// one.
    id: u64,
    all: Mutex<Vec<Weak<RingCache>>>,
}

impl RingCaches {
    /// No caches yet.
    pub(super) fn new() -> RingCaches {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        RingCaches { id: NEXT.fetch_add(1, Ordering::Relaxed), all: Mutex::default() }
    }

    /// Takes an idle ring out of this thread's cache, or opens one.
    ///
    /// # Errors
    ///
    /// What `open` returns; an error also when the thread is so near its end that its thread-local
    /// storage is gone.
    pub(super) fn take(&self, open: impl FnOnce() -> io::Result<Ring>) -> io::Result<Lease> {
        let cache = MINE
            .try_with(|mine| {
                let mut mine = mine.borrow_mut();
                match mine.iter().find(|(id, _)| *id == self.id) {
                    Some((_, cache)) => Arc::clone(cache),
                    None => {
                        mine.retain(|(_, cache)| !lock(&cache.0).closed);
                        let cache = self.make();
                        mine.push((self.id, Arc::clone(&cache)));
                        cache
                    }
                }
            })
            .map_err(io::Error::other)?;
        let idle = lock(&cache.0).idle.pop().and_then(Own::into_inner);
        let ring = match idle {
            Some(ring) => ring,
            None => open()?,
        };
        Ok(Lease { ring: Some(ring), cache, not_send: PhantomData })
    }

    fn make(&self) -> Arc<RingCache> {
        let cache = Arc::<RingCache>::default();
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&cache));
        cache
    }
}

impl Drop for RingCaches {
    fn drop(&mut self) {
        for cache in lock(&self.all).drain(..).filter_map(|known| known.upgrade()) {
            let mut content = lock(&cache.0);
            content.closed = true;
            content.idle.clear();
        }
    }
}

/// A ring in use. Dropping it puts the ring back, if it can be used again.
#[derive(Debug)]
pub(super) struct Lease {
    /// Present until the drop.
    ring: Option<Ring>,
    cache: Arc<RingCache>,
    /// A ring is entered only by the thread that opened it.
    not_send: PhantomData<*const ()>,
}

impl Lease {
    /// The ring.
    pub(super) fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("a lease has its ring until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(ring) = self.ring.take().filter(|ring| ring.is_idle() && !ring.is_broken()) else {
            return;
        };
        let mut content = lock(&self.cache.0);
        if !content.closed && content.idle.len() < IDLE_MAX {
            content.idle.push(Own::of_this_side(ring));
        }
    }
}
