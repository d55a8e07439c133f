//! A program that uses a part of its memory in a way in which the kernel cannot wait for pages, for
//! the tests of `lowtide run --anon`: each command checks what the kernel promises, and prints that
//! it is so. Where a command gets a number, its memory may not take more KiB than that.
//!
//! It knows nothing of lowtide, and ends itself when it hangs.

#![allow(unsafe_code, clippy::print_stdout, clippy::multiple_unsafe_ops_per_block)]

#[path = "heap_parts/words.rs"]
mod words;

use libc::{c_int, c_void};
use std::io::{Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{env, fs, io, mem, ptr, thread};
use words::{FLAGS, MIB, PAGE, PROT, Words, map, plus, wait};

/// Seconds after which a command has hung.
const PATIENCE: u32 = 90;
const MADV_COLLAPSE: c_int = 25;
const MADV_GUARD_INSTALL: c_int = 102;

fn errno() -> Option<i32> {
    io::Error::last_os_error().raw_os_error()
}

/// A number of `/proc/self/status`, in KiB.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("this process");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect(name).trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Stores to more than the budget has, so that what was stored before leaves.
fn press(most: Option<u64>) {
    let start = map(48 * MIB, PROT, FLAGS);
    let words = Words::of(start, 48 * MIB);
    words.fill(9);
    words.check("pressed", 9);
    if let Some(most) = most {
        let kib = status("RssAnon") + status("RssShmem");
        assert!(kib <= most, "{kib} KiB are in memory, and {most} were permitted");
    }
    // SAFETY: the mapping is this function's.
    assert_eq!(unsafe { libc::munmap(start, 48 * MIB) }, 0);
}

/// A part of a mapping becomes longer, and what lies past its end stays the other part's.
fn part(most: Option<u64>) {
    let start = map(8 * MIB, PROT, FLAGS);
    let (first, second) = (Words::of(start, 4 * MIB), Words::of(plus(start, 4 * MIB), 4 * MIB));
    first.fill(1);
    second.fill(2);
    // SAFETY: a part of the mapping.
    let moved = unsafe { libc::mremap(start, 4 * MIB, 16 * MIB, libc::MREMAP_MAYMOVE) };
    assert_ne!(moved, libc::MAP_FAILED);
    Words::of(moved, 4 * MIB).check("the part", 1);
    let more = Words::of(plus(moved, 4 * MIB), 12 * MIB);
    more.check_zero("what is new");
    more.fill(3);
    second.check("the other part", 2);
    press(most);
    second.check("the other part", 2);
    println!("the other part stays");
}

/// Advice of a part. A hint changes nothing; a guard is one.
fn advice(most: Option<u64>) {
    let start = map(8 * MIB, PROT, FLAGS);
    let words = Words::of(start, 8 * MIB);
    words.fill(1);
    // SAFETY: parts of the mapping; the first is a hint, whose outcome is no promise.
    unsafe {
        let _ = libc::madvise(start, 4 * MIB, MADV_COLLAPSE);
        for advice in [libc::MADV_DONTDUMP, libc::MADV_DODUMP] {
            assert_eq!(libc::madvise(plus(start, MIB), MIB, advice), 0);
        }
    }
    press(most);
    words.check("after advice", 1);
    // SAFETY: as above.
    let guarded = unsafe { libc::madvise(plus(start, 6 * MIB), MIB, MADV_GUARD_INSTALL) };
    if guarded == 0 {
        assert!(!words::is_readable(plus(start, 6 * MIB)), "no guard is there");
    } else {
        assert_eq!(errno(), Some(libc::EINVAL), "a kernel that has no guards");
    }
    Words::of(start, 6 * MIB).check("before the guard", 1);
    println!("advice was taken");
}

/// Threads with a stack of the program's own, beside a thread that forks.
fn stacks(most: Option<u64>) {
    let stack = map(2 * MIB, PROT, FLAGS);
    let over = AtomicBool::new(false);
    extern "C" fn work(argument: *mut c_void) -> *mut c_void {
        argument
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // SAFETY: the child ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(0) };
                }
                wait(child);
            }
        });
        for _ in 0..2000 {
            let mut attributes = mem::MaybeUninit::uninit();
            let mut thread = mem::MaybeUninit::uninit();
            // SAFETY: the stack is this function's, and the thread ends before it is used again.
            unsafe {
                libc::pthread_attr_init(attributes.as_mut_ptr());
                assert_eq!(libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack, 2 * MIB), 0);
                let (thread, attributes) = (thread.as_mut_ptr(), attributes.as_ptr());
                assert_eq!(libc::pthread_create(thread, attributes, work, ptr::null_mut()), 0);
                assert_eq!(libc::pthread_join(*thread, ptr::null_mut()), 0);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    press(most);
    // What is lent goes, and comes again as memory that is kept.
    for round in 0..40 {
        let mut attributes = mem::MaybeUninit::uninit();
        let stack = map(8 * MIB, PROT, FLAGS);
        // SAFETY: as above.
        unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            assert_eq!(libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack, 8 * MIB), 0);
            Words::of(stack, 8 * MIB).check_zero("a stack");
            Words::of(stack, 8 * MIB).fill(round);
            assert_eq!(libc::munmap(stack, 8 * MIB), 0);
        }
    }
    press(most);
    println!("every thread has ended");
}

