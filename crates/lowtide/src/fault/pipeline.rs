//! Reads of one call that overlap: absent neighbours are joined into runs, and several runs are in
//! flight.
//!
//! ```text
//!   claim ──add──► open runs ──launch──► frames, requests ──► in flight ──wait──► arrived
//!                    │ ▲ next claim        │ no room                                  │
//!                    └─┘ is a neighbour    ▼                                          ▼ land
//!                                       given up, `refused`     resident and shown; after a
//!                                                               failure: each piece by itself
//! ```
//!
//! A device needs about as long for a hundred neighbouring pages as for a few, so joining them is
//! worth more than any depth. A *run* is one request for pages that follow each other in the file.
//! Each of its *pieces* is one folio, as if it had been read alone: joining changes how bytes
//! travel and nothing that a policy sees. Frames of a run are put into ascending order, so that
//! neighbours in the file are often neighbours in memory; what is contiguous there is one element
//! of the request, and a run of one element is a plain read into registered memory.
//!
//! Runs are launched by the *group*, a quarter of the depth: their frames are taken under one
//! acquisition of the pool's lock, and one system call submits them. Those beyond the depth wait in
//! this process, and take the place of each that ends. What has arrived is resolved and shown when
//! they are submitted, so that the device has all of its depth to do while this thread looks at
//! pages. Neither an open run nor one that has arrived waits for more than [`HITS_MAX`]
//! pages that need no read: other threads may want it.
//!
//! Without threads in the background a group is one run, as everything then happens in the order of
//! the calls.
//!
//! A run that fails is read again piece by piece, because a bad block affects only the page that it
//! is in. Where reads have a deadline, all runs in flight are left to the device when none of them
//! has ended for so long (`late.rs`).
//!
//! The thread owns every claim from [`Pipeline::add`] on. While it does, it never waits for
//! anything but its own reads: not for pages of other threads, not for frames.

use super::late;
use super::nested::Nested;
use super::pieces::{Piece, Wanted, frames_for};
use super::{Access, Claim};
use crate::ahead::readahead::{count_read, note_ahead};
use crate::error::Error;
use crate::map::Arrival;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_io::{Batch, Completion, Read, ReadRun, Slice};
use lowtide_pin::hazard;
use lowtide_pin::translation::State as EntryState;
use slab::Slab;
use std::io;
use std::time::Duration;

/// The longest run, in bytes. Longer ones are not faster, and their first page comes later.
const RUN_BYTES: usize = 512 << 10;
/// Bytes that one call has in flight. More does not keep any device busier.
const FLIGHT_BYTES: usize = 16 << 20;
/// This many bytes that are not submitted are worth a system call.
const SUBMIT_BYTES: u64 = 128 << 10;
/// Pages without a read that the caller is shown, one after the other, before open runs are
/// launched, and those that have arrived are resolved.
const HITS_MAX: u32 = 16;

/// Reads in flight for one call. Dropping it, even in a panic, resolves them all.
pub(crate) struct Pipeline<'p> {
    pool: &'p Pool,
    space: &'p Space,
    access: Access,
    batch: Batch<'p>,
    /// How long it is waited for a read.
    limit: Option<Duration>,
    /// Claimed, and without frames: whole runs but for the last, which may grow.
    open: Vec<Piece>,
    open_runs: usize,
    open_pages: u64,
    /// Pages of the last of them.
    run_pages: u64,
    /// Runs that are launched together.
    group: usize,
    /// Pages without a read since the last launch.
    hits: u32,
    /// Runs that are not resolved, by the number that the completion carries: with the device, or
    /// arrived and not yet looked at.
    flying: Slab<Vec<Piece>>,
    /// Room of runs that have ended.
    spare: Vec<Vec<Piece>>,
    pages_in_flight: u64,
    /// Bytes and runs.
    not_submitted: (u64, usize),
    /// Reads that have ended and are not resolved, the next one last.
    done: Vec<Completion>,
    /// Pieces that have arrived, the next one last, and the bytes that each has got.
    landing: Vec<(Piece, io::Result<u32>)>,
    /// What there were no frames for; the claims are given up.
    refused: Vec<(usize, u64)>,
    /// Something was refused while nothing was in flight: only waiting can help.
    stuck: bool,
    _nested: Nested,
}

