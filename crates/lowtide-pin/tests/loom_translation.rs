//! Proofs about the states of a page: one thread reads a missing page in and all others get it, no
//! store is lost, and no walk stays blind to a bit.
//!
//! The real `translation` runs here under every schedule and every stale value that the memory
//! model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p lowtide-pin --release --test it loom_translation
//! ```
//!
//! These changes to the code were each seen to fail here: losing WAITERS in `leave`; a
//! `set_waiters` that always agrees; finishing a read with relaxed order; locking dirty, or young,
//! pages for eviction; beginning a read of a page that is not absent; clearing DIRTY, or locking,
//! with relaxed order; noting a hint before setting its bit; hints with acquire and release order
//! only; finishing a store to a missing page clean; unlocking by a swap, which loses DIRTY;
//! beginning to write a folio with busy pages; making a page dirty after the engine's lock.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use lowtide_pin::sync::prove;
use lowtide_pin::translation::{Entry, State, Table, Taken};

/// A page, the bytes of its frame, and where its waiters sleep.
struct World {
    entry: Entry,
    frame: UnsafeCell<u64>,
    lock: Mutex<()>,
    changed: Condvar,
}

// SAFETY: The cell is what the proofs are about: loom reports every access to it that is not
// ordered with the others.
unsafe impl Sync for World {}
// SAFETY: As for `Sync`.
unsafe impl Send for World {}

impl World {
    fn absent() -> Arc<Self> {
        Arc::new(Self {
            entry: Entry::default(),
            frame: UnsafeCell::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        })
    }

    fn resident(value: u64) -> Arc<Self> {
        let world = Self::absent();
        world.entry.try_begin_read(0).unwrap();
        world.fill(value);
        let _ = world.entry.finish_read(7, false);
        world
    }

    fn fill(&self, value: u64) {
        // SAFETY: Loom checks that no other thread is reading or writing.
        self.frame.with_mut(|frame| unsafe { *frame = value });
    }

    fn look(&self) -> u64 {
        // SAFETY: Loom checks that no thread is writing.
        self.frame.with(|frame| unsafe { *frame })
    }

    /// What the owner of a state does after it has ended it.
    fn wake(&self, waiters: bool) {
        if waiters {
            drop(self.lock.lock().unwrap());
            self.changed.notify_all();
        }
    }

    /// Sleeps until the owned state `seen` is over.
    fn wait(&self, seen: State) {
        let mut guard = self.lock.lock().unwrap();
        while self.entry.set_waiters(seen) {
            guard = self.changed.wait(guard).unwrap();
        }
    }

    /// Reads the page, and reads it in if it is missing. Returns its bytes, and whether this thread
    /// read it in.
    fn fault(&self) -> (u64, bool) {
        let mut read_in = false;
        loop {
            match self.entry.pin() {
                Ok(_pinned) => return (self.look(), read_in),
                Err(State::Absent { shadow }) => {
                    if self.entry.try_begin_read(shadow).is_ok() {
                        self.fill(5);
                        self.wake(self.entry.finish_read(7, true));
                        read_in = true;
                    }
                }
                Err(seen) => self.wait(seen),
            }
        }
    }

    fn store(&self, value: u64) {
        loop {
            match self.entry.try_lock_for_store() {
                Ok(taken) => {
                    self.fill(value);
                    return self.wake(self.entry.unlock(Taken {
                        dirty: true,
                        young: true,
                        ..taken
                    }));
                }
                Err(seen @ State::Locked { .. }) => self.wait(seen),
                Err(state) => panic!("{state:?}"),
            }
        }
    }
}

impl World {
    /// Stores all of the page: without reading it if it is missing. Returns whether it was missing.
    fn replace(&self, value: u64) -> bool {
        loop {
            match self.entry.load() {
                State::Absent { shadow } => {
                    if self.entry.try_begin_read(shadow).is_ok() {
                        self.fill(value);
                        self.wake(self.entry.finish_store(7));
                        return true;
                    }
                }
                State::Resident { .. } => {
                    if let Ok(taken) = self.entry.try_lock_for_store() {
                        self.fill(value);
                        self.wake(self.entry.unlock(Taken { dirty: true, ..taken }));
                        return false;
                    }
                }
                seen => self.wait(seen),
            }
        }
    }
}

