//! What the runtime says, for Python's `logging`.
//!
//! The runtime reports by `tracing`, from any thread: its own, and those of the program, which have
//! given Python's lock back or hold a lock of the runtime. None of them can wait for Python's lock
//! there. So an event becomes a text and is queued, and one thread hands the queue to the package
//! (`python/lowtide/_log.py`). The queue is bounded: what does not fit is counted, and the count is
//! a message.
//!
//! **The end of the interpreter.** A thread that wants Python's lock when that is gone never
//! returns. So the queue is handed over, and the thread ended, while `atexit` runs ([`end`]).
//! Warnings and errors that come later go to the standard error stream.
//!
//! **fork.** A child has the queue of its parent, perhaps locked, and not the thread. So it begins
//! with another queue, and with another thread when it makes a pager. It also has the locks of the
//! files and handlers that the thread was writing to, which no thread of it gives back. So nothing
//! is handed over while `os.fork` runs ([`pause`]).
//!
//! # Safety
//!
//! The queue is found by a pointer, and what it points to is never freed.

use crate::forks;
use lowtide_status::printable;
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};

/// Events that wait at most.
const CAPACITY: usize = 1000;

/// A handler of `logging` that takes longer does not keep the process from forking.
const PATIENCE: Duration = Duration::from_secs(5);

thread_local! {
    /// This thread is the one that hands events over.
    static HANDS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// A level as `logging` has it, the text, and where in the runtime it is from.
type Event = (u32, String, &'static str, u32);

/// The queue of this process. Leaked: a child gets another.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(ptr::null_mut());

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// Events that did not fit.
    lost: u64,
    stage: Stage,
    thread: Option<JoinHandle<()>>,
    /// The thread hands events over: code of the program runs there.
    is_busy: bool,
    /// Threads that fork.
    pauses: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// There is no thread yet.
    #[default]
    Waiting,
    Running,
    /// What is queued is handed over, and no more.
    Ending,
    /// No thread wants Python's lock any more.
    Ended,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, event: Event) {
        let mut state = self.state();
        if state.stage == Stage::Ended {
            drop(state);
            let (level, text, ..) = event;
            if level >= number(Level::WARN) {
                eprintln!("lowtide: {text}");
            }
        } else if state.events.len() < CAPACITY {
            state.events.push_back(event);
            drop(state);
            self.changed.notify_all();
        } else {
            state.lost += 1;
        }
    }

    /// The thread's work.
    fn hand_over(&self) {
        HANDS_OVER.set(true);
        let mut state = self.state();
        loop {
            if state.pauses > 0 {
                state = self.wait(state);
            } else if !state.events.is_empty() {
                let events: Vec<Event> = mem::take(&mut state.events).into();
                let lost = mem::take(&mut state.lost);
                state.is_busy = true;
                drop(state);
                // The interpreter waits for `end` before it goes.
                Python::try_attach(|py| pass_on(py, events, lost));
                state = self.state();
                state.is_busy = false;
                self.changed.notify_all();
            } else if state.stage == Stage::Running {
                state = self.wait(state);
            } else {
                break;
            }
        }
        state.stage = Stage::Ended;
        drop(state);
        self.changed.notify_all();
    }
}

fn pass_on(py: Python<'_>, events: Vec<Event>, lost: u64) {
    let done = py
        .import("lowtide._log")
        .and_then(|module| module.call_method1("hand_over", (events, lost)).map(drop));
    if let Err(error) = done {
        error.write_unraisable(py, None);
    }
}

fn queue() -> &'static Queue {
    // SAFETY: set by `watch` before there is any event, and never freed.
    unsafe { &*QUEUE.load(Ordering::Acquire) }
}

fn new_queue() {
    QUEUE.store(Box::into_raw(Box::default()), Ordering::Release);
}

/// From now on events are queued.
pub(crate) fn watch() {
    new_queue();
    // Another subscriber there cannot be: what is linked into this module is its own.
    let _ = tracing::subscriber::set_global_default(Events);
}

/// Before `os.fork`: waits until nothing is handed over, and nothing is until [`resume`]. A handler
/// that takes very long is not waited for.
pub(crate) fn pause() {
    if HANDS_OVER.get() {
        // A handler that forks.
        return;
    }
    let queue = queue();
    let mut state = queue.state();
    state.pauses += 1;
    let wait = queue.changed.wait_timeout_while(state, PATIENCE, |state| state.is_busy);
    drop(wait.unwrap_or_else(PoisonError::into_inner));
}

/// After `os.fork`, in the parent.
pub(crate) fn resume() {
    if !HANDS_OVER.get() {
        let queue = queue();
        queue.state().pauses -= 1;
        queue.changed.notify_all();
    }
}

/// In a child of `fork`, before anything of it runs.
pub(crate) fn in_child() {
    new_queue();
}

/// There is a pager, so there will be events: the thread that hands them over begins.
pub(crate) fn begin() {
    let _quiet = forks::quiet();
    let queue = queue();
    let mut state = queue.state();
    if state.stage == Stage::Waiting {
        // Without it they wait, and are lost: there are not even threads.
        if let Ok(thread) = lowtide_sys::threads::spawn("lowtide-log", || queue.hand_over()) {
            state.thread = Some(thread);
            state.stage = Stage::Running;
        }
    }
}

/// For `atexit`: hands over what is queued, and ends the thread.
pub(crate) fn end() {
    let queue = queue();
    let mut state = queue.state();
    if state.stage == Stage::Waiting {
        state.stage = Stage::Ended;
    } else if state.stage == Stage::Running {
        state.stage = Stage::Ending;
        queue.changed.notify_all();
    }
    // Not in the gate: the thread waits for Python's lock meanwhile.
    while state.stage != Stage::Ended {
        state = queue.wait(state);
    }
    let thread = state.thread.take();
    drop(state);
    let _quiet = forks::quiet();
    if let Some(thread) = thread {
        let _ = thread.join();
    }
}

/// The level's number in `logging`.
fn number(level: Level) -> u32 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}

/// The subscriber of `tracing`.
struct Events;

impl Subscriber for Events {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let from = event.metadata();
        let (file, line_number) = (from.file().unwrap_or_default(), from.line().unwrap_or(0));
        let text = printable(&format!("{}{}", line.message, line.fields));
        queue().add((number(*from.level()), text, file, line_number));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name}: {value:?}"),
        };
        written.expect("a string takes all texts");
    }
}
