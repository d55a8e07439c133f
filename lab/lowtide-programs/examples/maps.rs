//! A program that maps files in every way that `lowtide run` must understand, and checks what it
//! reads. It knows nothing of lowtide; its output is the same with and without.
//!
//! ```text
//! maps make FILE BYTES           writes a file of which each word is known
//! maps read FILE READS [BYTES]   random reads through a shared mapping; with BYTES it goes on only
//!                                while at most this much of the file is cached
//! maps turns FILE OUT            reads in order, then at random, each until the mapping is kept in
//!                                the other way; OUT says in which
//! maps parts FILE                protects, unmaps and moves parts of mappings
//! maps pieces FILE               the same with a descriptor for reading only
//! maps again FILE                a second mapping made of the first, and other pages in its place
//! maps copies FILE               stores to private mappings, which the file must not show
//! maps stores FILE               stores through shared mappings and through the descriptor
//! maps forks FILE                children with inherited and with own mappings
//! maps children FILE             the same children, made by fork alone, while threads read
//! maps calls FILE OUT            system calls on pages that are not in memory
//! maps opens FILE                opens the file for writing, and cuts it, under its mappings
//! maps waitless FILE             opens the file for writing without waiting while threads map it
//! maps others FILE               another process writes to the file while threads read it
//! maps poke FILE                 writes to each page of the file
//! maps locks FILE                POSIX locks while mappings of the file come and go
//! maps threads FILE              many threads that map, read and unmap
//! maps abort FILE                dies of a signal with a mapping
//! maps kill FILE                 is killed with a mapping
//! maps exec FILE PROGRAM ARGS    becomes another program with a mapping
//! maps daemon FILE OUT           goes to the background with a mapping, maps again there, and says
//!                                in OUT what it read
//! maps shrink FILE               cuts the file under its mapping
//! maps cut FILE                  another process cuts the file while threads read it
//! maps trim FILE PAGES           cuts the file
//! maps hoard FILE                many mappings at a time
//! maps limits FILE               limits its addresses, and maps the file some more times
//! maps rights FILE               gives rights and its user up, and has none left in any thread
//! maps broken FILE [touch]       reads pages of which some are on no device any more, by calls of
//!                                the kernel, and in the end touches one of those
//! ```
//!
//! # Safety
//!
//! Mappings are made, used and unmapped in one function each; nothing else changes the files.

#![allow(unsafe_code, clippy::print_stdout)]

use rustix::fs::FlockOperation;
use std::ffi::{CString, c_void};
use std::fs::File;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, ptr, slice, thread};

#[path = "maps_parts/ends.rs"]
mod ends;
#[path = "maps_parts/turns.rs"]
mod turns;

const PAGE: usize = 4096;
const READ: i32 = libc::PROT_READ;
const WRITE: i32 = libc::PROT_WRITE;
/// Children that are made while threads read.
const CHILDREN: u64 = 48;
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The next number of a sequence.
fn draw(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 20) as usize
}

