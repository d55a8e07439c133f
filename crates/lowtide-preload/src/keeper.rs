//! The thread that keeps the mappings: started when the first one is adopted, it answers questions
//! and looks after the budgets.
//!
//! **It has descriptors of its own.** A process that closes *any* descriptor of a file loses all
//! its POSIX locks on that file (`fcntl(2)`), so a second descriptor in the program's table would
//! break the locks of databases when it is closed. A program may also close descriptors that it
//! does not know. So the thread leaves the program's table (`CLOSE_RANGE_UNSHARE`) and opens each
//! file for itself, through `/proc`. Threads that it starts watched its table. The program's own
//! table never changes.
//!
//! **It blocks every signal**, so that handlers run in the program's threads.
//!
//! If it fails, its mappings are left to the kernel.

use crate::budgets::{Budgets, Subject, Watched};
use crate::inherited::{self, Found};
use crate::judge::{Identity, Kind, Reason, of_file};
use crate::kept::{Keeping, Kept, rest};
use crate::last::Look;
use crate::line::{Answer, New, Question};
use crate::mirrors::Mirrored;
use crate::modes::{Modes, Why};
use crate::page::Page;
use crate::reading::{Begun, Reading};
use crate::state::{self, State};
use crate::summary::{self, Budget, Whole};
use crate::{addresses, descriptors, own, paths, start};
use lowtide::map::run::Way;
use lowtide_run::globs;
use lowtide_run::leases::{self, Leases};
use lowtide_run::settings::{Mode, Settings};
use lowtide_sys::descriptors::reopen;
use lowtide_sys::threads::{self, SignalsBlocked};
use std::collections::BTreeMap;
use std::fs::File;
use std::iter;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the ways of mappings are chosen while pages come in, and while none do.
const CHOOSE: Duration = Duration::from_millis(10);
const CHOOSE_SELDOM: Duration = Duration::from_millis(160);
const CHOOSE_RESTLESS: Duration = Duration::from_millis(1);
/// Of the time that it takes to choose, the time between two looks is this multiple.
const CHOOSE_COST: u32 = 50;

/// Starts it; whether that was possible. The caller has the line's turn.
///
/// Not in a child that a raw `clone` has made of a process with threads: locks that those had, in
/// the C library and here, are taken forever.
pub(crate) fn begin() -> bool {
    if state::get().is_none_or(|(state, _)| state.whole.load(Ordering::Acquire) == 0) {
        return false;
    }
    start::handle_signal();
    // While the process has one thread this takes a moment. Later it would take many: the kernel
    // waits for all processors.
    lowtide_sys::membarrier::register();
    let _blocked = SignalsBlocked::all();
    own::starting(|| threads::spawn("lowtide-run", run).is_ok())
}

fn run() {
    let Some((state, settings)) = state::of_ours() else { return };
    let work = || match descriptors::make_own() {
        Ok(()) => {
            let mut keeper = Keeper::new(state, settings);
            keeper.serve();
            keeper.end();
        }
        Err(_) => refuse_all(state),
    };
    // `start.rs` reports a panic; whatever was adopted is forgotten while it unwinds.
    let _ = panic::catch_unwind(AssertUnwindSafe(work));
    state.line.die();
}

/// Without descriptors of its own nothing can be kept.
fn refuse_all(state: &State) {
    loop {
        let answer = match state.line.next(None) {
            Some(Question::Keep(_) | Question::Attach { .. } | Question::Read { .. }) => {
                Answer::Left(Reason::Resources)
            }
            Some(_) => Answer::Done,
            None => continue,
        };
        state.line.answer(answer);
    }
}

/// What is known of the mappings of a budget, for the summary.
#[derive(Default)]
struct Known {
    mappings: u64,
    read_files: u64,
    files: Vec<String>,
}