/// A mutex that inherits priority, in memory that a fork protects again and again.
fn mutex(most: Option<u64>) {
    let start = map(4 * MIB, PROT, FLAGS);
    let mutex = plus(start, PAGE).cast::<libc::pthread_mutex_t>().expose_provenance();
    let at = || ptr::with_exposed_provenance_mut::<libc::pthread_mutex_t>(mutex);
    let mut attributes = mem::MaybeUninit::uninit();
    // SAFETY: the mutex lies in the mapping.
    unsafe {
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        let inherit = libc::PTHREAD_PRIO_INHERIT;
        libc::pthread_mutexattr_setprotocol(attributes.as_mut_ptr(), inherit);
        assert_eq!(libc::pthread_mutex_init(at(), attributes.as_ptr()), 0);
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the mutex lives as long as the threads.
                    unsafe {
                        assert_eq!(libc::pthread_mutex_lock(at()), 0);
                        std::hint::spin_loop();
                        assert_eq!(libc::pthread_mutex_unlock(at()), 0);
                    }
                }
            });
        }
        for _ in 0..300 {
            // SAFETY: the child ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            wait(child);
        }
        over.store(true, Ordering::Relaxed);
    });
    press(most);
    println!("no lock has failed");
}

/// Operations of `futex(2)` on words whose pages have left.
fn futex(most: Option<u64>) {
    let start = map(4 * MIB, PROT, FLAGS);
    let words = Words::of(start, 4 * MIB);
    for round in 0..4 {
        words.all().fill(0);
        press(most);
        let word = |page: usize| plus(start, page * PAGE).cast::<AtomicU32>();
        let (here, page) = (AtomicU32::new(0), 10 + round * 20);
        let add_one = (1 << 28) | (1 << 12);
        let private = libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: words of this function.
        unsafe {
            let op = libc::FUTEX_WAKE_OP | private;
            let second = word(page);
            let woken = libc::syscall(libc::SYS_futex, &raw const here, op, 1, 1, second, add_one);
            assert_eq!(woken, 0, "FUTEX_WAKE_OP: {}", io::Error::last_os_error());
            assert_eq!((*second).load(Ordering::Relaxed), 1, "one was added");
            for op in [libc::FUTEX_LOCK_PI, libc::FUTEX_UNLOCK_PI] {
                press(most);
                let op = op | private;
                let done = libc::syscall(libc::SYS_futex, word(page + 1), op, 0, 0_usize);
                assert_eq!(done, 0, "{op}: {}", io::Error::last_os_error());
            }
            // What is not memory is refused as usual.
            let nowhere = ptr::without_provenance::<u32>(1 << 12);
            let refused = libc::syscall(libc::SYS_futex, nowhere, libc::FUTEX_LOCK_PI, 0, 0_usize);
            assert_eq!((refused, errno()), (-1, Some(libc::EFAULT)));
        }
    }
    println!("no call has failed");
}

