//! The disk: what it does to requests, and what is left when the power is cut.
//!
//! It sees requests, not bytes. What a write replaces it reads from the file itself, through a
//! descriptor of its own, before the write may begin; the file system keeps that coherent with
//! whatever descriptor the pager uses. So the file always holds the newest state, and the log
//! (`undo.rs`) what may come back.
//!
//! A file that is made on this disk ([`FaultyDisk::expect_new`]) has no name after a cut, perhaps,
//! until a sync of its name has ended well, whatever was done for its contents.
//!
//! The files must be used through one disk only, from their first write on.

use super::plan::{Fault, Plan};
use super::undo::{Cut, Log, SECTOR};
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide_workload::SplitMix64;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How much later a late request comes, at most.
const LATE_MAX: Duration = Duration::from_micros(500);
/// How long [`FaultyDisk::image`] waits for requests that were under way at the cut. A pager that
/// gave up on them does not say when they end.
const PATIENCE: Duration = Duration::from_millis(500);

/// A file, as the disk knows it.
#[derive(Debug)]
struct OnDisk {
    file: File,
    log: Log,
}

/// A request under way.
#[derive(Debug)]
struct UnderWay {
    /// When a sync began.
    began: u64,
    /// Whether the log knows of it, or is to.
    logged: bool,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    /// What every request of a kind suffers, whatever the plan says.
    switches: HashMap<InjectOp, Fault>,
    powered: bool,
    /// Requests that are still carried out before the power is cut.
    left: Option<u64>,
    /// Whether syncs are carried out.
    syncs: bool,
    /// Whether reads suffer nothing, even without power.
    spares_reads: bool,
    /// Of hanging requests.
    gates: Vec<Gate>,
    files: HashMap<PathBuf, OnDisk>,
    /// Files whose names may be lost.
    new_names: HashSet<PathBuf>,
    under_way: HashMap<u64, UnderWay>,
    hits: BTreeMap<(InjectOp, Fault), u64>,
    requests: u64,
    /// Counts beginnings and ends.
    time: u64,
    /// When the power was cut.
    cut_at: u64,
}

/// A disk that fails as planned and knows what a power cut would leave. See the module
/// documentation.
#[derive(Debug)]
pub struct FaultyDisk {
    state: Mutex<State>,
    ended: Condvar,
}