struct Keeper {
    state: &'static State,
    settings: &'static Settings,
    budgets: Option<Budgets>,
    /// Why there are no budgets.
    failure: Option<String>,
    /// The first page that could not be brought into a mirror that is gone.
    error: Option<String>,
    /// Keeps a descriptor free for the summary, where mappings take all others.
    spare: Option<File>,
    /// The thread that hears of leases; it is started for the first.
    leases: Option<Leases>,
    modes: Modes,
    /// By the first address.
    kept: BTreeMap<usize, Kept>,
    known: BTreeMap<usize, Known>,
    /// Parts of watched mappings.
    detached: BTreeMap<u32, (Subject, Watched)>,
    tickets: u32,
    /// Files that are read.
    reading: Option<Reading>,
    /// Since when mappings wait that this process has from its parent.
    inherits: Option<Instant>,
    /// When the ways were chosen last, when they are again, and what had come in.
    chose: Instant,
    choose_again: Duration,
    came: u64,
    /// For the end of the process.
    look: Look,
    /// What other processes see.
    page: Page,
}

impl Keeper {
    fn new(state: &'static State, settings: &'static Settings) -> Self {
        let (leases, modes, kept, known, detached) = Default::default();
        let (budgets, failure, error, tickets) = Default::default();
        let spare = spare();
        let reading = settings.files.then(|| Reading::new(settings));
        Self {
            state,
            settings,
            budgets,
            failure,
            error,
            spare,
            leases,
            modes,
            kept,
            known,
            detached,
            tickets,
            reading,
            inherits: None,
            chose: Instant::now(),
            choose_again: CHOOSE,
            came: 0,
            look: Look::new(),
            page: Page::new(),
        }
    }

    /// Serves until it is to end.
    fn serve(&mut self) {
        let (mut looked, mut looked_for_end) = (Instant::now(), Instant::now());
        loop {
            let mut pause = Look::pause(self.state);
            if looked_for_end.elapsed() >= pause {
                self.look.look(self.state);
                looked_for_end = Instant::now();
            }
            self.look_at_reads();
            let reading = self.reading.as_ref();
            if let Some(budgets) = &mut self.budgets {
                let read = reading.into_iter().flat_map(Reading::counted);
                let counted = self.kept.values().map(Kept::counted).chain(read);
                pause = pause.min(budgets.tick(counted));
            }
            if let Some(reading) = reading {
                pause = pause.min(reading.pause(&self.state.noted));
            }
            if self.leases.is_some() {
                if looked.elapsed() >= leases::LOOK {
                    self.give_up_leases();
                    looked = Instant::now();
                }
                pause = pause.min(leases::LOOK);
            }
            pause = pause.min(self.choose_ways());
            if let Some(left) = self.page.tick(|| self.budgets.as_ref().map(Budgets::status)) {
                pause = pause.min(left);
            }
            if let Some(since) = self.inherits {
                pause = pause.min(inherited::PAUSE.saturating_sub(since.elapsed()));
            }
            let question = self.state.line.next(Some(pause));
            if self
                .inherits
                .is_some_and(|since| question.is_some() || since.elapsed() >= inherited::PAUSE)
            {
                self.keep_inherited();
            }
            if matches!(question, Some(Question::End)) {
                return;
            }
            if let Some(question) = question {
                let answer = self.answer(question).unwrap_or_else(Answer::Left);
                self.state.line.answer(answer);
            }
            if self.state.line.look_wanted() {
                self.give_up_leases();
            }
            if self.state.line.summary_wanted() {
                self.summarise(false);
            }
        }
    }

    fn answer(&mut self, question: Question) -> Result<Answer, Reason> {
        match question {
            Question::Keep(new) => self.keep_new(new)?,
            Question::Forget(range) => self.forget(&range),
            Question::Advise { range, random } => {
                for start in self.touched(&range) {
                    let Some(kept) = self.kept.get_mut(&start) else { continue };
                    kept.how.advise(range.clone(), random);
                    // In the other way the advice would be lost.
                    kept.way.stay_unless(!random);
                }
            }
            Question::WillNeed(range) => {
                // Each is asked, and the kernel reads ahead of what is left.
                if self.touching(&range).filter(|how| !how.will_need(range.clone())).count() > 0 {
                    return Err(Reason::Refused);
                }
            }
            Question::Turn { range, why } => self.turn(&range, why),
            Question::Prepare => {
                if let Ok(budgets) = self.budgets() {
                    budgets.prepare();
                }
            }
            Question::Leases => self.give_up_leases(),
            Question::Detach(range) => return Ok(Answer::Ticket(self.detach(&range))),
            Question::Attach { ticket, range, is_last } => {
                let attached = self.attach(ticket, range);
                if is_last {
                    self.detached.remove(&ticket);
                }
                attached?;
            }
            Question::Summary => self.say_at_the_end(),
            Question::Inherit { now } => {
                self.inherits = Some(Instant::now());
                if now {
                    self.keep_inherited();
                }
            }
            Question::Read { fd, thread, identity } => {
                if let Some(reading) = &mut self.reading {
                    // They may be of files whose numbers this one gets.
                    reading.take(&self.state.noted);
                }
                let number = self.keep_reads((thread, fd), identity)?;
                return Ok(Answer::Ticket(number as u32 + 1));
            }
            Question::Nothing | Question::End => {}
            Question::Leave => self.leave(),
        }
        Ok(Answer::Done)
    }

