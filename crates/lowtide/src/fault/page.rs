//! A miss: bringing one page in, once, however many threads want it.
//!
//! ```text
//!   absent ──claim──► busy ──allocate, insert, read──► resident     (the owner)
//!                      └── others wait; an error reaches all of them
//! ```
//!
//! The thread that turns the translation from absent to busy owns the miss. It takes a frame (which
//! may reclaim), inserts the page into the engine, reads in its own thread without any lock, and
//! publishes the frame. A failed read restores the translation as it was.
//!
//! A waiter keeps its hazard slot on the translation while it waits, so the page cannot be taken
//! before it was used.

use super::claim::{Access, Claim, Destination, Miss};
use super::late;
use crate::ahead::readahead::{count_read, note_access};
use crate::anon;
use crate::error::Error;
use crate::map::{Arrival, Landing};
use crate::pool::Pool;
use crate::pool::account::Stall;
use crate::pool::allocate::Allocated;
use crate::space::Space;
use crate::space::length::Length;
use lowtide_io::{Deadline, FaultSite, Read};
use lowtide_pin::hazard::{self, Held};
use lowtide_pin::translation::{Entry, State as EntryState};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// One read in `TIMED` is timed: reads into every eighth frame.
const TIMED: u32 = 8;

impl Pool {
    /// Looks at a translation that was not resident, and claims it if it is absent.
    pub(crate) fn claim(&self, space: &Space, page: u64, entry: &Entry) -> Miss {
        loop {
            match entry.load() {
                seen @ EntryState::Resident { frame, .. } => return Miss::Resident(seen, frame),
                seen @ (EntryState::Busy | EntryState::Locked { .. }) => return Miss::Busy(seen),
                EntryState::Absent { shadow } => {
                    if space.order > 0
                        && let Some(claim) = self.claim_folio(space, page)
                    {
                        return Miss::Claimed(claim);
                    }
                    if entry.try_begin_read(shadow).is_ok() {
                        return Miss::Claimed(Claim::of_one(page, shadow));
                    }
                }
            }
        }
    }

    /// Makes all pages of the large folio around a page busy. `None` if one of them is not absent:
    /// then the page itself is all that can be claimed.
    pub(crate) fn claim_folio(&self, space: &Space, page: u64) -> Option<Claim> {
        let (order, first) = (space.order, page >> space.order << space.order);
        let mut part =
            Claim { page: first, order, shadow: 0, shadows: Vec::with_capacity(1 << order) };
        for p in first..first + (1 << order) {
            let claimed = space.table.get(p).and_then(|entry| match entry.load() {
                EntryState::Absent { shadow } => {
                    entry.try_begin_read(shadow).is_ok().then_some(shadow)
                }
                _ => None,
            });
            let Some(shadow) = claimed else {
                // A thread may have met a busy page in this short time, and sleep: it looks again.
                self.abandon(space, &part, &Ok(()));
                return None;
            };
            part.shadows.push(shadow);
        }
        part.shadow = part.shadows[(page - first) as usize];
        Some(part)
    }

    /// Gives up a claim: the translations are as before, and the waiters get the result.
    pub(crate) fn abandon(&self, space: &Space, claim: &Claim, result: &Result<(), Error>) {
        if result.is_ok() {
            return claim
                .each(space, Entry::abort_read, |entry| self.waits.complete(entry, result));
        }
        // Another thread may begin the next read at once; a waiter of that read gets its result and
        // not this one.
        let end = |entry: &Entry, shadow| {
            self.waits.end(entry, || entry.abort_read(shadow), result);
            false
        };
        claim.each(space, end, |_| ());
    }

    /// Takes frames for a claim. A large folio for which there is no contiguous room becomes a
    /// single page.
    ///
    /// `None` if the page is about to be cut off: the claim is given up, and whether the page stays
    /// there is known when the cut is over ([`Space::await_cut`]).
    ///
    /// # Errors
    /// [`Error::OutOfBudget`], [`Error::Nested`]; the claim is given up then.
    pub(crate) fn frames_for(
        &self,
        space: &Space,
        page: u64,
        claim: &mut Claim,
        access: Access,
    ) -> Result<Option<(u32, Option<Stall>)>, Error> {
        loop {
            match self.allocate(space, &claim.new_folio(space, access)) {
                Allocated::Frame(frame, stall) => return Ok(Some((frame, stall))),
                Allocated::Cut => {
                    self.abandon(space, claim, &Ok(()));
                    return Ok(None);
                }
                // A single page waits for as long as there is hope.
                Allocated::TooLarge => self.shrink_claim(space, page, claim),
                Allocated::Closed => {
                    self.abandon(space, claim, &Ok(()));
                    unreachable!("{space:?} is closed while an operation of one of its views runs");
                }
                Allocated::Nested => {
                    // A thread that waits for this page may wait for room.
                    self.abandon(space, claim, &Ok(()));
                    return Err(Error::Nested { path: space.path(), page });
                }
                Allocated::Failed(e) => {
                    self.abandon(space, claim, &Err(e.clone()));
                    return Err(e);
                }
            }
        }
    }

