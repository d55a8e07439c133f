//! How threads of the program ask our own thread, the *keeper*, to do something.
//!
//! One question at a time: it is written into a slot, the keeper answers, the thread goes on. The
//! thread allocates nothing and holds no lock but the slot's. A thread sleeps until its question is
//! answered, or the keeper has died.

#![allow(unsafe_code)]

use crate::judge::{Identity, Kind, Reason};
use crate::lock::{self, LOOK, Lock};
use crate::modes::Why;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A mapping that the program has just made.
#[derive(Debug)]
pub(crate) struct New {
    /// Addresses, whole pages.
    pub(crate) range: Range<usize>,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// How it is used.
    pub(crate) kind: Kind,
    /// The program's descriptor.
    pub(crate) fd: i32,
    /// The thread in whose table the descriptor is.
    pub(crate) thread: i32,
    /// The file.
    pub(crate) identity: Identity,
    /// Stores to it go to the file.
    pub(crate) is_stored: bool,
}

/// What the keeper is to do. Has nothing to drop: the slot is read without being emptied.
#[derive(Debug)]
pub(crate) enum Question {
    /// Keep a mapping within the budget.
    Keep(New),
    /// Keep the mappings that this process has from its parent.
    Inherit {
        /// Before the program goes on, and not a moment later.
        now: bool,
    },
    /// Leave these addresses alone from now on.
    Forget(Range<usize>),
    /// The program says how it will read these addresses.
    Advise {
        /// Which.
        range: Range<usize>,
        /// At random.
        random: bool,
    },
    /// A part of a mapping was moved or resized by `mremap`: forget where it was.
    Detach(Range<usize>),
    /// It is here now.
    Attach {
        /// The answer to [`Question::Detach`].
        ticket: u32,
        /// Addresses, whole pages.
        range: Range<usize>,
        /// The ticket is used up.
        is_last: bool,
    },
    /// The program will read these addresses soon.
    WillNeed(Range<usize>),
    /// What is mirrored of these addresses is to be the kernel's mapping.
    Turn {
        /// Which.
        range: Range<usize>,
        /// Why.
        why: Why,
    },
    /// Give up leases that another process, or this one, waits for.
    Leases,
    /// Keep what is read of a file.
    Read {
        /// The program's descriptor.
        fd: i32,
        /// The thread in whose table the descriptor is.
        thread: i32,
        /// The file.
        identity: Identity,
    },
    /// The process gives rights up: open what it may not open later.
    Prepare,
    /// Nothing, but to be there.
    Nothing,
    /// Write the summary.
    Summary,
    /// The process ends.
    Leave,
    /// Leave all to the kernel, and end.
    End,
}

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// Done.
    Done,
    /// The mapping is left to the kernel.
    Left(Reason),
    /// What was detached; zero is nothing. One more than the number of a file that is read.
    Ticket(u32),
}

const EMPTY: u32 = 0;
const ASKED: u32 = 1;
const ANSWERED: u32 = 2;

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;
const DEAD: u32 = 2;

/// The slot. All zeroes is an empty one without a keeper.
#[derive(Debug)]
pub(crate) struct Line {
    turn: Lock,
    phase: AtomicU32,
    keeper: AtomicU32,
    /// Counts questions and other reasons to wake the keeper, which sleeps on it.
    bell: AtomicU32,
    /// A summary is wanted, by a signal handler, which cannot ask.
    summary: AtomicU32,
    /// Leases are to be looked at.
    look: AtomicU32,
    question: UnsafeCell<MaybeUninit<Question>>,
    answer: UnsafeCell<MaybeUninit<Answer>>,
}

// SAFETY: the slot is written by the thread that has the turn, before `ASKED`; the answer by the
// keeper between `ASKED` and `ANSWERED`.
unsafe impl Sync for Line {}

impl Line {
    /// Whether there is a keeper that answers.
    pub(crate) fn is_kept(&self) -> bool {
        self.keeper.load(Ordering::Acquire) == PRESENT
    }

    /// Asks, and returns the answer; starts a keeper with `start` if there is none.
    pub(crate) fn ask_or_start(
        &self,
        question: Question,
        start: impl FnOnce() -> bool,
    ) -> Result<Answer, Reason> {
        let _turn = self.turn.lock();
        if self.keeper.load(Ordering::Acquire) == ABSENT {
            if !start() {
                return Err(Reason::Resources);
            }
            self.keeper.store(PRESENT, Ordering::Release);
        }
        self.put(question, None)
    }

