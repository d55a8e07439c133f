//! Hazard slots: how a reader pins a frame without writing to anything that another reader touches.
//!
//! # Theory
//!
//! A page that is being read must not lose its frame. A count of readers beside each page would do,
//! but it costs an atomic read-modify-write on a line that is rarely in the cache: more than the
//! whole rest of a hit. So the announcement is turned round. Each thread has a few *slots* of its
//! own, in a line that it always has in its cache, and writes there *which* page it reads: the
//! address of the page's translation entry. A thread that is about to take frames away looks into
//! all slots of all threads, once for a whole batch of pages.
//!
//! ```text
//!   reader                                    evictor, for a batch of pages
//!   1  slot = address of entry (release)      1  entry: RESIDENT → LOCKED, each
//!   2  light()                                2  heavy()
//!   3  load entry (acquire)                   3  read all slots (acquire)             } scan()
//!      RESIDENT: the frame is ours            4  in a slot:  LOCKED → RESIDENT, keep the page
//!      else:     slot = 0, take the slow way     in none:    LOCKED → ABSENT, the frame is free
//!   4  read the bytes
//!   5  slot = 0 (release)
//! ```
//!
//! *Safety.* Let the reader have seen RESIDENT in its step 3, and the evictor have freed the frame.
//! The fences forbid that the reader missed the evictor's step 1 **and** the evictor missed the
//! reader's step 1 ([`crate::sync`]). As the reader missed LOCKED, the evictor saw the slot or
//! something later in it. Not the slot itself, or it would have kept the page; so it read a later
//! value, and every later value of a slot is written with release order after the bytes were read.
//! The evictor's acquire load puts the reads before whatever it does with the frame next. (That is
//! why step 1 is a *release* store too: the later value may be the announcement of the thread's
//! next page.)
//!
//! *Progress.* No thread waits for another. A reader that finds LOCKED has lost a race once; an
//! evictor that finds a slot skips that page.
//!
//! *Again.* A thread that has a page pinned may pin it once more while another waits for it to
//! unpin the page, or each would wait for the other: see [`held_before`].
//!
//! *Fenced readers.* `heavy` costs ten microseconds where the process runs on several processors: a
//! batch of evictions can bear that, a store to one page cannot. So a reader may also execute a
//! fence itself in step 2 ([`hold`]), and what locks a page that only such readers have may then
//! execute one in place of `heavy`. The argument is the same, with two full fences instead of
//! `light` and `heavy`. A bit of the translation, UNFENCED, says which pages readers without a
//! fence may have: they must find it set in step 3, and the lock finds it as they left it. It is
//! set by any reader, whenever that pays (which the caller decides), and cleared by the unlock of a
//! thread that has executed `heavy` since it locked the page: what readers without a fence there
//! are then is in slots that all threads see. So stores that follow each other need no `heavy`.
//!
//! *Refusal.* A sandbox that is installed while the program runs may forbid `heavy`. It is then
//! unknown what readers without a fence do, so every page that they may have counts as pinned: it
//! is not evicted or stored to any more, operations that need it fail with an error that gives the
//! reason, and reading what is resident goes on.
//!
//! *Kept slots.* A reader of one page at a time keeps a slot: `hazard/kept.rs`.
//!
//! # Records
//!
//! The slots of a thread are a record of eight, alone in its cache line. A slot that holds 0 is
//! vacant, so there is no list of vacant slots to maintain: guards may be dropped in any order, and
//! finding slot 0 vacant is a well predicted branch. A thread that needs more slots takes more
//! records and links them into a ring. All records ever made stay in one global list, which only
//! `scan` and the making of records lock. When a thread ends its records are given to later
//! threads.
//!
//! A guard cannot leave its thread, but it can outlive the thread's own record keeping, because
//! thread-locals are destroyed in no certain order. A record that still has a slot taken at that
//! moment becomes an *orphan*, and so does the record of a pin that is taken after it. Nothing more
//! is published in an orphan, so it may serve a new thread as soon as all of its slots are vacant;
//! a thread that needs a record checks that. So dropping a guard is one store. A guard that is
//! forgotten keeps its page resident forever and its slot with it, which wastes both and endangers
//! nothing.
//!
//! A child of `fork` has one thread, and all locks as they were in its parent. So it begins with
//! another list, of the records of that thread, and without a shared look that never ends. The lock
//! is not held while the process forks, since handlers of the program may use pages. Where no
//! handler runs (a raw `clone`, `_Fork`) a child must not use this crate.
//!
//! # Cost
//!
//! [`hold_unfenced`] and the drop of its guard: one thread-local load, one load and two stores in a
//! line that only this thread writes, and no fence. [`hold`]: the fence more. Registering a thread:
//! one lock, once. [`scan`]: one cache line for each thread, and one system call if readers without
//! a fence are permitted. Where many threads store to such pages, [`scan_shared`] makes one scan
//! serve all threads that need one and arrived before it began.

