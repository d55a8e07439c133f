//! The room: threads of lowtide's with a table of descriptors of their own.
//!
//! A process that closes *any* descriptor of a file loses all its POSIX locks on that file
//! (`fcntl(2)`), has no more descriptors than its limit allows, and may close those that it does
//! not know. So lowtide's are not in the program's table:
//!
//! ```text
//!   program's threads ──enter(work)──► threads of the room ──► their table
//!          │                                   │ spawn
//!   program's table ◄──leave(work)──── lowtide's own threads
//! ```
//!
//! Locks belong to a *table*: what is opened, duplicated and closed in the room never touches one
//! of the program's. Memory is the process's, so what is mapped in the room is mapped. A number
//! means another descriptor in either table, so descriptors are in an [`Own`], which leads to them
//! in their table alone, and closes them there.
//!
//! A thread that is in the room does `work` at once; another hands it over and waits, which costs
//! two switches of threads. No handler of a signal runs in it meanwhile: one that leaves by
//! `siglongjmp` would take away what `work` borrows. One thread of lowtide's stays outside, for
//! what has to be done in the program's table; while it does that, another one is idle, since code
//! of the program's may wait, or come back into the room.
//!
//! **The end.** The C library ends a process with its last thread, and counts ours. So the room
//! looks whether the first thread has ended, as by `pthread_exit(3)`, and all others are ours: then
//! the thread outside calls `exit(0)`, as the last thread does in the C library.
//!
//! **fork.** A child has a copy of the program's table and no thread of the room. It begins another
//! one, and what its parent's room has is out of its reach ([`Own::with`] fails, dropping does
//! nothing).
//!
//! **Where a thread cannot have a table of its own** (a sandbox), there is one for all, as if each
//! thread were on either side.
//!
//! # Safety
//!
//! Work that borrows is handed to another thread, which has done it before the caller goes on.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::descriptors;
use crate::threads::{self, SignalsBlocked, has_ended, is_io_worker};

/// Threads that do work for others, at most. Work takes long where a file system hangs.
const MOST: usize = 64;
/// How often the room looks whether the program has ended.
const LOOK: Duration = Duration::from_secs(1);
/// How many threads of ours are known by their numbers. There are thirty or so, for each pager.
const LISTED: usize = 4096;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// No thread can have a table of its own: there is one for all.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread is in the room. Costs a load.
#[must_use]
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Whether the calling thread has the table of this side.
fn is_on(inside: bool) -> bool {
    INSIDE.get() == inside || IS_OPEN.load(Ordering::Relaxed)
}

/// The calling thread, which has a table of its own, is in the room from now on, and so are threads
/// that it starts.
pub fn settle() {
    INSIDE.set(true);
}

type Work = Box<dyn FnOnce() + Send>;

