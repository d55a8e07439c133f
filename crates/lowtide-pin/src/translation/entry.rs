//! The translation of one page: a word, and the transitions that its states allow (see the parent
//! module).

use crate::hazard::{self, Held, KeptSlot, Slots};
use crate::sync::{AtomicU32, Ordering};

/// Alone: the page is in memory, and no thread has taken it.
const RESIDENT: u32 = 1 << 31;
/// In RESIDENT: readers that execute no fence may come, or be there.
const UNFENCED: u32 = 1 << 30;
const TAG: u32 = 0b11 << 30;
const ABSENT: u32 = 0b00 << 30;
const LOCKED: u32 = 0b01 << 30;
/// Owned as LOCKED is, with a frame that does not exist.
const BUSY: u32 = LOCKED | FRAME;
/// In BUSY and LOCKED: a thread sleeps until the owner is done.
const WAITERS: u32 = 1 << 29;
/// In RESIDENT: read since the bit was last cleared.
const YOUNG: u32 = 1 << 29;
/// In RESIDENT and LOCKED: the frame has bytes that the file lacks.
const DIRTY: u32 = 1 << 28;
const FRAME: u32 = DIRTY - 1;

/// Frames that a translation can tell apart: one less than 2^28, which is 1 TiB of 4 KiB pages.
pub const FRAMES_MAX: u32 = FRAME;
/// Shadows are below this.
pub(super) const SHADOWS_MAX: u32 = 1 << 30;

const _: () = assert!(lowtide_core::Shadow::BITS == SHADOWS_MAX.trailing_zeros());

const fn is_busy(word: u32) -> bool {
    word & (TAG | FRAME) == BUSY
}

const fn is_locked(word: u32) -> bool {
    word & TAG == LOCKED && !is_busy(word)
}

/// A translation, decoded. Waiters are left out: they concern only the thread that ends the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not in memory.
    Absent {
        /// [`lowtide_core::Shadow::to_bits`] of what is remembered, 0 for nothing.
        shadow: u32,
    },
    /// Being read in.
    Busy,
    /// In memory, and taken by one thread.
    Locked {
        /// Number of the frame.
        frame: u32,
        /// The frame has bytes that the file lacks.
        dirty: bool,
    },
    /// In memory.
    Resident {
        /// Number of the frame.
        frame: u32,
        /// Read since the bit was last cleared.
        young: bool,
        /// The frame has bytes that the file lacks.
        dirty: bool,
    },
}

impl State {
    #[inline]
    const fn decode(word: u32) -> Self {
        let (frame, dirty) = (word & FRAME, word & DIRTY != 0);
        match word & TAG {
            ABSENT => Self::Absent { shadow: word },
            LOCKED if frame == FRAME => Self::Busy,
            LOCKED => Self::Locked { frame, dirty },
            _ => Self::Resident { frame, young: word & YOUNG != 0, dirty },
        }
    }

    /// The word without WAITERS and UNFENCED.
    #[inline]
    const fn encode(self) -> u32 {
        const fn bit(set: bool, bit: u32) -> u32 {
            if set { bit } else { 0 }
        }
        match self {
            Self::Absent { shadow } => ABSENT | shadow,
            Self::Busy => BUSY,
            Self::Locked { frame, dirty } => LOCKED | bit(dirty, DIRTY) | frame,
            Self::Resident { frame, young, dirty } => {
                RESIDENT | bit(young, YOUNG) | bit(dirty, DIRTY) | frame
            }
        }
    }
}

/// A pinned page: its frame stays what it is while this lives. It does not leave its thread.
#[must_use = "the page is held only while the guard lives"]
pub struct Pinned {
    /// Number of the frame.
    pub frame: u32,
    /// YOUNG as it was seen. Where it is false, [`Table::note_read`](super::Table::note_read) is
    /// due.
    pub young: bool,
    /// DIRTY as it was seen.
    pub dirty: bool,
    /// The slot. Vacated on drop.
    pub _held: Held,
}

impl Pinned {
    /// The state that was seen.
    #[inline]
    pub const fn seen(&self) -> State {
        State::Resident { frame: self.frame, young: self.young, dirty: self.dirty }
    }
}