impl<'p> Pipeline<'p> {
    pub(crate) fn new(pool: &'p Pool, space: &'p Space, access: Access) -> Self {
        let limit = late::read_limit(pool, space);
        let batch = match limit {
            None => pool.backend.batch(space.path_ref()),
            Some(_) => pool.backend.timed_batch(space.path_ref()),
        };
        let group = if pool.background { quarter(batch.capacity()) } else { 1 };
        Self {
            pool,
            space,
            access,
            batch,
            limit,
            open: Vec::new(),
            open_runs: 0,
            open_pages: 0,
            run_pages: 0,
            group,
            hits: 0,
            flying: Slab::new(),
            spare: Vec::new(),
            pages_in_flight: 0,
            not_submitted: (0, 0),
            done: Vec::new(),
            landing: Vec::new(),
            refused: Vec::new(),
            stuck: false,
            _nested: Nested::begin(),
        }
    }

    /// Takes a claim, and ensures that it is read. May wait for reads in flight, and show what they
    /// brought to `each`: position, page, and frame, or no frame if a store has taken the page
    /// already.
    ///
    /// # Errors
    /// The error of a read that has ended meanwhile.
    pub(crate) fn add(
        &mut self,
        index: usize,
        page: u64,
        claim: Claim,
        each: impl FnMut(usize, u64, Option<u32>),
    ) -> Result<(), Error> {
        let joins = self.open.last().is_some_and(|last| last.claim.end() == claim.page)
            && (self.run_pages + claim.pages()) << self.pool.page_shift <= self.longest_run();
        if !joins {
            let open_bytes = self.open_pages << self.pool.page_shift;
            if self.open_runs == self.group || open_bytes >= SUBMIT_BYTES {
                self.launch();
            }
            self.open_runs += 1;
            self.run_pages = 0;
        }
        self.open_pages += claim.pages();
        self.run_pages += claim.pages();
        let wanted = Wanted { index, page, count: 1 };
        let piece =
            Piece { claim, wanted, joins, frame: 0, to: None, installed: None, stall: None };
        self.open.push(piece);
        self.make_room(each)
    }

    /// Notes that the caller was shown a page that needs no read. Sometimes shows more.
    ///
    /// # Errors
    /// The error of a read that has ended meanwhile.
    pub(crate) fn pass_hit(
        &mut self,
        each: impl FnMut(usize, u64, Option<u32>),
    ) -> Result<(), Error> {
        self.hits += 1;
        if self.hits < HITS_MAX || !self.pool.background {
            return Ok(());
        }
        self.launch();
        if self.with_device() > 0 {
            // Submits, and looks what has ended.
            self.batch.wait(0, &mut self.done);
            self.not_submitted = (0, 0);
        }
        self.land(each)
    }

    /// Notes that the caller wants another page of the folio that was claimed last. False if the
    /// page is not of it.
    pub(crate) fn extend(&mut self, index: usize, page: u64) -> bool {
        let Some(Piece { claim, wanted, .. }) = self.open.last_mut() else { return false };
        let count = u64::from(wanted.count);
        let follows = page == wanted.page + count && index == wanted.index + count as usize;
        let extends = follows && page < claim.end();
        wanted.count += u32::from(extends);
        extends
    }

    /// Whether pages were not available without waiting.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Ends everything, and returns the pages that were not available, the first page last; and
    /// whether only waiting can help.
    ///
    /// # Errors
    /// The first of a read that failed.
    pub(crate) fn into_refused(
        mut self,
        each: impl FnMut(usize, u64, Option<u32>),
    ) -> Result<(Vec<(usize, u64)>, bool), Error> {
        self.finish(each)?;
        let mut refused = std::mem::take(&mut self.refused);
        refused.sort_unstable_by_key(|&(index, _)| std::cmp::Reverse(index));
        Ok((refused, self.stuck))
    }

    /// Launches and resolves everything, or everything up to the first error.
    fn finish(&mut self, mut each: impl FnMut(usize, u64, Option<u32>)) -> Result<(), Error> {
        self.launch();
        self.submit();
        while !self.flying.is_empty() || !self.landing.is_empty() {
            self.land(&mut each)?;
            self.wait(self.with_device())?;
        }
        Ok(())
    }

    /// Bytes of a run: in a small arena less, so that it does not take a large part of it at once.
    fn longest_run(&self) -> u64 {
        RUN_BYTES.min(self.pool.budget_bytes() as usize / 8) as u64
    }

