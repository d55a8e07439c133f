//! A program that reads and writes files in every way that `lowtide run --files` must understand,
//! and checks what it reads. It knows nothing of lowtide; its output is the same with and without.
//!
//! Where a number of bytes is given, it goes on only while at most that much of the file is cached.
//!
//! ```text
//! reads make FILE BYTES          writes a file of which each word is known
//! reads random FILE [BYTES]      reads pieces at random places (pread, readv, preadv, read)
//! reads stream FILE [BYTES]      reads in order by fread
//! reads lines FILE [BYTES]       reads in order by fgets, which no library can stand in front of
//! reads hot FILE [PERCENT]       reads some pages again and again among all others; this part of
//!                                them must be cached in the end
//! reads mapped FILE [BYTES]      reads a file, and maps its first half
//! reads forks FILE [BYTES]       children that inherit a descriptor, and that open the file
//! reads cut FILE                 another process cuts and writes the file while threads read it
//! reads rewrite FILE TIMES       is that process
//! reads numbers FILE OTHER       uses the numbers of descriptors again, for other files
//! reads handler FILE             reads in handlers of a signal that interrupts reads and malloc
//! reads many DIR FILES [BYTES]   opens, reads and closes many files, one after the other
//! reads fill FILE [BYTES]        writes in order, in five ways, and reads it again; no more than
//!                                half of that is ever dirty
//! reads build DIR FILES [BYTES]  writes and closes many files, one after the other
//! ```
//!
//! # Safety
//!
//! Buffers are of this program, descriptors are open, and mappings are used in one function each.

#![allow(unsafe_code, clippy::print_stdout)]

use std::ffi::{CString, c_void};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, mem, ptr, thread};

const PAGE: usize = 4096;
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are read at a time at most.
const PIECE: usize = 64 << 10;
/// Pages that are read again and again.
const HOT: usize = 1024;

/// The next number of a sequence.
fn draw(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 20) as usize
}

/// The word at an offset of the file.
fn word(offset: usize) -> u64 {
    (offset as u64 ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn words(offset: usize, bytes: usize) -> Vec<u8> {
    (offset / 8..(offset + bytes) / 8).flat_map(|at| word(at * 8).to_ne_bytes()).collect()
}

/// Checks bytes that were read from an offset, both of whole words.
fn check(bytes: &[u8], offset: usize) {
    let wrong = bytes.chunks_exact(8).enumerate().find(|(at, found)| {
        u64::from_ne_bytes((*found).try_into().expect("eight bytes")) != word(offset + at * 8)
    });
    assert!(wrong.is_none(), "a wrong word: {wrong:?} behind {offset}");
}

fn make(path: &str, bytes: usize) {
    let file = File::create(path).expect("a file");
    for offset in (0..bytes).step_by(1 << 20) {
        let part = words(offset, (bytes - offset).min(1 << 20));
        file.write_all_at(&part, offset as u64).expect("room");
    }
    // Clean pages: dirty ones could not be dropped yet.
    file.sync_all().expect("a disk");
}

fn len(file: &File) -> usize {
    file.metadata().expect("a file").len() as usize
}

/// Pages of a part of a file in the page cache, how many of them are dirty, and how many are being
/// written; a length of zero is all of it.
fn cachestat(file: &File, offset: usize, len: usize) -> [usize; 3] {
    let (range, mut stat) = ([offset as u64, len as u64], [0_u64; 5]);
    // SAFETY: cachestat(2) reads two numbers and writes five.
    let done =
        unsafe { libc::syscall(451, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0) };
    if done == 0 { [0, 1, 2].map(|at| stat[at] as usize) } else { [0; 3] }
}

/// Pages of a part of a file in the page cache.
fn cached(file: &File, offset: usize, len: usize) -> usize {
    cachestat(file, offset, len)[0]
}

/// Goes on when at most this many bytes of some files are cached.
fn wait(files: &[&File], most: Option<usize>) {
    let Some(most) = most else { return };
    let begin = Instant::now();
    let bytes = || files.iter().map(|file| cached(file, 0, 0) * PAGE).sum::<usize>();
    while bytes() > most {
        assert!(begin.elapsed() < PATIENCE, "{} bytes stay cached", bytes());
        thread::sleep(Duration::from_micros(200));
    }
}

/// Reads a piece in one of several ways; how many bytes.
fn read_at(file: &File, to: &mut [u8], offset: usize, way: usize) -> usize {
    let (fd, at) = (file.as_raw_fd(), libc::off_t::try_from(offset).expect("a place"));
    let (one, two) = to.split_at_mut(to.len() / 2);
    let parts = [one, two].map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast::<c_void>(),
        iov_len: part.len(),
    });
    let got = match way % 4 {
        // SAFETY: the buffer, and its length.
        0 => unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), at) },
        // SAFETY: both parts.
        1 => unsafe { libc::preadv(fd, parts.as_ptr(), 2, at) },
        way => {
            // SAFETY: takes numbers.
            assert_eq!(unsafe { libc::lseek(fd, at, libc::SEEK_SET) }, at);
            if way == 2 {
                // SAFETY: the buffer, and its length.
                unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) }
            } else {
                // SAFETY: both parts.
                unsafe { libc::readv(fd, parts.as_ptr(), 2) }
            }
        }
    };
    usize::try_from(got).expect("a read")
}

