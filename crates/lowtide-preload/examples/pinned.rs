//! A program that reads into large memory by routes on which the kernel pins it, for the tests of
//! `lowtide run --anon`: from a file server that answers late (FUSE with direct I/O), past the page
//! cache, and from a cipher of the kernel. Another thread needs memory meanwhile.
//!
//! It knows nothing of lowtide. Its output does not depend on how its memory is kept.

#![allow(unsafe_code, clippy::print_stdout, clippy::multiple_unsafe_ops_per_block)]
#![allow(clippy::semicolon_if_nothing_returned)]

#[path = "heap_parts/fuse.rs"]
mod fuse;
#[path = "heap_parts/words.rs"]
mod words;

use libc::{FILE, aiocb, c_int, c_void, iovec};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, io, mem, process, ptr, thread};
use words::{FLAGS, MIB, PAGE, PROT, Words, map, word};

/// Bytes that are read each time.
const LEN: usize = 4 * MIB;

unsafe extern "C" {
    fn fread_unlocked(to: *mut c_void, size: usize, count: usize, stream: *mut FILE) -> usize;
    fn getdelim(
        line: *mut *mut libc::c_char,
        room: *mut usize,
        until: c_int,
        stream: *mut FILE,
    ) -> isize;
    fn setbuffer(stream: *mut FILE, buffer: *mut libc::c_char, size: usize);
}

