//! The first thread ends before the others.

use crate::{End, map_and_unmap};
use std::os::fd::RawFd;
use std::thread;
use std::time::Duration;

extern "C" fn at_exit() {
    println!("the handlers of exit run, with the program's descriptors");
}

fn worker(fd: Option<RawFd>) {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        map_and_unmap(fd);
        println!("the last thread ends");
    });
}

/// `pthread_exit` in `main`: the process ends with the last thread, with status 0.
pub(crate) fn last_thread(fd: Option<RawFd>) -> End {
    // SAFETY: a function of this kind.
    unsafe { libc::atexit(at_exit) };
    map_and_unmap(fd);
    worker(fd);
    End::Thread
}

/// The same, in a process that may open nothing any more.
pub(crate) fn last_thread_without_descriptors(fd: Option<RawFd>) -> End {
    let end = last_thread(fd);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit, and its number.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
    end
}

/// The first thread is cancelled by another.
pub(crate) fn cancelled(fd: Option<RawFd>) -> End {
    // SAFETY: a function of this kind.
    unsafe { libc::atexit(at_exit) };
    map_and_unmap(fd);
    // SAFETY: the function has no conditions.
    let first = unsafe { libc::pthread_self() };
    thread::spawn(move || {
        // SAFETY: the first thread waits for that.
        unsafe { libc::pthread_cancel(first) };
        thread::sleep(Duration::from_millis(100));
        println!("the last thread ends");
    });
    End::Cancelled
}

/// The bare system call in `main`: the kernel ends the process with the last thread.
pub(crate) fn bare_end(fd: Option<RawFd>) -> End {
    map_and_unmap(fd);
    worker(fd);
    End::ThreadCall
}
