//! The thread that keeps the mappings: started when the first one is adopted, it answers questions
//! and looks after the budgets.
//!
//! **It has descriptors of its own.** A process that closes *any* descriptor of a file loses all
//! its POSIX locks on that file (`fcntl(2)`), so a second descriptor in the program's table would
//! break the locks of databases when it is closed. A program may also close descriptors that it
//! does not know. So the thread leaves the program's table (`CLOSE_RANGE_UNSHARE`) and opens each
//! file for itself, through `/proc`. Threads that it starts share its table. The program's own
//! table never changes.
//!
//! **It blocks every signal**, so that handlers run in the program's threads.
//!
//! If it fails, its mappings are left to the kernel.

use crate::budgets::{Budgets, Share, Subject};
use crate::judge::{Reason, of_file};
use crate::line::{Answer, New, Question};
use crate::settings::Settings;
use crate::state::{self, State};
use crate::summary::{self, Budget, Whole};
use crate::{descriptors, globs, start};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::thread;

/// Starts it; whether that was possible. The caller has the line's turn.
pub(crate) fn begin() -> bool {
    start::handle_signal();
    // While the process has one thread this takes a moment. Later it would take many: the kernel
    // waits for all processors.
    lowtide_sys::membarrier::register();
    let blocked = descriptors::SignalsBlocked::all();
    let thread = thread::Builder::new().name("lowtide-run".into()).spawn(run);
    drop(blocked);
    thread.is_ok()
}

fn run() {
    let Some((state, settings)) = state::get() else { return };
    let work = || match descriptors::make_own(settings.summary.is_none()) {
        Ok(()) => Keeper::new(state, settings).serve(),
        Err(_) => refuse_all(state),
    };
    // A panic has been reported; whatever was adopted is forgotten while it unwinds.
    let _ = panic::catch_unwind(AssertUnwindSafe(work));
    state.line.die();
}

/// Without descriptors of its own nothing can be kept.
fn refuse_all(state: &State) {
    loop {
        let answer = match state.line.next(None) {
            Some(Question::Adopt(_) | Question::Attach { .. }) => Answer::Left(Reason::Resources),
            Some(_) => Answer::Done,
            None => continue,
        };
        state.line.answer(answer);
    }
}

/// A mapping, or what is left of it.
struct Kept {
    subject: Subject,
    share: Share,
}

/// What is known of the mappings of a budget, for the summary.
#[derive(Default)]
struct Known {
    mappings: u64,
    files: Vec<String>,
}

struct Keeper {
    state: &'static State,
    settings: &'static Settings,
    budgets: Option<Budgets>,
    /// Why there are no budgets.
    failure: Option<String>,
    /// By the first address.
    kept: BTreeMap<usize, Kept>,
    known: BTreeMap<usize, Known>,
    detached: BTreeMap<u32, Kept>,
    tickets: u32,
}

impl Keeper {
    fn new(state: &'static State, settings: &'static Settings) -> Self {
        let (kept, known, detached) = Default::default();
        Self { state, settings, budgets: None, failure: None, kept, known, detached, tickets: 0 }
    }

    fn serve(&mut self) -> ! {
        loop {
            let subjects = self.kept.values().map(|kept| &kept.subject);
            let pause = self.budgets.as_mut().map(|budgets| budgets.tick(subjects));
            if let Some(question) = self.state.line.next(pause) {
                let answer = self.answer(question);
                self.state.line.answer(answer);
            }
            if self.state.line.summary_wanted() {
                self.summarise();
            }
        }
    }

    fn answer(&mut self, question: Question) -> Answer {
        let done_or_left = |done: Result<(), Reason>| match done {
            Ok(()) => Answer::Done,
            Err(reason) => Answer::Left(reason),
        };
        match question {
            Question::Adopt(new) => done_or_left(self.adopt(&new)),
            Question::Forget { start, end } => {
                self.forget(&(start..end));
                Answer::Done
            }
            Question::Advise { start, end, random } => {
                for first in self.touched(&(start..end)) {
                    self.kept[&first].share.advise(start..end, random);
                }
                Answer::Done
            }
            Question::Detach { start, end } => Answer::Ticket(self.detach(&(start..end))),
            Question::Attach { ticket, start, len } => {
                done_or_left(self.attach(ticket, start, len))
            }
            Question::Summary => {
                self.summarise();
                Answer::Done
            }
        }
    }

    fn adopt(&mut self, new: &New) -> Result<(), Reason> {
        let file: OwnedFd = descriptors::reopen(new.thread, new.fd).ok_or(Reason::Unopened)?;
        if of_file(file.as_fd()) != Ok(new.identity) {
            return Err(Reason::Unopened);
        }
        let path = globs::path_of(file.as_raw_fd());
        let budget = globs::budget_of(self.settings, &path).map_or(0, |number| number + 1);
        let range = new.start..new.start + new.len;
        self.keep(Subject { file: Rc::new(file), range, offset: new.offset, budget })?;
        let known = self.known.entry(budget).or_default();
        known.mappings += 1;
        let path = String::from_utf8_lossy(&path).into_owned();
        if !known.files.contains(&path) && known.files.len() < summary::FILES {
            known.files.push(path);
        }
        Ok(())
    }