/// The word at an offset of the file.
fn word(offset: usize) -> u64 {
    (offset as u64 ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A mapping through the C library, as programs make them.
#[derive(Clone, Copy)]
struct Map {
    start: *mut u8,
    len: usize,
    offset: usize,
}

// SAFETY: memory that every thread may read.
unsafe impl Send for Map {}

impl Map {
    fn new(file: &File, offset: usize, len: usize, prot: i32, flags: i32) -> Self {
        let at = libc::off_t::try_from(offset).unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, fd, at) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start: start.cast(), len, offset }
    }

    fn whole(file: &File, prot: i32, flags: i32) -> Self {
        Self::new(file, 0, file.metadata().unwrap().len() as usize, prot, flags)
    }

    fn pages(self) -> usize {
        self.len / PAGE
    }

    /// A part of it.
    fn part(self, page: usize, pages: usize) -> Self {
        assert!(page + pages <= self.pages());
        // SAFETY: inside of the mapping.
        let start = unsafe { self.start.add(page * PAGE) };
        Self { start, len: pages * PAGE, offset: self.offset + page * PAGE }
    }

    fn words(self) -> &'static [u64] {
        // SAFETY: mapped as long as the caller uses it, and the file is as long.
        unsafe { slice::from_raw_parts(self.start.cast(), self.len / 8) }
    }

    fn words_mut(self) -> &'static mut [u64] {
        // SAFETY: as above, and writable.
        unsafe { slice::from_raw_parts_mut(self.start.cast(), self.len / 8) }
    }

    fn unmap(self) {
        // SAFETY: the caller does not use it any more.
        assert_eq!(unsafe { libc::munmap(self.start.cast(), self.len) }, 0);
    }

    fn protect(self, prot: i32) {
        // SAFETY: the caller uses it accordingly.
        assert_eq!(unsafe { libc::mprotect(self.start.cast(), self.len, prot) }, 0);
    }

    /// Checks a word of every page.
    fn check(self) {
        for page in 0..self.pages() {
            let at = page * PAGE + (page * 72) % PAGE;
            assert_eq!(self.words()[at / 8], word(self.offset + at), "page {page}");
        }
    }

    /// Reads at random, checks, and returns a sum.
    fn sum(self, reads: usize, mut seed: u64, mut after: impl FnMut(usize)) -> u64 {
        let mut sum = 0_u64;
        for n in 0..reads {
            let at = draw(&mut seed) % (self.len / 8);
            let found = self.words()[at];
            assert_eq!(found, word(self.offset + at * 8), "word {at}");
            sum = sum.rotate_left(5) ^ found;
            after(n);
        }
        sum
    }
}

fn make(path: &str, bytes: usize) {
    let words: Vec<u8> = (0..bytes / 8).flat_map(|at| word(at * 8).to_ne_bytes()).collect();
    let file = File::create(path).unwrap();
    file.write_all_at(&words, 0).unwrap();
    // Clean pages: dirty ones could not be dropped yet.
    file.sync_all().unwrap();
}

/// Bytes of a file in the page cache.
fn cached(file: &File) -> usize {
    let (range, mut stat) = ([0_u64; 2], [0_u64; 5]);
    // SAFETY: cachestat(2) reads two numbers and writes five.
    let done =
        unsafe { libc::syscall(451, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0) };
    if done == 0 { stat[0] as usize * PAGE } else { 0 }
}

fn read(file: &File, reads: usize, most: Option<usize>) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    let sum = map.sum(reads, 1, |n| {
        if let Some(most) = most.filter(|_| n % 64 == 63) {
            let begin = Instant::now();
            while cached(file) > most {
                assert!(begin.elapsed() < PATIENCE, "{} bytes stay cached", cached(file));
                thread::sleep(Duration::from_micros(200));
            }
        }
    });
    println!("read {sum:x}");
}

fn parts(file: &File, stores: bool) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    let pages = map.pages();
    map.check();
    // A hole in the middle, with other memory in it.
    let hole = map.part(pages / 4, pages / 8);
    hole.unmap();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the hole is ours.
    let other = unsafe { libc::mmap(hole.start.cast(), hole.len, READ | WRITE, flags, -1, 0) };
    assert_eq!(other, hole.start.cast::<c_void>());
    hole.words_mut().fill(7);
    let (left, right) = (map.part(0, pages / 4), map.part(pages * 3 / 8, pages * 5 / 8));
    left.check();
    right.check();
    assert!(hole.words().iter().all(|word| *word == 7), "other memory changed");
    // Other pages of the file at the same place, over a part that is adopted.
    let over = map.part(0, pages / 8);
    let at = libc::off_t::try_from(map.len / 2).unwrap();
    let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: a part of our mapping.
    unsafe { libc::mmap(over.start.cast(), over.len, READ, fixed, file.as_raw_fd(), at) };
    Map { offset: map.len / 2, ..over }.check();
    map.part(pages / 8, pages / 8).check();
    // Moved, grown, and moved again.
    let small = Map::new(file, 0, map.len / 4, READ, libc::MAP_SHARED);
    small.check();
    let mut last = small;
    for len in [map.len / 2, map.len, map.len / 2] {
        // SAFETY: the old place is not used again.
        let moved = unsafe { libc::mremap(last.start.cast(), last.len, len, libc::MREMAP_MAYMOVE) };
        assert_ne!(moved, libc::MAP_FAILED);
        last = Map { start: moved.cast(), len, offset: 0 };
        last.check();
    }
    // Without any right for a while, then readable and writable.
    last.protect(libc::PROT_NONE);
    last.protect(READ);
    last.check();
    if stores {
        last.part(0, 4).protect(READ | WRITE);
        last.check();
    }
    for part in [last, left, hole, right] {
        part.unmap();
    }
    println!("parts of {pages} pages");
}