use crate::sampling::Countdown;
pub use crate::sync::is_refused;
use crate::sync::{
    AtomicUsize, Cell, Ordering, full, heavy, is_asymmetric, is_torn_down, light,
    light_if_asymmetric, thread_cell,
};
#[cfg(loom)]
use crate::sync::{Global, GlobalMutex};
use std::marker::PhantomData;
use std::ops::RangeInclusive;

/// Slots of one record: as many as fill a cache line. The model has two, so that few steps reach
/// the second record.
const SLOTS: usize = if cfg!(loom) { 2 } else { 8 };

/// The slots of one thread, followed in another line by what only that thread reads and writes.
///
/// Aligned to two lines because processors fetch lines in pairs.
#[repr(C, align(128))]
struct Record {
    /// Addresses of the entries that the owner reads; 0 is vacant. Written by the owner, read by
    /// all threads.
    slots: [AtomicUsize; SLOTS],
    /// The next record of the same thread, round to the first. Owner only.
    next: Cell<Option<&'static Record>>,
}

// SAFETY: `slots` is atomic. `next` is touched by the owner only. A record has one owner at a time:
// it is owned from `take_record` until `retire`, both of which lock the registry, so that one
// owner's accesses happen before the next owner's. Both are called on the owner's thread, since
// thread-locals do not leave it.
unsafe impl Sync for Record {}
// SAFETY: As for `Sync`; nothing in a record is bound to the thread that made it.
unsafe impl Send for Record {}

/// All records there are. Each is leaked, since any thread may look into it at any time.
#[derive(Default)]
struct Registry {
    all: Vec<&'static Record>,
    /// Those without an owner.
    idle: Vec<&'static Record>,
    /// Those whose owner publishes nothing more, but had a guard when it was last seen.
    orphans: Vec<&'static Record>,
}

mod kept;
pub use kept::KeptSlot;
use kept::is_entry;

#[cfg(not(loom))]
mod forks;
#[cfg(not(loom))]
use forks::registry;

/// The registry of this execution of a proof, locked.
#[cfg(loom)]
fn registry() -> impl std::ops::DerefMut<Target = Registry> {
    static REGISTRY: Global<Registry> = Global::new(|| GlobalMutex::new(Registry::default()));
    REGISTRY.lock()
}

/// What a thread's hits need. All in one thread-local: finding another one costs more than the work
/// that is done there.
struct Local {
    /// A record of this thread whose first slot may be vacant, if the thread has one and pins need
    /// no fence.
    record: Cell<Option<&'static Record>>,
    hits: Countdown,
}

thread_cell!(LOCAL: Local = Local { record: Cell::new(None), hits: Countdown::new() });

// The records of this thread, and the destructor that gives them back; apart from `LOCAL`, because
// thread-locals with destructors are slower to reach.
thread_cell!(AT_EXIT: AtExit = AtExit(Cell::new(None)));

/// Registers the destructor that gives the records of this thread back (`thread_locals.rs`).
pub fn register() {
    AT_EXIT.with(|_| ());
}