    /// Keeps one page of a claim and gives up the others.
    pub(crate) fn shrink_claim(&self, space: &Space, page: u64, claim: &mut Claim) {
        let kept = space.table.get(page).map(Entry::address);
        let others =
            |entry: &Entry, shadow| Some(entry.address()) != kept && entry.abort_read(shadow);
        claim.each(space, others, |entry| self.waits.complete(entry, &Ok(())));
        *claim = Claim { page, order: 0, shadow: claim.shadow, shadows: Vec::new() };
    }

    /// Where the bytes of a claim are to arrive: in its frames, or, if its pages are mapped, in
    /// memory of this thread, from which they are installed as a whole.
    pub(crate) fn destination(&self, space: &Space, bytes: usize, frame: u32) -> Destination {
        match &space.mapped {
            None => Destination { at: self.frame_ptr(frame), _landing: None },
            Some(_) => {
                let landing = Rc::new(Landing::take(bytes));
                Destination { at: landing.as_ptr(), _landing: Some(landing) }
            }
        }
    }

    /// Fills a claimed page, whose bytes are to arrive there, if it was kept compressed.
    pub(super) fn load_compressed(&self, space: &Space, page: u64, to: &Destination) -> bool {
        let Some(zcache) = &space.zcache else { return false };
        // SAFETY: the destination is this claim's until it is resolved, and has a page of bytes: a
        // frame that is charged, to which no translation leads, or memory of this thread.
        #[expect(unsafe_code, reason = "destinations are raw memory")]
        let to = unsafe { std::slice::from_raw_parts_mut(to.at, self.page_bytes()) };
        zcache.load(page, to)
    }

    /// The read that fills a claim's frames.
    fn read_request(&self, space: &Space, claim: &Claim, to: &Destination) -> Read {
        let bytes = (self.page_bytes() as u32) << claim.order;
        let offset = claim.page << self.page_shift;
        // SAFETY: the frames are this thread's until the claim is resolved: they are charged, no
        // translation leads to them, and the caller resolves the claim only after the completion.
        // Memory of this thread lives as long as the destination. The pool keeps arena and,
        // through its space, descriptor alive.
        #[expect(unsafe_code, reason = "the promise about the frame is given where it is taken")]
        unsafe {
            Read::new(space.backing.read_fd(), offset, to.at, bytes, 0)
        }
    }

    /// Reads in this thread. Some of the reads of files that are also written are timed, for the
    /// device's flusher.
    fn read_now(&self, space: &Space, read: Read, frame: u32) -> io::Result<u32> {
        let path = space.path_ref();
        match space.device.get() {
            Some(device) if frame.is_multiple_of(TIMED) => {
                let begin = Instant::now();
                let outcome = self.backend.read_one(path, read);
                device.note_read(begin.elapsed());
                outcome
            }
            _ => self.backend.read_one(path, read),
        }
    }

    /// Ends a claim with the outcome of its read, whose bytes are at `to`, or already where they
    /// belong.
    ///
    /// The read's, which all waiters get too; or [`Error::OutOfRange`] where the file has become
    /// shorter.
    pub(crate) fn resolve(
        &self,
        space: &Space,
        claim: &Claim,
        (frame, to): (u32, Option<&Destination>),
        outcome: io::Result<u32>,
        access: Access,
    ) -> Result<(), Error> {
        let young = access.is_mapped() && self.young_faults;
        // Where the bytes are already, no store to them is seen.
        let keeps = to.is_some() && anon::keeps_slot(space, claim.page, access);
        let result = match outcome {
            Ok(got) => to
                .map_or(Ok(()), |to| {
                    self.check_filled(space, claim, to, u64::from(got))?;
                    self.install(space, claim, to, (access, keeps))
                })
                .inspect(|()| {
                    if space.anon.is_some() {
                        anon::leave_swap(self, space, (claim.page, frame), keeps);
                    }
                }),
            Err(e) => {
                self.fault_sites.mark(FaultSite::ReadFailed);
                Err(space.read_error(claim.page, e))
            }
        };
        match &result {
            Ok(()) => {
                for (entry, frame) in space.entries(claim.page, claim.order).zip(frame..) {
                    if entry.finish_read(frame, young) {
                        self.waits.complete(entry, &Ok(()));
                    }
                }
                if young {
                    space.table.hint(claim.page).note_young();
                }
            }
            Err(_) => {
                if space.anon.is_some() {
                    anon::give_back(self, space, claim.page, frame);
                } else {
                    self.give_back(frame, claim.order);
                }
                self.abandon(space, claim, &result);
            }
        }
        result
    }