    fn leave(&mut self) {
        self.page.leave();
        if let Some(reading) = &self.reading {
            reading.leave();
        }
        if let Some(budgets) = &self.budgets {
            budgets.leave();
        }
    }

    /// Leaves everything to the kernel, and ends all threads.
    fn end(mut self) {
        self.say_at_the_end();
        self.leave();
        self.forget(&(0..usize::MAX));
        self.kept.clear();
        self.detached.clear();
        drop((self.reading.take(), self.budgets.take(), self.leases.take()));
    }

    /// Takes what was noted of reads, and looks at the program's descriptors now and then.
    fn look_at_reads(&mut self) {
        let Some(mut reading) = self.reading.take() else { return };
        reading.take(&self.state.noted);
        reading.look(self.state, |reading, descriptor, identity| {
            let _ = self.keep_file(reading, descriptor, identity);
        });
        self.reading = Some(reading);
    }

    /// Keeps what is read of a descriptor's file: its number.
    fn keep_reads(&mut self, descriptor: (i32, i32), identity: Identity) -> Result<usize, Reason> {
        let mut reading = self.reading.take().ok_or(Reason::Refused)?;
        let kept = self.keep_file(&mut reading, descriptor, identity);
        self.reading = Some(reading);
        kept
    }

    fn keep_file(
        &mut self,
        reading: &mut Reading,
        descriptor: (i32, i32),
        identity: Identity,
    ) -> Result<usize, Reason> {
        let noted = &self.state.noted;
        let (number, begun) = reading.keep(self.budgets()?, noted, descriptor, identity)?;
        if let Some(Begun { budget, path }) = begun {
            self.note_file(budget, &path);
            self.known.entry(budget).or_default().read_files += 1;
        }
        Ok(number)
    }

    fn keep_new(&mut self, new: New) -> Result<(), Reason> {
        let (file, is_own) = reopen(new.thread, new.fd).map_err(|_| Reason::Unopened)?;
        if of_file(file.as_fd()) != Ok(new.identity) {
            return Err(Reason::Unopened);
        }
        let path = paths::path_of(file.as_raw_fd());
        let budget = globs::budget_of(self.settings, &path).map_or(0, |number| number + 1);
        let (file, range, offset) = (Rc::new(file), new.range, new.offset);
        let is_private = new.kind == Kind::PrivateReadOnly;
        let subject = Subject { file, is_own, range, offset, is_private, budget };
        self.keep(subject, new.is_stored, &path)
    }

    /// Keeps a mapping: a mirror, if that is wanted and nothing excludes it.
    fn keep(&mut self, subject: Subject, is_stored: bool, path: &[u8]) -> Result<(), Reason> {
        let (budget, bytes) = (subject.budget, subject.range.len() as u64);
        let mirrored = match is_stored {
            _ if !self.settings.mode.mirrors() => None,
            true => Some(Err(Why::Stored)),
            // A lease belongs to an open file, and this one is the program's.
            false if !subject.is_own => Some(Err(Why::NoLease)),
            false => Some(self.mirror(&subject, None)),
        };
        match mirrored {
            Some(Ok(mirror)) => {
                let (how, mut way) = (Keeping::Mirrored(mirror), Way::default());
                self.modes.userfault += u64::from(way.begins(true));
                self.kept.insert(subject.range.start, Kept { subject, how, way });
            }
            other => {
                let why = other.and_then(Result::err);
                let may_change = why.is_some_and(Why::may_pass);
                let mut way = if may_change { Way::default() } else { Way::that_stays() };
                way.begins(false);
                self.keep_watched(subject, way)?;
                self.modes.add(why, bytes, || path);
            }
        }
        self.note(budget, path);
        Ok(())
    }

