//! The thread that reads what is on the lists.

use super::known::{Known, Task};
use super::list::{FileList, Runs, Version};
use crate::ahead::readahead::free_pages;
use crate::pool::Pool;
use crate::pool::background::Threads;
use crate::pool::payer::Payer;
use crate::pool::service::Service;
use crate::space::Space;
use lowtide_core::Task as By;
use lowtide_io::Deadline;
use lowtide_pin::translation::{Entry, State as EntryState};
use lowtide_sys::tell;
use lowtide_sys::threads::spawn;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Accesses that make a page an active one.
const ACTIVE: u32 = 2;

/// How pages of a file come in.
pub(crate) type Read = Box<dyn Fn(&Pool, &Space, &[Range<u64>]) + Send + Sync>;

/// The pager reads them, as it reads ahead.
pub(crate) fn read(pool: &Pool, space: &Space, runs: &[Range<u64>]) {
    // A page that cannot be read says so when it is wanted.
    drop(pool.read_ahead(space, runs.iter().cloned().flatten()));
}

/// The thread, if there is one.
#[derive(Debug)]
struct Warmer {
    pool: Arc<Pool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Service for Warmer {
    fn close(&self) -> Vec<JoinHandle<()>> {
        let warm = &self.pool.warm;
        lowtide_pin::sync::lock(&warm.known).closing = true;
        warm.changed.notify_all();
        lowtide_pin::sync::lock(&self.thread).take().into_iter().collect()
    }
}

/// A file was opened: reads what was in memory of it, in the background. Without background threads
/// it is read at once.
pub(crate) fn opened(pool: &Arc<Pool>, threads: &Threads, space: &Arc<Space>, read: Read) {
    let warm = &pool.warm;
    let Some(key) = space.backing.key().of_file().filter(|_| warm.path.is_some()) else { return };
    let mut known = lowtide_pin::sync::lock(&warm.known);
    let Some(list) = known.lists.remove(&key) else { return };
    if Version::of_space(space) != Some(list.version) {
        let path = space.path_ref().display();
        tell!(info, %path, "the file is not what it was: its start is cold");
        known.stat.changed_files += 1;
        return;
    }
    known.stat.wanted_pages += list.pages.iter().map(Runs::count).sum::<u64>();
    known.reading.insert(key, Arc::clone(&list));
    // The pool has the queue: it is not to keep itself.
    let (pool_of_job, space) = (Weak::clone(&pool.me), Arc::clone(space));
    let job =
        move || pool_of_job.upgrade().is_some_and(|pool| read_list(&pool, &space, &list, &read));
    known.queue.push_back(Task { key, read: Box::new(job) });
    drop(known);
    warm.changed.notify_all();
    if !pool.background {
        return serve(pool, true);
    }
    let started = threads.service(|pool| {
        let of_thread = Arc::clone(pool);
        let thread = spawn("lowtide-warm", move || serve(&of_thread, false))?;
        let (pool, thread) = (Arc::clone(pool), Mutex::new(Some(thread)));
        Ok::<_, std::io::Error>(Arc::new(Warmer { pool, thread }))
    });
    if let Err(error) = started {
        tell!(warn, %error, "no thread can be started: the start is cold");
        let known = &mut *lowtide_pin::sync::lock(&warm.known);
        known.queue.clear();
        known.lists.extend(known.reading.drain());
    }
}

/// Reads lists until the pager ends, or there are no more.
fn serve(pool: &Pool, once: bool) {
    let warm = &pool.warm;
    let mut known = lowtide_pin::sync::lock(&warm.known);
    loop {
        while known.queue.is_empty() && !known.closing && !once {
            known = warm.changed.wait(known).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(Task { key, read }) = known.queue.pop_front() else { return };
        if known.closing {
            return;
        }
        drop(known);
        let whole = read();
        known = lowtide_pin::sync::lock(&warm.known);
        // If the file was closed, or the pager ends, the list is as good as it was.
        if let Some(list) = known.reading.remove(&key) {
            let Known { lists, read, .. } = &mut *known;
            if whole { read } else { lists }.insert(key, list);
        }
        warm.changed.notify_all();
    }
}

/// Why a list is not read on.
enum End {
    /// The budget is full.
    Full,
    /// The file was closed, or the pager ends.
    Gone,
}

/// Reads a list, as far as there is room. Returns false if the file or the pager is gone before.
fn read_list(pool: &Pool, space: &Arc<Space>, list: &FileList, read: &Read) -> bool {
    let most = (PIECE >> pool.page_shift).max(1);
    let [active, others] = &list.pages;
    for (runs, is_active) in [(active, true), (others, false)] {
        let (mut piece, mut pages) = (Vec::new(), 0);
        for mut run in runs.iter() {
            while !run.is_empty() {
                let end = run.end.min(run.start + most - pages);
                pages += end - run.start;
                piece.push(run.start..end);
                run.start = end;
                if pages == most {
                    match read_piece(pool, space, (&piece, pages), is_active, read) {
                        Ok(()) => (piece, pages) = (Vec::new(), 0),
                        Err(end) => return matches!(end, End::Full),
                    }
                }
            }
        }
        if let Err(end) = read_piece(pool, space, (&piece, pages), is_active, read) {
            return matches!(end, End::Full);
        }
    }
    true
}

/// Reads some pages, and then leaves the device to others, if they need it.
fn read_piece(
    pool: &Pool,
    space: &Arc<Space>,
    (piece, pages): (&[Range<u64>], u64),
    is_active: bool,
    read: &Read,
) -> Result<(), End> {
    {
        let known = lowtide_pin::sync::lock(&pool.warm.known);
        if known.closing || space.is_orphan() || pool.is_poisoned() {
            return Err(End::Gone);
        }
        let state = pool.lock();
        let group = state.group_of(Payer::Space(space.id)).ok_or(End::Gone)?;
        if free_pages(&state, group) < pages {
            return Err(End::Full);
        }
    }
    let (began, misses) = (Instant::now(), pool.io.misses());
    // On the side that has its descriptors.
    drop(space.backing.with_reader(|_| {
        read(pool, space, piece);
        Ok(())
    }));
    if space.is_closed() {
        // The closing may not have waited for these reads.
        pool.forget(space, Deadline::after(Duration::ZERO));
        return Err(End::Gone);
    }
    let mut state = pool.lock();
    let mut came = 0;
    for page in piece.iter().cloned().flatten() {
        let seen = space.table.get(page).map(Entry::load);
        let Some(EntryState::Resident { frame, .. }) = seen else { continue };
        came += 1;
        // It was not read ahead of anything: it may stay unused for a while.
        pool.unused.take(frame);
        if is_active {
            let folio = state.folio_of(space, page, frame);
            (0..ACTIVE).for_each(|_| state.engine.mark_accessed(folio, By::DESCRIPTOR));
        }
    }
    drop(state);
    let mut known = lowtide_pin::sync::lock(&pool.warm.known);
    known.stat.read_pages += came;
    if pool.io.misses() > misses && !known.closing {
        let pause = began.elapsed();
        drop(pool.warm.changed.wait_timeout(known, pause));
    }
    Ok(())
}