/// What a store finds in the page that it locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Number of the frame.
    pub frame: u32,
    /// YOUNG as it was; LOCKED does not keep it.
    pub young: bool,
    /// DIRTY as it was; LOCKED keeps it.
    pub dirty: bool,
    /// UNFENCED as it was; LOCKED does not keep it. If it is set, only a [`hazard::scan`] with the
    /// heavy fence finds all readers.
    pub unfenced: bool,
}

impl Taken {
    /// A page that was neither young nor dirty, and whose readers all execute a fence.
    pub const fn idle(frame: u32) -> Self {
        Self { frame, young: false, dirty: false, unfenced: false }
    }

    /// After a look at the slots, since when the page was locked: it has no readers without a fence
    /// that other threads could overlook, unless the heavy fence was refused.
    #[must_use]
    pub fn seen_in(self, slots: &Slots) -> Self {
        Self { unfenced: self.unfenced && slots.are_unknown(), ..self }
    }
}

/// The translation of one page; by default absent, without history. See the parent module.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Entry(AtomicU32);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entry>() == 4);

impl Entry {
    /// What hazard slots hold for this page. Neighbouring pages have neighbouring entries.
    #[inline]
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The state now. Acquires what the last `finish_read` or `unlock` released, but holds nothing:
    /// a frame number from here may be reused at any moment, unless the caller owns the state or
    /// keeps evictors out.
    ///
    /// `SeqCst`, which costs a load nothing, so that a walk may look for bits with it after taking
    /// a [`Hint`](super::Hint).
    #[inline]
    pub fn load(&self) -> State {
        State::decode(self.0.load(Ordering::SeqCst))
    }

    /// Pins the page for reading if it is resident; otherwise returns its state, and pins nothing.
    ///
    /// No read-modify-write; a fence unless the page is UNFENCED.
    ///
    /// # Errors
    /// Absent, busy or locked: the caller must read the page in, or wait.
    #[inline]
    pub fn pin(&self) -> Result<Pinned, State> {
        match self.pin_if(|word| word & RESIDENT != 0) {
            Ok((word, held)) => Ok(Pinned {
                frame: word & FRAME,
                young: word & YOUNG != 0,
                dirty: word & DIRTY != 0,
                _held: held,
            }),
            Err(word) => Err(State::decode(word)),
        }
    }

    /// Pins the page whatever its state is, and returns the state: for a caller that is about to
    /// bring it in. Only a resident page is pinned now; the slot stays for what comes next.
    #[inline]
    pub fn hold(&self) -> (State, Held) {
        match self.pin_if(|_| true) {
            Ok((word, held)) => (State::decode(word), held),
            Err(_) => unreachable!("any word will do"),
        }
    }

    /// Steps 1 to 3 of a reader in [`crate::hazard`]: publishes the address, loads the word, and
    /// keeps the slot if the word will do. Where readers without a fence are not permitted, that is
    /// done once more with one.
    #[inline(always)]
    fn pin_if(&self, will_do: impl FnOnce(u32) -> bool) -> Result<(u32, Held), u32> {
        let held = hazard::hold_unfenced(self.address());
        let mut word = self.0.load(Ordering::Acquire);
        if word < RESIDENT | UNFENCED {
            held.fence();
            word = self.0.load(Ordering::Acquire);
        }
        if will_do(word) { Ok((word, held)) } else { Err(word) }
    }

    /// [`pin`](Entry::pin) for the most frequent case, found by one comparison: resident, young,
    /// and open to readers that execute no fence. Returns the frame; `None` says nothing about the
    /// state of the page, and pins nothing.
    #[inline(always)]
    pub fn pin_young(&self) -> Option<(u32, Held)> {
        const _: () = assert!(
            RESIDENT == 1 << 31 && UNFENCED == 1 << 30 && YOUNG == 1 << 29,
            "the highest words of all are those that the hit path takes"
        );
        let held = hazard::hold_unfenced(self.address());
        let word = self.0.load(Ordering::Acquire);
        (word >= RESIDENT | UNFENCED | YOUNG).then_some((word & FRAME, held))
    }

