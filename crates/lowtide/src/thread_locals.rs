//! What the threads of a pager do before they begin: they use each thread-local of theirs once.
//!
//! A thread-local with a destructor is registered when it is used first. The C library allocates
//! for that, by the program's `calloc`, and may take the lock of the dynamic loader. A thread of
//! the program that has either of these locks may wait for a page of a map, and only the threads of
//! its pager bring the page in. So they use all of theirs before there is a page to wait for.

use crate::pool::account;
use crate::{map, store};
use lowtide_pin::hazard;
use lowtide_sys::{room, threads};
use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Starts a thread of a pager, in the [`room`], and waits until its thread-locals are registered.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    room::enter(|| spawn_beside(name, run))
}

/// The same, with the table of the calling thread: for what has a file of the program's.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn spawn_beside(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (begun, begins) = mpsc::sync_channel::<()>(0);
    let thread = threads::spawn(name, move || {
        register();
        drop(begun);
        run();
    })?;
    // It fails when the thread has dropped its end.
    let _: Result<(), _> = begins.recv();
    Ok(thread)
}

fn register() {
    account::register();
    hazard::register();
    store::register();
    map::register_blocks();
    map::register_lists();
    lowtide_swap::register_thread_locals();
}