/// Reads pieces at random places, as many bytes as the file has, and checks them.
fn random(file: &File, most: Option<usize>) {
    let (all, mut buffer, mut seed) = (len(file), vec![0; PIECE], 7);
    let (mut done, mut sum) = (0, 0_u64);
    for count in 0.. {
        let size = 8 << (draw(&mut seed) % 14);
        let offset = draw(&mut seed) % (all / 8) * 8;
        let size = size.min(all - offset).min(PIECE);
        assert_eq!(read_at(file, &mut buffer[..size], offset, count), size);
        check(&buffer[..size], offset);
        sum = sum.rotate_left(5) ^ u64::from(buffer[size / 2]);
        done += size;
        if count % 64 == 63 {
            wait(&[file], most);
        }
        if done >= all {
            return println!("random {count} {sum:x}");
        }
    }
}

/// A stream of the C library.
fn stream_of(path: &str) -> *mut libc::FILE {
    let path = CString::new(path).expect("a path");
    // SAFETY: both end with a zero.
    let stream = unsafe { libc::fopen(path.as_ptr(), c"r".as_ptr()) };
    assert!(!stream.is_null(), "{}", std::io::Error::last_os_error());
    stream
}

/// Reads in order, in pieces of many sizes.
fn stream(path: &str, most: Option<usize>) {
    let (file, stream) = (File::open(path).expect("the file"), stream_of(path));
    let (mut offset, mut seed, mut buffer) = (0, 3, vec![0_u8; PIECE]);
    for count in 0.. {
        let size = 8 << (draw(&mut seed) % 14);
        // SAFETY: the buffer, and its length.
        let got = unsafe { libc::fread(buffer.as_mut_ptr().cast(), 1, size.min(PIECE), stream) };
        check(&buffer[..got], offset);
        offset += got;
        if got == 0 {
            assert_eq!(offset, len(&file));
            println!("stream {count}");
            break;
        }
        if count % 64 == 0 {
            wait(&[&file], most);
        }
    }
    // SAFETY: open, and not used again.
    unsafe { libc::fclose(stream) };
}

/// The same, by a function of which every read is the C library's own.
fn lines(path: &str, most: Option<usize>) {
    let (file, stream) = (File::open(path).expect("the file"), stream_of(path));
    let (mut buffer, mut count, mut sum) = (vec![0_u8; PIECE], 0_u64, 0_u64);
    // SAFETY: the buffer, and its length.
    while !unsafe { libc::fgets(buffer.as_mut_ptr().cast(), PIECE as i32, stream) }.is_null() {
        sum = sum.rotate_left(5) ^ u64::from(buffer[0]);
        count += 1;
        if count % 2048 == 0 {
            wait(&[&file], most);
        }
    }
    // SAFETY: open, and not used again.
    unsafe { libc::fclose(stream) };
    println!("lines {count} {sum:x}");
}

/// Reads all pages in order, and hot ones at random among them.
fn hot(file: &File, percent: Option<usize>) {
    let (pages, mut seed, mut buffer) = (len(file) / PAGE, 11, vec![0; PAGE]);
    let place = |number: usize| (number * 7919) % pages * PAGE;
    let mut sum = 0;
    for cold in 0..pages * 2 {
        for number in [draw(&mut seed) % HOT, draw(&mut seed) % HOT] {
            let offset = place(number);
            assert_eq!(read_at(file, &mut buffer, offset, 0), PAGE);
            check(&buffer, offset);
            sum += usize::from(buffer[9]);
        }
        // Another place each time: no page is read again soon.
        let offset = (cold * 4099) % pages * PAGE;
        assert_eq!(read_at(file, &mut buffer, offset, 0), PAGE);
        check(&buffer, offset);
    }
    let there: usize = (0..HOT).map(|number| cached(file, place(number), PAGE)).sum();
    if let Some(percent) = percent {
        eprintln!("{there} of {HOT} pages are cached");
        assert!(there * 100 >= HOT * percent, "{there} of {HOT} pages are cached");
    }
    println!("hot {sum}");
}