/// What has no descriptor: a second mapping of the same pages, and other pages at the same place.
fn again(file: &File) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    map.check();
    let flags = libc::MREMAP_MAYMOVE;
    // SAFETY: a size of nothing makes a second mapping and leaves the first.
    let second = unsafe { libc::mremap(map.start.cast(), 0, map.len, flags) };
    assert_ne!(second, libc::MAP_FAILED);
    let second = Map { start: second.cast(), ..map };
    second.check();
    map.check();
    let other = Map::new(file, 0, map.len / 4, READ, libc::MAP_SHARED);
    other.check();
    let page = map.pages() / 2;
    // SAFETY: our mapping; the kernel replaces it, or refuses where nothing can be stored.
    let done = unsafe { libc::remap_file_pages(other.start.cast(), other.len, 0, page, 0) };
    let offset = if done == 0 { page * PAGE } else { 0 };
    let other = Map { offset, ..other };
    other.check();
    for part in [map, second, other] {
        part.unmap();
    }
    println!("again {offset}");
}

fn copies(file: &File) {
    let map = Map::whole(file, READ, libc::MAP_PRIVATE);
    let other = Map::whole(file, READ | WRITE, libc::MAP_PRIVATE);
    map.check();
    // A third of the pages becomes writable, one by one, and is stored to.
    let stored = |page: usize| page.is_multiple_of(3);
    for page in (0..map.pages()).filter(|page| stored(*page)) {
        map.part(page, 1).protect(READ | WRITE);
        map.part(page, 1).words_mut().fill(page as u64);
        other.part(page, 1).words_mut().fill(page as u64 + 1);
    }
    for round in 0..3 {
        for page in 0..map.pages() {
            let (found, others) = (map.part(page, 1), other.part(page, 1));
            if stored(page) {
                let all = |part: Map, value: u64| part.words().iter().all(|word| *word == value);
                assert!(all(found, page as u64), "a store to page {page} was lost");
                assert!(all(others, page as u64 + 1), "a store to page {page} was lost");
            } else {
                found.check();
            }
        }
        println!("copies, round {round}");
    }
    let mut word_of_file = [0; 8];
    file.read_exact_at(&mut word_of_file, 0).unwrap();
    assert_eq!(u64::from_ne_bytes(word_of_file), word(0), "the file shows a copy");
    map.unmap();
    other.unmap();
}

fn stores(file: &File) {
    let map = Map::whole(file, READ | WRITE, libc::MAP_SHARED);
    let reader = Map::whole(file, READ, libc::MAP_SHARED);
    let mut expected: Vec<u64> = (0..map.len / 8).map(|at| word(at * 8)).collect();
    let mut seed = 3;
    for n in 0..60_000_u64 {
        let at = draw(&mut seed) % expected.len();
        match n % 4 {
            0 => {
                map.words_mut()[at] = n;
                expected[at] = n;
            }
            1 => {
                file.write_all_at(&n.to_ne_bytes(), at as u64 * 8).unwrap();
                expected[at] = n;
            }
            2 => {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, at as u64 * 8).unwrap();
                assert_eq!(u64::from_ne_bytes(bytes), expected[at], "word {at} by descriptor");
            }
            _ => assert_eq!(reader.words()[at], expected[at], "word {at} by mapping"),
        }
    }
    // SAFETY: the whole mapping.
    assert_eq!(unsafe { libc::msync(map.start.cast(), map.len, libc::MS_SYNC) }, 0);
    for (at, expected) in expected.iter().enumerate() {
        assert_eq!(reader.words()[at], *expected, "word {at}");
    }
    map.unmap();
    reader.unmap();
    let sum = expected.iter().fold(0_u64, |sum, word| sum.rotate_left(5) ^ word);
    println!("stores {sum:x}");
}