/// Fewer addresses, after which there are as many as without a budget.
fn limit() {
    let start = map(8 * MIB, PROT, FLAGS);
    let words = Words::of(start, 8 * MIB);
    words.fill(1);
    let limit = libc::rlimit { rlim_cur: 4 << 30, rlim_max: 4 << 30 };
    // SAFETY: a limit is a value.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let small = map(500 << 10, PROT, FLAGS);
    let large = map(2 << 30, PROT, FLAGS);
    Words::of(small, 500 << 10).check_zero("small");
    Words::of(large, MIB).check_zero("large");
    thread::spawn(|| ()).join().expect("a thread");
    words.check("before the limit", 1);
    words.fill(2);
    words.check("after the limit", 2);
    println!("there are addresses");
}

/// Page faults that the program serves itself.
fn userfaultfd() {
    let start = map(8 * MIB, PROT, FLAGS);
    Words::of(start, 8 * MIB).fill(1);
    let [api, register] = [0xc018_aa3f_u64, 0xc020_aa00];
    // SAFETY: structures of these calls, and a mapping of this function.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as c_int;
        if fd < 0 {
            println!("registered");
            return;
        }
        let mut agreed = [0xaa_u64, 0, 0];
        assert_eq!(libc::ioctl(fd, api, agreed.as_mut_ptr()), 0, "{}", io::Error::last_os_error());
        let fresh = map(4 * MIB, PROT, FLAGS);
        for start in [start, fresh] {
            let mut range = [start.addr() as u64, 4 * MIB as u64, 1, 0];
            let done = libc::ioctl(fd, register, range.as_mut_ptr());
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
        }
        libc::close(fd);
    }
    Words::of(start, 8 * MIB).check("before", 1);
    println!("registered");
}

/// A process that has confined itself forks.
fn chroot(folder: &str) {
    let start = map(8 * MIB, PROT, FLAGS);
    let words = Words::of(start, 8 * MIB);
    words.fill(1);
    // SAFETY: a part of the mapping.
    assert_eq!(unsafe { libc::mprotect(plus(start, MIB), MIB, libc::PROT_READ) }, 0);
    let path = std::ffi::CString::new(folder).expect("a path");
    // SAFETY: a path; a process that may not do this goes on without.
    let confined = unsafe { libc::chroot(path.as_ptr()) } == 0;
    if confined {
        env::set_current_dir("/").expect("the new root");
    }
    for _ in 0..3 {
        // SAFETY: the child looks at its memory, and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", io::Error::last_os_error());
        if child == 0 {
            words.check("a child", 1);
            let at = plus(start, MIB).cast::<libc::utsname>();
            // SAFETY: the kernel refuses to store there.
            let stored = unsafe { libc::uname(at) };
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(stored == 0)) };
        }
        wait(child);
    }
    println!("children have what their parent has");
}

/// Something reads all memory of the process.
fn read(most: Option<u64>) {
    let start = map(32 * MIB, PROT, FLAGS);
    let words = Words::of(start, 32 * MIB);
    words.fill(1);
    let mut memory = fs::File::open("/proc/self/mem").expect("this memory");
    let mut page = vec![0; PAGE];
    let (mut count, mut dumped) = (0, 0);
    let mut range = None;
    for line in fs::read_to_string("/proc/self/smaps").expect("mappings").lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let Some((from, to)) = fields[0].split_once('-') {
            let of = |text| usize::from_str_radix(text, 16).expect("an address");
            range = fields[1].starts_with('r').then(|| of(from)..of(to));
            for at in range.iter().flat_map(|range| range.clone().step_by(PAGE)).take(64 << 8) {
                if memory.seek(SeekFrom::Start(at as u64)).is_ok() {
                    count += u64::from(memory.read_exact(&mut page).is_ok());
                }
            }
        } else if fields[0] == "VmFlags:" && !fields.contains(&"dd") {
            dumped += range.as_ref().map_or(0, std::ops::Range::len);
        }
    }
    assert!(count > 0, "nothing can be read");
    assert!(dumped < 256 * MIB, "a core dump would have {dumped} bytes");
    words.check("after a reader", 1);
    press(most);
    words.check("after a reader", 1);
    println!("nothing has changed");
}

