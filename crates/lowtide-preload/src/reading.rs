//! Files that the program reads or writes, as the keeper has them (`--files`).
//!
//! A file is kept from the first read or write that a thread of the program notes (`reads.rs`), or
//! from the moment at which the keeper sees it open. Notes go to the runtime
//! (`lowtide/map/run/noted.rs`), which charges pages, evicts others, and drops what came in
//! unnoticed.
//!
//! **The look at descriptors.** Not every read passes a wrapper: what the C library reads for
//! `fgets(3)`, rings, `sendfile(2)`, raw system calls. So the keeper looks at the program's
//! descriptors, ten times a second, for large regular files. Of such a file no page is known to be
//! in use, but the budget holds. The look says, too, which numbers are used again, and which files
//! are open no more.
//!
//! **A closed file** is kept for [`LINGERS`]: it may be opened again, and its pages are in the
//! cache in any case. Then they are dropped with it, as are those of all files when the process
//! ends. Of many that were closed those go last that the device does not have yet: what is dirty
//! cannot be dropped.

use crate::budgets::{Budgets, Counted, Subject};
use crate::judge::{Identity, Reason, of_file as judge_file};
use crate::paths;
use crate::reads::{FILES, Noted};
use crate::state::State;
use crate::tasks::Tasks;
use lowtide::map::run::Reads;
use lowtide_run::globs;
use lowtide_run::settings::Settings;
use lowtide_sys::descriptors::reopen;
use lowtide_sys::page_cache::cachestat;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, fstat, makedev, open, openat, readlinkat,
    statx,
};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a closed file is kept.
const LINGERS: Duration = Duration::from_secs(10);
/// Closed files that are kept at a time, and the same with those that are dirty. Each has some
/// descriptors.
const LINGERING: usize = 32;
const DIRTY: usize = 4 * LINGERING;
/// Time between two looks at the ring while notes come, and how long it goes on without any.
const TICK: Duration = Duration::from_millis(1);
const AWAKE: Duration = Duration::from_millis(20);
/// Time between two looks at the descriptors, and this multiple of what the last one took.
const LOOK: Duration = Duration::from_millis(100);
const SELDOM: u32 = 50;
/// Files that were refused are tried again when there are this many.
const REFUSED: usize = 1024;

/// A file that is kept.
struct ReadFile {
    identity: Identity,
    subject: Subject,
    reads: Reads,
    /// Since when the program has no descriptor of it.
    closed: Option<Instant>,
}

/// All of them.
pub(crate) struct Reading {
    settings: &'static Settings,
    /// By the numbers that notes have.
    files: Vec<Option<ReadFile>>,
    numbers: HashMap<Identity, usize>,
    /// Files that could not be kept.
    refused: HashSet<Identity>,
    /// The program's descriptors at the last look.
    open: HashMap<i32, Identity>,
    looked: Instant,
    took: Duration,
    noted: Instant,
}

/// A file that was not kept before, for the summary.
pub(crate) struct Begun {
    pub(crate) budget: usize,
    pub(crate) path: Vec<u8>,
}

impl Reading {
    pub(crate) fn new(settings: &'static Settings) -> Self {
        let (files, numbers, refused, open) = Default::default();
        let now = Instant::now();
        let long_ago = now.checked_sub(LOOK).unwrap_or(now);
        let (looked, took, noted) = (long_ago, Duration::ZERO, long_ago);
        Self { settings, files, numbers, refused, open, looked, took, noted }
    }