/// How a child is made.
#[derive(Clone, Copy)]
enum By {
    /// With the handlers of `fork(3)`.
    Fork,
    /// Without, as a signal handler may.
    ForkAlone,
    /// By a system call.
    Call,
    /// By the C library's `clone(2)`, on a stack of its own.
    Clone,
}

/// Runs the work, and ends the child at once.
fn end_with(work: impl FnOnce()) -> ! {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // SAFETY: ends the child.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

extern "C" fn begin<W: FnOnce()>(work: *mut c_void) -> i32 {
    // SAFETY: the child's copy of the work, which is done once.
    end_with(unsafe { work.cast::<Option<W>>().as_mut() }.unwrap().take().unwrap())
}

/// A child that runs `work`.
fn child<W: FnOnce()>(by: By, work: W) {
    unsafe extern "C" {
        fn _Fork() -> i32;
    }
    let flags = libc::SIGCHLD;
    let mut work = Some(work);
    let mut stack = vec![0_u128; 16 << 10];
    let pid = match by {
        // SAFETY: the child uses what it inherited, then ends.
        By::Fork => unsafe { libc::fork() },
        // SAFETY: as above.
        By::ForkAlone => unsafe { _Fork() },
        // SAFETY: as above.
        By::Call => unsafe {
            libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) as i32
        },
        By::Clone => {
            let top = stack.as_mut_ptr_range().end.cast();
            // SAFETY: as above; the stack is the child's copy.
            unsafe { libc::clone(begin::<W>, top, flags, (&raw mut work).cast()) }
        }
    };
    if pid == 0 {
        end_with(work.take().unwrap());
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
}

fn forks(file: &File, path: &str, ways: &[By]) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    map.check();
    for &by in ways {
        child(by, || {
            map.check();
            let own = Map::whole(file, READ, libc::MAP_SHARED);
            own.check();
            map.part(0, 16).unmap();
            own.unmap();
            child(by, || map.part(16, map.pages() - 16).check());
        });
        map.check();
    }
    let same = env::current_exe().unwrap();
    let output = Command::new(same).args(["read", path, "1000"]).output().unwrap();
    assert!(output.status.success());
    print!("forks {}", String::from_utf8_lossy(&output.stdout));
    map.unmap();
}

/// Children that check what they inherited while other threads of the parent read, map and unmap.
fn children(file: &File, path: &str) {
    forks(file, path, &[By::Fork]);
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..4 {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    map.sum(50, seed, |_| {});
                    let own = Map::new(file, 0, map.len / 8, READ, libc::MAP_PRIVATE);
                    own.sum(20, seed, |_| {});
                    own.unmap();
                }
            });
        }
        for n in 0..CHILDREN {
            child(By::Fork, || {
                assert_ne!(map.sum(300, 100 + n, |_| {}), 0);
                let own = Map::new(file, 0, map.len / 4, READ, libc::MAP_SHARED);
                assert_ne!(own.sum(300, 200 + n, |_| {}), 0);
                own.unmap();
            });
        }
        done.store(true, Relaxed);
    });
    map.unmap();
    println!("children");
}

/// The kernel reads the mapping, not the program.
fn calls(file: &File, out: &str) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    // SAFETY: as `words`.
    let bytes: &'static [u8] = unsafe { slice::from_raw_parts(map.start, map.len) };
    let copy = File::options().read(true).write(true).create(true).truncate(true).open(out);
    let copy = copy.unwrap();
    let quarter = map.len / 4;
    (&copy).write_all(&bytes[..quarter]).unwrap();
    copy.write_all_at(&bytes[quarter..2 * quarter], quarter as u64).unwrap();
    let parts: Vec<IoSlice<'_>> =
        bytes[2 * quarter..3 * quarter].chunks(3 * PAGE).map(IoSlice::new).collect();
    (&copy).seek(SeekFrom::Start(2 * quarter as u64)).unwrap();
    for parts in parts.chunks(16) {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        assert_eq!((&copy).write_vectored(parts).unwrap(), wanted);
    }
    let (mut send, mut receive) = UnixStream::pair().unwrap();
    let sender = thread::spawn(move || send.write_all(&bytes[3 * quarter..]).unwrap());
    let mut last = vec![0; map.len - 3 * quarter];
    receive.read_exact(&mut last).unwrap();
    sender.join().unwrap();
    copy.write_all_at(&last, 3 * quarter as u64).unwrap();
    let same = Map::whole(&copy, READ, libc::MAP_SHARED);
    same.check();
    assert!(same.words() == map.words(), "the copy is another one");
    println!("calls on {} bytes", map.len);
}

