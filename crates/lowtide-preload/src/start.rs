//! The beginning and the end of a process: what runs before its first instruction, at `exit`, and
//! at SIGUSR1.
//!
//! The beginning reads the environment, looks functions up, and maps a page of state. No thread
//! starts and no file is opened before a mapping is adopted; with `--files` the keeper starts here.
//!
//! SIGUSR1 asks for a summary if the program has no handler of its own: in the process that
//! `lowtide run` became from its beginning, in others from the first mapping that is adopted.
//!
//! # Safety
//!
//! The handler reads atomics, wakes a thread and writes to standard error: all of it may be done in
//! a handler. The functions in the sections of initialisation and termination are called once each,
//! by the dynamic linker.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::judge::Reason;
use crate::line::Question;
use crate::summary::{self, Whole};
use crate::{
    c_library, clones, descriptors, execs, forks, own, reads, real, real_reads, real_threads,
    rights, state, stdio, syscalls, traced, users,
};
use lowtide_run::settings::Settings;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::mem::MaybeUninit;
use std::{env, panic, ptr, thread};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    // A program begins with a zero there.
    let _errno = Errno::save();
    // Also where nothing is kept: the wrappers are in the way of other libraries' otherwise.
    real::look_up();
    real_reads::look_up();
    syscalls::look_up();
    rights::look_up();
    clones::look_up();
    execs::look_up();
    real_threads::look_up();
    users::look_up();
    c_library::look_up();
    let Some(mut settings) = Settings::from_env(|name| env::var_os(name)) else { return };
    settings.files &= c_library::NOTES_READS;
    let is_first = settings.is_first();
    if !is_first && !settings.follow {
        return;
    }
    if let Some(why) = c_library::refusal() {
        if is_first {
            descriptors::say(why.as_bytes());
        }
        return;
    }
    panic::set_hook(Box::new(report));
    own::look_up();
    forks::register();
    stdio::begin();
    state::begin(traced::without_waiting(settings));
    reads::begin();
    if is_first {
        handle_signal();
    }
}

/// Says that a thread of ours has failed: its standard error is not the program's. Standard
/// variables say whether the stack is wanted, as usual.
fn report(info: &panic::PanicHookInfo<'_>) {
    let stack = Backtrace::capture();
    let stack =
        if stack.status() == BacktraceStatus::Captured { stack.to_string() } else { String::new() };
    let thread = thread::current();
    let name = thread.name().unwrap_or_default();
    descriptors::say(format!("lowtide: thread {name} {info}\n{stack}").as_bytes());
}

extern "C" fn end() {
    let Some((state, settings)) = state::get() else { return };
    if state.line.is_kept() {
        state.line.ask(Question::Summary);
        state.line.ask(Question::Leave);
        return;
    }
    let (left, unkept) = (state.left.all(), state.noted.unkept());
    // A process that is not the first speaks only if it went past the budget.
    let has_news =
        settings.pid == Some(std::process::id()) || unkept.read.max(unkept.written) > settings.max;
    // Where our threads ended before, they have said what there was.
    if has_news && state.left_alone() != Some(Reason::Rights) {
        summary::write(settings, &Whole { left, unkept, ended: true, ..Whole::default() });
    }
}

/// Serves SIGUSR1, unless something else is to happen at it.
pub(crate) fn handle_signal() {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for the action, which is written.
    if unsafe { libc::sigaction(libc::SIGUSR1, ptr::null(), now.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: zeroes are an action, and the call has written it.
    let mut action = unsafe { now.assume_init() };
    if action.sa_sigaction != libc::SIG_DFL {
        return;
    }
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does only what a handler may do.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) };
}

extern "C" fn on_signal(_: libc::c_int) {
    let Some((state, _)) = state::get() else { return };
    if state.line.is_kept() {
        state.line.want_summary();
    } else {
        // The program's own thread: its standard error.
        descriptors::say(b"lowtide: no file mapping was adopted so far\n");
    }
}
