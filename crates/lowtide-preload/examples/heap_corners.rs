//! A program that does to large memory what few do, for the tests of `lowtide run --anon`: each
//! command checks what the kernel promises, and prints that it is so.
//!
//! It knows nothing of lowtide, and ends itself when it hangs. Its output does not depend on how
//! its memory is kept.

#![allow(unsafe_code, clippy::print_stdout, clippy::multiple_unsafe_ops_per_block)]

#[path = "heap_parts/words.rs"]
mod words;

use libc::{c_int, c_void, size_t};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, io, mem, ptr, thread};
use words::{FLAGS, MIB, PROT, Words, map, plus, wait};

/// Seconds after which a command has hung.
const PATIENCE: u32 = 60;
/// Forks of one command.
const FORKS: u64 = 60;

/// The thread that runs the command; zero before and after.
static MAIN: AtomicU64 = AtomicU64::new(0);
/// Calls of this program's `calloc` by other threads meanwhile.
static BY_OTHERS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
}

fn this_thread() -> u64 {
    // SAFETY: the call has no conditions.
    unsafe { libc::gettid() }.unsigned_abs().into()
}

/// A part of this program, as of one that has an allocator of its own: the C library calls it for
/// its own purposes, too. A thread that holds the allocator's lock may wait for a page.
#[unsafe(no_mangle)]
extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    let main = MAIN.load(Ordering::Relaxed);
    if main != 0 && main != this_thread() {
        BY_OTHERS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: any size.
    unsafe { __libc_calloc(count, size) }
}

/// Errors of the last call.
fn errno() -> Option<i32> {
    io::Error::last_os_error().raw_os_error()
}

/// Other threads bring in pages, and allocate nothing from this program's allocator for it.
fn callers() {
    MAIN.store(this_thread(), Ordering::Relaxed);
    let start = map(32 * MIB, PROT, FLAGS);
    let words = Words::of(start, 32 * MIB);
    words.fill(1);
    words.check("filled", 1);
    words.fill(2);
    words.check("filled again", 2);
    MAIN.store(0, Ordering::Relaxed);
    println!("{} allocations by other threads", BY_OTHERS.load(Ordering::Relaxed));
}

/// Whether a signal does not just end the program.
fn is_handled(signal: c_int) -> bool {
    let mut now = mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for the action, which is written.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) };
    // SAFETY: zeroes are an action, and the call has written it.
    asked == 0 && unsafe { now.assume_init() }.sa_sigaction != libc::SIG_DFL
}