/// Forks where a copy of the heap has no room.
fn room() {
    let start = map(160 * MIB, PROT, FLAGS);
    let words = Words::of(start, 160 * MIB);
    words.fill(1);
    // SAFETY: the child ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    assert_eq!((child, errno()), (-1, Some(libc::ENOMEM)));
    words.check("after a fork that was refused", 1);
    println!("refused");
}

/// Ends by a signal that dumps core: no more than this number of bytes.
fn core(folder: &str) {
    env::set_current_dir(folder).expect("a folder");
    let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
    // SAFETY: a limit is a value.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) };
    let start = map(4 * MIB, PROT, FLAGS);
    Words::of(start, 4 * MIB).fill(0x00c0_ffee);
    std::process::abort();
}

/// A mapping moves, and its old addresses stay a mapping.
fn doubled() {
    let start = map(4 * MIB, PROT, FLAGS);
    let words = Words::of(start, 4 * MIB);
    words.fill(1);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    // SAFETY: the mapping is this function's.
    let moved = unsafe { libc::mremap(start, 4 * MIB, 4 * MIB, flags, ptr::null_mut::<c_void>()) };
    assert_ne!(moved, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    Words::of(moved, 4 * MIB).check("moved", 1);
    words.check_zero("what it has left");
    words.fill(2);
    press(None);
    words.check("what it has left", 2);
    // SAFETY: as above; nothing is there.
    let nothing = unsafe { libc::munmap(start, 4 * MIB) };
    assert_eq!(nothing, 0);
    assert!(!words::is_readable(start), "it is unmapped");
    println!("both are there");
}

/// Threads allocate and free blocks of one size, so that each gets at once what another has freed,
/// and look whether a block keeps what they have stored until they free it.
fn blocks() {
    let work = |thread: usize| {
        for round in 0..1000 {
            let stamp = thread << 32 | round;
            let mut block = Vec::<usize>::with_capacity(2 * MIB / size_of::<usize>());
            let words = PAGE / size_of::<usize>();
            block.extend(std::iter::repeat_n(stamp, words));
            // SAFETY: a page of the block, past the one that has been filled.
            unsafe { block.as_mut_ptr().add(words).write_volatile(stamp) };
            thread::yield_now();
            // SAFETY: as above.
            let second = unsafe { block.as_ptr().add(words).read_volatile() };
            assert!(second == stamp && block.iter().all(|word| *word == stamp), "round {round}");
        }
    };
    thread::scope(|scope| (1..5).for_each(|thread| drop(scope.spawn(move || work(thread)))));
}

fn main() {
    // SAFETY: a signal that ends the program.
    unsafe { libc::alarm(PATIENCE) };
    let text = env::args().nth(2).unwrap_or_default();
    let most = text.parse().ok();
    match env::args().nth(1).unwrap_or_default().as_str() {
        "part" => part(most),
        "advice" => advice(most),
        "stacks" => stacks(most),
        "mutex" => mutex(most),
        "futex" => futex(most),
        "limit" => limit(),
        "userfaultfd" => userfaultfd(),
        "chroot" => chroot(&text),
        "read" => read(most),
        "core" => core(&text),
        "room" => room(),
        "doubled" => doubled(),
        "blocks" => blocks(),
        other => panic!("{other}: no such command"),
    }
}
