//! Programs that give up a user's rights: servers whose workers are another user.
//!
//! The C library changes the user of all threads, ours too (what it does not is in `rights.rs`).
//! After such a call the files in `/proc/self` belong to root, so the page tables cannot be opened
//! any more, and neither can the table by which processes share the budget. So the keeper opens
//! both *before* the call is made. A process that keeps nothing yet keeps nothing later, either: a
//! thread of ours would have to be there for every program that changes its user.
//!
//! # Safety
//!
//! The functions have the contracts of those whose names they have, to which the program's
//! arguments go unchanged.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::line::Question;
use crate::real::before_next;
use crate::state;
use libc::id_t;

/// The process is about to have other rights.
fn prepare() {
    if let Some((state, _)) = state::get()
        && state.line.is_kept()
    {
        let _errno = Errno::save();
        state.line.ask(Question::Prepare);
    }
}

before_next! {
    setuid, SETUID, (user: id_t), prepare();
    setgid, SETGID, (group: id_t), prepare();
    seteuid, SETEUID, (effective: id_t), prepare();
    setegid, SETEGID, (effective: id_t), prepare();
    setreuid, SETREUID, (real: id_t, effective: id_t), prepare();
    setregid, SETREGID, (real: id_t, effective: id_t), prepare();
    setresuid, SETRESUID, (real: id_t, effective: id_t, saved: id_t), prepare();
    setresgid, SETRESGID, (real: id_t, effective: id_t, saved: id_t), prepare();
}