/// An image of the disk could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PowerError {
    /// The file cannot be read, or the image not written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FaultyDisk {
    /// A disk that does as planned.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            state: Mutex::new(State {
                plan,
                switches: HashMap::new(),
                powered: true,
                left: None,
                syncs: true,
                spares_reads: false,
                gates: Vec::new(),
                files: HashMap::new(),
                new_names: HashSet::new(),
                under_way: HashMap::new(),
                hits: BTreeMap::new(),
                requests: 0,
                time: 0,
                cut_at: u64::MAX,
            }),
            ended: Condvar::new(),
        }
    }

    /// The same, and syncs are only played: they end well at once. What is durable on this disk its
    /// log decides, so nothing else changes.
    #[must_use]
    pub fn without_syncs(self) -> Self {
        self.lock().syncs = false;
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on reads suffer nothing, even when the power is cut: of a file that a program
    /// reaches through a pointer, a page that cannot be read ends the process.
    pub fn spare_reads(&self) {
        self.lock().spares_reads = true;
    }

    /// From now on every request of a kind suffers a fault; with `None`, only those of the plan.
    /// Requests that hang go on hanging.
    pub fn switch(&self, op: InjectOp, fault: Option<Fault>) {
        let mut state = self.lock();
        match fault {
            Some(fault) => drop(state.switches.insert(op, fault)),
            None => drop(state.switches.remove(&op)),
        }
    }

    /// Replaces the plan; with an empty one the disk is good from here on. Requests that hang go on
    /// hanging.
    pub fn set_plan(&self, plan: Plan) {
        self.lock().plan = plan;
    }

    /// Says that a file is about to be made: its name is durable once it was synced.
    pub fn expect_new(&self, path: &Path) {
        self.lock().new_names.insert(path.to_owned());
    }

    /// Lets go what hangs now.
    pub fn release(&self) {
        for gate in self.lock().gates.drain(..) {
            gate.open();
        }
    }

    /// Cuts the power: no request is carried out from here on, all fail with `EIO`. What is under
    /// way ends, and what hangs is let go; all that may be on the disk afterwards, or not.
    pub fn cut(&self) {
        self.lock().power_off();
        self.release();
    }

    /// Cuts the power when this many more requests have begun.
    pub fn cut_after(&self, requests: u64) {
        self.lock().left = Some(requests);
    }

    /// Whether the power is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        !self.lock().powered
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Sectors of a file of which more than one content is possible after a cut.
    #[must_use]
    pub fn undecided(&self, path: &Path) -> usize {
        self.lock().files.get(path).map_or(0, |file| file.log.undecided())
    }

    /// How often each kind of request suffered each fault: all that are possible, those that never
    /// happened with 0.
    #[must_use]
    pub fn hits(&self) -> Vec<((InjectOp, Fault), u64)> {
        let state = self.lock();
        let all = InjectOp::ALL
            .into_iter()
            .flat_map(|op| Fault::of(op).iter().map(move |&fault| (op, fault)));
        all.map(|key| (key, state.hits.get(&key).copied().unwrap_or(0))).collect()
    }

    /// What is left of a file after a [`cut`](FaultyDisk::cut): one of the possible outcomes,
    /// chosen by the seed, written to `to` as a new file. A file that has lost its name is empty
    /// there. The disk forgets the file. Cost: reading and writing it.
    ///
    /// The pager is to be dropped before. What is under way is waited for, half a second at most: a
    /// pager that has given up on a device leaves requests behind whose end is never reported. They
    /// may be on the disk or not, like all others that were under way.
    ///
    /// # Errors
    /// [`PowerError`].
    pub fn image(&self, path: &Path, seed: u64, to: &Path) -> Result<Cut, PowerError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| PowerError::Io { action, path, source }
        };
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while !state.under_way.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (state, _) =
                self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        let mut image = std::fs::read(path).map_err(failed("read", path))?;
        let (at, mut rng) = (state.cut_at, SplitMix64::new(seed));
        let mut cut = match state.files.remove(path) {
            Some(mut file) => file.log.cut(&mut image, &mut rng, at),
            None => Cut::default(),
        };
        if state.new_names.remove(path) && rng.below(2) == 0 {
            cut.unnamed = true;
            image.clear();
        }
        std::fs::write(to, &image).map_err(failed("write", to))?;
        Ok(cut)
    }
}

impl State {
    /// What is under way from here on may have been carried out in part.
    fn power_off(&mut self) {
        if self.powered {
            self.powered = false;
            self.cut_at = self.tick();
        }
    }

    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// The file that a request is about. A file that cannot be opened for reading any more has
    /// nothing to remember.
    fn file(&mut self, path: &Path) -> Option<&mut OnDisk> {
        if !self.files.contains_key(path) {
            let file = File::open(path).ok()?;
            self.files.insert(path.to_owned(), OnDisk { file, log: Log::default() });
        }
        self.files.get_mut(path)
    }

    /// What a request suffers; counted.
    fn fault(&mut self, op: InjectOp) -> Option<Fault> {
        let planned = self.plan.next(op);
        let fault = self.switches.get(&op).copied().or(planned)?;
        *self.hits.entry((op, fault)).or_default() += 1;
        Some(fault)
    }

    fn verdict(&mut self, request: &Request<'_>, fault: Fault) -> Verdict {
        if let Some(errno) = fault.errno() {
            return Verdict::Fail(io::Error::from_raw_os_error(errno));
        }
        match fault {
            Fault::Lie => Verdict::Pretend,
            Fault::Tail => Verdict::Pass,
            Fault::Short => Verdict::Short(self.short(request)),
            Fault::Late => {
                let micros = self.plan.rng().below(LATE_MAX.as_micros() as u64);
                Verdict::Later(Duration::from_micros(micros))
            }
            _ => {
                let gate = Gate::new();
                self.gates.push(gate.clone());
                Verdict::Hang(gate)
            }
        }
    }