    /// Makes the bytes of a claim visible where a program reaches them through a pointer.
    fn install(
        &self,
        space: &Space,
        claim: &Claim,
        to: &Destination,
        (access, watched): (Access, bool),
    ) -> Result<(), Error> {
        let Some(mapped) = &space.mapped else { return Ok(()) };
        // SAFETY: the destination is this claim's until it is resolved, has as many bytes, and the
        // read that filled it has ended.
        #[expect(unsafe_code, reason = "destinations are raw memory")]
        let bytes = unsafe { std::slice::from_raw_parts(to.at, self.page_bytes() << claim.order) };
        let ahead = access == Access::Ahead;
        let how = if ahead { Arrival::Ahead } else { Arrival::Touched };
        mapped.install(claim.page, bytes, how, watched).map_err(|source| Error::Install {
            path: space.path(),
            page: claim.page,
            source: Arc::new(source),
        })
    }

    /// Zeroes what lies past the end of the file, and refuses a read that lies wholly behind it.
    fn check_filled(
        &self,
        space: &Space,
        claim: &Claim,
        to: &Destination,
        got: u64,
    ) -> Result<(), Error> {
        let want = (self.page_bytes() as u64) << claim.order;
        if got == want {
            return Ok(());
        }
        if got == 0 {
            return Err(space.not_there(claim.page));
        }
        let tail = to.at.wrapping_add(got as usize);
        // SAFETY: the destination belongs to this claim alone until it is resolved, and `got..want`
        // lies within it.
        #[expect(unsafe_code, reason = "frames are raw memory until they are published")]
        unsafe {
            tail.write_bytes(0, (want - got) as usize);
        }
        Ok(())
    }

