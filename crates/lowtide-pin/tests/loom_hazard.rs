//! Proofs that a frame is never reused, nor stored to, while a reader holds it.
//!
//! The real `hazard` and `translation` run here under every schedule and every stale value
//! that the memory model allows. A frame is a loom `UnsafeCell`, so reading it while another thread
//! writes it, or without having been ordered after the write, fails the proof even when the value
//! happens to be right.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p lowtide-pin --release --test it loom_hazard
//! ```
//!
//! A proof is worth something only if it can fail, and only if it comes to the interesting case. So
//! each one states the outcomes that it must have had, over all schedules. Those at the end break
//! the protocol on purpose and must panic. These changes to the code were each seen to fail here:
//! no `light` in `publish`; no `heavy` in `scan`; publishing, or vacating, with relaxed order;
//! loading the slots with relaxed order; finishing a read with relaxed order; a store that does not
//! see the permission of readers without a fence. Every way to pin a page is proven, that of the
//! hit path too.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use lowtide_pin::hazard;
use lowtide_pin::rounds::Rounds;
use lowtide_pin::sync::prove;
use lowtide_pin::translation::{Entry, State, Taken};

/// What the frame holds while it belongs to the page, after it is reused, and after a store.
const PAGE: u64 = 1;
const REUSED: u64 = 2;
const STORED: u64 = 3;

/// The ways in which `lowtide` pins a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MapMode {
    /// `many.rs`, `writeback/collect.rs`.
    Pin,
    /// The hit path, `hits.rs`.
    PinYoung,
    /// The hit path of a reader, which keeps its slot, `hits.rs`.
    KeepYoung,
    /// Where a reader takes the place of a guard, `reader.rs`.
    Keep,
    /// A read that may become a miss, `fault.rs`.
    Hold,
    /// After a wait, `fault.rs`; neighbours that arrived together, `pipeline.rs`.
    HoldThenLook,
}

impl MapMode {
    const ALL: [Self; 6] =
        [Self::Pin, Self::PinYoung, Self::KeepYoung, Self::Keep, Self::Hold, Self::HoldThenLook];

    /// Takes only pages that permit readers without a fence, and are young.
    const fn is_fast(self) -> bool {
        matches!(self, Self::PinYoung | Self::KeepYoung)
    }
}

/// A page whose bytes are in a frame of two words, so that a store can be half done.
struct World {
    entry: Entry,
    frame: UnsafeCell<[u64; 2]>,
}

// SAFETY: The cell is what the proofs are about: loom reports every access to it that is not
// ordered with the others.
unsafe impl Sync for World {}
// SAFETY: As for `Sync`.
unsafe impl Send for World {}

impl World {
    /// The page is resident and clean, and readers execute a fence.
    fn resident() -> Arc<Self> {
        Self::with_page(false, false)
    }

    fn with_page(young: bool, unfenced: bool) -> Arc<Self> {
        let world = Self { entry: Entry::default(), frame: UnsafeCell::new([0; 2]) };
        world.entry.try_begin_read(0).unwrap();
        world.fill(PAGE);
        let _ = world.entry.finish_read(7, young);
        if unfenced {
            world.entry.permit_unfenced(world.entry.load());
        }
        Arc::new(world)
    }

    /// A page for one of the ways to pin it, with and without readers that execute no fence.
    fn pages_for(way: MapMode) -> Vec<fn() -> Arc<Self>> {
        let (fenced, unfenced) = (|| Self::with_page(true, false), || Self::with_page(true, true));
        // The hit path takes no other.
        if way.is_fast() { vec![unfenced] } else { vec![fenced, unfenced] }
    }

    fn fill(&self, value: u64) {
        // SAFETY: Loom checks that no other thread is reading or writing.
        self.frame.with_mut(|frame| unsafe { *frame = [value; 2] });
    }

    /// Reads the page if it can be held, looking twice, as a caller who keeps a guard does.
    fn read(&self) -> Option<u64> {
        self.read_by(MapMode::Pin)
    }