/// A word of each page is set to what `value` makes of its offset.
fn poke(file: &File, value: impl Fn(usize) -> u64) {
    for page in 0..file.metadata().unwrap().len() as usize / PAGE {
        file.write_all_at(&value(page * PAGE).to_ne_bytes(), (page * PAGE) as u64).unwrap();
    }
}

fn opens(path: &str) {
    let poked = |map: Map, bits: u64| {
        let right = |page: &usize| map.words()[page * PAGE / 8] == word(page * PAGE) ^ bits;
        (0..map.pages()).all(|page| right(&page))
    };
    let mapped = |flags| {
        let map = Map::whole(&File::open(path).unwrap(), READ, flags);
        map.check();
        map
    };
    for (round, flags) in [0, libc::O_NONBLOCK, 0].into_iter().enumerate() {
        let (shared, private) = (mapped(libc::MAP_SHARED), mapped(libc::MAP_PRIVATE));
        let writes = File::options().write(true).custom_flags(flags).open(path);
        let writer = writes.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let bits = round as u64 + 1;
        poke(&writer, |at| word(at) ^ bits);
        assert!(poked(shared, bits) && poked(private, bits), "old data in round {round}");
        poke(&writer, word);
        // While it is open for writing, and after that.
        let late = mapped(libc::MAP_SHARED);
        drop(writer);
        for map in [shared, private, late, mapped(libc::MAP_SHARED)] {
            map.check();
            map.unmap();
        }
    }
    // Cut by its path, without a descriptor.
    let map = mapped(libc::MAP_SHARED);
    let half = map.pages() / 2;
    let name = CString::new(path).unwrap();
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::truncate(name.as_ptr(), (half * PAGE) as libc::off_t) }, 0);
    map.part(0, half).check();
    assert!(ends::touch_is_sigbus(map, half) && ends::touch_is_sigbus(map, map.pages() - 1));
    map.unmap();
    println!("opened {half}");
}

/// As many threads as would starve one that opens the file: each mapping is a lease for a moment,
/// which must never be in the way of this process's own open.
fn waitless(path: &str) {
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    let (done, mapped) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..32 {
            let file = &file;
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    let map = Map::new(file, seed % 8 * (len / 8), len / 8, READ, libc::MAP_SHARED);
                    map.sum(1, seed as u64, |_| {});
                    map.unmap();
                    mapped.fetch_add(1, Relaxed);
                }
            });
        }
        let open = |_| {
            // Leases are there again.
            let before = mapped.load(Relaxed);
            while mapped.load(Relaxed) < before + 8 {
                thread::yield_now();
            }
            File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).map(drop)
        };
        let openers: Vec<_> =
            (0..8).map(|_| scope.spawn(move || (0..200).try_for_each(open))).collect();
        let opened: Vec<_> = openers.into_iter().map(|opener| opener.join().unwrap()).collect();
        done.store(true, Relaxed);
        opened.into_iter().for_each(|opened| opened.unwrap());
    });
    println!("never waited");
}

fn others(file: &File, path: &str) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    map.check();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..8 {
            let done = &done;
            scope.spawn(move || {
                let mut seed = seed;
                while !done.load(Relaxed) {
                    let at = draw(&mut seed) % map.pages() * PAGE;
                    let found = map.words()[at / 8];
                    assert!([word(at), !word(at)].contains(&found), "{found:x} at {at}");
                }
            });
        }
        let poked = Command::new(env::current_exe().unwrap()).args(["poke", path]).status();
        assert!(poked.unwrap().success());
        let old =
            (0..map.pages()).filter(|page| map.words()[page * PAGE / 8] != !word(page * PAGE));
        assert_eq!(old.count(), 0, "pages are old");
        done.store(true, Relaxed);
    });
    map.unmap();
    println!("poked");
}