    /// Asks, and returns the answer; `None` without a keeper.
    pub(crate) fn ask(&self, question: Question) -> Option<Answer> {
        let _turn = self.turn.lock();
        self.is_kept().then(|| self.put(question, None).ok())?
    }

    /// As [`Line::ask`], but waits no longer than this for the answer. The keeper does what was
    /// asked in any case, if it lives.
    pub(crate) fn ask_within(&self, question: Question, limit: Duration) -> Option<Answer> {
        let deadline = Instant::now() + limit;
        let _turn = self.turn.lock_until(deadline)?;
        self.is_kept().then(|| self.put(question, Some(deadline)).ok())?
    }

    /// The caller has the turn. Waits until the deadline at most, if there is one.
    fn put(&self, question: Question, deadline: Option<Instant>) -> Result<Answer, Reason> {
        let wait = |expected: u32| {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Reason::Resources);
            }
            lock::sleep(&self.phase, expected, Some(left.unwrap_or(LOOK).min(LOOK)));
            Ok(())
        };
        // One that was killed after it had asked (`lock.rs`), or waited no longer, left a question,
        // which is answered.
        while self.phase.load(Ordering::Acquire) == ASKED
            && self.keeper.load(Ordering::Acquire) != DEAD
        {
            wait(ASKED)?;
        }
        // SAFETY: this thread has the turn, and the keeper reads the slot only after `ASKED`.
        let slot = unsafe { &mut *self.question.get() };
        slot.write(question);
        self.phase.store(ASKED, Ordering::Release);
        self.ring();
        loop {
            match self.phase.load(Ordering::Acquire) {
                ANSWERED => break,
                _ if self.keeper.load(Ordering::Acquire) == DEAD => {
                    self.phase.store(EMPTY, Ordering::Relaxed);
                    return Err(Reason::Broken);
                }
                other => wait(other)?,
            }
        }
        // SAFETY: the keeper wrote it before `ANSWERED`, and writes again only after `ASKED`.
        let slot = unsafe { &*self.answer.get() };
        // SAFETY: as above.
        let answer = unsafe { slot.assume_init_read() };
        self.phase.store(EMPTY, Ordering::Relaxed);
        Ok(answer)
    }

    /// Wakes the keeper for a summary. May be called in a signal handler.
    pub(crate) fn want_summary(&self) {
        self.summary.store(1, Ordering::Release);
        self.ring();
    }

    /// Wakes the keeper to look at its leases.
    pub(crate) fn want_look(&self) {
        self.look.store(1, Ordering::Release);
        self.ring();
    }

    /// Wakes the keeper.
    pub(crate) fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        lock::wake(&self.bell);
    }

    // What the keeper does.

    /// The next thing to do, or `None` when the time is over.
    pub(crate) fn next(&self, at_most: Option<Duration>) -> Option<Question> {
        let heard = self.bell.load(Ordering::Acquire);
        if let Some(question) = self.asked() {
            return Some(question);
        }
        // What was wanted before the bell was heard must not be slept over.
        let wanted = [&self.look, &self.summary].map(|wanted| wanted.load(Ordering::Acquire));
        if wanted == [0; 2] {
            lock::sleep(&self.bell, heard, at_most);
        }
        self.asked()
    }

    fn asked(&self) -> Option<Question> {
        if self.phase.load(Ordering::Acquire) == ASKED {
            // SAFETY: it was written before `ASKED`, and nothing else happens until the answer.
            let slot = unsafe { &*self.question.get() };
            // SAFETY: as above. To read it again does no harm: it has nothing to drop.
            return Some(unsafe { slot.assume_init_read() });
        }
        None
    }

    /// Whether a signal wanted a summary since the last call.
    pub(crate) fn summary_wanted(&self) -> bool {
        self.summary.swap(0, Ordering::AcqRel) != 0
    }

    /// Whether leases were to be looked at since the last call.
    pub(crate) fn look_wanted(&self) -> bool {
        self.look.swap(0, Ordering::AcqRel) != 0
    }

    /// Answers the question that [`Line::next`] returned.
    pub(crate) fn answer(&self, answer: Answer) {
        // SAFETY: the thread that asked reads it only after `ANSWERED`.
        let slot = unsafe { &mut *self.answer.get() };
        slot.write(answer);
        self.phase.store(ANSWERED, Ordering::Release);
        lock::wake(&self.phase);
    }

    /// The keeper ends and will not answer again.
    pub(crate) fn die(&self) {
        self.keeper.store(DEAD, Ordering::Release);
        lock::wake(&self.phase);
    }
}
