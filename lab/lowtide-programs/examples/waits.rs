//! A program that does what makes a library wait for itself, for the tests of `lowtide run`: it
//! forks, ends threads, opens libraries and leaves signal handlers at every moment.
//!
//! ```text
//! waits COMMAND FILE...
//! ```
//!
//! It knows nothing of lowtide, and its output does not depend on it. Who runs it says how long it
//! may take. The C library's `main`, because the standard library's cannot be left by
//! `pthread_exit`.

#![no_main]
#![allow(unsafe_code, clippy::print_stdout, clippy::multiple_unsafe_ops_per_block)]

#[path = "waits_parts/handlers.rs"]
mod handlers;
#[path = "waits_parts/limits.rs"]
mod limits;
#[path = "waits_parts/processes.rs"]
mod processes;
#[path = "../../../crates/lowtide/tests/common/scene.rs"]
mod scene;
#[path = "waits_parts/threads.rs"]
mod threads;

use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{io, ptr};

/// Bytes of each mapping.
const LEN: usize = 2 << 20;

/// Maps the beginning of a file for loads.
fn map_file(fd: RawFd) -> *mut c_void {
    // SAFETY: no address is demanded.
    let got = unsafe { libc::mmap(ptr::null_mut(), LEN, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    got
}

/// Maps memory without a file.
fn map_memory() -> *mut c_void {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: no address is demanded.
    let got = unsafe { libc::mmap(ptr::null_mut(), LEN, prot, flags, -1, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    got
}

fn touch(start: *mut c_void) {
    // SAFETY: mapped by the functions above.
    unsafe { start.cast::<u8>().wrapping_add(4096).read_volatile() };
}

fn unmap(start: *mut c_void) {
    // SAFETY: mapped by the functions above, and touched no more.
    unsafe { libc::munmap(start, LEN) };
}

/// Maps, touches and unmaps: a file, or memory where there is none.
fn map_and_unmap(fd: Option<RawFd>) {
    let start = fd.map_or_else(map_memory, map_file);
    touch(start);
    unmap(start);
}

fn open(path: &Path) -> RawFd {
    let file = File::open(path).expect("the file");
    let fd = file.as_raw_fd();
    std::mem::forget(file);
    fd
}

/// The status of a child, when it has ended.
fn wait(child: libc::pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: the place is written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Calls what ends the process, or the calling thread.
enum End {
    /// It ends with this code.
    Code(c_int),
    /// Its first thread ends alone.
    Thread,
    /// The same, when another cancels it.
    Cancelled,
    /// The same, by a bare system call.
    ThreadCall,
}

unsafe extern "C-unwind" {
    fn pthread_exit(value: *mut c_void) -> !;
    fn pause() -> c_int;
}

fn run(args: &[PathBuf]) -> End {
    let [command, path, rest @ ..] = args else { panic!("waits COMMAND FILE...") };
    let fd = (path != Path::new("-")).then(|| open(path));
    match command.to_str() {
        Some("exit-in-handler") => handlers::exit_in_handler(fd),
        Some("stop-the-world") => handlers::stop_the_world(fd),
        Some("jumps") => handlers::jumps(fd),
        Some("killed-child") => processes::killed_child(fd),
        Some("first-map") => processes::first_map(fd.expect("a file"), &rest[0]),
        Some("inherited") => processes::inherited(fd.expect("a file")),
        Some("worker") => limits::worker_of_another_user(fd.expect("a file"), path),
        Some("crowded") => limits::as_many_mappings_as_there_may_be(fd.expect("a file"), path),
        Some("raw-children") => processes::raw_children(fd.expect("a file")),
        Some("lock") => processes::lock(path),
        Some("umount") => processes::umount(fd.expect("a file"), &rest[0]),
        Some("quiet") => processes::close_standard(fd.expect("a file"), &rest[0]),
        Some("panic") => processes::without_random_numbers(fd.expect("a file")),
        Some("write") => processes::write_all(fd),
        Some("open") => processes::open_library(&rest[0]),
        Some("open-beside") => processes::open_beside(fd.expect("a file"), &rest[0]),
        Some("open-in-child") => processes::open_in_child(&rest[0]),
        Some("last-thread") => return threads::last_thread(fd),
        Some("last-limited") => return threads::last_thread_without_descriptors(fd),
        Some("cancelled") => return threads::cancelled(fd),
        Some("bare-end") => return threads::bare_end(fd),
        other => panic!("no command {other:?}"),
    }
    End::Code(0)
}

fn begin(count: c_int, args: *const *const c_char) -> End {
    let args: Vec<PathBuf> = (1..count.unsigned_abs() as usize)
        .map(|at| {
            // SAFETY: the arguments of `main`, each of which ends with a zero.
            let arg = unsafe { CStr::from_ptr(args.add(at).read()) };
            PathBuf::from(OsStr::from_bytes(arg.to_bytes()))
        })
        .collect();
    run(&args)
}

/// Has nothing to drop: the end of a thread unwinds through it.
#[unsafe(no_mangle)]
extern "C-unwind" fn main(count: c_int, args: *const *const c_char) -> c_int {
    match begin(count, args) {
        End::Code(code) => code,
        // SAFETY: what this thread has is not used by others.
        End::Thread => unsafe { pthread_exit(ptr::null_mut()) },
        End::Cancelled => loop {
            // SAFETY: the call has no conditions.
            unsafe { pause() };
        },
        End::ThreadCall => {
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
            0
        }
    }
}