    fn read_by(&self, way: MapMode) -> Option<u64> {
        if matches!(way, MapMode::KeepYoung | MapMode::Keep) {
            return self.read_kept(way);
        }
        let (frame, pinned) = match way {
            MapMode::Pin => self.entry.pin().map(|pinned| (pinned.frame, pinned._held)).ok()?,
            MapMode::PinYoung => self.entry.pin_young()?,
            MapMode::KeepYoung | MapMode::Keep => unreachable!("read above"),
            MapMode::Hold => {
                let (State::Resident { frame, .. }, held) = self.entry.hold() else { return None };
                (frame, held)
            }
            MapMode::HoldThenLook => {
                let held = hazard::hold(self.entry.address());
                let State::Resident { frame, .. } = self.entry.load() else { return None };
                (frame, held)
            }
        };
        assert_eq!(frame, 7);
        // SAFETY: Loom checks that no thread is writing.
        let look = || self.frame.with(|frame| unsafe { *frame });
        let [first, second] = look();
        assert_eq!(first, second, "a half done store was seen");
        assert_eq!(look(), [first; 2], "the page changed under its reader");
        drop(pinned);
        Some(first)
    }

    /// Reads the page behind a slot that then announces another.
    fn read_kept(&self, way: MapMode) -> Option<u64> {
        let slot = hazard::KeptSlot::take();
        let frame = match way {
            MapMode::KeepYoung => self.entry.keep_young(&slot),
            _ => self.entry.keep(&slot),
        };
        if frame.is_none() {
            slot.rest();
            return None;
        }
        assert_eq!(frame, Some(7));
        // SAFETY: Loom checks that no thread is writing.
        let look = || self.frame.with(|frame| unsafe { *frame });
        let [first, second] = look();
        assert_eq!(first, second, "a half done store was seen");
        assert_eq!(look(), [first; 2], "the page changed under its reader");
        slot.announce(1);
        Some(first)
    }

    fn is_held(&self, taken: &mut Taken) -> bool {
        let slots = hazard::scan_shared(taken.unfenced);
        *taken = taken.seen_in(&slots);
        slots.hold(&(self.entry.address()..=self.entry.address()))
    }

    /// Evicts the page and reuses its frame, if no thread reads it.
    fn evict(&self) -> bool {
        let Ok(mut taken) = self.entry.try_lock_for_eviction() else { return false };
        if self.is_held(&mut taken) {
            let _ = self.entry.unlock(taken);
            return false;
        }
        let _ = self.entry.evict(1);
        self.fill(REUSED);
        true
    }

    /// Stores to the page, if no thread reads it.
    fn store(&self) -> bool {
        let Ok(mut taken) = self.entry.try_lock_for_store() else { return false };
        let free = !self.is_held(&mut taken);
        if free {
            self.fill(STORED);
        }
        let _ = self.entry.unlock(Taken { dirty: taken.dirty || free, ..taken });
        free
    }
}

#[test]
fn an_evictor_spares_what_a_reader_holds() {
    let outcomes = prove(Some(4), || {
        let world = World::resident();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let read = world.read();
                assert!(matches!(read, None | Some(PAGE)));
                read.is_some()
            }
        });
        let evicted = world.evict();
        let read = reader.join().unwrap();
        assert_eq!(evicted, world.entry.load() == State::Absent { shadow: 1 });
        assert!(evicted || world.read() == Some(PAGE), "a spared page is still there");
        (evicted, read)
    });
    // Both may lose: the reader to the lock, and the evictor to the reader's slot.
    assert_eq!(outcomes, [(false, false), (false, true), (true, false), (true, true)].into());
}

/// The second pin of the reader overwrites the slot that the first one vacated: the evictor may
/// see only the later one.
#[test]
fn an_evictor_that_sees_a_later_hold_knows_that_the_earlier_one_is_over() {
    let outcomes = prove(Some(3), || {
        let world = World::resident();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                world.read();
                let other = hazard::hold(1);
                world.evict();
                drop(other);
            }
        });
        let evicted = world.evict();
        reader.join().unwrap();
        assert!(!matches!(world.entry.load(), State::Locked { .. }));
        evicted
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn an_evictor_spares_what_two_readers_hold() {
    let outcomes = prove(Some(3), || {
        let world = World::resident();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || assert!(matches!(world.read(), None | Some(PAGE))))
            })
            .collect();
        let evicted = world.evict();
        for reader in readers {
            reader.join().unwrap();
        }
        evicted
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn a_reader_sees_a_page_before_or_after_a_store_and_never_between() {
    let outcomes = prove(Some(4), || {
        let world = World::resident();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let read = world.read();
                assert!(matches!(read, None | Some(PAGE | STORED)));
                read
            }
        });
        let stored = world.store();
        let read = reader.join().unwrap();
        assert_eq!(world.read(), Some(if stored { STORED } else { PAGE }));
        (stored, read)
    });
    // Both may lose: the reader to the lock, and the store to the reader's slot.
    let lost = [(false, None), (false, Some(PAGE))];
    assert_eq!(
        outcomes,
        lost.into_iter().chain([(true, None), (true, Some(PAGE)), (true, Some(STORED))]).collect()
    );
}