    /// What is counted.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted<'_>> + Clone {
        self.files.iter().flatten().map(|kept| (&kept.subject, None))
    }

    /// Keeps the file of a descriptor: its number, and whether it is new.
    pub(crate) fn keep(
        &mut self,
        budgets: &mut Budgets,
        noted: &Noted,
        (thread, fd): (i32, i32),
        identity: Identity,
    ) -> Result<(usize, Option<Begun>), Reason> {
        if let Some(&number) = self.numbers.get(&identity) {
            if let Some(kept) = &mut self.files[number] {
                kept.closed = None;
            }
            return Ok((number, None));
        }
        if self.refused.contains(&identity) {
            return Err(Reason::Refused);
        }
        let kept = self.begin(budgets, noted, (thread, fd), identity);
        if kept.is_err() {
            if self.refused.len() >= REFUSED {
                self.refused.clear();
            }
            self.refused.insert(identity);
        }
        let (number, begun) = kept?;
        Ok((number, Some(begun)))
    }

    fn begin(
        &mut self,
        budgets: &mut Budgets,
        noted: &Noted,
        (thread, fd): (i32, i32),
        identity: Identity,
    ) -> Result<(usize, Begun), Reason> {
        // With a duplicate of the program's descriptor its `flock` would last.
        let (file, is_own) = reopen(thread, fd).map_err(|_| Reason::Unopened)?;
        if !is_own || judge_file(file.as_fd()) != Ok(identity) {
            return Err(Reason::Unopened);
        }
        let path = paths::path_of(file.as_raw_fd()).to_vec();
        let budget = globs::budget_of(self.settings, &path).map_or(0, |number| number + 1);
        let size = fstat(&file).map_or(0, |stat| usize::try_from(stat.st_size).unwrap_or_default());
        let file = Rc::new(file);
        let subject =
            Subject { file, is_own, range: 0..size, offset: 0, is_private: false, budget };
        let reads = budgets.reads(&subject)?;
        let free = self.files.iter().position(Option::is_none).unwrap_or(self.files.len());
        if free >= FILES {
            return Err(Reason::Resources);
        }
        if free == self.files.len() {
            self.files.push(None);
        }
        noted.clear_file(free);
        self.files[free] = Some(ReadFile { identity, subject, reads, closed: None });
        self.numbers.insert(identity, free);
        Ok((free, Begun { budget, path }))
    }

    /// Hands notes out.
    pub(crate) fn take(&mut self, noted: &Noted) {
        let page = rustix::param::page_size() as u64;
        let mut of_files: HashMap<usize, Vec<Range<u64>>> = HashMap::new();
        let count = noted.take(|note| {
            let bytes = note.first * page..(note.first + note.count) * page;
            of_files.entry(note.file).or_default().push(bytes);
        });
        if count > 0 {
            self.noted = Instant::now();
        }
        for (number, reads) in of_files {
            if let Some(Some(kept)) = self.files.get(number) {
                kept.reads.note(reads);
            }
        }
    }

    /// The time until there is something to do.
    pub(crate) fn pause(&self, noted: &Noted) -> Duration {
        if self.noted.elapsed() < AWAKE {
            return TICK;
        }
        if noted.sleep() { Duration::ZERO } else { self.until_look() }
    }

    fn until_look(&self) -> Duration {
        LOOK.max(self.took * SELDOM).saturating_sub(self.looked.elapsed())
    }

    /// Looks at the program's descriptors, if it is time. Calls `keep` with those of large files
    /// that are not kept.
    pub(crate) fn look(
        &mut self,
        state: &State,
        mut keep: impl FnMut(&mut Self, (i32, i32), Identity),
    ) {
        if !self.until_look().is_zero() {
            return;
        }
        let began = Instant::now();
        if let Some(table) = Table::open(state) {
            let found = table.files();
            let now: HashMap<i32, Identity> =
                found.iter().map(|file| (file.fd, file.identity)).collect();
            let before = std::mem::take(&mut self.open);
            for (fd, _) in before.iter().filter(|(fd, identity)| now.get(fd) != Some(identity)) {
                state.noted.clear(*fd);
            }
            for file in found {
                let was_there = before.get(&file.fd) == Some(&file.identity);
                let is_kept = self.numbers.contains_key(&file.identity);
                if is_kept || !file.is_regular || self.refused.contains(&file.identity) {
                    continue;
                }
                if table.is_wanted(self.settings, &file) && table.is_cached(file.fd) {
                    if was_there {
                        // It was small before.
                        state.noted.clear(file.fd);
                    }
                    keep(self, (table.thread, file.fd), file.identity);
                }
            }
            self.open = now;
        }
        state.noted.clear_late();
        self.let_go(&state.noted);
        (self.looked, self.took) = (Instant::now(), began.elapsed());
    }

    /// Gives up files that were closed long ago, or that have no name any more.
    fn let_go(&mut self, noted: &Noted) {
        let open: HashSet<Identity> = self.open.values().copied().collect();
        let now = Instant::now();
        for kept in self.files.iter_mut().flatten() {
            if open.contains(&kept.identity) {
                kept.closed = None;
            } else {
                kept.closed.get_or_insert(now);
            }
        }
        let closed = |(number, place): (usize, &Option<ReadFile>)| {
            let kept = place.as_ref()?;
            let since = kept.closed?;
            let has_name = fstat(&*kept.subject.file).is_ok_and(|stat| stat.st_nlink > 0);
            // What was closed a moment ago may be about to be noted.
            let is_over = since.elapsed() >= if has_name { LINGERS } else { LOOK };
            let stat = cachestat(&*kept.subject.file, 0, 0);
            let is_dirty = has_name && stat.is_ok_and(|stat| stat.dirty + stat.writeback > 0);
            Some((is_dirty, !is_over, since, number))
        };
        let mut closed: Vec<_> = self.files.iter().enumerate().filter_map(closed).collect();
        closed.sort_unstable();
        let clean = closed.partition_point(|(is_dirty, ..)| !is_dirty);
        let over = closed.partition_point(|(is_dirty, lingers, ..)| !is_dirty && !lingers);
        let many = closed.len().saturating_sub(LINGERING).min(clean);
        let too_many = closed.len().saturating_sub(DIRTY);
        for (.., number) in closed.drain(..over.max(many).max(too_many)) {
            if let Some(kept) = self.files[number].take() {
                self.numbers.remove(&kept.identity);
                noted.clear_file(number);
            }
        }
    }

    /// The process ends: what is cached of its files has no place in a budget any more.
    pub(crate) fn leave(&self) {
        for kept in self.files.iter().flatten() {
            let _ = lowtide_sys::page_cache::drop_cached(&*kept.subject.file, 0, 0);
        }
    }
}