/// Reads a file of which the first half is mapped, too.
fn mapped(file: &File, most: Option<usize>) {
    let (all, mut seed, mut buffer) = (len(file), 5, vec![0; PAGE]);
    let (fd, half, how) = (file.as_raw_fd(), all / 2, libc::PROT_READ);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let map = unsafe { libc::mmap(ptr::null_mut(), half, how, libc::MAP_SHARED, fd, 0) };
    assert_ne!(map, libc::MAP_FAILED);
    for count in 0..all / PAGE {
        let offset = draw(&mut seed) % (all / PAGE) * PAGE;
        assert_eq!(read_at(file, &mut buffer, offset, count), PAGE);
        check(&buffer, offset);
        let at = draw(&mut seed) % (all / PAGE) * PAGE;
        for at in [at, offset].into_iter().filter(|at| *at < half) {
            let place = map.cast::<u8>().wrapping_add(at).cast::<u64>();
            // SAFETY: inside of the mapping, of whole words.
            let found = unsafe { place.read_volatile() };
            assert_eq!(found, word(at));
        }
        if count % 64 == 63 {
            wait(&[file], most);
        }
    }
    // SAFETY: not used again.
    unsafe { libc::munmap(map, half) };
    println!("mapped");
}

/// Children read what their parent reads.
fn forks(path: &str, most: Option<usize>) {
    let file = File::open(path).expect("the file");
    random(&file, most);
    for inherits in [true, false] {
        // SAFETY: this process has one thread of its own.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = File::open(path).expect("the file");
            random(if inherits { &file } else { &own }, most);
            std::process::exit(0);
        }
        let mut status = 0;
        // SAFETY: the child is ours.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
}

/// Cuts the file, and writes what it was.
fn rewrite(path: &str, times: usize) {
    let file = File::options().read(true).write(true).open(path).expect("the file");
    let all = len(&file);
    for count in 0..times {
        let left = all / (2 + count % 3) / 8 * 8;
        file.set_len(left as u64).expect("a cut");
        thread::sleep(Duration::from_millis(5));
        for offset in (left..all).step_by(1 << 20) {
            let part = words(offset, (all - offset).min(1 << 20));
            file.write_all_at(&part, offset as u64).expect("room");
        }
    }
}

/// Threads read what another process cuts and writes: its words, or nothing.
fn cut(path: &str) {
    let file = File::open(path).expect("the file");
    let all = len(&file);
    let program = env::current_exe().expect("a path");
    let mut other = Command::new(program).args(["rewrite", path, "12"]).spawn().expect("it starts");
    let (over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..4 {
            let (file, over, reads) = (&file, &over, &reads);
            scope.spawn(move || {
                let (mut seed, mut buffer) = (number, vec![0; PIECE]);
                while !over.load(Relaxed) {
                    let offset = draw(&mut seed) % (all / 8) * 8;
                    // SAFETY: the buffer, and its length.
                    let got = unsafe {
                        let to = buffer.as_mut_ptr().cast();
                        libc::pread(file.as_raw_fd(), to, PIECE, offset as libc::off_t)
                    };
                    let got = usize::try_from(got).expect("a read") / 8 * 8;
                    for (at, found) in buffer[..got].chunks_exact(8).enumerate() {
                        let found = u64::from_ne_bytes(found.try_into().expect("eight bytes"));
                        // The kernel copies while it cuts: a page may be zeroes then.
                        let expected = word(offset + at * 8);
                        assert!(found == expected || found == 0, "{found:x} behind {offset}");
                    }
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        let status = other.wait().expect("it ends");
        over.store(true, Relaxed);
        assert!(status.success());
    });
    assert!(reads.load(Relaxed) > 100);
    random(&file, None);
}

/// Each number is one file, then another, by every call that gives numbers.
fn numbers(path: &str, other: &str) {
    let (mut seed, mut buffer) = (13, vec![0; PIECE]);
    let small = fs::read(other).expect("another file");
    let mut pipe = [0; 2];
    // SAFETY: two numbers are written.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let mut seen = Vec::new();
    for count in 0..3000 {
        let file = File::open(path).expect("the file");
        let fd = file.as_raw_fd();
        let offset = draw(&mut seed) % (len(&file) / 8 - PIECE / 8) * 8;
        assert_eq!(read_at(&file, &mut buffer, offset, count), PIECE);
        check(&buffer, offset);
        let opened = File::open(other).expect("another file");
        match count % 3 {
            0 => {
                // SAFETY: the number is another file's from now on.
                assert_eq!(unsafe { libc::dup2(opened.as_raw_fd(), fd) }, fd);
                let got = read_at(&file, &mut buffer, 0, count);
                assert_eq!(buffer[..got], small[..got]);
            }
            1 => {
                // SAFETY: as above.
                assert_eq!(unsafe { libc::dup2(pipe[0], fd) }, fd);
                // SAFETY: the text, and its length.
                assert_eq!(unsafe { libc::write(pipe[1], c"pipe".as_ptr().cast(), 4) }, 4);
                // SAFETY: the buffer, and its length.
                assert_eq!(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), PIECE) }, 4);
                assert_eq!(buffer[..4], *b"pipe");
            }
            _ => {
                drop(opened);
                // SAFETY: nothing uses the number.
                assert_eq!(unsafe { libc::close(file.into_raw_fd()) }, 0);
                let opened = File::open(other).expect("another file");
                assert_eq!(opened.as_raw_fd(), fd, "the number is used again");
                let got = read_at(&opened, &mut buffer, 8, count);
                assert_eq!(buffer[..got], small[8..8 + got]);
            }
        }
        seen.push(fd);
    }
    seen.dedup();
    println!("numbers {}", seen.len());
}