/// The same for every way to pin a page, with and without a fence.
#[test]
fn no_way_to_pin_a_page_sees_a_store_that_is_half_done() {
    for way in MapMode::ALL {
        for page in World::pages_for(way) {
            let outcomes = prove(Some(3), move || {
                let world = page();
                let reader = thread::spawn({
                    let world = world.clone();
                    move || world.read_by(way)
                });
                let stored = world.store();
                let read = reader.join().unwrap();
                assert_eq!(world.read(), Some(if stored { STORED } else { PAGE }));
                assert!(world.entry.pin_young().is_none(), "the store has ended the permission");
                (stored, read)
            });
            for lost in [(false, Some(PAGE)), (true, None)] {
                assert!(outcomes.contains(&lost), "{way:?}: {outcomes:?}");
            }
            // Behind a store the hit path finds no permission.
            let behind = outcomes.contains(&(true, Some(STORED)));
            assert_eq!(behind, !way.is_fast(), "{way:?}: {outcomes:?}");
        }
    }
}

/// The evictor clears the young bit first, as an aging walk does.
#[test]
fn an_evictor_spares_what_is_pinned_in_any_way() {
    for way in MapMode::ALL {
        for page in World::pages_for(way) {
            let outcomes = prove(Some(3), move || {
                let world = page();
                let reader = thread::spawn({
                    let world = world.clone();
                    move || {
                        let read = world.read_by(way);
                        assert!(matches!(read, None | Some(PAGE)));
                        read.is_some()
                    }
                });
                world.entry.clear_young();
                let evicted = world.evict();
                (evicted, reader.join().unwrap())
            });
            for lost in [(false, true), (true, false)] {
                assert!(outcomes.contains(&lost), "{way:?}: {outcomes:?}");
            }
        }
    }
}

/// A reader permits readers without a fence and is one itself, while stores follow each other: only
/// those that find the permission execute the heavy fence.
#[test]
fn stores_that_follow_each_other_spare_readers_with_and_without_a_fence() {
    let outcomes = prove(Some(3), || {
        let world = World::with_page(true, false);
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let first = world.read();
                world.entry.permit_unfenced(world.entry.load());
                let second = world.read_by(MapMode::PinYoung);
                assert!(matches!(first, None | Some(PAGE | STORED)));
                assert!(matches!(second, None | Some(PAGE | STORED)));
                second
            }
        });
        let stored = [world.store(), world.store()];
        (stored, reader.join().unwrap())
    });
    for one in [([true, true], Some(STORED)), ([false, true], Some(PAGE)), ([true, true], None)] {
        assert!(outcomes.contains(&one), "{outcomes:?}");
    }
}

impl World {
    /// As [`World::store`], with a scan that others may have a part in.
    fn store_in(&self, rounds: &Rounds<hazard::Slots>) -> bool {
        let Ok(taken) = self.entry.try_lock_for_store() else { return false };
        let slots = rounds.join(|| {
            let mut slots = hazard::Slots::default();
            hazard::scan(&mut slots, true);
            slots
        });
        let free = !slots.hold(&(self.entry.address()..=self.entry.address()));
        if free {
            self.fill(STORED);
        }
        let _ = self.entry.unlock(Taken { dirty: taken.dirty || free, ..taken });
        free
    }
}

/// Two stores to two pages; the scan of either may serve both, if it began late enough.
#[test]
fn stores_that_share_a_scan_spare_what_a_reader_holds() {
    let outcomes = prove(Some(2), || {
        let worlds = [World::resident(), World::resident()];
        let rounds = Arc::new(Rounds::default());
        let reader = thread::spawn({
            let world = worlds[0].clone();
            move || assert!(matches!(world.read(), None | Some(PAGE | STORED)))
        });
        let other = thread::spawn({
            let (world, rounds) = (worlds[1].clone(), rounds.clone());
            move || world.store_in(&rounds)
        });
        let stored = worlds[0].store_in(&rounds);
        reader.join().unwrap();
        assert!(other.join().unwrap(), "no thread reads the other page");
        stored
    });
    assert_eq!(outcomes, [false, true].into());
}