/// A reader gets what the file has, or what was stored; the store is not lost, and is known to
/// be unwritten.
#[test]
fn a_missing_page_is_stored_to_beside_a_reader() {
    let outcomes = prove(Some(4), || {
        let world = World::absent();
        let reader = thread::spawn({
            let world = world.clone();
            move || loop {
                match world.entry.load() {
                    State::Absent { shadow } => {
                        if world.entry.try_begin_read(shadow).is_ok() {
                            world.fill(5);
                            world.wake(world.entry.finish_read(7, false));
                            return 5;
                        }
                    }
                    // No guard is needed to look at a state; its bytes are looked at below.
                    State::Resident { dirty, .. } => return if dirty { 2 } else { 5 },
                    seen => world.wait(seen),
                }
            }
        });
        let missing = world.replace(2);
        let read = reader.join().unwrap();
        assert_eq!(
            (world.look(), world.entry.load()),
            (2, State::Resident { frame: 7, young: false, dirty: true })
        );
        (missing, read)
    });
    assert_eq!(outcomes, [(false, 5), (true, 2)].into());
}

#[test]
fn two_stores_to_a_missing_page_exclude_each_other_and_one_finds_the_others_page() {
    let outcomes = prove(Some(4), || {
        let world = World::absent();
        let other = thread::spawn({
            let world = world.clone();
            move || world.replace(2)
        });
        let mine = world.replace(3);
        assert!(mine != other.join().unwrap(), "exactly one found nothing");
        assert_eq!(world.entry.load(), State::Resident { frame: 7, young: false, dirty: true });
        (mine, world.look())
    });
    assert_eq!(outcomes, [(false, 3), (true, 2)].into());
}

