//! Children, libraries, descriptors, file systems.

use crate::scene::{SKIPPED, refuse};
use crate::{map_and_unmap, map_file, open, touch, unmap, wait};
use libc::{c_int, c_void};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, ptr, thread};

/// Calls a function in a child; its status.
fn in_child(f: impl FnOnce()) -> c_int {
    // SAFETY: the child calls the function, which is safe in one, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        f();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    wait(child)
}

/// One thread maps the first file; meanwhile another forks, and the child maps a file, too.
pub(crate) fn first_map(fd: RawFd, delay: &Path) {
    let micros = delay.to_str().and_then(|text| text.parse().ok()).expect("microseconds");
    static GO: AtomicBool = AtomicBool::new(false);
    // The kernel's part of the first mapping takes longer in a process with threads.
    for _ in 0..4 {
        thread::spawn(|| thread::sleep(Duration::from_secs(60)));
    }
    let mapper = thread::spawn(move || {
        while !GO.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        touch(map_file(fd));
    });
    thread::sleep(Duration::from_millis(5));
    GO.store(true, Ordering::SeqCst);
    thread::sleep(Duration::from_micros(micros));
    let status = in_child(|| touch(map_file(fd)));
    mapper.join().expect("the thread");
    println!("the child ends with {status}");
}

/// A child reads all of a mapping that it has from its parent, several times, and ends by `exit`.
pub(crate) fn inherited(fd: RawFd) {
    // SAFETY: zeroes are such a structure, and the call writes it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::fstat(fd, &raw mut stat) }, 0);
    let (len, prot) = (stat.st_size as usize, libc::PROT_READ);
    // SAFETY: no address is demanded.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    touch(start);
    // SAFETY: the child reads, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for round in 0..3 {
            for page in (0..len / 4096).map(|page| (page * 7919 + round) % (len / 4096)) {
                // SAFETY: within the mapping, which the child has, too.
                unsafe { start.cast::<u8>().add(page * 4096).read_volatile() };
            }
        }
        // SAFETY: ends the child, as a program ends.
        unsafe { libc::exit(0) };
    }
    assert_eq!(wait(child), 0);
    println!("the child has read all");
}

/// Children that the C library does not know of map a file, while threads have its allocator's
/// locks: those stay taken in the children.
pub(crate) fn raw_children(fd: RawFd) {
    static OVER: AtomicBool = AtomicBool::new(false);
    let trims = || {
        while !OVER.load(Ordering::Relaxed) {
            // SAFETY: the call has no conditions.
            unsafe { libc::malloc_trim(0) };
        }
    };
    let trimming = [thread::spawn(trims), thread::spawn(trims)];
    for _ in 0..100 {
        // SAFETY: no flags but the signal: as `fork` without its handlers. The child allocates
        // nothing, and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            map_and_unmap(Some(fd));
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        assert_eq!(wait(child as libc::pid_t), 0);
    }
    OVER.store(true, Ordering::Relaxed);
    trimming.into_iter().for_each(|thread| thread.join().expect("the thread"));
    println!("all have ended");
}

/// A child that has the memory of its parent is killed while it maps and unmaps, and the parent
/// goes on.
pub(crate) fn killed_child(fd: Option<RawFd>) {
    static CHILD: AtomicI32 = AtomicI32::new(0);
    extern "C" fn child(fd: *mut c_void) -> c_int {
        let fd = Some(fd.addr() as RawFd - 1).filter(|fd| *fd >= 0);
        // SAFETY: the call has no conditions.
        CHILD.store(unsafe { libc::getpid() }, Ordering::SeqCst);
        loop {
            map_and_unmap(fd);
        }
    }
    map_and_unmap(fd);
    thread::spawn(|| {
        loop {
            let child = CHILD.swap(0, Ordering::SeqCst);
            if child == 0 {
                thread::yield_now();
                continue;
            }
            thread::sleep(Duration::from_micros(500));
            // SAFETY: the child is not waited for before it is killed.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
    });
    for _ in 0..10 {
        let stack = vec![0_u8; 1 << 18].leak();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let argument = ptr::without_provenance_mut(fd.map_or(0, |fd| fd as usize + 1));
        // SAFETY: the child has a stack of its own, and this thread waits until it is killed.
        let made =
            unsafe { libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, argument) };
        assert!(made > 0, "clone: {}", std::io::Error::last_os_error());
        map_and_unmap(fd);
        assert_eq!(wait(made) & 0x7f, libc::SIGKILL);
        map_and_unmap(fd);
    }
    println!("10 children were killed");
}

