//! Write-back at moments that a test cannot reach from outside: between two steps of a store.

use super::collect::{collect, copy_tail, cut_run, end_run, make_dirty};
use crate::advanced::OpenAdvanced as _;
use crate::fault::Access;
use crate::fault::attempt::Attempts;
use crate::pool::Pool;
use crate::space::Space;
use crate::space::owned::Owned;
use crate::store::unlock;
use crate::{OpenOptions, Pager, Size, View};
use lowtide_core::{FolioId, Task};
use lowtide_pin::translation::State as EntryState;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const PAGE: usize = 4096;

struct World {
    dir: tempfile::TempDir,
    pager: Pager,
    view: View,
    pool: Arc<Pool>,
    space: Arc<Space>,
}

impl World {
    /// A new file in folios of eight pages, and no thread but the test's.
    fn new(bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pager = Pager::builder().max(Size::mib(1)).background(false).build().unwrap();
        let view = OpenOptions::new()
            .create_with_len(bytes)
            .folio_order(3)
            .open(&pager, dir.path().join("file"))
            .unwrap();
        let pool = Arc::clone(&pager.inner.pool);
        let space = pool.lock().spaces.iter().flatten().next().unwrap().clone();
        Self { dir, pager, view, pool, space }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("file")
    }

    fn file(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// These pages were written, and the sync after that failed.
    fn sync_fails(&self, pages: Range<u64>) {
        let mut ledger = lowtide_pin::sync::lock(&self.space.ledger);
        ledger.written(pages);
        ledger.sync_begins();
        ledger.sync_failure(Arc::new(std::io::Error::from_raw_os_error(5)), Instant::now());
    }

    fn failed_pages(&self) -> u64 {
        lowtide_pin::sync::lock(&self.space.ledger).failed_pages()
    }

    /// Makes what must not be: a dirty page in a clean folio.
    fn forget_that_the_folio_is_dirty(&self) {
        let mut state = self.pool.lock();
        let frames = 0..self.pool.frames;
        let folio = frames.map(FolioId).find(|id| state.engine.folio(*id).is_some()).unwrap();
        assert!(state.engine.start_writeback(folio));
        state.engine.end_writeback(folio, true, Task::DESCRIPTOR);
    }
}

#[test]
fn a_folio_is_written_when_all_of_its_bytes_have_arrived_and_not_before() {
    let world = World::new(1 << 20);
    let (pool, space) = (&*world.pool, &*world.space);
    let mut claim = pool.claim_folio(space, 0).unwrap();
    let (frame, _) = pool.frames_for(space, 0, &mut claim, Access::Replaced).unwrap().unwrap();
    let land = |page: u64| {
        assert!(!space.table.entry(page).finish_store(frame + page as u32));
        space.table.hint(page).note_dirty();
    };
    land(0);
    for each in [false, true] {
        let found = collect(pool, space, &mut 0, u64::MAX, 256, each);
        assert!(found.folios.is_empty(), "seven of its pages are still to come");
        assert_eq!(found.blocked, each, "a flush waits for them");
        assert!(space.table.may_be_dirty(), "the next look finds it");
    }
    (1..8).for_each(land);
    world.view.flush().unwrap();
    assert_eq!(world.pager.stat().io.write_bytes, 8 * PAGE as u64);
    assert_eq!(world.pager.stat().unwritten_bytes, 0);
}

#[test]
fn a_dirty_page_of_a_folio_that_counts_as_clean_is_written() {
    let world = World::new(1 << 20);
    world.view.write_at(0, &[7; 8 * PAGE]).unwrap();
    world.view.flush().unwrap();
    world.view.write_at(3 * PAGE as u64, &[8; PAGE]).unwrap();
    world.forget_that_the_folio_is_dirty();
    world.view.flush().unwrap();
    assert_eq!(world.file()[3 * PAGE..4 * PAGE], [8; PAGE]);
    world.pager.validate().unwrap();
}

#[test]
fn a_file_that_is_closed_with_a_dirty_page_that_was_overlooked_keeps_it_until_it_is_written() {
    let World { dir, pager, view, pool, space } = {
        let world = World::new(1 << 20);
        world.view.write_at(0, &[7; 8 * PAGE]).unwrap();
        world.view.flush().unwrap();
        world.view.write_at(3 * PAGE as u64, &[8; PAGE]).unwrap();
        world.forget_that_the_folio_is_dirty();
        assert!(world.space.table.hint(0).take_dirty());
        world
    };
    drop((view, space));
    assert!(pool.lock().spaces.iter().flatten().next().is_some(), "it waits to be written");
    drop((pager, pool));
    let file = std::fs::read(dir.path().join("file")).unwrap();
    assert_eq!(file[3 * PAGE..4 * PAGE], [8; PAGE]);
}

#[test]
fn a_write_that_fails_while_a_store_has_a_page_locked_waits_for_nobody_and_keeps_it_dirty() {
    let world = World::new(1 << 20);
    let (pool, space) = (&*world.pool, &*world.space);
    world.view.write_at(0, &[7; 8 * PAGE]).unwrap();
    let run = collect(pool, space, &mut 0, u64::MAX, 256, true).folios;
    assert_eq!(run.len(), 1);
    let entry = space.table.entry(5);
    let taken = entry.try_lock_for_store().unwrap();
    assert!(!taken.dirty, "its write has begun");
    end_run(pool, space, &run, false);
    // The store gives up: another thread reads the page.
    unlock(pool, space, 5, entry, taken);
    assert_eq!(space.table.last_dirty(0), Some(7));
    assert!(
        (0..8).all(|page| space.table.entry(page).clear_dirty()),
        "each is to be written again"
    );
    pool.lock().engine.validate().unwrap();
}

#[test]
fn a_page_that_a_failed_sync_makes_dirty_while_it_is_owned_is_not_dropped_as_clean() {
    let world = World::new(1 << 20);
    let (pool, space) = (&*world.pool, &*world.space);
    world.view.write_at(0, &[7; 16 * PAGE]).unwrap();
    world.view.flush().unwrap();
    let mut owned = Attempts::new(pool, space)
        .repeat(|attempts| Owned::take(pool, space, 0..16, 0..0, true, attempts))
        .unwrap();
    assert!(make_dirty(pool, space, 3));
    // As a cut behind both folios does: what is clean goes, the rest stays.
    assert_eq!(owned.drop_folios(16), 0);
    drop(owned);
    assert_eq!(space.table.last_dirty(0), Some(3), "it has to be written again");
    let before = world.pager.stat().io.write_bytes;
    world.view.flush().unwrap();
    assert_eq!(world.pager.stat().io.write_bytes - before, 8 * PAGE as u64);
    world.pager.validate().unwrap();
}

#[test]
fn the_failed_writes_of_dropped_pages_are_forgotten_while_the_pages_are_owned() {
    let world = World::new(1 << 20);
    let (pool, space) = (&*world.pool, &*world.space);
    world.view.write_at(0, &[7; 8 * PAGE]).unwrap();
    world.view.flush().unwrap();
    world.sync_fails(0..16);
    let mut owned = Attempts::new(pool, space)
        .repeat(|attempts| Owned::take(pool, space, 0..16, 0..16, true, attempts))
        .unwrap();
    // As a punch does: half of the pages are in memory, and the other half is absent.
    owned.drop_folios(0);
    assert_eq!(world.failed_pages(), 0);
    drop(owned);
    world.sync_fails(3..4);
    assert_eq!(world.failed_pages(), 1);
}

#[test]
fn what_is_stored_behind_the_back_of_a_discard_is_not_forgotten_with_what_it_drops() {
    let world = World::new(1 << 20);
    world.view.write_at(0, &[7; 8 * PAGE]).unwrap();
    world.view.write_at(16 * PAGE as u64, &[7; 8 * PAGE]).unwrap();
    world.view.flush().unwrap();
    let guard = world.view.page(16).unwrap();
    std::thread::scope(|scope| {
        let discard = scope.spawn(|| world.view.revert(0..24 * PAGE as u64));
        // It has dropped the first folio, found the second absent, and waits for the guard.
        while !matches!(world.space.table.entry(16).load(), EntryState::Locked { .. }) {
            assert!(!discard.is_finished(), "a discard waits for guards");
            std::thread::yield_now();
        }
        // What other threads have stored to both since.
        world.sync_fails(0..1);
        world.sync_fails(8..9);
        drop(guard);
        assert_eq!(discard.join().unwrap().unwrap(), 0);
    });
    assert_eq!(world.failed_pages(), 2, "a sync that failed may have lost both");
}

#[test]
fn the_end_of_a_file_is_not_copied_while_a_store_has_it_locked() {
    let world = World::new(2 * PAGE as u64 + 100);
    let (pool, space) = (&*world.pool, &*world.space);
    world.view.write_at(0, &[7; 2 * PAGE + 100]).unwrap();
    let run = collect(pool, space, &mut 0, u64::MAX, 256, true).folios;
    let (_, tail) = cut_run(pool, space, &run);
    let tail = tail.expect("the file ends within a block");
    let entry = space.table.entry(2);
    let taken = entry.try_lock_for_store().unwrap();
    assert!(copy_tail(pool, space, &tail).unwrap().is_none());
    unlock(pool, space, 2, entry, taken);
    assert_eq!(copy_tail(pool, space, &tail).unwrap(), Some(vec![7; 100]));
    end_run(pool, space, &run, false);
    world.view.flush().unwrap();
    assert!(world.file() == [7; 2 * PAGE + 100]);
}