    /// [`pin_young`](Entry::pin_young) in a slot that is kept. After `None` the slot announces the
    /// page, and pins nothing: let it [rest](KeptSlot::rest).
    #[inline(always)]
    pub fn keep_young(&self, slot: &KeptSlot) -> Option<u32> {
        slot.announce(self.address());
        let word = self.0.load(Ordering::Acquire);
        (word >= RESIDENT | UNFENCED | YOUNG).then_some(word & FRAME)
    }

    /// [`pin`](Entry::pin) in a slot that is kept, with a fence.
    #[inline]
    pub fn keep(&self, slot: &KeptSlot) -> Option<u32> {
        slot.announce(self.address());
        slot.fence();
        let word = self.0.load(Ordering::Acquire);
        (word & RESIDENT != 0).then_some(word & FRAME)
    }

    /// ABSENT → BUSY, if the entry is still absent with the shadow that was seen. On success the
    /// caller owns the entry and has to remember the shadow.
    ///
    /// # Errors
    /// The state that is there instead; it may be absent with another shadow.
    pub fn try_begin_read(&self, shadow: u32) -> Result<(), State> {
        debug_assert!(shadow < SHADOWS_MAX);
        self.0
            .compare_exchange(ABSENT | shadow, BUSY, Ordering::Acquire, Ordering::Acquire)
            .map(|_| ())
            .map_err(State::decode)
    }

    /// BUSY → RESIDENT, clean. Releases the bytes of the frame. If `young`,
    /// [`Hint::note_young`](super::Hint::note_young) is due.
    ///
    /// Returns whether a thread waits.
    ///
    /// # Panics
    /// When the entry is not BUSY.
    #[must_use = "waiters must be woken"]
    pub fn finish_read(&self, frame: u32, young: bool) -> bool {
        self.leave(is_busy, State::Resident { frame, young, dirty: false })
    }

    /// BUSY → RESIDENT, dirty: the whole page was stored, and nothing of it was read. Releases the
    /// bytes of the frame. [`Hint::note_dirty`](super::Hint::note_dirty) is due.
    ///
    /// Returns whether a thread waits.
    ///
    /// # Panics
    /// When the entry is not BUSY.
    #[must_use = "waiters must be woken"]
    pub fn finish_store(&self, frame: u32) -> bool {
        self.leave(is_busy, State::Resident { frame, young: false, dirty: true })
    }

    /// BUSY → ABSENT: the page could not be read. Puts the shadow back.
    ///
    /// Returns whether a thread waits.
    ///
    /// # Panics
    /// When the entry is not BUSY.
    #[must_use = "waiters must be woken"]
    pub fn abort_read(&self, shadow: u32) -> bool {
        self.leave(is_busy, State::Absent { shadow })
    }

    /// RESIDENT → LOCKED, if the page is neither YOUNG nor DIRTY.
    ///
    /// Readers may still be reading the frame: only a [`hazard::scan`] after this finds them.
    ///
    /// # Errors
    /// The state that forbids it.
    pub fn try_lock_for_eviction(&self) -> Result<Taken, State> {
        self.lock_unless(YOUNG | DIRTY)
    }

    /// RESIDENT → LOCKED, whatever its bits are, and acquires its bytes. The store must wait until
    /// a [`hazard::scan`] after this finds no reader, and a thread that has the page pinned must
    /// not try.
    ///
    /// # Errors
    /// The state that forbids it: not resident.
    pub fn try_lock_for_store(&self) -> Result<Taken, State> {
        self.lock_unless(0)
    }