/// Locks a file that cannot be opened again, maps it, and gives both up: another process gets the
/// lock at once.
pub(crate) fn lock(path: &Path) {
    let file = File::open(path).expect("the file");
    let other = open(path);
    // SAFETY: a descriptor of this process.
    let flock = |fd: RawFd| unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) };
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    assert_eq!(flock(fd), 0);
    fs::set_permissions(path, fs::Permissions::from_mode(0o0)).expect("its mode");
    // SAFETY: only this process is concerned. Its /proc stays its own.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!((libc::setgid(65534), libc::setuid(65534)), (0, 0));
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
        }
    }
    assert!(File::open(path).is_err(), "it can be opened again");
    let start = map_file(fd);
    touch(start);
    println!("while it is open another descriptor gets the lock: {}", flock(other) == 0);
    unmap(start);
    drop(file);
    println!("afterwards: {}", flock(other) == 0);
}

/// Maps a file, gives it up, and unmounts its file system, which takes as long as the file is open.
pub(crate) fn umount(fd: RawFd, mounted: &Path) {
    map_and_unmap(Some(fd));
    // SAFETY: the descriptor is this function's.
    unsafe { libc::close(fd) };
    let mounted = CString::new(mounted.as_os_str().as_bytes()).expect("a path");
    let begin = Instant::now();
    // SAFETY: a path that ends with a zero.
    while unsafe { libc::umount(mounted.as_ptr()) } != 0 {
        let error = std::io::Error::last_os_error();
        assert!(begin.elapsed() < Duration::from_secs(30), "umount: {error}");
        thread::sleep(Duration::from_millis(50));
    }
    println!("unmounted");
}

/// Maps a file, closes the standard descriptors, and lives until another file is there.
pub(crate) fn close_standard(fd: RawFd, until: &Path) {
    touch(map_file(fd));
    for standard in 0..3 {
        // SAFETY: a daemon's first steps.
        unsafe { libc::close(standard) };
    }
    while !until.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: there is nowhere to write what exit would write.
    unsafe { libc::_exit(0) };
}

/// In a sandbox without random numbers; the second of two processes cannot have them otherwise.
pub(crate) fn without_random_numbers(fd: RawFd) {
    if !refuse(&[(libc::SYS_getrandom, None)], libc::ENOSYS) {
        std::process::exit(SKIPPED);
    }
    touch(map_file(fd));
    let status = in_child(|| touch(map_file(fd)));
    println!("the child ends with {status}");
}

/// System calls read from memory that is not there yet.
pub(crate) fn write_all(fd: Option<RawFd>) {
    let start = fd.map_or_else(crate::map_memory, map_file);
    // SAFETY: a path that ends with a zero.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY) };
    for page in 0..crate::LEN / 4096 {
        let from = start.wrapping_byte_add(page * 4096);
        // SAFETY: 32 bytes of the mapping.
        assert_eq!(unsafe { libc::write(null, from, 32) }, 32);
    }
    println!("all pages were written");
}

fn open_it(library: &Path) {
    let library = CString::new(library.as_os_str().as_bytes()).expect("a path");
    // SAFETY: a path that ends with a zero, of a library whose constructor may run.
    assert!(!unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) }.is_null(), "dlopen");
}

/// Opens a library whose constructor does what the program did not do before.
pub(crate) fn open_library(library: &Path) {
    open_it(library);
    println!("the library is open");
}

/// While the constructor pauses, before it maps a file, another thread maps its first one.
pub(crate) fn open_beside(fd: RawFd, library: &Path) {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let mapper = thread::spawn(move || {
        BEGUN.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(100));
        map_and_unmap(Some(fd));
    });
    // A thread that begins needs the lock that the constructor is called with.
    while !BEGUN.load(Ordering::SeqCst) {
        std::hint::spin_loop();
    }
    open_it(library);
    mapper.join().expect("it maps");
    println!("the library is open");
}

/// The same in a child.
pub(crate) fn open_in_child(library: &Path) {
    let status = in_child(|| open_it(library));
    println!("the child ends with {status}");
}
