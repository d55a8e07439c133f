//! Writes a device's dirty pages, from the flusher's thread or, where there is none, from the
//! thread that needs them written.
//!
//! A worker keeps many writes in flight and never waits for one of them longer than [`POLL`]: it
//! begins runs while others are with the device, and handles completions as they come. So a request
//! that hangs delays only what needs its end.
//!
//! Tickets of one file are served together, in rounds (`round.rs`).
//!
//! # Without tickets
//!
//! When no round needs the room in flight, the worker does what `work.rs` decides: too much is
//! dirty, something has been dirty for long, or reclaim needs clean pages. It writes each file from
//! where it stopped the last time, and goes from file to file.

use super::collect::{
    Direct, InFlight, RUN_BYTES, Tail, collect, copy_direct, copy_tail, cut_run, end_run, pages_of,
};
use super::device::{Device, Ticket, Urgency};
use super::ledger::Failure;
use super::rescue::make_suspects_dirty;
use super::round::{Round, Stage};
use super::work::{Wake, Work};
use crate::events;
use crate::map::Landing;
use crate::pool::Pool;
use crate::space::Space;
use crate::space::beneath::OnItsWay;
use lowtide_core::MemcgId;
use lowtide_io::{Completion, Deadline, FaultSite, Slice, Write, Writer};
use lowtide_sys::tell;
use slab::Slab;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Longest wait for a request, so that what is requested meanwhile is noticed.
const POLL: Duration = Duration::from_millis(2);

/// Contiguous pages on their way to the file.
#[derive(Debug)]
struct Run {
    space: Arc<Space>,
    folios: Vec<InFlight>,
    /// Counts runs in the order in which they were begun.
    number: u64,
    /// When it was handed to the device, in the pool's time.
    begun: u64,
    /// What goes through the page cache when the rest has ended.
    tail: Option<Tail>,
    /// The rest has ended.
    only_tail: bool,
    /// It has begun, and nothing that it would collide with does
    /// ([`Beneath`](crate::space::beneath::Beneath)).
    on_its_way: Option<OnItsWay>,
    /// Syncs of the file that had failed when it was handed to the device.
    failed_syncs: u64,
    /// What goes through the page cache now.
    copy: Vec<u8>,
    /// What a device reads now, of a map.
    direct: Option<Landing>,
}

/// What a worker may begin to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// What threads wait for.
    Tickets,
    /// That, and what is due by itself.
    All,
}

/// A request in flight.
#[derive(Debug)]
enum InHand {
    Run(Run),
    /// A sync of a file, and the changes of its length and holes that it makes durable.
    Sync(Arc<Space>, Option<u64>),
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Worker<'p> {
    pub(super) pool: &'p Pool,
    pub(super) device: &'p Arc<Device>,
    writer: Writer<'p>,
    in_hand: Slab<InHand>,
    /// Runs that would collide with what is on its way, or whose end a store has locked.
    waiting: Vec<Run>,
    rounds: Vec<Round>,
    /// Runs begun.
    runs: u64,
    /// Pages begun.
    pages: u64,
    pub(super) work: Option<Work>,
    /// Which of the device's files is written next without a ticket.
    pub(super) turn: usize,
    /// The engine knows that there is work without tickets: a thread that makes pages dirty
    /// meanwhile need not wake the flusher.
    pub(super) running: bool,
    /// When files are looked at next: for something to try again, and for their age.
    pub(super) look_at: Instant,
    pub(super) looked: Instant,
    ended: Vec<Completion>,
    /// What could not be written, until the round of its file looks: a write may fail before it
    /// reaches the device, while rounds are being advanced.
    failed: Vec<(Arc<Space>, Failure)>,
}

/// The life of a flusher's thread.
pub(super) fn flusher(pool: &Arc<Pool>, device: &Arc<Device>) {
    let _report = EndReport(device);
    let mut worker = Worker::new(pool, device);
    let mut closing = false;
    loop {
        let orders = device.orders(if closing { Duration::ZERO } else { worker.timeout() });
        for ticket in &orders.tickets {
            worker.accept(ticket);
        }
        if pool.is_poisoned() {
            // `Pool::make_durable` reports it to the threads that wait.
            break;
        }
        worker.look(if orders.woken { Wake::Woken } else { Wake::Timer });
        if let Some(deadline) = orders.closing {
            if !std::mem::replace(&mut closing, true) {
                worker.accept_orphans();
            }
            worker.work = None;
            if worker.is_done() {
                break;
            }
            if deadline.has_passed() {
                tell!(error, "a device does not answer; what is in flight to it is left behind");
                // What the device may still read must never be given back.
                std::mem::forget(Arc::clone(pool));
                return worker.abandon();
            }
        }
        worker.advance(if closing { Scope::Tickets } else { Scope::All });
        worker.reap(POLL);
    }
}

