//! Stores through a pointer, in `userfault` mode.
//!
//! No call says that a program has stored to a page. What does is a fault: a page that comes in is
//! inserted *write-protected*, so the thread that stores to it first sleeps in a fault, and a
//! message reports it. Being protected is this memory's dirty bit, turned round:
//!
//! > **Under the pool's lock, a page whose translation is clean is protected.**
//!
//! | step, under the pool's lock | translation | protection |
//! |---|---|---|
//! | a page comes in | clean | inserted protected |
//! | a first store is admitted ([`begin_store`]) | dirty, and its folio | then ended, which wakes |
//! | its write begins (`writeback/collect.rs`) | clean, folio in writeback | then set again |
//! | its write failed, or a sync | dirty again | stays: the next store is a message too many |
//! | eviction | locked, if it is clean | punched, and absent |
//!
//! # No store is lost
//!
//! *By write-back.* A store lands while the page is not protected, so while it is dirty. Beginning
//! its write sets the protection before the bytes are read, and setting it returns when no
//! processor has an older entry in use. So a store has landed by then, and is among the bytes that
//! are written; or it faults, is admitted after the lock was released, and the page is dirty again.
//!
//! *By eviction.* Only what is clean is locked for eviction, so it is protected. A store that comes
//! now is a message, and its answer takes the pool's lock: it finds the page gone, wakes the thread
//! and does nothing else. The thread faults again, and the page comes in from the file.
//!
//! *By closing.* The handle is gone, so there are no stores. What is dirty is written before the
//! memory goes; what cannot be written keeps both.
//!
//! The kernel can also end the protection by itself and let a scan find what was written
//! (asynchronous write protection). A first store is cheaper then, but one that comes between the
//! last scan and the punch would be lost ([decision
//! 10](../../../docs/decisions/0010-stores-through-pointers.md)).
//!
//! # Writers that are too fast
//!
//! A thread that makes pages dirty has to answer for them (`store/balance.rs`): it pauses when more
//! is dirty than the device writes in time. Here the thread is in a fault. So the pause is a later
//! answer: stores of the same map that come within it stay asleep until it is over. Loads do not,
//! nor do stores to pages that are dirty already.

use super::mirror::Mirror;
use crate::pool::Pool;
use crate::pool::payer::Payer;
use crate::space::Space;
use lowtide_core::Dirtier;
use lowtide_io::Deadline;
use lowtide_pin::sync;
use lowtide_pin::translation::{Entry, State};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Lets a thread go on that stores to a page, which is dirty from now on. If the page is not in
/// memory by now, the thread faults again. Returns whether the map has to
/// [answer](Storing::answer) for what it made dirty.
pub(super) fn begin_store(
    pool: &Pool,
    (space, mirror): (&Space, &Mirror),
    storing: &Storing,
    page: u64,
) -> bool {
    let mut state = pool.lock();
    let mut must_answer = false;
    match space.table.get(page).map(Entry::load) {
        Some(State::Resident { frame, dirty, .. }) => {
            // A pager that met a defect writes nothing any more, but lets the program go on.
            if !dirty && !pool.is_poisoned() {
                let folio = state.folio_of(space, page, frame);
                let kept = space.table.entry(page).set_dirty();
                assert!(kept, "page {page} left memory although the pool's lock was held");
                space.table.hint(page).note_dirty();
                if state.engine.set_dirty(folio) {
                    let account = &mut *sync::lock(&storing.0);
                    must_answer = state.engine.dirtied(&mut account.dirtier, space.id, 1);
                }
            }
            mirror.unprotect(page..page + 1);
        }
        _ => mirror.wake(page),
    }
    must_answer
}

/// What the stores of one map have to answer for.
#[derive(Debug, Default)]
pub(super) struct Storing(Mutex<Account>);

#[derive(Debug, Default)]
struct Account {
    dirtier: Dirtier,
    /// Stores wait until then.
    until: Option<Instant>,
    /// The limit has been reached, and stores wait for it no longer than this.
    patience: Option<Deadline>,
    /// Set when that wait was given up: the bytes that had been written by then.
    gave_up: Option<u64>,
}

impl Storing {
    /// Until when a store has to wait, if it has to.
    pub(super) fn pause(&self, pool: &Pool, space: &Space) -> Option<Instant> {
        let again = {
            let mut account = sync::lock(&self.0);
            match account.until {
                Some(until) if Instant::now() < until => return Some(until),
                None => return None,
                Some(_) => account.until = None,
            }
            account.patience.is_some()
        };
        if again {
            self.answer(pool, space);
        }
        sync::lock(&self.0).until
    }

    /// Answers for the pages that were made dirty: wakes the flusher, and lets later stores wait if
    /// the engine says so. The thread has no lock.
    pub(super) fn answer(&self, pool: &Pool, space: &Space) {
        if pool.is_poisoned() {
            return;
        }
        let mut state = pool.lock();
        let mut account = sync::lock(&self.0);
        let balance = state.engine.balance_dirty(&mut account.dirtier, space.id, pool.now());
        let group = state.group_of(Payer::Space(space.id));
        drop(state);
        let written = pool.io.counts.write_bytes.load(Relaxed);
        let gave_up = balance.again && account.gave_up == Some(written);
        account.until = None;
        if !balance.again || gave_up || pool.closing.load(Relaxed) {
            account.patience = None;
        }
        if pool.background && !gave_up && !pool.closing.load(Relaxed) {
            account.until = balance.pause_ns.map(|ns| Instant::now() + Duration::from_nanos(ns));
            if balance.again {
                let patience =
                    *account.patience.get_or_insert(Deadline::after(pool.memory_timeout));
                if patience.has_passed() || sync::lock(&space.ledger).hopeless().is_some() {
                    account.gave_up = Some(written);
                    (account.until, account.patience) = (None, None);
                }
            }
        }
        drop(account);
        if !pool.background && (balance.wake_flusher || balance.pause_ns.is_some()) {
            // No other thread would write.
            if let Some(group) = group {
                pool.write_back_below(group);
            }
        } else if balance.wake_flusher {
            pool.wake_flusher_of(space);
        }
    }

    /// The map is gone: others answer for the rest.
    pub(super) fn leave(&self, pool: &Pool) {
        sync::lock(&pool.dirtiers_left).push(sync::lock(&self.0).dirtier);
    }
}

#[cfg(test)]
mod tests {
    use crate::Pager;
    use crate::Size;
    use crate::map::area::Memory;
    use crate::map::{MapError, MapMode, MapOptions};
    use std::io::Write;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn each_flush_fails_while_what_was_stored_cannot_be_taken_from_memory() {
        let mut path = tempfile::NamedTempFile::new().unwrap();
        path.write_all(&[1; 64 << 10]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(path.path()).unwrap();
        for background in [true, false] {
            let builder = Pager::builder().max(Size::mib(1)).background(background);
            let pager = builder.build().unwrap();
            // SAFETY: the file is this test's.
            #[expect(unsafe_code, reason = "others could change the file")]
            let made = unsafe { MapOptions::new().mode(MapMode::Userfault).map_mut(&pager, &file) };
            let mut map = match made {
                Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
                made => made.unwrap(),
            };
            map[0] = 7;
            let Memory::Mirror { served, .. } = &map.0.memory else { unreachable!() };
            served.mirror.broken.store(true, Relaxed);
            for flush in 0..3 {
                let outcome = map.flush();
                assert!(outcome.is_err(), "flush {flush}, background threads: {background}");
            }
            served.mirror.broken.store(false, Relaxed);
            map.flush().unwrap();
            assert_eq!(std::fs::read(path.path()).unwrap()[0], 7);
        }
    }
}
