//! Children that are made without the handlers of `fork(3)`: by `_Fork`, by `clone(2)` with memory
//! of their own, and by either through `syscall(3)`.
//!
//! A mirror is not inherited, and what it covers is elsewhere (`mirrors.rs`). So such a child moves
//! the program's own mappings back before it goes on, as the handler of `fork` does. Nothing else
//! is done for it: it may use what POSIX lets a signal handler use, and so may this. Its mappings
//! are the kernel's from then on.
//!
//! The table of mirrors is locked meanwhile, so that no child finds a half-made cover. No handler
//! of a signal runs in a thread that has the lock, so a handler may make a child, too.
//!
//! A child with the memory of its parent (`vfork`, threads) has the parent's mirrors, and needs
//! nothing. One that a program makes by an instruction of its own, past the C library, finds a
//! hole.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::execs::missing;
use crate::interpose::Errno;
use crate::lock::Locked;
use crate::mirrors;
use crate::real::next;
use libc::{c_int, c_long, c_void, pid_t};
use std::ptr;

/// What is behind these functions.
mod real {
    use super::{Function, missing, next};
    use libc::{c_int, c_void, pid_t};

    next! {
        #[allow(non_snake_case, reason = "the C library's name")]
        FORK_ALONE.found: "C" fn _Fork() -> pid_t, else missing();
        /// The last three are those of a call that needs them; others have any value.
        CLONE.found: "C" fn clone(
            function: Option<Function>, stack: *mut c_void, flags: c_int, arg: *mut c_void,
            parent_tid: usize, tls: usize, child_tid: usize
        ) -> c_int,
            else missing();
    }
}
pub(crate) use real::look_up;

/// Makes a child, which returns 0 here, on the same stack.
pub(crate) fn make<N: Copy + Default + PartialEq>(make: impl FnOnce() -> N) -> N {
    if !mirrors::may_come() {
        return make();
    }
    let mut covers = mirrors::lock_for_fork();
    let child = make();
    let errno = Errno::save();
    if child == N::default() {
        mirrors::in_child(&mut covers);
    }
    drop(covers);
    drop(errno);
    child
}

/// Whether a system call makes a child with memory of its own, on this stack.
pub(crate) fn makes_child(number: c_long, args: &[usize; 6]) -> bool {
    let shares = |flags: usize| flags & libc::CLONE_VM as usize != 0;
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        libc::SYS_clone => !shares(args[0]) && args[1] == 0,
        libc::SYS_clone3 if args[0] != 0 && args[1] >= size_of::<libc::clone_args>() => {
            // SAFETY: the program's arguments, of the size that it says.
            let args = unsafe {
                ptr::read_unaligned(ptr::with_exposed_provenance::<libc::clone_args>(args[0]))
            };
            !shares(args.flags as usize) && args.stack == 0
        }
        _ => false,
    }
}

#[allow(non_snake_case, reason = "the C library's name")]
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn _Fork() -> pid_t {
    // SAFETY: the program's call.
    make(|| unsafe { real::_Fork() })
}

type Function = extern "C" fn(*mut c_void) -> c_int;

/// What a child on a stack of its own begins with. It is on its parent's stack, of which the child
/// has a copy.
struct Begin {
    function: Function,
    arg: *mut c_void,
    covers: Locked<'static>,
}

extern "C" fn begin(child: *mut c_void) -> c_int {
    // SAFETY: as `clone` made it; this process has a copy that nothing else looks at.
    let Begin { function, arg, mut covers } = unsafe { ptr::read(child.cast::<Begin>()) };
    mirrors::in_child(&mut covers);
    drop(covers);
    function(arg)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn clone(
    function: Option<Function>,
    stack: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    parent_tid: usize,
    tls: usize,
    child_tid: usize,
) -> c_int {
    let Some(own) = function.filter(|_| flags & libc::CLONE_VM == 0 && mirrors::may_come()) else {
        // SAFETY: the program's arguments.
        return unsafe { real::clone(function, stack, flags, arg, parent_tid, tls, child_tid) };
    };
    let mut child = Begin { function: own, arg, covers: mirrors::lock_for_fork() };
    let first = (&raw mut child).cast();
    // SAFETY: the program's arguments, and a function that calls the program's.
    let result =
        unsafe { real::clone(Some(begin), stack, flags, first, parent_tid, tls, child_tid) };
    let errno = Errno::save();
    drop(child);
    drop(errno);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_children_with_memory_of_their_own_are_looked_after() {
        let vm = libc::CLONE_VM as usize;
        assert!(makes_child(libc::SYS_clone, &[libc::SIGCHLD as usize, 0, 0, 0, 0, 0]));
        assert!(!makes_child(libc::SYS_clone, &[vm, 0, 0, 0, 0, 0]));
        assert!(!makes_child(libc::SYS_clone, &[0, 4096, 0, 0, 0, 0]), "on a stack of its own");
        assert!(!makes_child(libc::SYS_getpid, &[0; 6]));
        // SAFETY: all zeroes is a value of it.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        let call = |args: &libc::clone_args| {
            let at = ptr::from_ref(args).expose_provenance();
            makes_child(libc::SYS_clone3, &[at, size_of::<libc::clone_args>(), 0, 0, 0, 0])
        };
        assert!(call(&args));
        args.flags = vm as u64;
        assert!(!call(&args));
        assert!(!makes_child(libc::SYS_clone3, &[0, 88, 0, 0, 0, 0]), "no arguments");
    }
}