/// A flusher that clears DIRTY has the bytes; a page that was stored to while it was missing is not
/// evicted unwritten.
#[test]
fn what_was_stored_to_a_missing_page_is_written_before_it_is_evicted() {
    let outcomes = prove(None, || {
        let world = World::absent();
        let flusher = thread::spawn({
            let world = world.clone();
            move || {
                let evicted = world.entry.try_lock_for_eviction().is_ok();
                assert!(!evicted, "a page with a store was locked for eviction");
                let cleared = world.entry.clear_dirty();
                if cleared {
                    assert_eq!(world.look(), 2);
                }
                cleared
            }
        });
        assert!(world.replace(2));
        flusher.join().unwrap()
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn of_two_threads_that_miss_one_reads_and_both_get_the_bytes() {
    let outcomes = prove(Some(4), || {
        let world = World::absent();
        let other = thread::spawn({
            let world = world.clone();
            move || world.fault()
        });
        let (mine, i_read) = world.fault();
        let (theirs, they_read) = other.join().unwrap();
        assert_eq!((mine, theirs), (5, 5));
        assert!(i_read != they_read, "one read, not two and not none");
        i_read
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn who_waits_for_a_failed_read_tries_itself() {
    let outcomes = prove(Some(4), || {
        let world = World::absent();
        let other = thread::spawn({
            let world = world.clone();
            move || world.fault()
        });
        let failed = world.entry.try_begin_read(0).is_ok();
        if failed {
            world.wake(world.entry.abort_read(0));
        }
        assert_eq!(other.join().unwrap(), (5, true));
        failed
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn two_stores_exclude_each_other_and_none_sleeps_for_ever() {
    let outcomes = prove(Some(4), || {
        let world = World::resident(1);
        let other = thread::spawn({
            let world = world.clone();
            move || world.store(2)
        });
        world.store(3);
        other.join().unwrap();

        assert_eq!(world.entry.load(), State::Resident { frame: 7, young: true, dirty: true });
        world.look()
    });
    assert_eq!(outcomes, [2, 3].into());
}

#[test]
fn a_page_is_stored_to_or_evicted_but_no_store_is_evicted() {
    let outcomes = prove(None, || {
        let world = World::resident(1);
        let evictor = thread::spawn({
            let world = world.clone();
            move || match world.entry.try_lock_for_eviction() {
                Ok(_) => {
                    assert_eq!(world.look(), 1, "a page with a store was locked for eviction");
                    world.wake(world.entry.evict(9));
                    true
                }
                Err(_) => false,
            }
        });
        let stored = match world.entry.try_lock_for_store() {
            Ok(taken) => {
                world.fill(2);
                world.wake(world.entry.unlock(Taken { dirty: true, young: false, ..taken }));
                true
            }
            Err(_) => false,
        };
        let evicted = evictor.join().unwrap();
        let state = world.entry.load();
        assert_eq!(evicted, state == State::Absent { shadow: 9 });
        assert_eq!(stored, state == State::Resident { frame: 7, young: false, dirty: true });
        (stored, evicted)
    });
    assert_eq!(outcomes, [(false, true), (true, false)].into());
}

/// A thread that waits for a page while its bytes go elsewhere gets it when it is absent.
#[test]
fn a_page_that_is_held_back_is_read_in_when_its_owner_is_done() {
    let outcomes = prove(Some(3), || {
        let world = World::resident(1);
        let evictor = thread::spawn({
            let world = world.clone();
            move || {
                world.entry.try_lock_for_eviction().is_ok() && {
                    world.wake(world.entry.hold_back());
                    world.wake(world.entry.abort_read(9));
                    true
                }
            }
        });
        let (value, read_in) = world.fault();
        let evicted = evictor.join().unwrap();
        assert_eq!(value, if read_in { 5 } else { 1 });
        assert!(evicted || !read_in);
        (evicted, read_in)
    });
    assert!(outcomes.contains(&(true, true)), "the thread has waited, and read it in");
}

#[test]
fn a_page_that_became_young_is_not_evicted() {
    let outcomes = prove(None, || {
        let table = Arc::new(Table::new(1, 1).unwrap());
        table.entry(0).try_begin_read(0).unwrap();
        let _ = table.entry(0).finish_read(7, false);
        let evictor = thread::spawn({
            let table = table.clone();
            move || {
                let locked = table.entry(0).try_lock_for_eviction().is_ok();
                locked && {
                    let _ = table.entry(0).evict(9);
                    true
                }
            }
        });
        let seen = table.entry(0).load();
        let young = table.note_read(0, seen, true, || false);
        assert!(evictor.join().unwrap() != young, "exactly one of the two came first");
        young
    });
    assert_eq!(outcomes, [false, true].into());
}

/// A flusher clears DIRTY and then writes what is in the frame.
#[test]
fn a_store_is_written_by_this_flush_or_left_for_the_next() {
    let outcomes = prove(None, || {
        let world = World::resident(1);
        world.store(2);
        let flusher = thread::spawn({
            let world = world.clone();
            move || {
                if !world.entry.clear_dirty() {
                    return 0;
                }
                // Writing back excludes stores by their lock here; the product's rule is up to its
                // flusher.
                match world.entry.try_lock_for_store() {
                    Ok(taken) => {
                        let written = world.look();
                        world.wake(world.entry.unlock(taken));
                        written
                    }
                    Err(_) => 0,
                }
            }
        });
        world.store(3);
        let written = flusher.join().unwrap();
        let State::Resident { dirty, .. } = world.entry.load() else { panic!("no thread evicts") };
        assert!(dirty || written == 3, "a store is neither written nor dirty");
        written
    });
    assert_eq!(outcomes, [0, 2, 3].into());
}

/// DIRTY carries its bytes: who clears it may read what the store wrote, without another lock.
#[test]
fn who_clears_dirty_sees_the_bytes_of_the_store() {
    let outcomes = prove(None, || {
        let world = World::resident(1);
        let storer = thread::spawn({
            let world = world.clone();
            move || world.store(2)
        });
        let cleared = world.entry.clear_dirty();
        if cleared {
            assert_eq!(world.look(), 2);
        }
        storer.join().unwrap();
        cleared
    });
    assert_eq!(outcomes, [false, true].into());
}

/// A table with a resident page, whose young bit is set while a walk runs.
fn walk_beside_a_reader(noted_before: bool) {
    let outcomes = prove(None, move || {
        let table = Arc::new(Table::new(2, 2).unwrap());
        for page in 0..2 {
            table.entry(page).try_begin_read(0).unwrap();
            let _ = table.entry(page).finish_read(page as u32, false);
        }
        if noted_before {
            // The other page is young, so the reader finds the note made already.
            assert!(table.note_read(1, table.entry(1).load(), true, || false));
        }
        let reader = thread::spawn({
            let table = table.clone();
            move || {
                let seen = table.entry(0).load();
                assert!(table.note_read(0, seen, true, || false));
            }
        });
        let seen = table.hint(0).take_young() && table.entry(0).clear_young();
        reader.join().unwrap();
        // The next walk.
        let seen_next = table.hint(0).take_young() && table.entry(0).clear_young();
        assert!(seen || seen_next, "the young bit is hidden from all walks");
        assert!(!(seen && seen_next));
        seen
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn a_young_page_is_seen_by_this_walk_or_the_next() {
    walk_beside_a_reader(false);
}

#[test]
fn a_young_page_is_seen_although_its_table_was_noted_before() {
    walk_beside_a_reader(true);
}

/// A large folio of two pages, and what the engine knows of it, which its lock protects.
struct Folio {
    pages: [Entry; 2],
    engine: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    dirty: bool,
    writing: bool,
}

impl Folio {
    fn resident() -> Self {
        let folio = Self { pages: Default::default(), engine: Mutex::default() };
        for page in &folio.pages {
            page.try_begin_read(0).unwrap();
            let _ = page.finish_read(7, false);
        }
        folio
    }

    /// As `store/overwrite.rs`.
    fn store(&self) {
        let locked: Vec<_> = self
            .pages
            .iter()
            .filter_map(|page| Some((page, page.try_lock_for_store().ok()?)))
            .collect();
        if locked.iter().any(|(_, taken)| !taken.dirty) {
            let mut engine = self.engine.lock().unwrap();
            engine.dirty = true;
            assert!(
                locked.iter().filter(|(_, taken)| !taken.dirty).all(|(page, _)| page.set_dirty())
            );
        }
        for (page, taken) in locked {
            let _ = page.unlock(Taken { dirty: true, young: false, ..taken });
        }
    }

    /// As `store/fill.rs`.
    fn fill(&self) {
        self.engine.lock().unwrap().dirty = true;
        for page in &self.pages {
            let _ = page.finish_store(7);
        }
    }

    /// As `writeback/collect.rs`: begins to write the folio if a page of it is dirty and none is
    /// busy.
    fn begin(&self) -> bool {
        let dirty = |page: &Entry| {
            matches!(
                page.load(),
                State::Resident { dirty: true, .. } | State::Locked { dirty: true, .. }
            )
        };
        let mut engine = self.engine.lock().unwrap();
        if !self.pages.iter().any(dirty) {
            return false;
        }
        assert!(engine.dirty || engine.writing, "a dirty page of a folio that counts as clean");
        if engine.writing || self.pages.iter().any(|page| page.load() == State::Busy) {
            return false;
        }
        (engine.dirty, engine.writing) = (false, true);
        for page in &self.pages {
            if !page.clear_dirty() && dirty(page) {
                engine.dirty = true;
            }
        }
        true
    }

    /// The write has failed.
    fn fail(&self) {
        let mut engine = self.engine.lock().unwrap();
        assert!(self.pages.iter().all(Entry::set_dirty));
        (engine.dirty, engine.writing) = (true, false);
    }

    /// What is dirty in the end, which no flusher may overlook.
    fn dirty_at_last(&self) -> [bool; 2] {
        let engine = self.engine.lock().unwrap();
        let dirty =
            [0, 1].map(|i| matches!(self.pages[i].load(), State::Resident { dirty: true, .. }));
        assert!(
            engine.dirty || dirty == [false; 2],
            "a dirty page of a folio that counts as clean"
        );
        dirty
    }
}

#[test]
fn a_store_to_pages_of_a_folio_is_known_whenever_its_write_begins() {
    let outcomes = prove(Some(4), || {
        let folio = Arc::new(Folio::resident());
        let store = thread::spawn({
            let folio = folio.clone();
            move || folio.store()
        });
        let begun = folio.begin();
        store.join().unwrap();
        let dirty = folio.dirty_at_last();
        assert!(begun || dirty == [true; 2]);
        (begun, dirty)
    });
    assert!(outcomes.len() >= 3, "{outcomes:?}");
}

#[test]
fn a_folio_that_is_being_filled_is_not_written_before_all_of_it_is_there() {
    let outcomes = prove(None, || {
        let folio = Arc::new(Folio { pages: Default::default(), engine: Mutex::default() });
        assert!(folio.pages.iter().all(|page| page.try_begin_read(0).is_ok()));
        let store = thread::spawn({
            let folio = folio.clone();
            move || folio.fill()
        });
        let begun = folio.begin();
        store.join().unwrap();
        let dirty = folio.dirty_at_last();
        assert_eq!(dirty, [!begun; 2], "all of it is in the write, or waits for the next");
        begun
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn a_page_whose_write_failed_is_dirty_whatever_a_store_does_with_it() {
    let outcomes = prove(Some(4), || {
        let folio = Arc::new(Folio::resident());
        folio.store();
        assert!(folio.begin());
        let store = thread::spawn({
            let folio = folio.clone();
            move || {
                // A guard is on the page: the store gives up.
                let taken = folio.pages[0].try_lock_for_store().unwrap();
                let _ = folio.pages[0].unlock(taken);
                taken.dirty
            }
        });
        folio.fail();
        let came_later = store.join().unwrap();
        assert_eq!(folio.dirty_at_last(), [true; 2]);
        came_later
    });
    assert_eq!(outcomes, [false, true].into());
}
