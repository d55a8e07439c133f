//! Threads of lowtide's in a process that belongs to a program.
//!
//! A new thread inherits from the one that starts it what a program may have meant for that one
//! alone. A thread of lowtide works for all of them, so it takes after the *process*:
//!
//! | | a thread of lowtide's has |
//! |---|---|
//! | signals | all blocked from its first instruction: handlers run in the program's threads |
//! | policy | that of the process's first thread; the ordinary one where that is real time |
//! | nice value, class of I/O, processors | those of the first thread |
//!
//! The first thread has what `nice(1)`, `chrt(1)`, `ionice(1)` and `taskset(1)` gave the process. A
//! thread that made itself less important (`SCHED_IDLE`, a higher nice value) needs a privilege, or
//! `RLIMIT_NICE`, to undo that. Without it a thread that it starts stays as it is.
//!
//! # Safety
//!
//! Calls on the calling thread's own mask, policy, priority and processors, with numbers, and sets
//! that this file makes.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::process;
use std::ptr;
use std::thread::{Builder, JoinHandle};

use libc::{c_int, c_long};

use crate::room;

/// Starts a thread that takes after the process (see the module documentation), and is in the
/// [`room`] if the caller is. Some ten system calls.
///
/// # Errors
///
/// Those of `pthread_create(3)`.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let (_blocked, in_room) = (SignalsBlocked::all(), room::is_inside());
    Builder::new().name(name.to_owned()).spawn(move || {
        if in_room {
            room::settle();
        }
        let _listed = room::Listed::begin();
        take_after_process();
        run();
    })
}

/// Whether `/proc/PID/task/N/stat` is of a thread that has ended.
#[must_use]
pub fn has_ended(stat: &[u8]) -> bool {
    matches!(from_state(stat).first(), Some(b'Z' | b'X'))
}

/// A `stat` from its third field on, the state. The second is a name in brackets, which may have
/// any byte in it.
fn from_state(stat: &[u8]) -> &[u8] {
    let end = stat.iter().rposition(|byte| *byte == b')');
    end.and_then(|end| stat.get(end + 2..)).unwrap_or_default()
}

/// Whether `/proc/PID/task/N/stat` is of a worker of io_uring, by the flags that proc(5) lists: the
/// kernel's thread in this process, which runs no code of a program and ends with those that do.
#[must_use]
pub fn is_io_worker(stat: &[u8]) -> bool {
    const PF_IO_WORKER: u32 = 0x10;
    let flags = from_state(stat).split(|byte| *byte == b' ').nth(6);
    let flags = flags.and_then(|text| str::from_utf8(text).ok());
    flags.and_then(|text| text.parse::<u32>().ok()).is_some_and(|flags| flags & PF_IO_WORKER != 0)
}

/// No signal is delivered to this thread while this lives, nor to threads that it starts.
#[derive(Debug)]
pub struct SignalsBlocked {
    before: libc::sigset_t,
    /// A mask belongs to a thread.
    thread: PhantomData<*const ()>,
}