    /// The translation of a page that exists; looks at the file again if it seems not to.
    pub(crate) fn entry<'s>(&self, space: &'s Space, page: u64) -> Result<&'s Entry, Error> {
        if page >= space.pages() {
            Length::of(self, space).look_behind_end()?;
            if page >= space.pages() {
                return Err(space.out_of_range(page));
            }
        }
        space.table.get(page).ok_or_else(|| space.out_of_range(page))
    }

    /// Makes a page resident and pins it.
    pub(crate) fn hold_page(
        &self,
        space: &Space,
        page: u64,
        access: Access,
    ) -> Result<(u32, Held), Error> {
        let entry = self.entry(space, page)?;
        self.hold_entry(space, page, entry, access)
    }

    /// Makes the page of a translation resident and pins it.
    pub(crate) fn hold_entry(
        &self,
        space: &Space,
        page: u64,
        entry: &Entry,
        access: Access,
    ) -> Result<(u32, Held), Error> {
        let (seen, held) = entry.hold();
        if let EntryState::Resident { frame, .. } = seen {
            note_access(self, space, page, seen, access, false);
            return Ok((frame, held));
        }
        self.fault(space, page, entry, held, access)
    }

    /// Waits until the owner of a busy or locked entry is done with it; see [`super::wait`].
    ///
    /// # Errors
    /// The error of the read that was waited for; [`Error::Poisoned`]; [`Error::Timeout`] for a
    /// page that is not read in time.
    pub(crate) fn wait(&self, space: &Space, entry: &Entry, seen: EntryState) -> Result<(), Error> {
        let limit = late::read_limit(self, space).filter(|_| seen == EntryState::Busy);
        let deadline = limit.map(Deadline::after);
        self.waits.wait(entry, seen, limit, || {
            self.check()?;
            match deadline {
                Some(deadline) if deadline.has_passed() => Err(late::read_timeout(self, space)),
                _ => Ok(()),
            }
        })
    }

    /// Makes a page resident and returns its frame. `held` is a slot on its translation, set before
    /// this is called; the slot returned pins the frame.
    ///
    /// Cost: at least one read of the device, unless another thread has just brought the page in.
    pub(crate) fn fault(
        &self,
        space: &Space,
        page: u64,
        entry: &Entry,
        mut held: Held,
        access: Access,
    ) -> Result<(u32, Held), Error> {
        if self.owes() {
            // Before anything is taken, and without the slot: a sleep with it would keep stores to
            // the page waiting.
            drop(held);
            self.settle_high()?;
            held = hazard::hold(entry.address());
        }
        self.check()?;
        late::admit(self, space)?;
        // The fault itself reports the access that brings a page in to the engine; the young bit is
        // for later ones.
        let mut reported = false;
        let mut waited = false;
        loop {
            match self.claim(space, page, entry) {
                // The slot was set before this look at the translation, so what it says is valid.
                Miss::Resident(seen, frame) => {
                    if reported {
                        count_read(self, space, access, true);
                    } else {
                        note_access(self, space, page, seen, access, waited);
                    }
                    return Ok((frame, held));
                }
                Miss::Claimed(claim) => {
                    if self.bring_in(space, page, claim, access)? {
                        reported = true;
                    } else {
                        space.check_not_nested(page)?;
                        // Without the slot: the cut waits for readers.
                        drop(held);
                        space.await_cut();
                        if page >= space.pages() {
                            return Err(space.not_there(page));
                        }
                        held = hazard::hold(entry.address());
                    }
                }
                Miss::Busy(seen) => {
                    if let EntryState::Locked { frame, .. } = seen
                        && hazard::held_before(&held)
                    {
                        // A store, or a discard, waits for this thread's first guard, and will wait
                        // for this one: to wait for it in turn would be forever. Until then the
                        // frame is the page's and its bytes stay as they are.
                        count_read(self, space, access, false);
                        return Ok((frame, held));
                    }
                    space.check_not_nested(page)?;
                    if seen == EntryState::Busy {
                        waited = true;
                        self.wait(space, entry, seen)?;
                    } else {
                        // A store waits until no slot is on the page: this one must not be among
                        // them.
                        drop(held);
                        self.wait(space, entry, seen)?;
                        held = hazard::hold(entry.address());
                    }
                }
            }
        }
    }

    /// Fills the pages of a claim in frames of their own, and ends the claim. False if the page is
    /// about to be cut off ([`Pool::frames_for`]): the claim was given up.
    ///
    /// # Errors
    /// Those of [`Pool::frames_for`] and [`Pool::resolve`]; [`Error::Timeout`] for a read that is
    /// late, which ends the claim when it ends.
    fn bring_in(
        &self,
        space: &Space,
        page: u64,
        mut claim: Claim,
        access: Access,
    ) -> Result<bool, Error> {
        let mut laps = self.miss_clock.begin();
        let Some((frame, stall)) = self.frames_for(space, page, &mut claim, access)? else {
            return Ok(false);
        };
        laps.allocated();
        let to = self.destination(space, self.page_bytes() << claim.order, frame);
        let bytes = (self.page_bytes() as u64) << claim.order;
        let outcome = if space.anon.is_some() {
            anon::fill(self, space, page, &to)
        } else if self.load_compressed(space, page, &to) {
            Ok(bytes as u32)
        } else {
            let request = self.read_request(space, &claim, &to);
            let outcome = match late::read_limit(self, space) {
                None => match &space.zcache {
                    Some(zcache) => {
                        zcache.cache.clock().read(|| (self.read_now(space, request, frame), 1))
                    }
                    None => self.read_now(space, request, frame),
                },
                Some(limit) => {
                    let of = (claim, frame);
                    let read = late::read_in_time(self, space, of, request, access, limit);
                    let (back, outcome) = read.inspect_err(|_| self.stall_ends(stall, bytes))?;
                    claim = back;
                    outcome
                }
            };
            outcome.inspect(|&got| self.io.note_read(got))
        };
        laps.read();
        let resolved = self.resolve(space, &claim, (frame, Some(&to)), outcome, access);
        laps.published(claim.pages());
        self.stall_ends(stall, bytes);
        resolved.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advanced::OpenAdvanced as _;
    use crate::{OpenOptions, Pager, Size};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::time::Duration;

    /// The last page of the only folio is resident alone, so each claim of the folio is given up at
    /// the end.
    #[test]
    fn a_thread_that_waits_for_a_folio_claim_that_is_given_up_is_woken() {
        let dir = tempfile::tempdir().unwrap();
        let pager = Pager::builder().max(Size::mib(32)).build().unwrap();
        let view = OpenOptions::new()
            .create_with_len(2 << 20)
            .folio_order(9)
            .open(&pager, dir.path().join("file"))
            .unwrap();
        view.write_at(511 * 4096, &[1; 4096]).unwrap();
        let pool = Arc::clone(&pager.inner.pool);
        let space = pool.lock().spaces.iter().flatten().next().unwrap().clone();

        let (end, waited) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (send, woken) = std::sync::mpsc::channel();
        let waiter = {
            let (pool, space) = (Arc::clone(&pool), Arc::clone(&space));
            let (end, waited) = (Arc::clone(&end), Arc::clone(&waited));
            std::thread::spawn(move || {
                let entry = space.table.entry(3);
                while !end.load(SeqCst) {
                    if entry.load() == EntryState::Busy {
                        pool.wait(&space, entry, EntryState::Busy).unwrap();
                        waited.fetch_add(1, SeqCst);
                    }
                }
                send.send(()).unwrap();
            })
        };
        let begun = Instant::now();
        while waited.load(SeqCst) < 10 && begun.elapsed() < Duration::from_secs(60) {
            assert!(pool.claim_folio(&space, 3).is_none(), "its last page is resident");
            assert_eq!(space.table.entry(3).load(), EntryState::Absent { shadow: 0 });
        }
        end.store(true, SeqCst);
        // Without a wake-up it sleeps forever.
        woken.recv_timeout(Duration::from_secs(60)).expect("the waiter was woken");
        waiter.join().unwrap();
        assert!(waited.load(SeqCst) > 0);
    }

    fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !happened() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_reads_a_page_that_it_holds_again_while_a_store_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let pager = Pager::builder()
            .max(Size::mib(1))
            .memory_timeout(Duration::from_secs(5))
            .build()
            .unwrap();
        let view = OpenOptions::new()
            .create_with_len(1 << 20)
            .open(&pager, dir.path().join("file"))
            .unwrap();
        view.write_at(0, &[1; 4096]).unwrap();
        let space = pager.inner.pool.lock().spaces.iter().flatten().next().unwrap().clone();
        let first = view.page(0).unwrap();
        std::thread::scope(|scope| {
            let store = scope.spawn(|| view.write_at(0, &[2; 4096]));
            let locked = || matches!(space.table.entry(0).load(), EntryState::Locked { .. });
            eventually("the store has the page locked", locked);
            // None of these waits for the store, or it would give up.
            let second = view.page(0).unwrap();
            let mut copy = [0; 8192];
            view.read_at(0, &mut copy).unwrap();
            view.get_many(&[0, 1], |i, bytes| assert!(i == 1 || bytes[7] == 1)).unwrap();
            assert_eq!(copy[9], 1);
            drop(first);
            for _ in 0..1000 {
                std::thread::yield_now();
                assert!(
                    second.iter().all(|byte| *byte == 1),
                    "the second guard holds as the first did"
                );
            }
            assert!(!store.is_finished());
            drop(second);
            store.join().unwrap().unwrap();
        });
        assert_eq!(view.page(0).unwrap()[7], 2);
    }

    /// A thread pins page 0 and waits for page 9, which the call reads whose callback stores to
    /// page 0.
    #[test]
    fn a_store_in_a_callback_to_a_page_that_others_hold_is_an_error_and_no_deadlock() {
        let dir = tempfile::tempdir().unwrap();
        let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
        let view = OpenOptions::new()
            .create_with_len(1 << 20)
            .open(&pager, dir.path().join("file"))
            .unwrap();
        let mut errors = Vec::new();
        let (held, go) = std::sync::mpsc::channel();
        let (stored, done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let view = &view;
            scope.spawn(move || {
                let page = view.page(0).unwrap();
                held.send(()).unwrap();
                done.recv().unwrap();
                assert_eq!(page[0], 0);
            });
            go.recv().unwrap();
            view.get_many(&[5, 9, 7], |_, _| errors.push(view.write_at(0, b"x"))).unwrap();
            stored.send(()).unwrap();
        });
        assert!(
            errors.iter().all(|error| matches!(error, Err(Error::Nested { page: 0, .. }))),
            "{errors:?}"
        );
        view.write_at(0, b"x").unwrap();
    }
}
