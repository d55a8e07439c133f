//! Starting other programs: without this library, where it cannot be loaded (`children.rs`).
//!
//! The functions of the C library with arguments in a row (`execl`, `execlp`, `execle`) are not
//! here, and neither is what it starts by itself (`system`, `popen`): a shell.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has, and calls the next one of its
//! name with the arguments of the program. Only where the environment is another one, `execve` and
//! `execvpe` are called in the place of the functions that take that of the process.

#![allow(unsafe_code)]

use crate::children::{self, List, Program};
use crate::interpose::Errno;
use crate::real::Next;
use libc::{AT_FDCWD, c_char, c_int, c_void, pid_t};
use libc::{posix_spawn_file_actions_t as Actions, posix_spawnattr_t as Attributes};
use std::mem;

static EXECVE: Next = Next::new(c"execve");
static EXECV: Next = Next::new(c"execv");
static EXECVP: Next = Next::new(c"execvp");
static EXECVPE: Next = Next::new(c"execvpe");
static FEXECVE: Next = Next::new(c"fexecve");
static EXECVEAT: Next = Next::new(c"execveat");
static POSIX_SPAWN: Next = Next::new(c"posix_spawn");
static POSIX_SPAWNP: Next = Next::new(c"posix_spawnp");

/// Finds them all: a child of `vfork` cannot.
pub(crate) fn look_up() {
    children::look_up();
    let all =
        [&EXECVE, &EXECV, &EXECVP, &EXECVPE, &FEXECVE, &EXECVEAT, &POSIX_SPAWN, &POSIX_SPAWNP];
    for next in all {
        next.look_up();
    }
}

/// What the program hears where there is nothing to call.
pub(crate) fn missing() -> c_int {
    Errno::set(libc::ENOSYS);
    -1
}

/// Defines a function that calls the next one of a name, or `else` where there is none.
macro_rules! next {
    ($name:ident, $next:ident, ($($arg:ident: $kind:ty),*), $else:expr) => {
        unsafe fn $name($($arg: $kind),*) -> c_int {
            type F = unsafe extern "C" fn($($kind),*) -> c_int;
            // By a constructor, before this library is initialised, it is looked up here.
            let Some(next) = $next.found() else { return $else };
            // SAFETY: the C library's function, or a wrapper around it.
            let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
            // SAFETY: the program's arguments.
            unsafe { next($($arg),*) }
        }
    };
}

next!(next_execve, EXECVE, (path: *const c_char, args: List, env: List), missing());
next!(next_execv, EXECV, (path: *const c_char, args: List), missing());
next!(next_execvp, EXECVP, (name: *const c_char, args: List), missing());
next!(next_execvpe, EXECVPE, (name: *const c_char, args: List, env: List), missing());
next!(next_fexecve, FEXECVE, (fd: c_int, args: List, env: List), missing());
next!(
    next_execveat, EXECVEAT,
    (dir: c_int, path: *const c_char, args: List, env: List, flags: c_int),
    // Older C libraries do not have it, and musl does not.
    // SAFETY: the program's arguments.
    unsafe { libc::syscall(libc::SYS_execveat, dir, path, args, env, flags) as c_int }
);
next!(
    next_spawn, POSIX_SPAWN,
    (
        pid: *mut pid_t,
        path: *const c_char,
        actions: *const Actions,
        attributes: *const Attributes,
        args: List,
        env: List
    ),
    libc::ENOSYS
);
next!(
    next_spawnp, POSIX_SPAWNP,
    (
        pid: *mut pid_t,
        name: *const c_char,
        actions: *const Actions,
        attributes: *const Attributes,
        args: List,
        env: List
    ),
    libc::ENOSYS
);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execve(path: *const c_char, args: List, env: List) -> c_int {
    let call = |other: Option<List>| {
        // SAFETY: the program's arguments.
        unsafe { next_execve(path, args, other.unwrap_or(env)) }
    };
    // SAFETY: as above.
    unsafe { children::start(Program::At(AT_FDCWD, path), env, call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execv(path: *const c_char, args: List) -> c_int {
    let call = |other| match other {
        // SAFETY: the program's arguments.
        Some(env) => unsafe { next_execve(path, args, env) },
        // SAFETY: as above.
        None => unsafe { next_execv(path, args) },
    };
    // SAFETY: as above.
    unsafe { children::start(Program::At(AT_FDCWD, path), children::environ(), call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execvp(name: *const c_char, args: List) -> c_int {
    let call = |other| match other {
        // SAFETY: the program's arguments.
        Some(env) => unsafe { next_execvpe(name, args, env) },
        // SAFETY: as above.
        None => unsafe { next_execvp(name, args) },
    };
    // SAFETY: as above.
    unsafe { children::start(Program::Named(name), children::environ(), call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execvpe(name: *const c_char, args: List, env: List) -> c_int {
    let call = |other: Option<List>| {
        // SAFETY: the program's arguments.
        unsafe { next_execvpe(name, args, other.unwrap_or(env)) }
    };
    // SAFETY: as above.
    unsafe { children::start(Program::Named(name), env, call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fexecve(fd: c_int, args: List, env: List) -> c_int {
    let call = |other: Option<List>| {
        // SAFETY: the program's arguments.
        unsafe { next_fexecve(fd, args, other.unwrap_or(env)) }
    };
    // SAFETY: as above.
    unsafe { children::start(Program::Open(fd), env, call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    args: List,
    env: List,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's path, of which this is the first byte.
    let is_empty = flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && unsafe { *path } == 0;
    let program = if is_empty { Program::Open(dir) } else { Program::At(dir, path) };
    let call = |other: Option<List>| {
        // SAFETY: the program's arguments.
        unsafe { next_execveat(dir, path, args, other.unwrap_or(env), flags) }
    };
    // SAFETY: as above.
    unsafe { children::start(program, env, call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const Actions,
    attributes: *const Attributes,
    args: List,
    env: List,
) -> c_int {
    let call = |other: Option<List>| {
        // SAFETY: the program's arguments.
        unsafe { next_spawn(pid, path, actions, attributes, args, other.unwrap_or(env)) }
    };
    // SAFETY: as above.
    unsafe { children::start(Program::At(AT_FDCWD, path), env, call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    name: *const c_char,
    actions: *const Actions,
    attributes: *const Attributes,
    args: List,
    env: List,
) -> c_int {
    let call = |other: Option<List>| {
        // SAFETY: the program's arguments.
        unsafe { next_spawnp(pid, name, actions, attributes, args, other.unwrap_or(env)) }
    };
    // SAFETY: as above.
    unsafe { children::start(Program::Named(name), env, call) }
}