/// Work of one side, and the threads that do it.
#[derive(Default)]
struct Side {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

struct Room {
    /// The process whose threads they are.
    process: u32,
    inside: Side,
    outside: Side,
    /// The numbers of lowtide's threads, as `gettid(2)` gives them, and zeroes.
    ours: [AtomicI32; LISTED],
}

static ROOM: AtomicPtr<Room> = AtomicPtr::new(ptr::null_mut());

/// The room of this process. It is never given back: a thread may be on its way to it.
fn room() -> &'static Room {
    loop {
        let there = ROOM.load(Ordering::Acquire);
        // SAFETY: None, or made below and never freed.
        if let Some(room) = unsafe { there.as_ref() }
            && room.process == process::id()
        {
            return room;
        }
        let (inside, outside) = Default::default();
        let ours = [const { AtomicI32::new(0) }; LISTED];
        let new = Box::into_raw(Box::new(Room { process: process::id(), inside, outside, ours }));
        let placed = ROOM.compare_exchange(there, new, Ordering::AcqRel, Ordering::Relaxed);
        if placed.is_err() {
            // SAFETY: Made here, and no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// The calling thread is one of lowtide's while this lives.
pub(crate) struct Listed(Option<&'static AtomicI32>);

impl Listed {
    pub(crate) fn begin() -> Self {
        let number = rustix::thread::gettid().as_raw_nonzero().get();
        let is_free = |place: &&AtomicI32| {
            place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        // One for which there is no place counts as the program's.
        Self(room().ours.iter().find(is_free))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Release);
        }
    }
}

impl Side {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mut queue: MutexGuard<'_, Queue>, work: Work) {
        queue.work.push_back(work);
        drop(queue);
        self.changed.notify_one();
    }
}

impl Room {
    /// Hands work to the room. Its first threads are started by the first thread that does so.
    fn give(&'static self, work: Work) -> io::Result<()> {
        let mut queue = self.inside.queue();
        if queue.threads == 0 {
            // It has the table of the program, as the calling thread.
            let mut outside = self.outside.queue();
            if outside.threads == 0 {
                threads::spawn("lowtide-outside", move || self.serve(false, true))?;
                outside.threads = 1;
            }
            threads::spawn("lowtide-room", move || {
                settle();
                // SAFETY: The thread owns no descriptor.
                if unsafe { descriptors::make_own_empty() }.is_err() {
                    IS_OPEN.store(true, Ordering::Relaxed);
                }
                self.serve(true, true);
            })?;
            queue.threads = 1;
        }
        self.inside.put(queue, work);
        Ok(())
    }

    /// The life of a thread of either side. One of them is idle while another's work takes long, or
    /// waits for other work of its side. The first stays, and looks for the end of the program if
    /// it is inside; the others, which have its table, end when they are not needed.
    fn serve(&'static self, inside: bool, is_first: bool) {
        let end = (inside && is_first).then(End::begin).flatten();
        let (side, name) = match inside {
            true => (&self.inside, "lowtide-room"),
            false => (&self.outside, "lowtide-outside"),
        };
        let look = if is_first && !inside { Duration::MAX } else { LOOK };
        let mut queue = side.queue();
        loop {
            let Some(work) = queue.work.pop_front() else {
                queue.idle += 1;
                let waited = side.changed.wait_timeout(queue, look);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                queue.idle -= 1;
                let is_needed = !timeout.timed_out() || !queue.work.is_empty();
                if !is_needed && !is_first {
                    queue.threads -= 1;
                    return;
                }
                if !is_needed && end.as_ref().is_some_and(|end| end.has_come(self)) {
                    // SAFETY: What the C library does in the last thread of a process.
                    let exit = Box::new(|| unsafe { libc::exit(0) });
                    self.outside.put(self.outside.queue(), exit);
                }
                continue;
            };
            let needs_spare = queue.idle == 0 && queue.threads < MOST;
            queue.threads += usize::from(needs_spare);
            drop(queue);
            if needs_spare && threads::spawn(name, move || self.serve(inside, false)).is_err() {
                side.queue().threads -= 1;
            }
            work();
            queue = side.queue();
        }
    }
}

/// What is looked at to see the end of the program: `stat` of its first thread, open from the
/// beginning.
struct End(File);

impl End {
    fn begin() -> Option<Self> {
        File::open(format!("/proc/self/task/{}/stat", process::id())).ok().map(Self)
    }

    /// Whether the first thread has ended, and all others are ours.
    fn has_come(&self, room: &Room) -> bool {
        let mut text = [0; 256];
        let len = self.0.read_at(&mut text, 0).unwrap_or(0);
        if !has_ended(&text[..len]) {
            return false;
        }
        let first = process::id().cast_signed();
        let is_ours = |entry: fs::DirEntry| {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let is_listed =
                |number| room.ours.iter().any(|one| one.load(Ordering::Acquire) == number);
            number.is_some_and(|number| number == first || is_listed(number))
                || fs::read(entry.path().join("stat")).is_ok_and(|stat| is_io_worker(&stat))
        };
        fs::read_dir("/proc/self/task")
            .is_ok_and(|all| all.into_iter().all(|entry| entry.is_ok_and(is_ours)))
    }
}

/// Does work in the room, and returns its result.
///
/// # Errors
///
/// That of `pthread_create(3)`, for the first work of a process; what the work returns.
///
/// # Panics
///
/// If the work does.
pub fn enter<R: Send>(work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    if is_on(true) { work() } else { hand_over(|work| room().give(work), work) }
}

/// Does work outside of the room, in the table of the program: what calls code of the program's,
/// which knows no other table. Anywhere else it is done at once.
///
/// # Errors
///
/// `Unsupported` where no thread is outside; what the work returns.
///
/// # Panics
///
/// If the work does.
fn leave<R: Send>(work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    if is_on(false) {
        return work();
    }
    let give = |work| {
        let side = &room().outside;
        let queue = side.queue();
        // Where no thread is outside, the program's table is not known.
        let is_known = queue.threads > 0;
        is_known.then(|| side.put(queue, work)).ok_or(io::ErrorKind::Unsupported.into())
    };
    hand_over(give, work)
}

/// Does work with descriptors of the program's table: outside, or here where nothing is outside.
///
/// # Panics
///
/// If the work does.
pub fn outside<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if is_on(false) || room().outside.queue().threads == 0 {
        return work();
    }
    leave(|| Ok(work())).expect("a thread is outside")
}

fn hand_over<R: Send>(
    give: impl FnOnce(Work) -> io::Result<()>,
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    let _blocked = SignalsBlocked::all();
    let done = Arc::new((Mutex::new(None), Condvar::new()));
    let theirs = Arc::clone(&done);
    let boxed: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        let result = panic::catch_unwind(AssertUnwindSafe(work));
        *lock(&theirs.0) = Some(result);
        theirs.1.notify_one();
    });
    // SAFETY: This call returns, by its result or an error, only when the work was done, or was
    // dropped because no thread could be started: what it borrows is there until then. What it
    // shares with this call afterwards, and drops, borrows nothing.
    let boxed = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Work>(boxed) };
    give(boxed)?;
    let mut result = lock(&done.0);
    loop {
        match result.take() {
            Some(Ok(result)) => return result,
            Some(Err(panicked)) => panic::resume_unwind(panicked),
            None => result = done.1.wait(result).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

type Outcome<R> = Option<Result<io::Result<R>, Box<dyn Any + Send>>>;

fn lock<R>(result: &Mutex<Outcome<R>>) -> MutexGuard<'_, Outcome<R>> {
    result.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an event of `tracing`: `tell!(warn, %error, "text")`. A subscriber is the program's, and
/// writes to its descriptors, so the event is made outside of the room.
#[macro_export]
macro_rules! tell {
    (error, $($event:tt)+) => { $crate::tell!(@ ERROR error $($event)+) };
    (warn, $($event:tt)+) => { $crate::tell!(@ WARN warn $($event)+) };
    (info, $($event:tt)+) => { $crate::tell!(@ INFO info $($event)+) };
    (debug, $($event:tt)+) => { $crate::tell!(@ DEBUG debug $($event)+) };
    (@ $level:ident $name:ident $($event:tt)+) => {
        if tracing::Level::$level <= tracing::level_filters::LevelFilter::current() {
            $crate::room::outside(|| tracing::$name!($($event)+));
        }
    };
}

/// Starts a thread in the room ([`threads::spawn`]).
///
/// # Errors
///
/// Those of `pthread_create(3)`.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    enter(|| threads::spawn(name, run))
}

/// What has descriptors in one of the tables, and is used and dropped there.
pub struct Own<T: Send> {
    process: u32,
    inside: bool,
    value: ManuallyDrop<T>,
}

impl<T: Send> Own<T> {
    /// What was made by the calling thread, in its table.
    #[must_use]
    pub fn of_this_side(value: T) -> Self {
        Self { process: process::id(), inside: is_inside(), value: ManuallyDrop::new(value) }
    }

    /// Makes it, in the room.
    ///
    /// # Errors
    ///
    /// As [`enter`].
    pub fn make(make: impl FnOnce() -> io::Result<T> + Send) -> io::Result<Self> {
        enter(|| make().map(Self::of_this_side))
    }

    /// The same, with errors of the caller's kind.
    ///
    /// # Errors
    ///
    /// As [`enter`], and those of `make`.
    pub fn try_make<E: Send>(
        make: impl FnOnce() -> Result<T, E> + Send,
    ) -> io::Result<Result<Self, E>> {
        enter(|| Ok(make().map(Self::of_this_side)))
    }

    /// It alone, where the calling thread has its table; it is dropped elsewhere.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        if !is_on(self.inside) {
            return None;
        }
        let mut own = ManuallyDrop::new(self);
        // SAFETY: It is taken once: what had it is never dropped.
        Some(unsafe { ManuallyDrop::take(&mut own.value) })
    }

    /// What it says without a use of its descriptors.
    pub fn fact<'a, R>(&'a self, say: impl FnOnce(&'a T) -> R) -> R {
        say(&self.value)
    }

    /// Uses it, where it is.
    ///
    /// # Errors
    ///
    /// As [`enter`]; `Unsupported` in a child of `fork`, which has not got it.
    pub fn with<R: Send>(&self, work: impl FnOnce(&T) -> io::Result<R> + Send) -> io::Result<R>
    where
        T: Sync,
    {
        if self.inside && is_inside() {
            // No child has threads of the room.
            return work(&self.value);
        }
        if self.process != process::id() {
            let text = "a child does not have the descriptors of its parent";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let work = || work(&self.value);
        if self.inside { enter(work) } else { leave(work) }
    }

    /// It, where the calling thread has its table.
    #[must_use]
    pub fn here(&self) -> Option<&T> {
        is_on(self.inside).then_some(&*self.value)
    }
}