/// A descriptor of the program.
struct Found {
    fd: i32,
    identity: Identity,
    is_regular: bool,
    size: u64,
}

/// The program's descriptors.
struct Table {
    dir: OwnedFd,
    /// Whose they are.
    thread: i32,
}

impl Table {
    /// Those of the first thread, or if it has ended, of another.
    fn open(state: &State) -> Option<Self> {
        let first = rustix::process::getpid().as_raw_nonzero().get();
        let is_there = |thread: i32| {
            let path = format!("/proc/self/task/{thread}/fd");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = open(path, flags, Mode::empty()).ok()?;
            let table = Self { dir, thread };
            (!table.numbers().is_empty()).then_some(table)
        };
        is_there(first).or_else(|| {
            let of = |thread: i32| (!state.threads.has(thread)).then(|| is_there(thread))?;
            Tasks::open()?.find(of).ok()?
        })
    }

    fn numbers(&self) -> Vec<i32> {
        let mut buffer = [const { MaybeUninit::uninit() }; 4096];
        let Ok(dir) = openat(&self.dir, c".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        else {
            return Vec::new();
        };
        let (mut entries, mut numbers) = (RawDir::new(dir, &mut buffer), Vec::new());
        while let Some(Ok(entry)) = entries.next() {
            numbers
                .extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
        }
        numbers
    }

    /// What all of them are of. No server of a file system is asked.
    fn files(&self) -> Vec<Found> {
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE;
        let of = |fd: i32| {
            let stat = statx(&self.dir, fd.to_string(), AtFlags::STATX_DONT_SYNC, wanted).ok()?;
            let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
            Some(Found {
                fd,
                identity: (device, stat.stx_ino),
                is_regular: FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile,
                size: stat.stx_size,
            })
        };
        self.numbers().into_iter().filter_map(of).collect()
    }

    /// Whether a file is large enough, or named by a glob.
    fn is_wanted(&self, settings: &Settings, file: &Found) -> bool {
        let path = || readlinkat(&self.dir, file.fd.to_string(), Vec::new()).ok();
        let is_named =
            || path().is_some_and(|path| globs::budget_of(settings, path.to_bytes()).is_some());
        file.size >= settings.threshold || (!settings.maps.is_empty() && is_named())
    }

    /// Whether what goes through a descriptor goes through the page cache.
    fn is_cached(&self, fd: i32) -> bool {
        let path = format!("/proc/self/task/{}/fdinfo/{fd}", self.thread);
        let Ok(info) = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
            return false;
        };
        let mut text = String::new();
        // What is not text is of a kind of descriptor that no file has.
        let _ = File::from(info).read_to_string(&mut text);
        is_cached(&text)
    }
}

/// The same, by what `/proc/PID/fdinfo` says.
fn is_cached(text: &str) -> bool {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    flags
        .map(OFlags::from_bits_retain)
        .is_some_and(|flags| !flags.intersects(OFlags::DIRECT | OFlags::PATH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_bypass_the_cache_are_left_alone() {
        let info = |flags: i32| format!("pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t26\n");
        for (flags, cached) in [
            (libc::O_RDONLY | libc::O_CLOEXEC, true),
            (libc::O_RDWR, true),
            (libc::O_WRONLY, true),
            (libc::O_RDWR | libc::O_DIRECT, false),
            (libc::O_PATH, false),
        ] {
            assert_eq!(is_cached(&info(flags)), cached, "{flags:o}");
        }
        assert!(!is_cached("") && !is_cached("flags:\tx"));
    }

    #[test]
    fn descriptors_of_a_thread_are_found_with_their_files() {
        let file = File::open(std::env::current_exe().expect("a path")).expect("this test");
        let dir = open("/proc/self/fd", OFlags::RDONLY, Mode::empty()).expect("/proc");
        let table = Table { dir, thread: rustix::process::getpid().as_raw_nonzero().get() };
        let found = table.files();
        let own = found.iter().find(|found| found.fd == file.as_raw_fd()).expect("it is open");
        assert!(own.is_regular && own.size > 1000);
        assert_eq!(Ok(own.identity), judge_file(file.as_fd()));
        assert!(table.is_cached(own.fd));
    }
}