impl SignalsBlocked {
    /// Blocks all of them, except those that the C library needs.
    #[must_use]
    pub fn all() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: The set is written.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: The first set was written, the second is written now.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: Written by the call, and zeroes are a set.
        Self { before: unsafe { before.assume_init() }, thread: PhantomData }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: The mask that this thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// `IOPRIO_WHO_PROCESS` of `ioprio_set(2)`, which is about one thread.
const WHO: usize = 1;
/// The class of real time, in the highest bits of a priority of I/O.
const CLASS_REAL_TIME: c_long = 1;
const CLASS_SHIFT: u32 = 13;

/// Gives this thread what the first thread of the process has, as far as it may. What is refused
/// stays as it is.
fn take_after_process() {
    let first = process::id() as usize;
    let policy = match policy_of(first) {
        shared @ (libc::SCHED_BATCH | libc::SCHED_IDLE) => shared,
        _ => libc::SCHED_OTHER,
    };
    if policy_of(0) != policy {
        let none: c_int = 0;
        call(
            libc::SYS_sched_setscheduler,
            [0, policy as usize, (&raw const none).expose_provenance()],
        );
    }
    // The call returns 20 less the nice value.
    let nice = |of| call(libc::SYS_getpriority, [libc::PRIO_PROCESS as usize, of, 0]);
    let wanted = nice(first);
    if wanted > 0 && nice(0) != wanted {
        let value = (20 - wanted) as usize;
        call(libc::SYS_setpriority, [libc::PRIO_PROCESS as usize, 0, value]);
    }
    let class = |of| call(libc::SYS_ioprio_get, [WHO, of, 0]);
    let wanted = class(first);
    if wanted >= 0 && wanted >> CLASS_SHIFT != CLASS_REAL_TIME && class(0) != wanted {
        call(libc::SYS_ioprio_set, [WHO, 0, wanted as usize]);
    }
    let (mut set, size): (Processors, _) = ([0; 128], size_of::<Processors>());
    if call(libc::SYS_sched_getaffinity, [first, size, (&raw mut set).expose_provenance()]) > 0 {
        call(libc::SYS_sched_setaffinity, [0, size, (&raw const set).expose_provenance()]);
    }
}

/// A call of the kernel: not every C library has these for a thread.
fn call(number: c_long, [a, b, c]: [usize; 3]) -> c_long {
    // SAFETY: The calls of this file take numbers, and addresses of structures and sets that are
    // there, of the size that is said; they change the calling thread alone.
    unsafe { libc::syscall(number, a, b, c) }
}

/// The policy of a thread; of this one for 0.
fn policy_of(thread: usize) -> c_int {
    /// `SCHED_RESET_ON_FORK`, which comes with it.
    const RESET_ON_FORK: c_long = 0x4000_0000;
    (call(libc::SYS_sched_getscheduler, [thread, 0, 0]) & !RESET_ON_FORK) as c_int
}

/// A set of processors, as large as any kernel's (`NR_CPUS` is 8192 at most).
type Processors = [u64; 128];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_ended_when_the_kernel_says_so_whatever_its_name_is() {
        assert!(has_ended(b"7 (a) R b) Z 1 2"));
        assert!(!has_ended(b"7 (a) Z b) S 1 2"));
        assert!(!has_ended(b"7 (a)") && !has_ended(b""));
    }

    #[test]
    fn a_worker_of_io_uring_is_told_by_its_flags() {
        let line = |flags| format!("7 (a) 1 2) S 1 2 3 0 -1 {flags} 0 0");
        assert!(is_io_worker(line(4_194_384 | 0x10).as_bytes()));
        assert!(!is_io_worker(line(4_194_304).as_bytes()) && !is_io_worker(b"7 (a)"));
        let own = std::fs::read("/proc/thread-self/stat").expect("this thread");
        assert!(!is_io_worker(&own));
    }

    fn processors() -> Processors {
        let (mut set, size): (Processors, _) = ([0; 128], size_of::<Processors>());
        call(libc::SYS_sched_getaffinity, [0, size, (&raw mut set).expose_provenance()]);
        set
    }

    /// The policy, the class of I/O, how many processors, and whether signals are blocked.
    fn facts() -> (c_int, c_long, u32, bool) {
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: An empty change of the mask reads it.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) };
        let is_blocked = |signal| {
            // SAFETY: The set was written.
            unsafe { libc::sigismember(mask.as_ptr(), signal) == 1 }
        };
        let blocked = [libc::SIGTERM, libc::SIGINT, libc::SIGRTMAX()].map(is_blocked);
        let count = processors().iter().map(|word| word.count_ones()).sum();
        let class = call(libc::SYS_ioprio_get, [WHO, 0, 0]) >> CLASS_SHIFT;
        (policy_of(0), class, count, blocked.iter().all(|yes| *yes))
    }

    #[test]
    fn a_thread_takes_after_the_process_and_not_after_the_thread_that_starts_it() {
        // Tests run in threads that are as the first one.
        let (policy, class, count, _) = facts();
        let odd = move || {
            let all = processors();
            let at = all.iter().position(|word| *word != 0).unwrap();
            let mut one: Processors = [0; 128];
            one[at] = all[at] & all[at].wrapping_neg();
            let (none, size): (c_int, _) = (0, size_of::<Processors>());
            let batch = libc::SCHED_BATCH as usize;
            let none = (&raw const none).expose_provenance();
            assert_eq!(call(libc::SYS_sched_setscheduler, [0, batch, none]), 0);
            call(libc::SYS_ioprio_set, [WHO, 0, 3 << CLASS_SHIFT]);
            assert_eq!(
                call(libc::SYS_sched_setaffinity, [0, size, (&raw const one).expose_provenance()]),
                0
            );
            let before = facts();
            assert_eq!((before.0, before.2, before.3), (libc::SCHED_BATCH, 1, false));
            let (send, receive) = std::sync::mpsc::channel();
            spawn("taken-after", move || send.send(facts()).unwrap()).unwrap().join().unwrap();
            assert_eq!(facts(), before, "the one that starts it stays as it was");
            receive.recv().unwrap()
        };
        let new = std::thread::spawn(odd).join().unwrap();
        assert_eq!(new, (policy, class, count, true));
    }
}