/// Gives the records of an ending thread back.
struct AtExit(Cell<Option<&'static Record>>);

/// A taken slot: while it lives, the frame behind the entry cannot be reused. Dropping it vacates
/// the slot.
///
/// It does not leave its thread. Guards of one thread may be dropped in any order.
#[must_use = "the page is held only while the guard lives"]
pub struct Held {
    slot: &'static AtomicUsize,
    not_send: PhantomData<*const ()>,
}

/// Announces that this thread is about to read behind the entry at `address`, which is not 0.
///
/// Load the entry *after* this, with acquire order. If it says RESIDENT, its frame stays what it is
/// until the guard is dropped. If it says anything else, drop the guard: nothing is pinned. There
/// is no limit to the number of guards, and no failure; from the ninth of one thread on they cost
/// more.
#[inline]
pub fn hold(address: usize) -> Held {
    let held = hold_unfenced(address);
    held.fence();
    held
}

/// As [`hold`], without the fence: it is enough only if the entry then permits readers without one.
#[inline]
pub fn hold_unfenced(address: usize) -> Held {
    debug_assert_ne!(address, 0, "0 marks a vacant slot");
    if let Some(record) = LOCAL.with(|local| local.record.get()) {
        let slot = &record.slots[0];
        if slot.load(Ordering::Relaxed) == 0 {
            slot.store(address, Ordering::Release);
            light_if_asymmetric();
            return Held { slot, not_send: PhantomData };
        }
    }
    hold_in_another_slot(address)
}

/// Counts a fast hit of this thread. False if it has to be counted the slow way, by [`is_sample`].
#[inline(always)]
pub fn counts_down() -> bool {
    LOCAL.with(|local| local.hits.fast_hit())
}

/// Counts a hit of this thread that is not a fast one, and returns whether it is one of those that
/// [stand for all](crate::sampling).
#[inline]
pub fn is_sample() -> bool {
    LOCAL.with(|local| local.hits.hit())
}

/// The first pin of a thread, and those that find the first slot of the record in use taken.
#[cold]
#[inline(never)]
fn hold_in_another_slot(address: usize) -> Held {
    if let Some((record, slot)) = own_records().find_map(|record| Some((record, record.vacant()?)))
    {
        use_first(record);
        return publish(slot, address);
    }
    let record = take_record();
    let registered = register_record(record);
    let held = publish(&record.slots[0], address);
    if !registered {
        retire(record);
    }
    held
}

/// Links a record into the ring of this thread. False if its records have been given back already.
fn register_record(record: &'static Record) -> bool {
    let registered = AT_EXIT.try_with(|at_exit| {
        let neighbour = at_exit.0.replace(Some(record)).unwrap_or(record);
        record.next.set(neighbour.next.get().or(Some(record)));
        neighbour.next.set(Some(record));
        use_first(record);
    });
    registered.is_ok()
}

/// Makes a record the one that [`hold`] tries, if that way round the fence is open.
fn use_first(record: &'static Record) {
    if is_asymmetric() {
        LOCAL.with(|local| local.record.set(Some(record)));
    }
}

/// What the slots of all threads held at some moment.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// The addresses, sorted.
    held: Vec<usize>,
    /// The kernel refused the fence: any address may be held.
    unknown: bool,
}

impl Slots {
    /// Whether the kernel refused the fence that was needed.
    #[must_use]
    pub const fn are_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether a slot had an address in `addresses`: the first to the last entry of a folio.
    #[must_use]
    pub fn hold(&self, addresses: &RangeInclusive<usize>) -> bool {
        let first = self.held.partition_point(|address| address < addresses.start());
        self.unknown || self.held.get(first).is_some_and(|address| addresses.contains(address))
    }
}

/// Reads all slots of all threads, as they were at some moment after the call began.
///
/// Issues the fence itself: an entry that was made LOCKED before the call, and whose address is not
/// in the result, is read by no thread that took it for RESIDENT. `unfenced` says whether one of
/// these entries permitted readers without a fence. The calling thread's own guards are included.
/// Cost: see the file's header; `slots` is reused to avoid an allocation.
pub fn scan(slots: &mut Slots, unfenced: bool) {
    slots.unknown = if unfenced {
        !heavy()
    } else {
        full();
        false
    };
    look(slots);
}

/// As [`scan`], but one with the heavy fence is shared by all threads that need one while another
/// runs: for stores, of which there may be as many as there are threads. Reclaim has a scan of its
/// own, so that it waits for no other thread under the pool's lock.
#[cfg(not(loom))]
pub fn scan_shared(unfenced: bool) -> std::sync::Arc<Slots> {
    let scan = || {
        let mut slots = Slots::default();
        scan(&mut slots, unfenced);
        slots
    };
    if unfenced { forks::rounds().join(scan) } else { std::sync::Arc::new(scan()) }
}