    fn lock_unless(&self, forbidden: u32) -> Result<Taken, State> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & RESIDENT == 0 || word & forbidden != 0 {
                return Err(State::decode(word));
            }
            let locked = LOCKED | word & (DIRTY | FRAME);
            match self.0.compare_exchange_weak(word, locked, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    let (young, dirty) = (word & YOUNG != 0, word & DIRTY != 0);
                    let (frame, unfenced) = (word & FRAME, word & UNFENCED != 0);
                    return Ok(Taken { frame, young, dirty, unfenced });
                }
                Err(now) => word = now,
            }
        }
    }

    /// LOCKED → RESIDENT, with the bits given; DIRTY stays where it is set already. Releases what
    /// was stored. [`Hint::note_young`](super::Hint::note_young) and
    /// [`Hint::note_dirty`](super::Hint::note_dirty) are due for the bits that are set.
    ///
    /// Returns whether a thread waits.
    ///
    /// # Panics
    /// When the entry is not LOCKED.
    #[must_use = "waiters must be woken"]
    pub fn unlock(&self, to: Taken) -> bool {
        let Taken { frame, young, dirty, unfenced } = to;
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let now = State::decode(word);
            let State::Locked { frame: locked, dirty: already } = now else {
                panic!("{now:?} was unlocked by a thread that did not own it")
            };
            assert!(
                locked == frame,
                "a page that was locked in frame {locked} was unlocked in {frame}"
            );
            let to = State::Resident { frame, young, dirty: dirty || already }.encode()
                | if unfenced { UNFENCED } else { 0 };
            match self.0.compare_exchange_weak(word, to, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return word & WAITERS != 0,
                Err(changed) => word = changed,
            }
        }
    }

    /// Sets DIRTY in a page that is in memory, owned or not: RESIDENT stays RESIDENT, and LOCKED
    /// stays LOCKED and is unlocked dirty. [`Hint::note_dirty`](super::Hint::note_dirty) is due.
    ///
    /// The caller keeps evictors away, which rely on what they locked staying clean. Returns false,
    /// having changed nothing, if the page is not in memory.
    #[must_use = "a page that is not in memory does not become dirty"]
    pub fn set_dirty(&self) -> bool {
        let mut word = self.0.load(Ordering::SeqCst);
        while word & RESIDENT != 0 || is_locked(word) {
            match self.0.compare_exchange_weak(
                word,
                word | DIRTY,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// LOCKED → ABSENT. The frame is the caller's from now on. Returns whether a thread waits.
    ///
    /// # Panics
    /// When the entry is not LOCKED, or is dirty: its bytes would be lost.
    #[must_use = "waiters must be woken"]
    pub fn evict(&self, shadow: u32) -> bool {
        assert!(
            self.0.load(Ordering::Relaxed) & DIRTY == 0,
            "a dirty page must be written, not evicted"
        );
        self.leave(is_locked, State::Absent { shadow })
    }

    /// LOCKED → BUSY: its bytes are on their way to another place. The frame is the caller's from
    /// now on, and so is the entry, until [`abort_read`](Entry::abort_read). Returns whether a
    /// thread waits.
    ///
    /// # Panics
    /// When the entry is not LOCKED, or is dirty: its bytes would be lost.
    #[must_use = "waiters must be woken"]
    pub fn hold_back(&self) -> bool {
        assert!(
            self.0.load(Ordering::Relaxed) & DIRTY == 0,
            "a dirty page must be written, not evicted"
        );
        self.leave(is_locked, State::Busy)
    }

    /// Whether a thread waits for this page, which the calling thread owns.
    pub fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// LOCKED → ABSENT without history, dirty or not: the page ceases to exist, as after a
    /// truncation.
    ///
    /// Returns whether a thread waits.
    ///
    /// # Panics
    /// When the entry is not LOCKED.
    #[must_use = "waiters must be woken"]
    pub fn discard(&self) -> bool {
        self.leave(is_locked, State::Absent { shadow: 0 })
    }

    /// Ends an owned state; returns WAITERS.
    fn leave(&self, is_owned: fn(u32) -> bool, to: State) -> bool {
        let old = self.0.swap(to.encode(), Ordering::SeqCst);
        assert!(
            is_owned(old),
            "{:?} became {to:?} by a thread that did not own it",
            State::decode(old)
        );
        old & WAITERS != 0
    }

    /// Sets YOUNG, if `young`, and UNFENCED, if it is not set and `permits` says so, in a page that
    /// is as it was seen; any change since makes the attempt pointless, and it fails. Returns
    /// whether it has made the page young.
    ///
    /// Private to this module: a bit needs its hint, see
    /// [`Table::note_read`](super::Table::note_read).
    #[inline]
    pub(super) fn note_read(
        &self,
        seen: State,
        young: bool,
        permits: impl FnOnce() -> bool,
    ) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        if word & RESIDENT == 0 || State::decode(word) != seen {
            return false;
        }
        let mut to = if young { word | YOUNG } else { word };
        if word & UNFENCED == 0 && permits() {
            to |= UNFENCED;
        }
        to != word
            && self.0.compare_exchange(word, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            && word & YOUNG != to & YOUNG
    }

    /// Sets UNFENCED alone, in a page that is as it was seen.
    #[cfg(any(test, loom))]
    pub fn permit_unfenced(&self, seen: State) {
        self.note_read(seen, false, || true);
    }

    /// Clears YOUNG and returns whether it was set: the walk's test. False for a page that is not
    /// resident.
    pub fn clear_young(&self) -> bool {
        self.clear(YOUNG)
    }

    /// Clears DIRTY and returns whether it was set, acquiring the bytes of the stores that set it.
    /// The caller must then write the page, and after a failure set the bit again
    /// ([`Entry::set_dirty`]). False for a page that is LOCKED or not resident.
    pub fn clear_dirty(&self) -> bool {
        self.clear(DIRTY)
    }

    fn clear(&self, bit: u32) -> bool {
        let mut word = self.0.load(Ordering::SeqCst);
        while word & RESIDENT != 0 && word & bit != 0 {
            match self.0.compare_exchange_weak(
                word,
                word & !bit,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Marks that the caller is about to sleep until the owner ends the state `seen`. False if that
    /// state has ended, or has no owner: look again instead. The caller holds the lock that the
    /// waker takes.
    #[must_use = "sleeping without the mark is forever"]
    pub fn set_waiters(&self, seen: State) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & TAG != LOCKED || State::decode(word) != seen {
                return false;
            }
            if word & WAITERS != 0 {
                return true;
            }
            match self.0.compare_exchange_weak(
                word,
                word | WAITERS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn resident(frame: u32, dirty: bool, young: bool) -> Entry {
        let entry = Entry::default();
        entry.try_begin_read(0).unwrap();
        assert!(!entry.finish_read(frame, false));
        if dirty || young {
            entry.try_lock_for_store().unwrap();
            assert!(!entry.unlock(Taken { young, dirty, ..Taken::idle(frame) }));
        }
        entry
    }

    #[test]
    fn every_state_survives_encoding() {
        let frames = [0, 1, FRAMES_MAX - 1];
        let mut states = vec![State::Busy];
        states.extend([0, 1, SHADOWS_MAX - 1].map(|shadow| State::Absent { shadow }));
        for frame in frames {
            for dirty in [false, true] {
                states.push(State::Locked { frame, dirty });
                states.extend([false, true].map(|young| State::Resident { frame, young, dirty }));
            }
        }
        for (i, &state) in states.iter().enumerate() {
            assert_eq!(State::decode(state.encode()), state);
            assert!(states[..i].iter().all(|other| other.encode() != state.encode()));
        }
    }

    #[test]
    fn a_page_lives_through_all_its_states() {
        let entry = Entry::default();
        assert_eq!(entry.pin().err(), Some(State::Absent { shadow: 0 }));
        entry.try_begin_read(0).unwrap();
        assert_eq!(entry.try_begin_read(0), Err(State::Busy));
        assert!(!entry.abort_read(77));
        assert_eq!(entry.try_begin_read(0), Err(State::Absent { shadow: 77 }));
        entry.try_begin_read(77).unwrap();
        assert!(!entry.finish_read(5, true));

        let pinned = entry.pin().unwrap();
        assert_eq!((pinned.frame, pinned.young, pinned.dirty), (5, true, false));
        assert!(hazard::held_by_this_thread(entry.address()));
        drop(pinned);

        assert!(entry.try_lock_for_eviction().is_err(), "young");
        assert!(entry.clear_young() && !entry.clear_young());
        assert_eq!(entry.try_lock_for_eviction(), Ok(Taken::idle(5)));
        assert_eq!(entry.pin().err(), Some(State::Locked { frame: 5, dirty: false }));
        assert!(!hazard::held_by_this_thread(entry.address()), "a failed pin holds nothing");
        assert!(!entry.hold_back());
        assert_eq!(entry.load(), State::Busy);
        assert!(!entry.abort_read(99));
        assert_eq!(entry.load(), State::Absent { shadow: 99 });
    }

    #[test]
    fn a_dirty_page_is_not_evicted_before_it_is_clean() {
        let entry = resident(3, true, false);
        assert_eq!(
            entry.try_lock_for_eviction(),
            Err(State::Resident { frame: 3, young: false, dirty: true })
        );
        let taken = entry.try_lock_for_store().unwrap();
        assert_eq!(taken, Taken { dirty: true, ..Taken::idle(3) });
        assert!(!entry.clear_dirty(), "a store is in progress");
        assert!(std::panic::catch_unwind(|| entry.evict(0)).is_err());
        assert!(!entry.unlock(Taken { dirty: true, ..Taken::idle(3) }));
        assert!(entry.clear_dirty() && !entry.clear_dirty());
        assert_eq!(entry.try_lock_for_eviction(), Ok(Taken::idle(3)));
    }

    #[test]
    fn a_truncated_page_is_discarded_even_when_dirty() {
        let entry = resident(3, true, true);
        entry.try_lock_for_store().unwrap();
        assert!(!entry.discard());
        assert_eq!(entry.load(), State::Absent { shadow: 0 });
    }

    #[test]
    fn young_is_set_only_on_what_was_seen() {
        let entry = resident(3, false, false);
        let set_young = |seen| entry.note_read(seen, true, || false);
        let seen = entry.load();
        assert!(set_young(seen));
        assert!(!set_young(seen), "the word has changed since");
        assert!(!set_young(entry.load()), "set already");
        assert!(!set_young(State::Busy));
        assert!(!Entry::default().clear_young());
    }

    #[test]
    fn the_hit_path_takes_a_page_once_it_is_young_and_readers_without_a_fence_are_permitted() {
        let entry = resident(3, true, false);
        let takes = || entry.pin_young().map(|(frame, _held)| frame);
        assert!(entry.note_read(entry.load(), true, || false));
        assert_eq!(takes(), None, "readers need a fence");
        entry.permit_unfenced(entry.load());
        assert_eq!(takes(), Some(3));
        assert!(entry.pin().is_ok_and(|pinned| pinned.frame == 3 && pinned.young && pinned.dirty));
        let taken = entry.try_lock_for_store().unwrap();
        let expected = Taken { frame: 3, young: true, dirty: true, unfenced: true };
        assert_eq!(taken, expected);
        assert_eq!(takes(), None);
        let mut slots = Slots::default();
        hazard::scan(&mut slots, taken.unfenced);
        assert!(!entry.unlock(taken.seen_in(&slots)));
        assert_eq!(takes(), None, "the store has ended the permission");
        entry.permit_unfenced(entry.load());
        assert!(takes().is_some() && entry.clear_young() && takes().is_none(), "not young");
        assert!(entry.clear_dirty());
        assert!(entry.try_lock_for_eviction().unwrap().unfenced, "readers may still be there");
    }

    #[test]
    fn waiters_are_reported_once_and_only_by_owned_states() {
        let entry = Entry::default();
        assert!(!entry.set_waiters(entry.load()), "no owner would wake them");
        entry.try_begin_read(0).unwrap();
        assert!(entry.set_waiters(State::Busy) && entry.set_waiters(State::Busy));
        assert_eq!(entry.load(), State::Busy);
        assert!(entry.finish_read(1, false));
        assert!(!entry.set_waiters(State::Busy), "over");
        assert!(!entry.set_waiters(entry.load()));
        entry.try_lock_for_store().unwrap();
        let seen = entry.load();
        assert!(entry.set_waiters(seen));
        assert_eq!(entry.load(), seen, "a waiter changes nothing else");
        assert!(entry.unlock(Taken { dirty: true, ..Taken::idle(1) }));
        assert_eq!(entry.load(), State::Resident { frame: 1, young: false, dirty: true });
    }

    #[test]
    fn leaving_a_state_that_one_does_not_own_is_a_defect() {
        use std::panic::catch_unwind;
        let resident = || resident(1, false, false);
        assert!(catch_unwind(|| resident().evict(0)).is_err());
        assert!(catch_unwind(|| resident().unlock(Taken::idle(1))).is_err());
        assert!(catch_unwind(|| resident().finish_read(1, false)).is_err());
        assert!(catch_unwind(|| Entry::default().abort_read(0)).is_err());
        assert!(catch_unwind(|| Entry::default().discard()).is_err());
    }
}