    /// Looks how mappings are used, and changes the way in which some are kept; the time until the
    /// next look.
    fn choose_ways(&mut self) -> Duration {
        let budgets = self.budgets.as_ref().filter(|_| self.settings.mode.mirrors());
        let Some(budgets) = budgets else { return Duration::MAX };
        let waits = self.choose_again.saturating_sub(self.chose.elapsed());
        if !waits.is_zero() {
            return waits;
        }
        let (began, mut changing, mut came) = (Instant::now(), Vec::new(), 0);
        for (start, Kept { subject, how, way }) in &mut self.kept {
            let (is_mirrored, now) = (how.is_mirrored(), how.manner());
            came += now.alone + now.in_order;
            let changes = match self.settings.mode {
                Mode::Restless => way.may_change(),
                // Who demands mirrors has them. In the page cache processes that pass over one file
                // take each other's pages.
                Mode::Userfault if is_mirrored => false,
                _ if is_mirrored && budgets.are_shared() => false,
                _ => way.look(is_mirrored, now, || budgets.cost_of_change(subject.budget)),
            };
            if changes {
                changing.push(*start);
            }
        }
        for start in changing {
            let Some(kept) = self.kept.get(&start) else { continue };
            let range = kept.subject.range.clone();
            if kept.how.is_mirrored() {
                self.turn(&range, Why::InOrder);
            } else {
                self.mirror_again(start);
            }
        }
        let is_used = std::mem::replace(&mut self.came, came) != came;
        let pause = match self.settings.mode {
            Mode::Restless => CHOOSE_RESTLESS,
            _ if is_used => CHOOSE,
            _ => (self.choose_again * 2).min(CHOOSE_SELDOM),
        };
        self.choose_again = pause.max(began.elapsed() * CHOOSE_COST);
        self.chose = Instant::now();
        self.choose_again
    }

    /// Puts a mirror in the place of a mapping that is watched, if its file cannot change now.
    fn mirror_again(&mut self, start: usize) {
        let Some(Kept { subject, how: Keeping::Watched(watched), mut way }) =
            self.kept.remove(&start)
        else {
            return;
        };
        let kept = match self.mirror(&subject, Some(watched)) {
            Ok(mirror) => {
                self.modes.userfault += u64::from(way.begins(true));
                let how = Keeping::Mirrored(mirror);
                self.kept.insert(start, Kept::from_here(subject, how, way));
                return;
            }
            Err(why) => {
                way.stay_unless(why.may_pass());
                self.keep_watched(subject.clone(), way)
            }
        };
        if let Err(reason) = kept {
            let path = || paths::path_of(subject.file.as_raw_fd());
            self.state.left.add(reason, subject.range.len() as u64, path);
        }
    }

    /// Adopts what this process has from its parent, as far as it is there still.
    fn keep_inherited(&mut self) {
        self.inherits = None;
        let all = self.state.ranges.all();
        let mut kept = Vec::new();
        for Found { range, offset, is_stored, is_private, file, path } in inherited::find(&all) {
            let budget = globs::budget_of(self.settings, &path).map_or(0, |number| number + 1);
            let (file, is_own, at) = (Rc::new(file), true, range.clone());
            let subject = Subject { file, is_own, range: at, offset, is_private, budget };
            if self.keep(subject, is_stored, &path).is_ok() {
                kept.push(range);
            }
        }
        // What is not kept is the kernel's. No thread changes the table meanwhile: those that
        // would wait for an answer, or come later.
        for entry in &all {
            let mut at = entry.start;
            let is_in = |part: &&Range<usize>| part.start < entry.end && part.end > entry.start;
            let parts = kept.iter().filter(is_in).cloned();
            for part in parts.chain(iter::once(entry.end..entry.end)) {
                if part.start > at {
                    let bytes = (part.start - at) as u64;
                    self.state.ranges.remove(&(at..part.start));
                    self.state.left.add(Reason::Unopened, bytes, Vec::new);
                }
                at = part.end;
            }
        }
    }

    /// For the summary.
    fn note(&mut self, budget: usize, path: &[u8]) {
        self.note_file(budget, path);
        self.known.entry(budget).or_default().mappings += 1;
    }