/// A name and a function, which may be called with a descriptor and a place of [`LEN`] bytes.
type Route = (&'static str, unsafe fn(c_int, *mut c_void));

/// Each route of the C library, by which [`LEN`] bytes of a file come to a place.
#[allow(clippy::undocumented_unsafe_blocks, reason = "the contract of a route")]
const ROUTES: [Route; 9] = [
    ("read", |fd, to| all(|done| unsafe { libc::read(fd, to.byte_add(done), LEN - done) })),
    ("pread", |fd, to| {
        all(|done| unsafe { libc::pread(fd, to.byte_add(done), LEN - done, done as i64) })
    }),
    ("readv", |fd, to| all(|done| unsafe { libc::readv(fd, parts(to, done).as_ptr(), 2) })),
    ("preadv", |fd, to| {
        all(|done| unsafe { libc::preadv(fd, parts(to, done).as_ptr(), 2, done as i64) })
    }),
    ("preadv2", |fd, to| {
        all(|done| unsafe { libc::preadv2(fd, parts(to, done).as_ptr(), 2, done as i64, 0) })
    }),
    ("fread", |fd, to| unsafe {
        let stream = libc::fdopen(libc::dup(fd), c"r".as_ptr());
        assert_eq!(libc::fread(to, 8, LEN / 8, stream), LEN / 8);
        libc::fclose(stream);
    }),
    ("fread_unlocked", |fd, to| unsafe {
        let stream = libc::fdopen(libc::dup(fd), c"r".as_ptr());
        let got = fread_unlocked(to, 3 * PAGE, LEN / (3 * PAGE), stream);
        let rest = fread_unlocked(to.byte_add(got * 3 * PAGE), 1, LEN - got * 3 * PAGE, stream);
        assert_eq!(got * 3 * PAGE + rest, LEN);
        libc::fclose(stream);
    }),
    ("fgetc with a buffer of the program's", |fd, to| unsafe {
        let stream = libc::fdopen(libc::dup(fd), c"r".as_ptr());
        let buffer = map(MIB, PROT, FLAGS);
        setbuffer(stream, buffer.cast(), MIB);
        for at in 0..LEN {
            let got = libc::fgetc(stream);
            assert!(got >= 0, "the file ends at {at}");
            to.cast::<u8>().add(at).write(got as u8);
        }
        libc::fclose(stream);
        libc::munmap(buffer, MIB);
    }),
    ("getline", |fd, to| unsafe {
        let stream = libc::fdopen(libc::dup(fd), c"r".as_ptr());
        let (mut line, mut room) = (ptr::null_mut(), 0);
        // There is no such byte: all of it is one line, whose buffer becomes large.
        let got = getdelim(&raw mut line, &raw mut room, 0xff, stream);
        assert_eq!(got, LEN as isize);
        to.copy_from_nonoverlapping(line.cast(), LEN);
        libc::free(line.cast());
        libc::fclose(stream);
    }),
];

/// Asynchronous reads, which make the memory the kernel's.
#[allow(clippy::undocumented_unsafe_blocks, reason = "the contract of a route")]
const ASYNCHRONOUS: [Route; 2] = [
    ("aio_read", |fd, to| unsafe {
        let mut request = request(fd, to);
        assert_eq!(libc::aio_read(&raw mut request), 0);
        wait(&mut request);
    }),
    ("lio_listio", |fd, to| unsafe {
        let mut request = request(fd, to);
        let list = [&raw mut request];
        assert_eq!(libc::lio_listio(libc::LIO_WAIT, list.as_ptr(), 1, ptr::null_mut()), 0);
        wait(&mut request);
    }),
];

/// Repeats a read until all bytes are there.
fn all(read: impl Fn(usize) -> isize) {
    let mut done = 0;
    while done < LEN {
        let got = read(done);
        assert!(got > 0, "{got} at {done}: {}", io::Error::last_os_error());
        done += got as usize;
    }
}

/// What is missing, in two parts.
fn parts(to: *mut c_void, done: usize) -> [iovec; 2] {
    let one = (LEN - done) / 2 / PAGE * PAGE;
    let part = |at, iov_len| iovec { iov_base: to.wrapping_byte_add(at), iov_len };
    [part(done, one), part(done + one, LEN - done - one)]
}

fn request(fd: c_int, to: *mut c_void) -> aiocb {
    // SAFETY: zeroes are a request.
    let mut request: aiocb = unsafe { mem::zeroed() };
    (request.aio_fildes, request.aio_buf, request.aio_nbytes) = (fd, to, LEN);
    request.aio_lio_opcode = libc::LIO_READ;
    request
}

fn wait(request: &mut aiocb) {
    // SAFETY: a request that was made.
    while unsafe { libc::aio_error(request) } == libc::EINPROGRESS {
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: it is over.
    assert_eq!(unsafe { libc::aio_return(request) }, LEN as isize);
}

/// Reads a file by some routes while another thread needs memory.
fn read_by(routes: &[Route], open: impl Fn() -> OwnedFd) {
    let to = Words::of(map(LEN, PROT, FLAGS), LEN);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = Words::of(map(24 * MIB, PROT, FLAGS), 24 * MIB);
            while !stop.load(Ordering::Relaxed) {
                other.fill(1);
            }
        });
        for (name, read) in routes {
            let wrong = (0..2).find_map(|_| {
                to.fill(0);
                // SAFETY: the mapping has room for as much.
                unsafe { read(open().as_raw_fd(), to.0.cast()) };
                let mut all = to.all().iter().enumerate();
                all.find(|(at, found)| **found != fuse::word_of(*at)).map(|(at, _)| at)
            });
            match wrong {
                None => println!("{name}: what was read is there"),
                Some(at) => println!("{name}: word {at} is not what was read"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// From a server that answers late.
fn from_a_server(dir: &str) {
    let server = process::Command::new(env::current_exe().expect("this program"))
        .args(["serve", dir])
        .env_remove("LD_PRELOAD")
        .stdout(process::Stdio::piped())
        .spawn();
    let mut server = server.expect("it starts");
    let mut said = [0; 1];
    let out = server.stdout.as_mut().expect("a pipe");
    if io::Read::read(out, &mut said).expect("a word") == 0 {
        println!("SKIPPED: FUSE cannot be mounted here");
        let _ = server.wait();
        return;
    }
    let path = format!("{dir}/f");
    read_by(&ROUTES, || fs::File::open(&path).expect("its file").into());
    let dir = CString::new(dir).expect("a path");
    // SAFETY: what this program has mounted.
    unsafe { libc::umount2(dir.as_ptr(), libc::MNT_DETACH) };
    let _ = server.wait();
}

/// Past the page cache.
fn direct(path: &str, routes: &[Route]) {
    let contents: Vec<u8> = (0..LEN / 8).flat_map(|at| fuse::word_of(at).to_ne_bytes()).collect();
    fs::write(path, contents).expect("a file");
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECT);
    read_by(routes, || options.open(path).expect("without the page cache").into());
}

/// From a cipher of the kernel that changes nothing.
fn cipher() {
    // SAFETY: descriptors and structures of this function.
    unsafe {
        let fd = libc::socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0);
        let mut name: libc::sockaddr_alg = mem::zeroed();
        name.salg_family = libc::AF_ALG as u16;
        name.salg_type[..9].copy_from_slice(b"skcipher\0");
        name.salg_name[..17].copy_from_slice(b"ecb(cipher_null)\0");
        let len = size_of::<libc::sockaddr_alg>() as u32;
        if fd < 0 || libc::bind(fd, (&raw const name).cast(), len) != 0 {
            println!("SKIPPED: the kernel has no such cipher for users");
            return;
        }
        let work = libc::accept(fd, ptr::null_mut(), ptr::null_mut());
        assert!(work >= 0, "{}", io::Error::last_os_error());
        let work = OwnedFd::from_raw_fd(work);
        let to = Words::of(map(MIB, PROT, FLAGS), MIB);
        let text: Vec<u8> = (0..PAGE / 8).flat_map(|at| word(at, 7).to_ne_bytes()).collect();
        for round in 0..200 {
            let at = to.0.byte_add(round % 256 * PAGE);
            let sent = libc::send(work.as_raw_fd(), text.as_ptr().cast(), PAGE, 0);
            assert_eq!(sent, PAGE as isize, "{}", io::Error::last_os_error());
            let got = if round % 2 == 0 {
                libc::recv(work.as_raw_fd(), at.cast(), PAGE, 0)
            } else {
                libc::read(work.as_raw_fd(), at.cast(), PAGE)
            };
            assert_eq!(got, PAGE as isize, "{}", io::Error::last_os_error());
            assert!((0..PAGE / 8).all(|n| at.add(n).read() == word(n, 7)), "round {round}");
        }
        println!("what the cipher gave is there");
    }
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", dir] => fuse::serve(dir),
        ["server", dir] => from_a_server(dir),
        // The C library's own buffer is no place for a device, without us either.
        ["direct", path] => direct(path, &ROUTES[..8]),
        ["asynchronous", path] => direct(path, &ASYNCHRONOUS),
        ["cipher"] => cipher(),
        _ => panic!("which command?"),
    }
}
