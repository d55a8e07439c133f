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
use crate::real::next;
use libc::{AT_FDCWD, c_char, c_int, pid_t};
use libc::{posix_spawn_file_actions_t as Actions, posix_spawnattr_t as Attributes};

/// Finds all that is behind: a child of `vfork` cannot.
pub(crate) fn look_up() {
    children::look_up();
    real::look_up();
}

/// What the program hears where there is nothing to call.
pub(crate) fn missing() -> c_int {
    Errno::set(libc::ENOSYS);
    -1
}

/// What is behind. By a constructor, before this library is initialised, it is looked up here.
mod real {
    use super::{Actions, Attributes, List, missing, next};
    use libc::{c_char, c_int, pid_t};

    next! {
        EXECVE.found: "C" fn execve(path: *const c_char, args: List, env: List) -> c_int,
            else missing();
        EXECV.found: "C" fn execv(path: *const c_char, args: List) -> c_int,
            else missing();
        EXECVP.found: "C" fn execvp(name: *const c_char, args: List) -> c_int,
            else missing();
        EXECVPE.found: "C" fn execvpe(name: *const c_char, args: List, env: List) -> c_int,
            else missing();
        FEXECVE.found: "C" fn fexecve(fd: c_int, args: List, env: List) -> c_int,
            else missing();
        // Older C libraries do not have it, and musl does not.
        EXECVEAT.found: "C" fn execveat(
            dir: c_int, path: *const c_char, args: List, env: List, flags: c_int
        ) -> c_int,
            else libc::syscall(libc::SYS_execveat, dir, path, args, env, flags) as c_int;
        POSIX_SPAWN.found: "C" fn posix_spawn(
            pid: *mut pid_t, path: *const c_char, actions: *const Actions,
            attributes: *const Attributes, args: List, env: List
        ) -> c_int,
            else libc::ENOSYS;
        POSIX_SPAWNP.found: "C" fn posix_spawnp(
            pid: *mut pid_t, name: *const c_char, actions: *const Actions,
            attributes: *const Attributes, args: List, env: List
        ) -> c_int,
            else libc::ENOSYS;
    }
}

/// Defines functions that start a program, and get its environment as their last argument.
macro_rules! starts {
    ($($name:ident($($arg:ident: $kind:ty),*) of $program:expr;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $kind,)* env: List) -> c_int {
                let call = |other: Option<List>| {
                    // SAFETY: the program's arguments.
                    unsafe { real::$name($($arg,)* other.unwrap_or(env)) }
                };
                // SAFETY: as above.
                unsafe { children::start($program, env, call) }
            }
        )*
    };
}

starts! {
    execve(path: *const c_char, args: List) of Program::At(AT_FDCWD, path);
    execvpe(name: *const c_char, args: List) of Program::Named(name);
    fexecve(fd: c_int, args: List) of Program::Open(fd);
    posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const Actions,
        attributes: *const Attributes, args: List
    ) of Program::At(AT_FDCWD, path);
    posix_spawnp(
        pid: *mut pid_t, name: *const c_char, actions: *const Actions,
        attributes: *const Attributes, args: List
    ) of Program::Named(name);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execv(path: *const c_char, args: List) -> c_int {
    let call = |other| match other {
        // SAFETY: the program's arguments.
        Some(env) => unsafe { real::execve(path, args, env) },
        // SAFETY: as above.
        None => unsafe { real::execv(path, args) },
    };
    // SAFETY: as above.
    unsafe { children::start(Program::At(AT_FDCWD, path), children::environ(), call) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execvp(name: *const c_char, args: List) -> c_int {
    let call = |other| match other {
        // SAFETY: the program's arguments.
        Some(env) => unsafe { real::execvpe(name, args, env) },
        // SAFETY: as above.
        None => unsafe { real::execvp(name, args) },
    };
    // SAFETY: as above.
    unsafe { children::start(Program::Named(name), children::environ(), call) }
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
        unsafe { real::execveat(dir, path, args, other.unwrap_or(env), flags) }
    };
    // SAFETY: as above.
    unsafe { children::start(program, env, call) }
}