/// Forks, while other threads send signals, give memory up and, at the end, lock some.
fn busy() {
    let start = map(12 * MIB, PROT, FLAGS);
    let words = Words::of(start, 8 * MIB);
    words.fill(3);
    // No words of this part are looked at.
    let rest = plus(start, 8 * MIB).expose_provenance();
    let (over, forks) = (AtomicBool::new(false), AtomicU64::new(0));
    let signals = is_handled(libc::SIGUSR1);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if signals {
                    // SAFETY: the signal has a handler.
                    unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let at = ptr::with_exposed_provenance_mut(rest);
                // SAFETY: a part of the mapping, of which nothing is needed.
                assert_eq!(unsafe { libc::madvise(at, MIB, libc::MADV_DONTNEED) }, 0);
                if forks.load(Ordering::Relaxed) > FORKS / 2 {
                    // SAFETY: a part of the mapping.
                    let locked = unsafe { libc::mlock(at, 64 << 10) };
                    assert_eq!(locked, 0, "{}", io::Error::last_os_error());
                    return;
                }
            }
        });
        for _ in 0..FORKS {
            // SAFETY: the child looks at its memory, and ends.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "{}", io::Error::last_os_error());
            if child == 0 {
                words.check("a child", 3);
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            wait(child);
            forks.fetch_add(1, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
    words.check("the parent", 3);
    println!("{FORKS} children");
}

/// Addresses that are not those of pages, and advice of a range that is not all of one kind.
fn unaligned() {
    let start = map(12 * MIB, PROT, FLAGS);
    let words = Words::of(start, 12 * MIB);
    words.fill(4);
    let odd = plus(start, MIB + 8);
    // SAFETY: the kernel refuses each of these.
    unsafe {
        for advice in [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_WIPEONFORK] {
            assert_eq!(libc::madvise(odd, MIB, advice), -1);
            assert_eq!(errno(), Some(libc::EINVAL));
        }
        let fixed = libc::mmap(odd, MIB, PROT, FLAGS | libc::MAP_FIXED, -1, 0);
        assert_eq!((fixed, errno()), (libc::MAP_FAILED, Some(libc::EINVAL)));
        let moved = libc::mremap(odd, MIB, 2 * MIB, libc::MREMAP_MAYMOVE);
        assert_eq!((moved, errno()), (libc::MAP_FAILED, Some(libc::EINVAL)));
        assert_eq!(libc::munmap(odd, MIB), -1);
        assert_eq!(errno(), Some(libc::EINVAL));
        assert_eq!((libc::munmap(start, 0), errno()), (-1, Some(libc::EINVAL)));
        let nothing = libc::mremap(start, MIB, 0, libc::MREMAP_MAYMOVE);
        assert_eq!((nothing, errno()), (libc::MAP_FAILED, Some(libc::EINVAL)));
    }
    words.check("not changed", 4);
    // Small memory before it is the kernel's.
    let before = start.cast::<u8>().wrapping_sub(64 << 10).cast::<c_void>();
    let flags = FLAGS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: addresses at which nothing is.
    let got = unsafe { libc::mmap(before, 64 << 10, PROT, flags, -1, 0) };
    if got == before {
        let small = Words::of(before, 64 << 10);
        small.fill(5);
        // SAFETY: both are this function's.
        let done = unsafe { libc::madvise(before, (64 << 10) + MIB, libc::MADV_DONTNEED) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        small.check_zero("the kernel's part");
        Words::of(start, MIB).check_zero("the other part");
        words.all()[MIB / 8..].iter().enumerate().for_each(|(at, found)| {
            assert_eq!(*found, words::word(at + MIB / 8, 4), "behind it");
        });
    }
    println!("what is not of pages is refused");
}

/// Memory that is not to be stored to becomes longer, and stays so.
fn protected() {
    let start = map(4 * MIB, PROT, FLAGS);
    Words::of(start, 4 * MIB).fill(6);
    // SAFETY: the mapping is this function's.
    unsafe {
        assert_eq!(libc::mprotect(start, 4 * MIB, libc::PROT_READ), 0);
        let longer = libc::mremap(start, 4 * MIB, 24 * MIB, libc::MREMAP_MAYMOVE);
        assert_ne!(longer, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Words::of(longer, 4 * MIB).check("longer", 6);
        Words::of(plus(longer, 4 * MIB), 20 * MIB).check_zero("longer");
        let zeroes = fs::File::open("/dev/zero").expect("a device");
        for part in [longer, plus(longer, 20 * MIB)] {
            assert_eq!(libc::read(zeroes.as_raw_fd(), part, 1), -1, "it can be stored to");
            assert_eq!(errno(), Some(libc::EFAULT));
        }
        // A part that cannot be loaded from is in the way of no other.
        assert_eq!(libc::mprotect(longer, MIB, libc::PROT_NONE), 0);
        let child = libc::fork();
        if child == 0 {
            Words::of(plus(longer, MIB), 3 * MIB)
                .all()
                .iter()
                .enumerate()
                .for_each(|(at, found)| assert_eq!(*found, words::word(at + MIB / 8, 6)));
            libc::_exit(i32::from(libc::read(zeroes.as_raw_fd(), plus(longer, MIB), 1) != -1));
        }
        wait(child);
    }
    println!("protected memory stays protected");
}

/// A process that may not have more addresses. What needs a copy is refused, and changes nothing.
fn narrow() {
    let start = map(48 * MIB, PROT, FLAGS);
    let words = Words::of(start, 48 * MIB);
    words.fill(7);
    // Twice: what is not in use may be given up at the first limit.
    for _ in 0..2 {
        let status = fs::read_to_string("/proc/self/status").expect("this process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        let limit = (kib << 10) + 16 * MIB as u64;
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: the limit is a value.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    }
    // SAFETY: a part of the mapping. With the kernel's memory it is possible, which is no promise.
    let _ = unsafe { libc::mlock(start, MIB) };
    words.check("after a lock that may have failed", 7);
    println!("nothing is lost");
}

fn main() {
    // SAFETY: a signal that ends the program.
    unsafe { libc::alarm(PATIENCE) };
    match env::args().nth(1).unwrap_or_default().as_str() {
        "callers" => callers(),
        "busy" => busy(),
        "unaligned" => unaligned(),
        "protected" => protected(),
        "narrow" => narrow(),
        other => panic!("{other}: no such command"),
    }
}