impl<T: Send> Drop for Own<T> {
    fn drop(&mut self) {
        if self.inside && self.process != process::id() {
            return;
        }
        let value = &mut self.value;
        let end = || {
            // SAFETY: It is dropped once, here.
            unsafe { ManuallyDrop::drop(value) };
            Ok(())
        };
        // Without a thread on its side it is left open.
        let _ = if self.inside { enter(end) } else { leave(end) };
    }
}

impl<T: Send + fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The file of a descriptor of the calling thread, opened for reading in the room, so that the open
/// file is the room's alone. Where it cannot be opened again, and in the room, it is a duplicate.
///
/// # Errors
///
/// Why the file can neither be opened nor duplicated there.
pub fn bring(fd: BorrowedFd<'_>) -> io::Result<Own<File>> {
    if is_on(true) {
        return Own::make(|| Ok(fd.try_clone_to_owned()?.into()));
    }
    let (thread, number) = (rustix::thread::gettid().as_raw_nonzero().get(), fd.as_raw_fd());
    let stat = rustix::fs::fstat(fd)?;
    Own::make(move || {
        let (brought, _) = descriptors::reopen(thread, number)?;
        let there = rustix::fs::fstat(&brought)?;
        if (there.st_dev, there.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        Ok(brought.into())
    })
}

/// A file of the calling thread's table, moved into the room. It stays where it is if that is not
/// possible.
#[must_use]
pub fn take(file: File) -> Own<File> {
    let (thread, number) = (rustix::thread::gettid().as_raw_nonzero().get(), file.as_raw_fd());
    if is_on(true) {
        return Own::of_this_side(file);
    }
    let moved = Own::make(move || Ok(descriptors::duplicate(thread, number)?.into()));
    moved.unwrap_or_else(|_| Own::of_this_side(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    fn numbers() -> usize {
        fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn what_the_room_opens_is_not_in_the_programs_table_and_a_lock_survives_it() {
        let named = tempfile::NamedTempFile::new().unwrap();
        fs::write(named.path(), "bytes").unwrap();
        let file = File::options().read(true).write(true).open(named.path()).unwrap();
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .unwrap();
        enter(|| Ok(())).unwrap();
        let before = numbers();
        let all: Vec<_> = (0..50).map(|_| bring(file.as_fd()).unwrap()).collect();
        assert_eq!(numbers(), before, "all are elsewhere");
        let text = all[7].with(|mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        });
        assert_eq!(text.unwrap(), "bytes");
        assert!(!is_inside() && all[7].here().is_none());
        drop(all);
        // Another table's thread sees the lock; the owner's would not.
        let held = enter(|| {
            let file = File::options().read(true).write(true).open(named.path())?;
            Ok(rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
                .is_err())
        });
        assert!(held.unwrap(), "the lock was lost");
    }

    #[test]
    fn threads_of_the_room_share_its_table_and_work_may_wait_for_other_work() {
        let own = Own::make(|| File::open("/dev/null")).unwrap();
        let number = own.with(|file| Ok(file.as_raw_fd())).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let thread = spawn("of-the-room", move || {
            // SAFETY: The call says whether a number is that of a descriptor.
            send.send((is_inside(), unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 })).unwrap();
        });
        thread.unwrap().join().unwrap();
        assert_eq!(receive.recv(), Ok((true, true)));
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| enter(|| Ok(lock_any(&gate).recv())));
            enter(|| Ok(open.send(()))).unwrap().unwrap();
            waits.join().unwrap().unwrap().unwrap();
        });
        let panicked = panic::catch_unwind(|| enter(|| -> io::Result<()> { panic!("at work") }));
        assert!(panicked.is_err());
    }

    #[test]
    fn what_is_done_outside_may_enter_the_room_and_be_outside_again() {
        let nested = || outside(|| enter(|| Ok(outside(|| (is_inside(), 5)))));
        let (send, receive) = std::sync::mpsc::channel();
        // The first of the process may have been begun by another test.
        let thread = spawn("of-the-room", move || send.send(nested()).unwrap()).unwrap();
        let result = receive.recv_timeout(Duration::from_secs(60)).expect("it comes back");
        assert_eq!(result.unwrap(), (false, 5));
        thread.join().unwrap();
    }

    fn lock_any<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
        of.lock().unwrap()
    }
}