    /// Runs that the device has, as far as this thread knows.
    fn with_device(&self) -> usize {
        self.flying.len() - self.done.len()
    }

    /// Waits until another run may be launched. What has arrived then is not looked at yet.
    fn make_room(&mut self, mut each: impl FnMut(usize, u64, Option<u32>)) -> Result<(), Error> {
        let capacity = self.batch.capacity();
        let most = (FLIGHT_BYTES.min(self.pool.budget_bytes() as usize / 4)
            >> self.pool.page_shift)
            .max(capacity);
        while self.with_device() >= capacity || self.pages_in_flight >= most as u64 {
            if !self.done.is_empty() {
                self.submit();
                self.land(&mut each)?;
            }
            self.wait(few(self.with_device()))?;
        }
        Ok(())
    }

    /// Requests the open runs, as far as there are frames, and gives up the rest.
    fn launch(&mut self) {
        while !self.open.is_empty() {
            let (pool, space) = (self.pool, self.space);
            let placed = frames_for(pool, space, &mut self.open, self.access, &mut self.refused);
            if placed == 0 {
                self.stuck = self.flying.is_empty();
                for piece in self.open.drain(..) {
                    pool.abandon(space, &piece.claim, &Ok(()));
                    self.refused.extend(piece.wanted.pages());
                }
            }
            let mut open = std::mem::take(&mut self.open);
            let mut pieces = open.drain(..placed).peekable();
            while let Some(first) = pieces.next() {
                let Some(first) = self.unless_compressed(first) else { continue };
                let mut run = self.spare.pop().unwrap_or_default();
                run.push(first);
                while let Some(piece) = pieces.next_if(|piece| piece.joins) {
                    let Some(piece) = self.unless_compressed(piece) else { break };
                    run.push(piece);
                }
                self.push(run);
            }
            drop(pieces);
            self.open = open;
        }
        (self.open_runs, self.open_pages, self.hits) = (0, 0, 0);
        if self.not_submitted.0 >= SUBMIT_BYTES
            || self.not_submitted.1 >= quarter(self.batch.capacity())
        {
            // The device begins while this thread prepares more.
            self.submit();
        }
    }

    /// A piece that is to be read. One that was kept compressed is filled, and has arrived.
    fn unless_compressed(&mut self, mut piece: Piece) -> Option<Piece> {
        let (pool, space) = (self.pool, self.space);
        if space.zcache.is_none() {
            return Some(piece);
        }
        let to = pool.destination(space, pool.page_bytes(), piece.frame);
        if !pool.load_compressed(space, piece.claim.page, &to) {
            return Some(piece);
        }
        piece.to = Some(to);
        self.landing.push((piece, Ok(pool.page_bytes() as u32)));
        None
    }

    fn submit(&mut self) {
        if self.not_submitted.1 > 0 {
            self.batch.submit();
            self.not_submitted = (0, 0);
        }
    }

    /// Submits what is launched, and waits until at least `min` reads have ended.
    ///
    /// # Errors
    /// [`Error::Timeout`]: none has ended in time, and nothing is in flight any more.
    fn wait(&mut self, min: usize) -> Result<(), Error> {
        if min > 0 {
            let (batch, done) = (&mut self.batch, &mut self.done);
            let mut wait = || {
                let before = done.len();
                batch.wait_for(min, self.limit, done);
                ((), (done.len() - before) as u64)
            };
            match &self.space.zcache {
                None => wait().0,
                Some(zcache) => zcache.cache.clock().read(wait),
            }
            self.not_submitted = (0, 0);
            if self.done.is_empty() {
                self.leave();
                return Err(late::read_timeout(self.pool, self.space));
            }
        }
        Ok(())
    }