static FD: AtomicI32 = AtomicI32::new(-1);
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: i32) {
    let mut bytes = [0_u8; 64];
    let count = HANDLED.fetch_add(1, Relaxed);
    let offset = (count * 4096 % (1 << 20)) as libc::off_t;
    // SAFETY: the buffer, and its length.
    let got = unsafe { libc::pread(FD.load(Relaxed), bytes.as_mut_ptr().cast(), 64, offset) };
    if got != 64 || u64::from_ne_bytes(bytes[..8].try_into().unwrap()) != word(offset as usize) {
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}

/// A signal interrupts whatever this does, every half of a millisecond, and reads.
fn handler(path: &str) {
    let mut action: libc::sigaction = {
        // SAFETY: zeroes are an action.
        unsafe { mem::zeroed() }
    };
    action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART;
    FD.store(File::open(path).expect("the file").into_raw_fd(), Relaxed);
    let file = File::open(path).expect("the file");
    // SAFETY: the handler calls what a handler may call.
    assert_eq!(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut()) }, 0);
    let half = libc::timeval { tv_sec: 0, tv_usec: 500 };
    let timer = libc::itimerval { it_interval: half, it_value: half };
    // SAFETY: the timer is read.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
    let (begin, mut seed, mut buffer) = (Instant::now(), 17, vec![0; PIECE]);
    while HANDLED.load(Relaxed) < 400 {
        assert!(begin.elapsed() < PATIENCE, "{} signals", HANDLED.load(Relaxed));
        let offset = draw(&mut seed) % (len(&file) / 8 - PIECE / 8) * 8;
        assert_eq!(read_at(&file, &mut buffer, offset, 0), PIECE);
        check(&buffer, offset);
        // A number that nothing is known of, for the handler to ask about.
        let before = FD.swap(File::open(path).expect("the file").into_raw_fd(), Relaxed);
        // SAFETY: the handler runs in this thread, and not now.
        unsafe { libc::close(before) };
        let blocks: Vec<Vec<u8>> = (0..200).map(|_| vec![1; draw(&mut seed) % 5000]).collect();
        std::hint::black_box(blocks);
    }
    println!("handled");
    // What is done at the end is not interrupted.
    std::process::exit(0);
}

/// Many files, of which none is open for long.
fn many(dir: &str, count: usize, most: Option<usize>) {
    const BYTES: usize = 2 << 20;
    let path = |number: usize| format!("{dir}/{number}");
    for number in 0..count {
        make(&path(number), BYTES);
    }
    for number in 0..count {
        let bytes = fs::read(path(number)).expect("the file");
        check(&bytes, 0);
        if number % 4 == 3 {
            wait_for_all((0..=number).map(path), most);
        }
    }
    println!("many {count}");
}

/// Waits for files that are not open, by descriptors past the cache, which do not make them known.
fn wait_for_all(paths: impl Iterator<Item = String>, most: Option<usize>) {
    let open = |path| File::options().read(true).custom_flags(libc::O_DIRECT).open(path);
    let files: Vec<File> = paths.map(|path| open(path).expect("the file")).collect();
    wait(&files.iter().collect::<Vec<_>>(), most);
}