    /// What the first transfer of a request moves: whole sectors, and of a read one at least,
    /// because none would mean the end of the file.
    fn short(&mut self, request: &Request<'_>) -> u64 {
        let sectors = request.len.div_ceil(SECTOR as u64);
        let least = u64::from(request.op == InjectOp::Read);
        (least + self.plan.rng().below(sectors.saturating_sub(least))) * SECTOR as u64
    }

    /// Remembers what a request is about to replace. Returns whether it did, or whether there is
    /// nothing to remember.
    fn remember(&mut self, request: &Request<'_>, fault: Option<Fault>) -> bool {
        let Some(OnDisk { file, log }) = self.file(request.path) else { return false };
        let Ok(len) = file.metadata().map(|facts| facts.len()) else { return false };
        let (number, bytes) = (request.number, request.offset..request.offset + request.len);
        match request.op {
            InjectOp::Write => log.begin_write(bytes.clone(), &held(file, &bytes), number),
            InjectOp::Punch => {
                let bytes = bytes.start..bytes.end.min(len);
                log.begin_hole(bytes.clone(), &held(file, &bytes), number);
            }
            InjectOp::Extend => log.begin_length(len, number),
            InjectOp::Shrink => {
                let gone = request.offset..len;
                let before = held(file, &gone);
                if fault == Some(Fault::Tail) {
                    log.leave_tail(request.offset, &before);
                }
                log.begin_cut(gone, &before, number);
            }
            _ => {}
        }
        true
    }
}

/// What a file holds from the first sector of a range to the end of its last, as far as it goes.
fn held(file: &File, bytes: &Range<u64>) -> Vec<u8> {
    let start = bytes.start / SECTOR as u64 * SECTOR as u64;
    let len = bytes.end.saturating_sub(start) as usize;
    let mut held = vec![0; len.next_multiple_of(SECTOR)];
    let count = read_as_far_as_it_goes(file, &mut held, start);
    held.truncate(count);
    held
}

/// Reads until the memory is full or the file ends; returns how much. What cannot be read counts as
/// not there.
fn read_as_far_as_it_goes(file: &File, into: &mut [u8], offset: u64) -> usize {
    let mut got = 0;
    while got < into.len() {
        match file.read_at(&mut into[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    got
}

impl Inject for FaultyDisk {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let mut state = self.lock();
        state.requests += 1;
        let began = state.tick();
        match &mut state.left {
            Some(0) => {
                state.power_off();
                state.gates.drain(..).for_each(|gate| gate.open());
            }
            Some(left) => *left -= 1,
            None => {}
        }
        if request.op == InjectOp::Read && state.spares_reads {
            return Verdict::Pass;
        }
        if !state.powered {
            return Verdict::Fail(io::Error::from_raw_os_error(libc::EIO));
        }
        let fault = state.fault(request.op);
        let played = matches!(request.op, InjectOp::Sync | InjectOp::Name) && !state.syncs;
        let good = if played { Verdict::Pretend } else { Verdict::Pass };
        let verdict = fault.map_or(good, |fault| state.verdict(request, fault));
        let logged = match verdict {
            Verdict::Fail(_) => false,
            Verdict::Pretend if !played || fault.is_some() => false,
            _ => state.remember(request, fault),
        };
        let other = state.under_way.insert(request.number, UnderWay { began, logged });
        assert!(other.is_none(), "two requests under way have the number of {request:?}");
        verdict
    }

    fn after(&self, request: &Request<'_>, result: Result<(), i32>) {
        let mut state = self.lock();
        let now = state.tick();
        let Some(under_way) = state.under_way.remove(&request.number) else { return };
        if request.op == InjectOp::Name && under_way.logged && result.is_ok() {
            state.new_names.remove(request.path);
        }
        if let Some(OnDisk { log, .. }) = state.file(request.path) {
            match request.op {
                InjectOp::Sync if result.is_err() => log.sync_failed(now),
                InjectOp::Sync if under_way.logged => log.synced(under_way.began),
                _ if under_way.logged => log.end(request.number, now),
                _ => {}
            }
        }
        self.ended.notify_all();
    }
}