/// As daemons begin: a child of a child, in a session of its own, without descriptors.
fn daemon(path: &str, out: &str) {
    let file = File::open(path).unwrap();
    Map::whole(&file, READ, libc::MAP_SHARED).check();
    // SAFETY: the child uses what it inherited.
    if unsafe { libc::fork() } != 0 {
        println!("in the background");
        return;
    }
    // SAFETY: a session of its own.
    assert!(unsafe { libc::setsid() } > 0);
    // SAFETY: as above; the parent ends without the handlers of the program.
    if unsafe { libc::fork() } != 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    std::mem::forget(file);
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    let file = File::open(path).unwrap();
    let map = Map::whole(&file, READ, libc::MAP_SHARED);
    map.check();
    let sum = map.sum(20_000, 9, |_| {});
    let fresh = format!("{out}.new");
    std::fs::write(&fresh, format!("{sum:x}\n")).unwrap();
    std::fs::rename(fresh, out).unwrap();
    // What the caller has open is closed already.
    std::process::exit(0);
}

fn locks(file: &File) {
    rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive).unwrap();
    for _ in 0..4 {
        let map = Map::whole(file, READ, libc::MAP_SHARED);
        map.check();
        map.unmap();
    }
    // Pages of a mapping that is gone may stay known for a while, but not longer than other files
    // need the room. Either way the lock must stay: a child cannot take it.
    child(By::Fork, || {
        let taken = rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive);
        assert!(taken.is_err(), "the lock was lost");
    });
    println!("locks are kept");
}

fn threads(file: &File) {
    let len = file.metadata().unwrap().len() as usize;
    let sums = thread::scope(|scope| {
        let work = |thread: usize| {
            move || {
                let mut sum = 0;
                for round in 0..12 {
                    let offset = (thread * 7 + round) % 8 * (len / 8);
                    let map = Map::new(file, offset, len / 8, READ, libc::MAP_SHARED);
                    sum ^= map.sum(500, thread as u64, |_| {});
                    map.unmap();
                }
                sum
            }
        };
        let all: Vec<_> = (0..16).map(|thread| scope.spawn(work(thread))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).fold(0, |sum, own| sum ^ own)
    });
    println!("threads {sums:x}");
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let (command, path) = (args[0].as_str(), args[1].as_str());
    let number = |at: usize| args.get(at).map(|text| text.parse::<usize>().expect("a number"));
    if command == "make" {
        return make(path, number(2).expect("bytes"));
    }
    let writes = ["stores", "locks", "parts", "shrink", "poke", "trim"].contains(&command);
    let file = File::options().read(true).write(writes).open(path).unwrap();
    match command {
        "read" => read(&file, number(2).expect("reads"), number(3)),
        "turns" => turns::turns(&file, &args[2]),
        "parts" => parts(&file, true),
        "pieces" => parts(&file, false),
        "again" => again(&file),
        "copies" => copies(&file),
        "stores" => stores(&file),
        "forks" => {
            forks(&file, path, &[By::Fork, By::ForkAlone, By::Call, By::Clone]);
        }
        "children" => children(&file, path),
        "calls" => calls(&file, &args[2]),
        "opens" => opens(path),
        "waitless" => waitless(path),
        "others" => others(&file, path),
        "poke" => poke(&file, |at| !word(at)),
        "locks" => locks(&file),
        "threads" => threads(&file),
        "abort" => {
            Map::whole(&file, READ, libc::MAP_SHARED).check();
            std::process::abort();
        }
        "kill" => {
            Map::whole(&file, READ, libc::MAP_SHARED).check();
            let own = std::process::id().cast_signed();
            // SAFETY: the process itself.
            unsafe { libc::kill(own, libc::SIGKILL) };
        }
        "daemon" => daemon(path, &args[2]),
        "shrink" => ends::shrink(&file),
        "cut" => ends::cut(&file, path),
        "trim" => file.set_len((number(2).expect("pages") * PAGE) as u64).unwrap(),
        "hoard" => ends::hoard(&file),
        "limits" => ends::limits(&file),
        "rights" => ends::rights(&file),
        "broken" => ends::broken(&file, args.len() > 2),
        "exec" => {
            Map::whole(&file, READ, libc::MAP_SHARED).check();
            panic!("{}", Command::new(&args[2]).args(&args[3..]).exec());
        }
        other => panic!("no command {other}"),
    }
}