/// The proofs have no global rounds: `loom_hazard` proves them by themselves.
#[cfg(loom)]
pub fn scan_shared(unfenced: bool) -> std::sync::Arc<Slots> {
    let mut slots = Slots::default();
    scan(&mut slots, unfenced);
    std::sync::Arc::new(slots)
}

/// Reads all slots again, for the owner of an entry that has stayed LOCKED since a [`scan`]: since
/// then only threads that held it could hold it again ([`held_before`]), so what is in no slot any
/// more is not read. Needs no fence: a slot is vacated with release order after the last read.
pub fn look(slots: &mut Slots) {
    slots.held.clear();
    // The lock is held for the whole walk: `held_before` relies on it.
    for record in &registry().all {
        slots.held.extend(
            record
                .slots
                .iter()
                .map(|slot| slot.load(Ordering::Acquire))
                .filter(|&held| is_entry(held)),
        );
    }
    slots.held.sort_unstable();
}

/// Whether a guard of the calling thread holds the entry at `address`: waiting for that entry's
/// readers would be forever.
///
/// Guards that have outlived the thread's record keeping (see *Records*) are not found.
#[must_use]
pub fn held_by_this_thread(address: usize) -> bool {
    own_records()
        .any(|record| record.slots.iter().any(|slot| slot.load(Ordering::Relaxed) == address))
}

/// Whether a guard of the calling thread held the entry already when `again` was taken. If so
/// `again` holds it, too, whatever the entry says: its frame stays, and its bytes do not change,
/// until both are dropped.
///
/// A thread that has the entry LOCKED waits for the first guard, which it sees in every walk over
/// the slots. A walk that is under way may have passed the slot of `again` before it was taken, and
/// come to that of the first guard after it was dropped; it would see neither. So this returns when
/// that walk is over, and the first guard cannot be dropped before. Walks to come see the slot of
/// `again`.
///
/// Guards that have outlived the thread's record keeping (see *Records*) are not found.
#[must_use]
pub fn held_before(again: &Held) -> bool {
    let address = again.slot.load(Ordering::Relaxed);
    let slots = own_records().flat_map(|record| &record.slots);
    if slots.filter(|slot| slot.load(Ordering::Relaxed) == address).count() < 2 {
        return false;
    }
    drop(registry());
    true
}

/// At least as many guards as the calling thread has; off by [`SLOTS`] at most for each record.
/// Cost: O(guards / 8).
pub fn guards_at_most() -> usize {
    own_records().count() * SLOTS
}

/// Calls `each` with every address that guards of the calling thread hold; one that is held twice
/// comes twice.
///
/// Guards that have outlived the thread's record keeping (see *Records*) are not found.
pub fn each_of_this_thread(mut each: impl FnMut(usize)) {
    for record in own_records() {
        let held = record.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        held.filter(|&held| is_entry(held)).for_each(&mut each);
    }
}

/// Whether the calling thread has any guard: another thread may be waiting for it.
///
/// Guards that have outlived the thread's record keeping (see *Records*) are not found.
#[must_use]
pub fn this_thread_holds() -> bool {
    own_records()
        .any(|record| record.slots.iter().any(|slot| is_entry(slot.load(Ordering::Relaxed))))
}

/// The records of the calling thread, beginning with the newest.
fn own_records() -> impl Iterator<Item = &'static Record> {
    let first = AT_EXIT.try_with(|at_exit| at_exit.0.get()).ok().flatten();
    let mut next = first;
    std::iter::from_fn(move || {
        let record = next?;
        next = record
            .next
            .get()
            .filter(|&following| !first.is_some_and(|first| std::ptr::eq(first, following)));
        Some(record)
    })
}

/// An idle record, an orphan without guards, or a new one.
fn take_record() -> &'static Record {
    #[cfg(not(loom))]
    forks::watch();
    let mut registry = registry();
    if let Some(record) = registry.idle.pop() {
        return record;
    }
    if let Some(at) = registry.orphans.iter().position(|record| record.is_vacant()) {
        return registry.orphans.swap_remove(at);
    }
    let slots = std::array::from_fn(|_| AtomicUsize::new(0));
    let record = Box::leak(Box::new(Record { slots, next: Cell::new(None) }));
    registry.all.push(record);
    record
}