    fn note_file(&mut self, budget: usize, path: &[u8]) {
        let known = self.known.entry(budget).or_default();
        let path = String::from_utf8_lossy(path).into_owned();
        if !known.files.contains(&path) && known.files.len() < summary::FILES {
            known.files.push(path);
        }
    }

    /// The pager, built for the first mapping.
    fn budgets(&mut self) -> Result<&mut Budgets, Reason> {
        if self.budgets.is_none() {
            let built = Budgets::new(self.settings);
            self.budgets = Some(built.map_err(|error| {
                self.failure.get_or_insert_with(|| error.to_string());
                Reason::Resources
            })?);
        }
        self.budgets.as_mut().ok_or(Reason::Resources)
    }

    /// Keeps a mapping in `pagecache` mode.
    fn keep_watched(&mut self, subject: Subject, way: Way) -> Result<(), Reason> {
        let how = Keeping::Watched(self.budgets()?.watched(&subject)?);
        self.kept.insert(subject.range.start, Kept::from_here(subject, how, way));
        Ok(())
    }

    /// Puts a mirror in the place of a mapping, if its file cannot change. If it was watched, it is
    /// no longer, whatever comes of this.
    fn mirror(&mut self, subject: &Subject, watched: Option<Watched>) -> Result<Mirrored, Why> {
        if addresses::are_few(addresses::limit(), subject.range.len() as u64) {
            return Err(Why::Addresses);
        }
        if self.leases.is_none() {
            let state = self.state;
            self.leases = Leases::begin(false, move || state.line.want_look());
        }
        self.leases.as_ref().ok_or(Why::Resources)?.take(subject.file.as_fd())?;
        if let Some(watched) = watched {
            watched.forget(subject.range.clone());
        }
        let budgets = self.budgets().map_err(|_| Why::Resources);
        let mirrored = budgets.and_then(|budgets| budgets.mirror(subject));
        if mirrored.is_err() {
            leases::give_up(subject.file.as_fd());
        }
        mirrored
    }

    /// What is mirrored of a range is the program's own mapping again, and watched.
    fn turn(&mut self, range: &Range<usize>, why: Why) {
        for start in self.touched(range) {
            let Some(mut kept) = self.kept.remove(&start) else { continue };
            kept.way.stay_unless(why.may_pass());
            let Keeping::Mirrored(mirror) = &kept.how else {
                self.kept.insert(start, kept);
                continue;
            };
            // A file that was opened for writing may change again.
            if why == Why::Cut
                && let Some(budgets) = &self.budgets
            {
                let (now, cost) = (mirror.manner(), budgets.cost_of_change(kept.subject.budget));
                kept.way.had_to_change(now.alone + now.in_order, cost);
            }
            mirror.end();
            self.error = self.error.take().or_else(|| kept.error());
            let Kept { subject, how: _mirror, mut way } = kept;
            if range.start <= subject.range.start
                && subject.range.end <= range.end
                && why == Why::Cut
            {
                // All of it goes.
                continue;
            }
            let bytes = subject.range.len() as u64;
            let path = || paths::path_of(subject.file.as_raw_fd());
            let is_new = way.begins(false);
            match self.keep_watched(subject.clone(), way) {
                Ok(()) if is_new => self.modes.add(Some(why), bytes, path),
                Ok(()) => {}
                Err(reason) => self.state.left.add(reason, bytes, path),
            }
        }
    }

    /// Mirrors whose file is about to change become mappings of the kernel.
    fn give_up_leases(&mut self) {
        let wanted =
            |kept: &&Kept| kept.how.is_mirrored() && !leases::is_held(kept.subject.file.as_fd());
        let wanted: Vec<_> =
            self.kept.values().filter(wanted).map(|kept| kept.subject.range.clone()).collect();
        for range in &wanted {
            self.turn(range, Why::Opened);
        }
    }

    /// First addresses of what touches a range.
    fn touched(&self, range: &Range<usize>) -> Vec<usize> {
        let before = self.kept.range(..range.end).rev();
        let touching = before.take_while(|(_, kept)| kept.subject.range.end > range.start);
        touching.map(|(start, _)| *start).collect()
    }

    /// How what touches a range is kept.
    fn touching(&self, range: &Range<usize>) -> impl Iterator<Item = &Keeping> {
        self.touched(range).into_iter().map(|at| &self.kept[&at].how)
    }

