//! A device with a temper: late, short, failing and hanging requests, as the plan draws.

use super::plan::{Behaviour, Rng};
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct State {
    rng: Rng,
    behaviour: Behaviour,
    /// Closed gates, and when they were closed.
    gates: Vec<(Gate, Instant)>,
    /// A thread opens them: nothing hangs before.
    thaws: bool,
    /// Reads of this file hang until the gate is opened.
    hung: Vec<(PathBuf, Gate)>,
    /// Whether writes and syncs of a file fail, whatever the plan says.
    broken: Vec<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Device(Mutex<State>);

/// How long a request hangs.
const HANG: Duration = Duration::from_millis(40);

impl Device {
    pub(crate) fn new(behaviour: Behaviour, seed: u64) -> Self {
        let (gates, hung, broken) = (Vec::new(), Vec::new(), Vec::new());
        let thaws = false;
        Self(Mutex::new(State { rng: Rng(seed), behaviour, gates, thaws, hung, broken }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases what has hung for long enough. Called again and again from the first time on.
    pub(crate) fn thaw(&self) {
        let mut state = self.lock();
        state.thaws = true;
        state.gates.retain(|(gate, since)| {
            let keep = since.elapsed() < HANG;
            if !keep {
                gate.open();
            }
            keep
        });
    }

    /// From here on it is a good device.
    pub(crate) fn clear_up(&self) {
        let mut state = self.lock();
        state.behaviour = Behaviour::Fair;
        state.gates.drain(..).for_each(|(gate, _)| gate.open());
    }

    /// Reads of a file hang until the gate is opened.
    pub(crate) fn hang_reads(&self, path: PathBuf) -> Gate {
        let gate = Gate::new();
        self.lock().hung.push((path, gate.clone()));
        gate
    }

    /// Writes to a file fail until they work again.
    pub(crate) fn break_writes(&self, path: PathBuf) {
        self.lock().broken.push(path);
    }

    pub(crate) fn repair_writes(&self, path: &std::path::Path) {
        self.lock().broken.retain(|broken| broken != path);
    }
}

impl State {
    fn hang(&mut self) -> Verdict {
        if !self.thaws {
            return Verdict::Pass;
        }
        let gate = Gate::new();
        self.gates.push((gate.clone(), Instant::now()));
        Verdict::Hang(gate)
    }

    fn rough(&mut self, request: &Request<'_>) -> Verdict {
        let sectors = request.len / 512;
        match self.rng.below(3) {
            0 => Verdict::Later(Duration::from_micros(self.rng.below(500))),
            1 if sectors > 1 => Verdict::Short((1 + self.rng.below(sectors - 1)) * 512),
            _ => Verdict::Pass,
        }
    }

    /// A read of the swap file that brings other bytes, and does not say so.
    fn lie(&mut self, request: &Request<'_>) -> Option<Verdict> {
        let swap = request.op == InjectOp::Read && request.path.as_os_str() == "[swap]";
        let lies = swap && self.behaviour.lies() && self.rng.one_in(30);
        lies.then_some(Verdict::Pretend)
    }

    fn verdict(&mut self, request: &Request<'_>) -> Verdict {
        let eio = || Verdict::Fail(io::Error::from_raw_os_error(5));
        let makes_no_holes = || Verdict::Fail(io::Error::from_raw_os_error(95));
        let full = || Verdict::Fail(io::Error::from_raw_os_error(28));
        match (self.behaviour, request.op) {
            (Behaviour::Fair, _) => Verdict::Pass,
            (Behaviour::Rough, _) if self.rng.one_in(3) => self.rough(request),
            (Behaviour::ReadsFail, InjectOp::Read) if self.rng.one_in(20) => eio(),
            (Behaviour::WritesFail, InjectOp::Write) if self.rng.one_in(8) => eio(),
            (Behaviour::WritesFail, InjectOp::Write) if self.rng.one_in(30) => full(),
            (Behaviour::WritesFail, InjectOp::Extend | InjectOp::Shrink) if self.rng.one_in(4) => {
                full()
            }
            (Behaviour::WritesFail, InjectOp::Punch) if self.rng.one_in(4) => full(),
            (Behaviour::SyncsFail, InjectOp::Punch) if self.rng.one_in(2) => makes_no_holes(),
            (Behaviour::SyncsFail, InjectOp::Name) if self.rng.one_in(2) => eio(),
            (Behaviour::SyncsFail, InjectOp::Sync) if self.rng.one_in(4) => eio(),
            (Behaviour::Hangs, InjectOp::Read) if self.rng.one_in(200) => self.hang(),
            (Behaviour::Hangs, InjectOp::Write | InjectOp::Sync) if self.rng.one_in(60) => {
                self.hang()
            }
            (Behaviour::Foul, _) => match self.rng.below(60) {
                0..6 => self.rough(request),
                6 => eio(),
                7 if request.op != InjectOp::Read => full(),
                8 if self.rng.one_in(4) => self.hang(),
                _ => Verdict::Pass,
            },
            _ => Verdict::Pass,
        }
    }
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let mut state = self.lock();
        if request.op == InjectOp::Read
            && let Some((_, gate)) = state.hung.iter().find(|(path, _)| path == request.path)
        {
            return Verdict::Hang(gate.clone());
        }
        if request.op == InjectOp::Write && state.broken.iter().any(|path| path == request.path) {
            return Verdict::Fail(io::Error::from_raw_os_error(5));
        }
        if let Some(lie) = state.lie(request) {
            return lie;
        }
        state.verdict(request)
    }
}