/// The same, of files that are written, and not read.
fn build(dir: &str, count: usize, most: Option<usize>) {
    const PARTS: usize = 32;
    let path = |number: usize| format!("{dir}/{number}");
    for number in 0..count {
        let mut file = File::create(path(number)).expect("a file");
        for part in 0..PARTS {
            file.write_all(&words(part * PIECE, PIECE)).expect("room");
        }
        drop(file);
        if number % 4 == 3 {
            wait_for_all((0..=number).map(path), most);
        }
    }
    for number in 0..count {
        check(&fs::read(path(number)).expect("the file"), 0);
    }
    println!("build {count}");
}

/// Writes a piece in one of several ways, behind what was written before.
fn write_at(file: &File, stream: *mut libc::FILE, from: &[u8], offset: usize, way: usize) {
    let (fd, at) = (file.as_raw_fd(), libc::off_t::try_from(offset).expect("a place"));
    let (one, two) = from.split_at(from.len() / 2);
    let parts = [one, two].map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: part.len(),
    });
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::lseek(fd, at, libc::SEEK_SET) }, at);
    let put = match way % 5 {
        // SAFETY: the buffer, and its length.
        0 => unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) },
        // SAFETY: the same.
        1 => unsafe { libc::pwrite(fd, from.as_ptr().cast(), from.len(), at) },
        // SAFETY: both parts.
        2 => unsafe { libc::writev(fd, parts.as_ptr(), 2) },
        // SAFETY: the same.
        3 => unsafe { libc::pwritev(fd, parts.as_ptr(), 2, at) },
        // SAFETY: the stream is of a duplicate, so it writes at the same place, and has no buffer.
        _ => unsafe { libc::fwrite(from.as_ptr().cast(), 1, from.len(), stream) }.cast_signed(),
    };
    assert_eq!(usize::try_from(put), Ok(from.len()), "{}", std::io::Error::last_os_error());
}

/// Writes a file in order, a third of it in small parts, and reads it.
fn fill(path: &str, most: Option<usize>) {
    const ALL: usize = 96 << 20;
    const SMALL: usize = 512;
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(path);
    let file = file.expect("a file");
    let own = file.try_clone().expect("a descriptor").into_raw_fd();
    // SAFETY: the descriptor is the stream's from now on.
    let stream = unsafe { libc::fdopen(own, c"w".as_ptr()) };
    assert!(!stream.is_null());
    // SAFETY: nothing was written to it.
    assert_eq!(unsafe { libc::setvbuf(stream, ptr::null_mut(), libc::_IONBF, 0) }, 0);
    let mut is_slow = false;
    for (count, offset) in (0..ALL).step_by(PIECE).enumerate() {
        let began = Instant::now();
        if offset < ALL / 3 {
            let piece = words(offset, PIECE);
            piece.chunks(SMALL).for_each(|part| (&file).write_all(part).expect("room"));
        } else {
            write_at(&file, stream, &words(offset, PIECE), offset, count);
        }
        let [_, dirty, writeback] = cachestat(&file, 0, 0);
        let unwritten = (dirty + writeback) * PAGE;
        // Where a device takes seconds nothing waits for it any longer.
        is_slow |= began.elapsed() >= Duration::from_secs(4);
        let bound = most.filter(|_| !is_slow).unwrap_or(usize::MAX);
        assert!(unwritten <= bound / 2, "{unwritten} bytes are dirty");
        if count % 16 == 15 {
            wait(&[&file], most);
        }
    }
    // SAFETY: open, and not used again.
    unsafe { libc::fclose(stream) };
    let mut buffer = vec![0; PIECE];
    for offset in (0..ALL).step_by(PIECE) {
        file.read_exact_at(&mut buffer, offset as u64).expect("what was written");
        check(&buffer, offset);
    }
    println!("fill {ALL}");
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    let most = || args.get(2).map(|text| number(text));
    let file = || File::open(args[1]).expect("the file");
    match args[0] {
        "make" => make(args[1], number(args[2])),
        "random" => random(&file(), most()),
        "stream" => stream(args[1], most()),
        "lines" => lines(args[1], most()),
        "hot" => hot(&file(), most()),
        "mapped" => mapped(&file(), most()),
        "forks" => forks(args[1], most()),
        "cut" => cut(args[1]),
        "rewrite" => rewrite(args[1], number(args[2])),
        "numbers" => numbers(args[1], args[2]),
        "handler" => handler(args[1]),
        "many" => many(args[1], number(args[2]), args.get(3).map(|text| number(text))),
        "build" => build(args[1], number(args[2]), args.get(3).map(|text| number(text))),
        "fill" => fill(args[1], most()),
        other => panic!("no command {other}"),
    }
}