    fn keep(&mut self, subject: Subject) -> Result<(), Reason> {
        if self.budgets.is_none() {
            let built = Budgets::new(self.settings);
            self.budgets = Some(built.map_err(|error| {
                self.failure.get_or_insert_with(|| error.to_string());
                Reason::Resources
            })?);
        }
        let budgets = self.budgets.as_mut().ok_or(Reason::Resources)?;
        let share = budgets.adopt(&subject)?;
        self.kept.insert(subject.range.start, Kept { subject, share });
        Ok(())
    }

    /// First addresses of what touches a range.
    fn touched(&self, range: &Range<usize>) -> Vec<usize> {
        let before = self.kept.range(..range.end).rev();
        let touching = before.take_while(|(_, kept)| kept.subject.range.end > range.start);
        touching.map(|(start, _)| *start).collect()
    }

    fn forget(&mut self, range: &Range<usize>) {
        for start in self.touched(range) {
            let Some(Kept { subject, share }) = self.kept.remove(&start) else { continue };
            share.forget(range.clone());
            for subject in rest(&subject, range) {
                let share = Rc::clone(&share);
                self.kept.insert(subject.range.start, Kept { subject, share });
            }
            if let Some(budgets) = self.budgets.as_mut().filter(|_| Rc::strong_count(&share) == 1) {
                budgets.linger(share, subject);
            }
        }
    }

    /// Forgets a range that lies in one mapping, and remembers its file; zero if it does not.
    fn detach(&mut self, range: &Range<usize>) -> u32 {
        let touched = self.touched(range);
        let whole = touched.first().filter(|_| touched.len() == 1).and_then(|start| {
            let kept = &self.kept[start];
            let within = &kept.subject.range;
            (within.start <= range.start && range.end <= within.end).then(|| {
                let offset = kept.subject.offset + (range.start - within.start) as u64;
                let subject = Subject { range: range.clone(), offset, ..kept.subject.clone() };
                // The share keeps the file's pages until the mapping is attached again.
                Kept { subject, share: Rc::clone(&kept.share) }
            })
        });
        self.forget(range);
        let Some(kept) = whole else { return 0 };
        self.tickets = self.tickets.wrapping_add(1).max(1);
        self.detached.insert(self.tickets, kept);
        self.tickets
    }

    fn attach(&mut self, ticket: u32, start: usize, len: usize) -> Result<(), Reason> {
        let Kept { subject, share } = self.detached.remove(&ticket).ok_or(Reason::Refused)?;
        let kept = self.keep(Subject { range: start..start + len, ..subject });
        drop(share);
        kept
    }

    fn summarise(&mut self) {
        let subjects = self.kept.values().map(|kept| &kept.subject);
        let figures = self.budgets.as_mut().map(|budgets| budgets.figures(subjects));
        let figures = figures.unwrap_or_default();
        let budgets = self.known.iter().map(|(number, known)| Budget {
            glob: number
                .checked_sub(1)
                .map(|glob| self.settings.maps[glob].0.to_string_lossy().into_owned()),
            mappings: known.mappings,
            files: known.files.clone(),
            figures: figures.get(number).copied().unwrap_or_default(),
        });
        let refusal = self.budgets.as_ref().and_then(Budgets::refusal);
        let whole = Whole {
            budgets: budgets.collect(),
            read_ahead: self.budgets.as_ref().map(Budgets::read_ahead).unwrap_or_default(),
            refusal: refusal.or(self.failure.as_deref()).map(str::to_owned),
            left: self.state.left.all(),
        };
        summary::write(self.settings, &whole);
    }
}

/// What is left of a mapping without a range.
fn rest(subject: &Subject, without: &Range<usize>) -> Vec<Subject> {
    let mut rest = Vec::new();
    let whole = &subject.range;
    if whole.start < without.start {
        let end = whole.end.min(without.start);
        rest.push(Subject { range: whole.start..end, ..subject.clone() });
    }
    if whole.end > without.end {
        let start = whole.start.max(without.end);
        let offset = subject.offset + (start - whole.start) as u64;
        rest.push(Subject { range: start..whole.end, offset, ..subject.clone() });
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_is_left_of_a_mapping_keeps_its_place_in_the_file() {
        let file = File::open("/dev/null").expect("a device");
        let file = Rc::new(OwnedFd::from(file));
        let whole = Subject { file, range: 100..200, offset: 1000, budget: 0 };
        let left = |without: Range<usize>| -> Vec<_> {
            rest(&whole, &without).into_iter().map(|part| (part.range, part.offset)).collect()
        };
        assert_eq!(left(130..150), [(100..130, 1000), (150..200, 1050)]);
        assert_eq!(left(0..150), [(150..200, 1050)]);
        assert_eq!(left(150..900), [(100..150, 1000)]);
        assert_eq!(left(0..900), []);
    }
}