/// Reports that the flusher's thread ends, however it does.
struct EndReport<'d>(&'d Device);

impl Drop for EndReport<'_> {
    fn drop(&mut self) {
        self.0.say_ended();
    }
}

impl<'p> Worker<'p> {
    pub(super) fn new(pool: &'p Pool, device: &'p Arc<Device>) -> Self {
        Self {
            pool,
            device,
            writer: pool.backend.writer(),
            in_hand: Slab::new(),
            waiting: Vec::new(),
            rounds: Vec::new(),
            runs: 0,
            pages: 0,
            work: None,
            turn: 0,
            running: false,
            look_at: Instant::now(),
            looked: Instant::now(),
            ended: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// How long the flusher may sleep if it is not woken.
    fn timeout(&self) -> Duration {
        if !self.is_done() || self.running {
            return Duration::ZERO;
        }
        self.look_at.saturating_duration_since(Instant::now())
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_hand.len() + self.waiting.len()
    }

    /// Whether another run may be begun.
    fn has_room(&self, urgency: Urgency) -> bool {
        let in_flight = self.writer.bytes_in_flight();
        in_flight < RUN_BYTES || in_flight < self.device.budget(urgency, self.pool.now())
    }

    fn is_done(&self) -> bool {
        self.rounds.is_empty() && self.in_flight() == 0
    }

    /// Gives up what is in flight.
    fn abandon(self) {
        let Self { writer, in_hand, waiting, .. } = self;
        std::mem::forget((in_hand, waiting));
        writer.abandon();
    }

    /// Accepts a ticket: for the next round of its file.
    pub(super) fn accept(&mut self, ticket: &Arc<Ticket>) {
        let space = &ticket.space;
        match self.rounds.iter_mut().find(|round| Arc::ptr_eq(&round.space, space)) {
            Some(round) => round.next.push(Arc::clone(ticket)),
            None => {
                let mut round = Round::of(ticket);
                round.begin(self.pool);
                self.rounds.push(round);
            }
        }
    }

    /// Whether a round of a file is under way.
    pub(super) fn serves(&self, space: &Arc<Space>) -> bool {
        self.rounds.iter().any(|round| Arc::ptr_eq(&round.space, space))
    }

    /// Serves one ticket, in a thread that has its turn.
    pub(super) fn serve(&mut self, ticket: &Arc<Ticket>) {
        self.accept(ticket);
        while ticket.outcome().is_none() {
            self.advance(Scope::Tickets);
            self.reap(POLL);
        }
    }

    /// Writes what is left of files that are not open, in a thread that has its turn.
    pub(super) fn serve_all(&mut self) {
        self.accept_orphans();
        while !self.is_done() {
            self.advance(Scope::Tickets);
            self.reap(POLL);
        }
    }

    /// Writes a batch of a group's dirty pages, in a thread that has its turn. Returns the pages
    /// written.
    pub(super) fn write_some(mut self, group: MemcgId) -> u64 {
        self.look(Wake::Woken);
        self.take_work_for(group);
        while self.work.is_some() || !self.is_done() {
            self.advance(Scope::All);
            self.work = None;
            self.reap(POLL);
        }
        self.pages
    }

    /// Begins what can be begun.
    fn advance(&mut self, scope: Scope) {
        let mut rounds = std::mem::take(&mut self.rounds);
        let mut announce = false;
        // In turns, so that a large file does not keep a small one waiting.
        while self.has_room(Urgency::Waited) {
            let mut more = false;
            for round in &mut rounds {
                more |= self.sweep(round);
            }
            if !more {
                break;
            }
        }
        for round in &mut rounds {
            self.advance_round(round);
            if round.stage == Stage::Done {
                round.finish();
                announce = true;
                if round.next.is_empty() {
                    self.round_ended(&round.space);
                } else {
                    round.begin(self.pool);
                    self.advance_round(round);
                }
            }
        }
        rounds.retain(|round| !round.now.is_empty());
        rounds.append(&mut self.rounds);
        self.rounds = rounds;
        // No thread waits for the files of the others.
        self.failed.clear();
        if announce {
            self.device.announce();
        }
        if scope == Scope::All {
            while self.has_room(Urgency::Background) && self.write_for_work() {}
        }
        self.writer.submit();
    }

    /// Begins the next run of a round that sweeps. Returns whether there may be more.
    fn sweep(&mut self, round: &mut Round) -> bool {
        if round.stage != Stage::Sweep {
            return false;
        }
        let Some(range) = round.ranges.front_mut() else { return false };
        let (blocked, _) =
            self.write_from(&round.space, &mut range.start, u64::MAX, Some(range.end));
        if range.start >= range.end.min(round.space.table.pages()) {
            round.ranges.pop_front();
        }
        !blocked
    }

    fn advance_round(&mut self, round: &mut Round) {
        let of_round = |(space, _): &mut (Arc<Space>, _)| Arc::ptr_eq(space, &round.space);
        let failed: Vec<_> = self.failed.extract_if(.., of_round).collect();
        failed.into_iter().for_each(|(_, failure)| round.note(failure));
        if round.stage == Stage::Rescue {
            return round.rescue(self.pool);
        }
        if round.stage == Stage::Sweep && round.ranges.is_empty() {
            round.stage = Stage::Drain(self.runs);
        }
        if let Stage::Drain(number) = round.stage
            && !self.has_runs(&round.space, number)
        {
            round.stage = self.begin_sync(round);
        }
    }

    /// Begins to write dirty pages from `at` on: one run's worth, and each page up to `each`, if
    /// that is given. Returns whether the first page left is busy in another thread, and the number
    /// of pages.
    pub(super) fn write_from(
        &mut self,
        space: &Arc<Space>,
        at: &mut u64,
        most: u64,
        each: Option<u64>,
    ) -> (bool, u64) {
        let most = most.min(RUN_BYTES >> self.pool.page_shift).max(1);
        // Before anything becomes clean: until the runs are counted this stands for them, so that
        // no thread takes the file for clean in between (`Pool::is_clean`).
        space.run_begins();
        let found = collect(self.pool, space, at, each.unwrap_or(u64::MAX), most, each.is_some());
        let (blocked, pages) = (found.blocked, found.pages);
        self.pages += pages;
        for folios in found.into_runs(self.pool.page_bytes()) {
            self.runs += 1;
            self.start(space, folios, self.runs);
        }
        space.run_ends();
        (blocked, pages)
    }

    /// Runs in flight.
    fn begun_runs(&self) -> impl Iterator<Item = &Run> {
        self.in_hand.iter().filter_map(|(_, in_hand)| match in_hand {
            InHand::Run(run) => Some(run),
            InHand::Sync(..) => None,
        })
    }

    fn has_runs(&self, space: &Arc<Space>, up_to: u64) -> bool {
        self.begun_runs()
            .chain(&self.waiting)
            .any(|run| Arc::ptr_eq(&run.space, space) && run.number <= up_to)
    }

    /// All writes of a round have ended: syncs them, unless nothing was written since the last
    /// sync.
    fn begin_sync(&mut self, round: &mut Round) -> Stage {
        let space = &round.space;
        let changes = space.new_changes();
        let mut ledger = lowtide_pin::sync::lock(&space.ledger);
        if changes.is_none() && !ledger.needs_sync() {
            self.pool.fault_sites.mark(FaultSite::SyncShared);
            return Stage::Done;
        }
        if round.now.len() > 1 {
            self.pool.fault_sites.mark(FaultSite::SyncShared);
        }
        ledger.sync_begins();
        drop(ledger);
        let fd = space.buffered_fd();
        let slot = self.in_hand.insert(InHand::Sync(Arc::clone(space), changes));
        self.writer.push_sync(space.path_ref(), fd, slot as u64);
        Stage::Sync
    }

    /// Hands a run to the device.
    fn start(&mut self, space: &Arc<Space>, folios: Vec<InFlight>, number: u64) {
        space.run_begins();
        let space = Arc::clone(space);
        self.launch(Run {
            space,
            folios,
            number,
            begun: 0,
            tail: None,
            only_tail: false,
            on_its_way: None,
            failed_syncs: 0,
            copy: Vec::new(),
            direct: None,
        });
    }

    /// Hands a run to the device, or lets it wait for what it would collide with.
    fn launch(&mut self, run: Run) {
        let (direct, tail) = if run.only_tail {
            (Direct::Frames(Vec::new()), run.tail)
        } else {
            cut_run(self.pool, &run.space, &run.folios)
        };
        let offset = pages_of(&run.folios).start << self.pool.page_shift;
        let mut run = Run { tail, begun: self.pool.now(), ..run };
        let len = direct.len();
        if len == 0 && run.tail.is_none() {
            // Others have cut off what a map had there.
            return self.nothing_to_write(&run);
        }
        if run.on_its_way.is_none() {
            let cached = run.tail.as_ref().map_or(0..0, Tail::bytes);
            let beneath = &run.space.beneath;
            run.on_its_way = beneath.write_begins(&(offset..offset + len as u64), &cached);
            if run.on_its_way.is_none() {
                return self.waiting.push(run);
            }
            run.failed_syncs = lowtide_pin::sync::lock(&run.space.ledger).failed_syncs();
        }
        let space = &Arc::clone(&run.space);
        if len == 0 {
            return self.start_tail(run);
        }
        let slices = match direct {
            Direct::Frames(slices) => slices,
            Direct::Map(len) => match copy_direct(space, offset, len) {
                Ok(copy) => vec![Slice::new(run.direct.insert(copy).as_ptr(), len)],
                Err(error) => return self.run_ended(run, Err(error)),
            },
        };
        let slot = self.in_hand.insert(InHand::Run(run));
        let (path, fd) = (space.path_ref(), space.backing.write_fd());
        // SAFETY: the folios are under writeback, so their frames are neither evicted nor given
        // back before `Pool::end_run`, which comes after the completion; the run keeps the space,
        // its descriptors, and the copy of a map's pages, which does not move with it. A writer
        // that is abandoned leaks the pool and all of it. A concurrent store may reach the file or
        // not: its page is dirty again.
        #[expect(unsafe_code, reason = "promised where the frames are taken")]
        let write = unsafe { Write::new(path, fd, offset, slices, slot as u64) };
        self.writer.push(write);
    }

    /// Ends a run of which the file has no byte.
    fn nothing_to_write(&self, run: &Run) {
        lowtide_pin::sync::lock(&run.space.ledger).written(pages_of(&run.folios));
        end_run(self.pool, &run.space, &run.folios, true);
        run.space.run_ends();
    }

    /// Hands the end of a file that is no whole block to the page cache.
    fn start_tail(&mut self, mut run: Run) {
        run.only_tail = true;
        let Some(tail) = run.tail.take() else { return };
        run.direct = None;
        let copy = match copy_tail(self.pool, &run.space, &tail) {
            Ok(Some(copy)) => copy,
            Ok(None) => {
                run.tail = Some(tail);
                return self.waiting.push(run);
            }
            Err(error) => return self.run_ended(run, Err(error)),
        };
        self.pool.fault_sites.mark(FaultSite::TailThroughPageCache);
        run.copy = copy;
        run.begun = self.pool.now();
        let slices = vec![Slice::new(run.copy.as_ptr(), run.copy.len())];
        let space = Arc::clone(&run.space);
        // The copy does not move with the run.
        let slot = self.in_hand.insert(InHand::Run(run));
        let (path, fd) = (space.path_ref(), space.buffered_fd());
        // SAFETY: the copy and the descriptor belong to the run, which is kept until its completion
        // is returned; an abandoned writer leaks the worker's runs with it.
        #[expect(unsafe_code, reason = "the promise about the memory is given here")]
        let write = unsafe { Write::new(path, fd, tail.offset, slices, slot as u64) };
        self.writer.push(write);
    }

    /// Waits a moment for requests to end, and handles those that have.
    fn reap(&mut self, timeout: Duration) {
        if self.in_flight() == self.waiting.len() {
            if !self.is_done() {
                // A store has a page locked that is to be written, or is filling a folio.
                std::thread::sleep(Duration::from_micros(100));
            }
            return self.launch_waiting();
        }
        let mut ended = std::mem::take(&mut self.ended);
        if self.pool.background {
            self.writer.wait(1, Some(timeout), &mut ended);
        } else {
            // What happens depends on nothing but the calls, not on which request the device serves
            // first.
            let requests = self.in_hand.len();
            self.writer.wait(requests - ended.len(), Some(timeout), &mut ended);
            if ended.len() < requests {
                self.ended = ended;
                return;
            }
            ended.sort_by_key(|completion| match self.in_hand.get(completion.user as usize) {
                Some(InHand::Run(run)) => run.number,
                _ => u64::MAX,
            });
        }
        for completion in ended.drain(..) {
            match self.in_hand.try_remove(completion.user as usize) {
                Some(InHand::Run(run)) => self.run_ended(run, completion.result),
                Some(InHand::Sync(space, changes)) => {
                    self.sync_ended(&space, changes, completion.result.map(drop));
                }
                None => {}
            }
        }
        self.ended = ended;
        self.launch_waiting();
    }

    fn launch_waiting(&mut self) {
        for run in std::mem::take(&mut self.waiting) {
            self.launch(run);
        }
    }

    fn run_ended(&mut self, mut run: Run, result: io::Result<u32>) {
        let space = Arc::clone(&run.space);
        let pages = pages_of(&run.folios);
        if result.is_err() || run.tail.is_none() {
            let ended = run.on_its_way.take().expect("a run that ends has begun");
            space.beneath.write_ends(ended);
        }
        match result {
            Ok(bytes) => {
                self.pool.io.counts.writes.fetch_add(1, Relaxed);
                self.pool.io.counts.write_bytes.fetch_add(u64::from(bytes), Relaxed);
                self.device.note_write(u64::from(bytes), run.begun, self.pool.now());
                if run.tail.is_some() {
                    return self.start_tail(run);
                }
                let mut ledger = lowtide_pin::sync::lock(&space.ledger);
                if ledger.failed_syncs() > run.failed_syncs {
                    drop(ledger);
                    // A part of it may have arrived before the sync failed, and been lost with it.
                    self.pool.fault_sites.mark(FaultSite::SyncFailedRewritten);
                    self.start(&space, run.folios, run.number);
                } else {
                    // Before any thread can find the pages clean.
                    ledger.written(pages);
                    drop(ledger);
                    end_run(self.pool, &space, &run.folios, true);
                }
            }
            Err(error) => {
                let cut =
                    lowtide_pin::sync::lock(&space.ledger).worth_cutting() && run.folios.len() > 1;
                if cut {
                    self.pool.fault_sites.mark(FaultSite::FailedRunSplit);
                    let second = run.folios.split_off(run.folios.len() / 2);
                    self.start(&space, run.folios, run.number);
                    self.start(&space, second, run.number);
                } else {
                    self.pool.fault_sites.mark(FaultSite::WriteFailedKeptDirty);
                    events::write_failed(&space.path(), &pages, &error);
                    let failure = Failure { pages, source: Arc::new(error) };
                    lowtide_pin::sync::lock(&space.ledger)
                        .write_failed(failure.clone(), Instant::now());
                    self.look_at = Instant::now();
                    end_run(self.pool, &space, &run.folios, false);
                    self.failed.push((Arc::clone(&space), failure));
                }
            }
        }
        space.run_ends();
    }

    fn sync_ended(&mut self, space: &Arc<Space>, changes: Option<u64>, result: io::Result<()>) {
        match result {
            Ok(()) => {
                lowtide_pin::sync::lock(&space.ledger).synced();
                changes.into_iter().for_each(|changes| space.are_durable(changes));
            }
            Err(error) => {
                self.pool.fault_sites.mark(FaultSite::SyncFailed);
                events::sync_failed(&space.path(), &error);
                let source = Arc::new(error);
                lowtide_pin::sync::lock(&space.ledger)
                    .sync_failure(Arc::clone(&source), Instant::now());
                self.look_at = Instant::now();
                make_suspects_dirty(self.pool, space);
                self.failed.push((Arc::clone(space), Failure { pages: 0..u64::MAX, source }));
            }
        }
        if let Some(round) = self.rounds.iter_mut().find(|round| Arc::ptr_eq(&round.space, space)) {
            round.stage = Stage::Done;
        }
    }

    /// The last round of a file has ended. If the file is not open and nothing is left to do, it
    /// goes.
    fn round_ended(&self, space: &Arc<Space>) {
        if space.is_orphan() && self.pool.is_clean(space) {
            // What is being read is not waited for here: the reader finds the file closed.
            self.pool.forget_if_orphan(space, Deadline::after(Duration::ZERO));
        }
    }
}