/// A guard is taken of a page that a store has locked already, in a slot that the store may have
/// passed, and the one that stood for it goes.
#[test]
fn a_page_that_is_held_again_while_a_store_waits_stays_as_it_is() {
    let outcomes = prove(Some(3), || {
        let world = World::resident();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                // The first slot is taken by something else when the page is held, and free when it
                // is held again.
                let other = Entry::default();
                let filler = hazard::hold(other.address());
                let Ok(first) = world.entry.pin() else { return None };
                // SAFETY: Loom checks that no thread is writing.
                let look = || world.frame.with(|frame| unsafe { *frame });
                let before = look();
                drop(filler);
                let again = hazard::hold(world.entry.address());
                let state = world.entry.load();
                let locked = matches!(state, State::Locked { .. });
                if locked {
                    assert!(hazard::held_before(&again));
                }
                drop(first);
                assert_eq!(look(), before, "a store came behind the second guard");
                drop(again);
                Some(locked)
            }
        });
        let stored = world.store();
        (stored, reader.join().unwrap())
    });
    assert!(
        outcomes.contains(&(false, Some(true))) && outcomes.contains(&(true, None)),
        "{outcomes:?}"
    );
}

#[test]
fn a_page_that_is_read_in_again_is_held_as_well() {
    let outcomes = prove(Some(3), || {
        let world = World::resident();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                assert!(matches!(world.read(), None | Some(PAGE)));
                assert!(matches!(world.read(), None | Some(PAGE)));
            }
        });
        let evicted = world.evict();
        if evicted {
            world.entry.try_begin_read(1).unwrap();
            world.fill(PAGE);
            let _ = world.entry.finish_read(7, false);
        }
        reader.join().unwrap();
        evicted
    });
    assert_eq!(outcomes, [false, true].into());
}

/// In the model a record has two slots, so the third hold takes a second record.
#[test]
fn guards_of_every_record_are_seen_and_vacated_in_any_order() {
    let outcomes = prove(Some(2), || {
        let world = World::resident();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let (first, second) = (hazard::hold(1), hazard::hold(2));
                let read = world.read();
                drop(first);
                let again = world.read();
                drop(second);
                assert!(matches!((read, again), (None | Some(PAGE), None | Some(PAGE))));
            }
        });
        let evicted = world.evict();
        reader.join().unwrap();
        evicted
    });
    assert_eq!(outcomes, [false, true].into());
}

#[test]
fn a_thread_that_inherits_a_record_is_seen() {
    let outcomes = prove(Some(3), || {
        let world = World::resident();
        let earlier = thread::spawn(|| drop(hazard::hold(1)));
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                earlier.join().unwrap();
                assert!(matches!(world.read(), None | Some(PAGE)));
            }
        });
        let evicted = world.evict();
        reader.join().unwrap();
        evicted
    });
    assert_eq!(outcomes, [false, true].into());
}

/// The canary: without the look at the slots, the frame is reused under the reader, and the model
/// must find out.
#[test]
#[should_panic]
fn an_evictor_that_does_not_look_is_caught() {
    prove(None, || {
        let world = World::resident();
        let reader = thread::spawn({
            let world = world.clone();
            move || world.read()
        });
        if world.entry.try_lock_for_eviction().is_ok() {
            let _ = world.entry.evict(1);
            world.fill(REUSED);
        }
        reader.join().unwrap();
    });
}

/// The canary of the permission: a store that executes a fence of its own where it needs the heavy
/// one misses a reader without a fence.
#[test]
#[should_panic]
fn a_store_that_spares_the_barrier_while_readers_without_a_fence_are_permitted_is_caught() {
    prove(None, || {
        let world = World::with_page(true, true);
        let reader = thread::spawn({
            let world = world.clone();
            move || world.read_by(MapMode::PinYoung)
        });
        let taken = world.entry.try_lock_for_store().unwrap();
        if !world.is_held(&mut Taken { unfenced: false, ..taken }) {
            world.fill(STORED);
        }
        let _ = world.entry.unlock(taken);
        reader.join().unwrap();
    });
}