/// Ends this thread's ownership of a record, in which it publishes nothing more.
fn retire(record: &'static Record) {
    let mut registry = registry();
    if record.is_vacant() {
        registry.idle.push(record);
    } else {
        registry.orphans.push(record);
    }
}

impl Record {
    /// A slot that the owner may use.
    #[inline]
    fn vacant(&'static self) -> Option<&'static AtomicUsize> {
        self.slots.iter().find(|slot| slot.load(Ordering::Relaxed) == 0)
    }

    /// Whether no guard uses the record. Acquires what its guards did before they were dropped.
    fn is_vacant(&self) -> bool {
        self.slots.iter().all(|slot| slot.load(Ordering::Acquire) == 0)
    }
}

/// Steps 1 and 2 of a reader.
#[inline]
fn publish(slot: &'static AtomicUsize, address: usize) -> Held {
    slot.store(address, Ordering::Release);
    light();
    Held { slot, not_send: PhantomData }
}

impl Held {
    /// Makes a reader without a fence one with a fence. It has to load the entry again.
    #[inline]
    pub fn fence(&self) {
        full();
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(0, Ordering::Release);
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        if is_torn_down() {
            return;
        }
        // Pins that come later find no record and no `AT_EXIT`, and make do with orphans.
        let _ = LOCAL.try_with(|local| local.record.set(None));
        // Opening the ring behind one record makes it a list that ends with that record.
        let mut next = self.0.take().and_then(|record| record.next.take());
        while let Some(record) = next {
            next = record.next.take();
            retire(record);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::thread;

    /// Whether any thread holds `address`. Other tests of the process run at the same time, so a
    /// test looks only for addresses of its own.
    fn seen(address: usize) -> bool {
        let mut slots = Slots::default();
        scan(&mut slots, false);
        slots.hold(&(address..=address))
    }

    /// Addresses that no other caller gets.
    fn addresses<const N: usize>() -> [usize; N] {
        let cells: &'static [u64; N] = Box::leak(Box::new([0; N]));
        std::array::from_fn(|i| (&raw const cells[i]).addr())
    }

    #[test]
    fn a_hold_is_seen_while_its_guard_lives_and_not_after() {
        let [a, b] = addresses();
        let held = hold(a);
        assert!(seen(a) && !seen(b));
        assert!(held_by_this_thread(a) && !held_by_this_thread(b));
        thread::spawn(move || assert!(seen(a) && !held_by_this_thread(a))).join().unwrap();
        drop(held);
        assert!(!seen(a) && !held_by_this_thread(a));
    }

    /// As [`seen`], by a thread that [`thread`] does not make: in a child its lock stays held
    /// forever if a thread of the parent began or ended at the fork, as those of other tests do.
    fn seen_by_another_thread(address: usize) -> bool {
        extern "C" fn look(address: *mut libc::c_void) -> *mut libc::c_void {
            std::ptr::without_provenance_mut(usize::from(seen(address.addr())))
        }
        let (mut looker, mut right) = (0, std::ptr::null_mut());
        let address = std::ptr::without_provenance_mut(address);
        // SAFETY: a place for the result, and an argument that is a number.
        let begun =
            unsafe { libc::pthread_create(&raw mut looker, std::ptr::null(), look, address) == 0 };
        // SAFETY: a thread that has begun, is joined once, and returns a number.
        begun && unsafe { libc::pthread_join(looker, &raw mut right) == 0 } && right.addr() == 1
    }

    /// A child has to find the lock free, whatever threads of its parent did when it was made.
    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn children_pin_pages_while_threads_of_their_parent_look_at_all_slots() {
        let [a, b] = addresses();
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        seen(a);
                    }
                });
            }
            drop(hold(a));
            let ends = (0..100).map(|_| {
                // SAFETY: the child has this thread alone, and ends without the others' handlers.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: a child that hangs is ended by the signal.
                    unsafe { libc::alarm(20) };
                    let held = hold(b);
                    let right = seen(b) && seen_by_another_thread(b);
                    drop(held);
                    // SAFETY: as above.
                    unsafe { libc::_exit(i32::from(!right)) };
                }
                let mut status = -1;
                // SAFETY: a child of this process, and a place for its status.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                status
            });
            let bad: Vec<i32> = ends.filter(|status| *status != 0).take(1).collect();
            done.store(true, Ordering::Relaxed);
            assert!(bad.is_empty(), "a child has not ended well: {bad:x?}");
        });
    }

    #[test]
    fn guards_are_dropped_in_any_order_and_have_no_limit() {
        let all = addresses::<100>();
        let mut guards: Vec<_> = all.iter().map(|&address| (address, hold(address))).collect();
        let mut step = 37;
        while !guards.is_empty() {
            assert!(
                guards.iter().all(|&(address, _)| held_by_this_thread(address) && seen(address))
            );
            let (address, guard) = guards.swap_remove(step % guards.len());
            drop(guard);
            assert!(!seen(address));
            step = (step * 31 + 7) % 1009;
        }
        // The vacated slots serve again: holding as much as before makes no new record.
        let records = own_records().count();
        assert!(records >= 100usize.div_ceil(SLOTS));
        let again: Vec<_> = all.iter().map(|&address| hold(address)).collect();
        assert_eq!(own_records().count(), records);
        assert!(all.iter().all(|&address| seen(address)));
        drop(again);
    }

    #[test]
    fn one_page_held_twice_is_held_until_the_second_drop() {
        let [a] = addresses();
        let (first, second) = (hold(a), hold(a));
        drop(first);
        assert!(seen(a));
        drop(second);
        assert!(!seen(a));
    }

    #[test]
    fn a_folio_is_held_by_any_of_its_entries() {
        let slots = Slots { held: vec![100, 200, 204], unknown: false };
        for (range, expected) in [
            (96..=99, false),
            (96..=100, true),
            (100..=100, true),
            (101..=199, false),
            (201..=260, true),
            (205..=900, false),
        ] {
            assert_eq!(slots.hold(&range), expected, "{range:?}");
        }
        assert!(!Slots::default().hold(&(0..=usize::MAX)));
        let refused = Slots { held: Vec::new(), unknown: true };
        assert!(refused.hold(&(8..=8)), "what is not known counts as held");
    }

    #[test]
    fn records_of_ended_threads_serve_later_threads() {
        // Other tests make records too, but not hundreds.
        for _ in 0..500 {
            let [a] = addresses();
            thread::spawn(move || drop(hold(a))).join().unwrap();
        }
        assert!(registry().all.len() < 300);
    }

    #[test]
    fn a_forgotten_guard_keeps_its_page_after_its_thread() {
        let [a, b] = addresses();
        thread::spawn(move || {
            std::mem::forget(hold(a));
            drop(hold(b));
        })
        .join()
        .unwrap();
        assert!(seen(a) && !seen(b));
    }

    #[test]
    fn guards_work_inside_destructors_of_other_thread_locals() {
        struct Late(usize, RefCell<Option<Held>>);
        impl Drop for Late {
            fn drop(&mut self) {
                assert!(
                    self.1.get_mut().is_none() || seen(self.0),
                    "a guard outlives the record keeping"
                );
                self.1.get_mut().take();
                assert!(!seen(self.0));
                let (one, two) = (hold(self.0), hold(self.0));
                drop(one);
                assert!(seen(self.0));
                drop(two);
                assert!(!seen(self.0));
            }
        }
        // Destructors run in some order of first use; both orders are tried.
        thread_local! {
            static EARLY: RefCell<Option<Late>> = const { RefCell::new(None) };
        }
        for early in [true, false] {
            for keeps in [true, false] {
                let [a, b] = addresses();
                thread::spawn(move || {
                    if early {
                        EARLY.with(|_| ());
                    }
                    let guard = keeps.then(|| hold(a));
                    drop(hold(b));
                    EARLY.with(|late| *late.borrow_mut() = Some(Late(a, RefCell::new(guard))));
                })
                .join()
                .unwrap();
                assert!(!seen(a), "early {early}, keeps {keeps}");
            }
        }
    }
}