    /// Stops waiting for the runs in flight.
    fn leave(&mut self) {
        let (pool, space, access) = (self.pool, self.space, self.access);
        let slots: Vec<usize> = self.flying.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let run = &mut self.flying[slot];
            let pages: u64 = run.iter().map(|piece| piece.claim.pages()).sum();
            for piece in &mut *run {
                let stall = piece.stall.take();
                pool.stall_ends(stall, piece.claim.pages() << pool.page_shift);
            }
            let claims = || run.drain(..).map(|piece| (piece.claim, piece.frame)).collect();
            if late::leave(pool, space, (&mut self.batch, slot as u64), access, claims) {
                self.pages_in_flight -= pages;
                self.spare.push(self.flying.remove(slot));
            }
        }
        // Those that have ended in this moment.
        self.batch.wait(0, &mut self.done);
    }

    /// Hands a run to the device.
    fn push(&mut self, mut run: Vec<Piece>) {
        let pages: u64 = run.iter().map(|piece| piece.claim.pages()).sum();
        self.request(&mut run, self.flying.vacant_key() as u64);
        self.flying.insert(run);
        self.pages_in_flight += pages;
        self.not_submitted.0 += pages << self.pool.page_shift;
        self.not_submitted.1 += 1;
    }

    fn request(&mut self, run: &mut [Piece], user: u64) {
        let (pool, shift) = (self.pool, self.pool.page_shift);
        let offset = run[0].claim.page << shift;
        let fd = self.space.backing.read_fd();
        let behind = |piece: &Piece| piece.frame + piece.claim.pages() as u32;
        let contiguous = run.windows(2).all(|pair| behind(&pair[0]) == pair[1].frame);
        let pages: u64 = run.iter().map(|piece| piece.claim.pages()).sum();
        if contiguous || self.space.mapped.is_some() {
            let bytes = (pages as usize) << shift;
            let to = pool.destination(self.space, bytes, run[0].frame);
            // SAFETY: the frames are this thread's until their claims are resolved: they are
            // charged, no translation leads to them, and the pipeline resolves the claims only
            // after the completion. Memory of this thread lives as long as the pieces. The pool
            // keeps arena and, through its space, descriptor alive.
            #[expect(unsafe_code, reason = "promised where the frames are taken")]
            let read = unsafe { Read::new(fd, offset, to.at, bytes as u32, user) };
            let mut from = 0;
            for piece in run {
                piece.to = Some(to.part(from));
                from += (piece.claim.pages() as usize) << shift;
            }
            return self.batch.push(read);
        }
        for piece in &mut *run {
            let bytes = (piece.claim.pages() as usize) << shift;
            piece.to = Some(pool.destination(self.space, bytes, piece.frame));
        }
        let slices = run.chunk_by(|piece, next| behind(piece) == next.frame).map(|together| {
            let frames = behind(&together[together.len() - 1]) - together[0].frame;
            Slice::new(pool.frame_ptr(together[0].frame), (frames as usize) << shift)
        });
        // SAFETY: as above, for each slice.
        #[expect(unsafe_code, reason = "promised where the frames are taken")]
        let read = unsafe { ReadRun::new(fd, offset, slices.collect(), user) };
        self.batch.push_run(read);
    }

    /// Resolves all reads that have ended, showing the pages while they are pinned.
    fn land(&mut self, mut each: impl FnMut(usize, u64, Option<u32>)) -> Result<(), Error> {
        let mut first_error = self.show(&mut each);
        while let Some(completion) = self.done.pop() {
            let Some(run) = self.flying.try_remove(completion.user as usize) else { continue };
            self.pages_in_flight -= run.iter().map(|piece| piece.claim.pages()).sum::<u64>();
            self.arrived(run, completion.result);
            let shown = self.show(&mut each);
            first_error = first_error.and(shown);
        }
        first_error
    }

    /// Reports to each piece of a run what it has got, or reads each by itself if the run failed.
    fn arrived(&mut self, mut run: Vec<Piece>, result: io::Result<u32>) {
        match result {
            Err(_) if run.len() > 1 => {
                for piece in run {
                    self.push(vec![piece]);
                }
            }
            Err(error) => {
                self.landing.extend(run.pop().map(|piece| (piece, Err(error))));
                self.spare.push(run);
            }
            Ok(got) => {
                self.pool.io.note_read(got);
                self.install(&mut run, got);
                let mut before = run.iter().map(|piece| piece.claim.pages()).sum::<u64>()
                    << self.pool.page_shift;
                while let Some(piece) = run.pop() {
                    let bytes = piece.claim.pages() << self.pool.page_shift;
                    before -= bytes;
                    let got = u64::from(got).saturating_sub(before).min(bytes);
                    self.landing.push((piece, Ok(got as u32)));
                }
                self.spare.push(run);
            }
        }
    }

    /// Gives all pages of a run that no thread waits for their bytes at once: to make their first
    /// touches visible costs as much for a run as for a page. Where that fails, each piece does it
    /// for itself, and says why it cannot.
    fn install(&self, run: &mut [Piece], got: u32) {
        let shift = self.pool.page_shift;
        let (true, Access::Ahead, Some(mapped)) = (run.len() > 1, self.access, &self.space.mapped)
        else {
            return;
        };
        let behind = run[0].claim.page + (u64::from(got) >> shift);
        let whole = run.iter().take_while(|piece| piece.claim.end() <= behind).count();
        let Some(last) = run[..whole].last() else { return };
        let bytes = ((last.claim.end() - run[0].claim.page) as usize) << shift;
        let to = run[0].to.as_ref().expect("it was requested");
        // SAFETY: pages that are mapped arrive in one piece of memory, which is this run's until it
        // is resolved, and the read that filled as much of it has ended.
        #[expect(unsafe_code, reason = "destinations are raw memory")]
        let bytes = unsafe { std::slice::from_raw_parts(to.at, bytes) };
        let how = Arrival::ahead(bytes.len() >> shift);
        if mapped.install(run[0].claim.page, bytes, how, false).is_err() {
            return;
        }
        run[..whole].iter_mut().for_each(|piece| piece.installed = Some(how));
        // Of the pages of the live sample no first touch goes unseen, or it would be taken for a
        // later one.
        let is_in = |piece: &&Piece| self.pool.sample_marks.has(piece.frame);
        let sampled: Vec<&Piece> = run[..whole].iter().filter(is_in).collect();
        for near in sampled.chunk_by(|one, next| one.claim.end() == next.claim.page) {
            let pages = near[0].claim.page..near[near.len() - 1].claim.end();
            mapped.look(pages, &mut |_| ());
        }
    }

    /// Resolves the pieces that have arrived, and shows them.
    fn show(&mut self, mut each: impl FnMut(usize, u64, Option<u32>)) -> Result<(), Error> {
        let (pool, space) = (self.pool, self.space);
        let mut first_error = Ok(());
        while let Some((piece, got)) = self.landing.pop() {
            // Pinned before it is published, so that it is still there when the caller looks. One
            // page of a folio pins all of it.
            let held = hazard::hold(space.table.entry(piece.wanted.page).address());
            let frames = piece.frame..piece.frame + piece.claim.pages() as u32;
            if self.access == Access::Ahead {
                let how = piece.installed.unwrap_or(Arrival::Ahead);
                note_ahead(pool, frames.clone(), got.is_ok().then(|| how.says(piece.claim.page)));
            }
            let to = piece.to.as_ref().expect("it was requested");
            let to = piece.installed.is_none().then_some(to);
            let resolved = pool.resolve(space, &piece.claim, (piece.frame, to), got, self.access);
            pool.miss_clock.note_misses(piece.claim.pages());
            pool.stall_ends(piece.stall, piece.claim.pages() << pool.page_shift);
            match resolved {
                Ok(()) => {
                    for (index, page) in piece.wanted.pages() {
                        let entry = space.table.entry(page);
                        let own =
                            (page != piece.wanted.page).then(|| hazard::hold(entry.address()));
                        // A store may have come first; then the page is deferred like any other
                        // that is busy in another thread.
                        let frame = match entry.load() {
                            EntryState::Resident { frame, .. } => {
                                count_read(pool, self.space, self.access, true);
                                Some(frame)
                            }
                            _ => None,
                        };
                        each(index, page, frame);
                        drop(own);
                    }
                }
                Err(e) => {
                    first_error = first_error.and(Err(e));
                }
            }
            drop(held);
        }
        first_error
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        // After a panic in the caller's closure, or an error: what is in flight is resolved, what
        // is not is given up.
        for piece in self.open.drain(..) {
            self.pool.abandon(self.space, &piece.claim, &Ok(()));
        }
        while !self.flying.is_empty() || !self.landing.is_empty() {
            // Errors were reported, or the caller is gone.
            drop(self.land(|_, _, _| ()));
            drop(self.wait(self.with_device()));
        }
    }
}

/// A quarter of a number of reads, and one at least.
fn quarter(reads: usize) -> usize {
    (reads / 4).max(1)
}

/// How many of some reads to wait for at a time. Waking for each costs more than it brings; but
/// while a quarter is waited for, the device has an eighth less to do on average.
fn few(reads: usize) -> usize {
    (reads / 16).max(2).min(reads)
}