    fn forget(&mut self, range: &Range<usize>) {
        if let Some(budgets) = &mut self.budgets {
            let read = self.reading.iter().flat_map(Reading::counted);
            budgets.before_going(self.kept.values().map(Kept::counted).chain(read));
        }
        self.turn(range, Why::Cut);
        for start in self.touched(range) {
            let Some(Kept { subject, how: Keeping::Watched(watched), way }) =
                self.kept.remove(&start)
            else {
                continue;
            };
            watched.forget(range.clone());
            for subject in rest(&subject, range) {
                let (how, way) = (Keeping::Watched(Rc::clone(&watched)), way.clone());
                self.kept.insert(subject.range.start, Kept { subject, how, way });
            }
            if let Some(budgets) = self.budgets.as_mut().filter(|_| Rc::strong_count(&watched) == 1)
            {
                budgets.linger(watched, subject);
            }
        }
    }

    /// Forgets a range that lies in one mapping, and remembers its file; zero if it does not.
    fn detach(&mut self, range: &Range<usize>) -> u32 {
        // It is moved whole.
        for start in self.touched(range) {
            let whole = self.kept[&start].subject.range.clone();
            self.turn(&whole, Why::Moved);
        }
        let touched = self.touched(range);
        let whole = touched.first().filter(|_| touched.len() == 1).and_then(|start| {
            let kept = &self.kept[start];
            let within = &kept.subject.range;
            (within.start <= range.start && range.end <= within.end).then(|| {
                let offset = kept.subject.offset + (range.start - within.start) as u64;
                let subject = Subject { range: range.clone(), offset, ..kept.subject.clone() };
                // The watched keeps the file's pages until the mapping is attached again.
                match &kept.how {
                    Keeping::Watched(watched) => Some((subject, Rc::clone(watched))),
                    Keeping::Mirrored(_) => None,
                }
            })?
        });
        self.forget(range);
        let Some(part) = whole else { return 0 };
        self.tickets = self.tickets.wrapping_add(1).max(1);
        self.detached.insert(self.tickets, part);
        self.tickets
    }

    fn attach(&mut self, ticket: u32, range: Range<usize>) -> Result<(), Reason> {
        let (subject, _) = self.detached.get(&ticket).ok_or(Reason::Refused)?;
        self.keep_watched(Subject { range, ..subject.clone() }, Way::that_stays())
    }

    /// With `--files` the keeper is there from the beginning, and there may be nothing to say.
    fn say_at_the_end(&mut self) {
        self.budgets.iter_mut().for_each(|budgets| budgets.save_warm(true));
        if !self.settings.files || self.settings.is_first() || !self.known.is_empty() {
            self.summarise(true);
        }
    }

    fn summarise(&mut self, ended: bool) {
        let read = self.reading.iter().flat_map(Reading::counted);
        let counted = self.kept.values().map(Kept::counted).chain(read);
        let figures = self.budgets.as_mut().map(|budgets| budgets.figures(counted));
        let figures = figures.unwrap_or_default();
        let glob = |number: usize| {
            let glob = &self.settings.maps.get(number.checked_sub(1)?)?.0;
            Some(glob.to_string_lossy().into_owned())
        };
        let budgets = self.known.iter().map(|(number, known)| Budget {
            glob: glob(*number),
            mappings: known.mappings,
            read_files: known.read_files,
            files: known.files.clone(),
            figures: figures.get(number).copied().unwrap_or_default(),
        });
        let refusal = self.budgets.as_ref().and_then(Budgets::refusal);
        let curves = self.budgets.as_ref().map(Budgets::curves).unwrap_or_default();
        let whole = Whole {
            budgets: budgets.collect(),
            curves: curves.into_iter().map(|(number, curve)| (glob(number), curve)).collect(),
            io: self.budgets.as_ref().map(Budgets::io).unwrap_or_default(),
            refusal: refusal.or(self.failure.as_deref()).map(str::to_owned),
            error: self.error.clone().or_else(|| self.kept.values().find_map(Kept::error)),
            modes: self.modes.clone(),
            left: self.state.left.all(),
            reads_lost: self.reading.as_ref().map(|_| self.state.noted.lost()),
            unkept: self.state.noted.unkept(),
            ended,
        };
        drop(self.spare.take());
        summary::write(self.settings, &whole);
        self.spare = spare();
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
