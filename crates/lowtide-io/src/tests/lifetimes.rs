//! Scenarios of what overlaps and what ends: batches, threads, signals, rings, backends.
//!
//! # Safety
//!
//! Opts in to unsafe code for signals (see `tests.rs`).
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use super::super::{Backend, Batch, IoEngine, Options};
use super::world::{Disk, Memory, PAGE, anon, content, drain, open, open_with, read_queued};

pub(super) fn dropping_a_batch_waits_for_the_kernel(engine: IoEngine) {
    const COUNT: usize = 64;
    let Some(backend) = open_with(engine, Options { depth: 32, ..Options::default() }) else {
        return;
    };
    let (memory, disk) = (Memory::new((COUNT + 1) * PAGE), Disk::new(COUNT * PAGE));
    for (kind, _, fd) in disk.each() {
        for _ in 0..20 {
            let mut batch = backend.batch(&anon());
            for page in 0..COUNT {
                batch.push(memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, 0));
            }
            batch.submit();
            drop(batch);
            memory.bytes_mut(0, COUNT * PAGE).fill(0xEE);
            // The same ring or pool works on: whatever were left over would arrive before this
            // read.
            read_queued(&backend, memory.read(fd, 0, COUNT * PAGE, PAGE, 0)).unwrap();
            let intact = memory.bytes(0, COUNT * PAGE).iter().all(|&byte| byte == 0xEE);
            assert!(intact, "{kind}: written to after the batch was gone");
        }
    }
}

pub(super) fn requests_nest(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(8 * PAGE), Disk::new(8 * PAGE));
    let read =
        |fd, page: usize| memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, page as u64);
    for (kind, _, fd) in disk.each() {
        memory.bytes_mut(0, 8 * PAGE).fill(0);
        let mut outer = backend.batch(&anon());
        for page in 0..3 {
            outer.push(read(fd, page));
        }
        outer.submit();
        assert_eq!(backend.read_one(&anon(), read(fd, 3)).unwrap() as usize, PAGE, "{kind}");
        let mut inner = backend.batch(&anon());
        for page in 4..7 {
            inner.push(read(fd, page));
        }
        inner.submit();
        assert_eq!(backend.read_one(&anon(), read(fd, 7)).unwrap() as usize, PAGE, "{kind}");
        let users = |batch: &mut Batch<'_>| {
            let mut users: Vec<u64> =
                drain(batch).iter().map(|completion| completion.user).collect();
            users.sort_unstable();
            users
        };
        assert_eq!(users(&mut outer), [0, 1, 2], "{kind}: a batch gets its own completions");
        assert_eq!(users(&mut inner), [4, 5, 6], "{kind}: a batch gets its own completions");
        assert!(memory.bytes(0, 8 * PAGE) == content(0, 8 * PAGE), "{kind}");
    }
}

/// Ends the sender of signals, also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

extern "C" fn interrupt_only(_: libc::c_int) {}

pub(super) fn signals_do_not_show(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    // SAFETY: an all-zero sigaction is a valid one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // Without SA_RESTART, so that blocking calls return EINTR.
    action.sa_sigaction = interrupt_only as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, which is safe in a signal; no test needs another for
    // SIGURG.
    let installed = unsafe { libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()) };
    assert_eq!(installed, 0);

    let (memory, disk) = (Memory::new(32 * PAGE), Disk::new(32 * PAGE));
    // SAFETY: the call has no preconditions.
    let reader = unsafe { libc::pthread_self() };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the reader lives until it has joined this thread.
                unsafe { libc::pthread_kill(reader, libc::SIGURG) };
                std::thread::yield_now();
            }
        });
        let _stop = StopOnDrop(&done);
        for (kind, _, fd) in disk.each() {
            for round in 0..40 {
                memory.bytes_mut(0, 32 * PAGE).fill(round);
                let mut batch = backend.batch(&anon());
                for page in 1..32 {
                    batch.push(memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, 0));
                }
                let single = backend.read_one(&anon(), memory.read(fd, 0, 0, PAGE, 0));
                let all = drain(&mut batch);
                assert!(single.is_ok(), "{kind}: {single:?}");
                assert!(all.iter().all(|completion| completion.result.is_ok()), "{kind}: {all:?}");
                assert!(memory.bytes(0, 32 * PAGE) == content(0, 32 * PAGE), "{kind}");
            }
        }
    });
}

