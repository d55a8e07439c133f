//! The thread that keeps the mappings: started when the first one is adopted, it answers questions
//! and runs the ways.
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

use crate::judge::{Reason, of_file};
use crate::line::{Answer, New, Question};
use crate::settings::Settings;
use crate::state::{self, State};
use crate::summary::{self, Budget};
use crate::trim::Trim;
use crate::way::{Subject, Way};
use crate::{descriptors, globs, start};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

/// Starts it; whether that was possible. The caller has the line's turn.
pub(crate) fn begin() -> bool {
    start::handle_signal();
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
    /// Which budget, and the number there.
    budget: usize,
    number: u64,
}

/// A budget: the whole, or that of a glob.
struct Purse {
    name: Option<String>,
    way: Box<dyn Way>,
    due: Instant,
    mappings: u64,
    files: Vec<String>,
}

struct Keeper {
    state: &'static State,
    settings: &'static Settings,
    /// By the first address.
    kept: BTreeMap<usize, Kept>,
    /// The common budget is 0, that of a glob is its number and one.
    purses: BTreeMap<usize, Purse>,
    detached: BTreeMap<u32, (Subject, usize)>,
    tickets: u32,
}

impl Keeper {
    fn new(state: &'static State, settings: &'static Settings) -> Self {
        let kept = BTreeMap::new();
        let (purses, detached) = (BTreeMap::new(), BTreeMap::new());
        Self { state, settings, kept, purses, detached, tickets: 0 }
    }

    fn serve(&mut self) -> ! {
        loop {
            let due = self.purses.values().map(|purse| purse.due).min();
            let pause = due.map(|due| due.saturating_duration_since(Instant::now()));
            if let Some(question) = self.state.line.next(pause) {
                let answer = self.answer(question);
                self.state.line.answer(answer);
            }
            if self.state.line.summary_wanted() {
                self.summarise();
            }
            self.tick();
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for purse in self.purses.values_mut().filter(|purse| purse.due <= now) {
            let pause: Duration = purse.way.tick();
            purse.due = Instant::now() + pause;
        }
    }

    fn answer(&mut self, question: Question) -> Answer {
        match question {
            Question::Adopt(new) => match self.adopt(&new) {
                Ok(()) => Answer::Done,
                Err(reason) => Answer::Left(reason),
            },
            Question::Forget { start, end } => {
                self.forget(&(start..end));
                Answer::Done
            }
            Question::Detach { start, end } => Answer::Ticket(self.detach(&(start..end))),
            Question::Attach { ticket, start, len } => match self.attach(ticket, start, len) {
                Ok(()) => Answer::Done,
                Err(reason) => Answer::Left(reason),
            },
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
        let subject = Subject { file: Rc::new(file), range, offset: new.offset, kind: new.kind };
        self.keep(subject, budget)?;
        let purse = self.purse(budget);
        purse.mappings += 1;
        let path = String::from_utf8_lossy(&path).into_owned();
        if !purse.files.contains(&path) && purse.files.len() < summary::FILES {
            purse.files.push(path);
        }
        Ok(())
    }

    fn keep(&mut self, subject: Subject, budget: usize) -> Result<(), Reason> {
        let purse = self.purse(budget);
        let number = purse.way.adopt(&subject).map_err(|_| Reason::Refused)?;
        purse.due = Instant::now();
        self.kept.insert(subject.range.start, Kept { subject, budget, number });
        Ok(())
    }

    fn purse(&mut self, budget: usize) -> &mut Purse {
        let settings = self.settings;
        self.purses.entry(budget).or_insert_with(|| {
            let own = budget.checked_sub(1).map(|number| &settings.maps[number]);
            let (max, high) = own.map_or((settings.max, settings.high), |(_, max)| (*max, None));
            let name = own.map(|(glob, _)| glob.to_string_lossy().into_owned());
            let way = Box::new(Trim::new(max, high));
            Purse { name, way, due: Instant::now(), mappings: 0, files: Vec::new() }
        })
    }

    /// First addresses of what touches a range.
    fn touched(&self, range: &Range<usize>) -> Vec<usize> {
        let before = self.kept.range(..range.end).rev();
        let touching = before.take_while(|(_, kept)| kept.subject.range.end > range.start);
        touching.map(|(start, _)| *start).collect()
    }

    fn forget(&mut self, range: &Range<usize>) {
        for start in self.touched(range) {
            let Some(kept) = self.kept.remove(&start) else { continue };
            if let Some(purse) = self.purses.get_mut(&kept.budget) {
                purse.way.forget(kept.number, range);
            }
            for subject in rest(&kept.subject, range) {
                self.kept.insert(subject.range.start, Kept { subject, ..kept });
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
                (Subject { range: range.clone(), offset, ..kept.subject.clone() }, kept.budget)
            })
        });
        self.forget(range);
        let Some(subject) = whole else { return 0 };
        self.tickets = self.tickets.wrapping_add(1).max(1);
        self.detached.insert(self.tickets, subject);
        self.tickets
    }

    fn attach(&mut self, ticket: u32, start: usize, len: usize) -> Result<(), Reason> {
        let (subject, budget) = self.detached.remove(&ticket).ok_or(Reason::Refused)?;
        self.keep(Subject { range: start..start + len, ..subject }, budget)
    }

    fn summarise(&mut self) {
        let budgets = self.purses.values_mut().map(|purse| Budget {
            glob: purse.name.clone(),
            mappings: purse.mappings,
            files: purse.files.clone(),
            figures: purse.way.figures(),
        });
        summary::write(self.settings, &budgets.collect::<Vec<_>>(), &self.state.left.all());
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
    use crate::judge::Kind;
    use std::fs::File;

    #[test]
    fn what_is_left_of_a_mapping_keeps_its_place_in_the_file() {
        let file = File::open("/dev/null").expect("a device");
        let file = Rc::new(OwnedFd::from(file));
        let whole = Subject { file, range: 100..200, offset: 1000, kind: Kind::Shared };
        let left = |without: Range<usize>| -> Vec<_> {
            rest(&whole, &without).into_iter().map(|part| (part.range, part.offset)).collect()
        };
        assert_eq!(left(130..150), [(100..130, 1000), (150..200, 1050)]);
        assert_eq!(left(0..150), [(150..200, 1050)]);
        assert_eq!(left(150..900), [(100..150, 1000)]);
        assert_eq!(left(0..900), []);
    }
}