pub(super) fn many_threads_at_once(engine: IoEngine) {
    const THREADS: usize = 32;
    const PAGES: usize = 64;
    let memory = Memory::new(THREADS * 4 * PAGE);
    let options = Options { depth: 8, arena: Some(memory.arena()), ..Options::default() };
    let Some(backend) = open_with(engine, options) else { return };
    let disk = Disk::new(PAGES * PAGE);
    for (kind, _, fd) in disk.each() {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (backend, memory) = (&backend, &memory);
                scope.spawn(move || {
                    let mine = thread * 4 * PAGE;
                    for step in 0..50 {
                        let page =
                            |index: usize| ((thread * 7 + step * 13 + index * 29) % PAGES) * PAGE;
                        backend
                            .read_one(&anon(), memory.read(fd, page(0) as u64, mine, PAGE, 0))
                            .unwrap();
                        let mut batch = backend.batch(&anon());
                        for index in 1..4 {
                            let to = mine + index * PAGE;
                            batch.push(memory.read(fd, page(index) as u64, to, PAGE, index as u64));
                        }
                        assert!(
                            drain(&mut batch).iter().all(|completion| completion.result.is_ok())
                        );
                        for index in 0..4 {
                            let found = memory.bytes(mine + index * PAGE, PAGE);
                            assert!(
                                found == content(page(index) as u64, PAGE),
                                "{kind}: thread {thread}"
                            );
                        }
                    }
                });
            }
        });
    }
}

pub(super) fn a_backend_goes_while_its_threads_stay(engine: IoEngine) {
    let (memory, disk) = (Arc::new(Memory::new(PAGE)), Disk::new(PAGE));
    let (_, _, fd) = disk.each().next().unwrap();
    let options = Options { arena: Some(memory.arena()), ..Options::default() };
    let Some(first) = open_with(engine, options) else { return };
    let first = Arc::new(first);
    let rings = first.rings();
    let (send, receive) = mpsc::channel::<Arc<Backend>>();
    let (answer, answered) = mpsc::channel();
    let theirs = Arc::clone(&memory);
    let thread = std::thread::spawn(move || {
        for backend in receive {
            let got = read_queued(&backend, theirs.read(fd, 0, 0, PAGE, 0));
            drop(backend);
            answer.send(got.unwrap()).unwrap();
        }
    });
    send.send(Arc::clone(&first)).unwrap();
    assert_eq!(answered.recv().unwrap() as usize, PAGE);
    if engine == IoEngine::Uring {
        assert_eq!(rings.strong_count(), 2, "the thread keeps its ring for the next batch");
    }
    drop(first);
    assert_eq!(rings.strong_count(), 0, "a ring outlived its backend");

    let second = Arc::new(open(engine).expect("it opened before"));
    send.send(Arc::clone(&second)).unwrap();
    assert_eq!(answered.recv().unwrap() as usize, PAGE, "the thread serves the next backend");
    drop(send);
    thread.join().unwrap();
    if engine == IoEngine::Uring {
        assert_eq!(second.rings().strong_count(), 1, "a ring outlived its thread");
    }
}

#[test]
fn auto_always_opens_and_says_why() {
    let backend = Backend::open(Options::default()).unwrap();
    assert_ne!(backend.engine(), IoEngine::Auto);
    match backend.engine() {
        IoEngine::Uring => {
            assert!(backend.reason().starts_with("io_uring: one ring of 128 entries"));
        }
        _ => assert!(backend.reason().starts_with("psync, because")),
    }
    let asked = open(IoEngine::Psync).unwrap();
    assert!(asked.reason().starts_with("psync as requested"), "{}", asked.reason());
}

#[test]
fn a_ring_that_breaks_costs_no_request() {
    let Some(backend) = open(IoEngine::Uring) else { return };
    let (memory, disk) = (Memory::new(16 * PAGE), Disk::new(16 * PAGE));
    let (_, _, fd) = disk.each().next().unwrap();
    let null = File::open("/dev/null").unwrap();

    // What a program does that closes descriptors it does not know.
    backend.replace_idle_ring(null.as_raw_fd());
    let mut batch = backend.batch(&anon());
    for page in 0..16 {
        batch.push(memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, page as u64));
    }
    batch.submit();
    assert_eq!(drain(&mut batch).len(), 16);
    assert!(memory.bytes(0, 16 * PAGE) == content(0, 16 * PAGE));

    drop(batch);
    assert_eq!(backend.rings().strong_count(), 1, "a broken ring is not kept");
}

#[test]
fn a_read_by_itself_takes_no_ring() {
    let Some(backend) = open(IoEngine::Uring) else { return };
    let (memory, disk) = (Memory::new(PAGE), Disk::new(PAGE));
    let (_, _, fd) = disk.each().next().unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let got = backend.read_one(&anon(), memory.read(fd, 0, 0, PAGE, 0)).unwrap();
            // The thread that opened the backend has one, from the trial.
            (got as usize, backend.rings().strong_count())
        });
        let before = backend.rings().strong_count();
        assert_eq!(reader.join().unwrap(), (PAGE, before));
    });
}
