//! A sandbox that is installed after the pager was built and forbids `membarrier`: errors that say
//! so, and no page that hangs.
//!
//! The only test in its file, because the sandbox stays for the life of the process.
#![allow(unsafe_code, reason = "a seccomp filter is installed by a raw system call")]

mod common;

use common::{Dir, byte_at, make_file};
use lowtide::{Error, OpenOptions, Pager, Size};
use std::time::Duration;

const PAGE: u64 = 4096;

/// Makes `membarrier` fail with EPERM in all threads. False if the kernel does not let us.
fn forbid_membarrier() -> bool {
    const fn statement(code: u32, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
    }
    let number = libc::SYS_membarrier as u32;
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: number,
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the call takes numbers only.
    let no_new = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let (set, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the kernel copies the program, which lives until the call has returned.
    let installed = unsafe { libc::syscall(libc::SYS_seccomp, set, all, &raw const filter) };
    no_new == 0 && installed == 0
}

#[test]
fn a_barrier_that_is_refused_later_is_an_error_and_no_hang() {
    let dir = Dir::new();
    let path = make_file(&dir, 1024 * PAGE);
    let pager = Pager::builder()
        .max(Size::new(128 * PAGE))
        .memory_timeout(Duration::from_secs(3600))
        .build()
        .unwrap();
    let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
    // What is read again is read without a fence from then on, far from what is stored to.
    let read = |page| (0..3).try_for_each(|_| view.page(page).map(drop));
    (512..576).for_each(|page| read(page).unwrap());
    view.write_at(0, b"before").unwrap();
    if !forbid_membarrier() {
        eprintln!("SKIPPED: this kernel takes no seccomp filter");
        return;
    }
    // A page whose readers all execute a fence needs no barrier.
    view.write_at(1, b"E").unwrap();
    // Stores to pages in memory, eviction, and giving pages up: all need to know what readers do.
    assert!(matches!(view.write_at(517 * PAGE, b"x"), Err(Error::NoBarrier)));
    assert!(matches!(view.revert(517 * PAGE..518 * PAGE), Err(Error::NoBarrier)));
    // Other pages come and go in what is left of the budget, however often they are read.
    (576..1024).try_for_each(read).expect("half of the budget is left");
    // A guard is no such reader: the store fails because of the guard.
    let impatient = Pager::builder()
        .max(Size::new(128 * PAGE))
        .memory_timeout(Duration::from_millis(20))
        .build()
        .unwrap();
    let second = Dir::new();
    let other = make_file(&second, 8 * PAGE);
    let other = OpenOptions::new().write(true).open(&impatient, &other).unwrap();
    (0..3).for_each(|_| drop(other.page(3).unwrap()));
    std::thread::scope(|scope| {
        let (held, holds) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let other = &other;
        scope.spawn(move || {
            let guard = other.page(3).unwrap();
            held.send(()).unwrap();
            let _ = is_done.recv();
            drop(guard);
        });
        holds.recv().unwrap();
        let refused = other.write_at(3 * PAGE, b"x");
        assert!(matches!(refused, Err(Error::HeldElsewhere { page: 3, .. })), "{refused:?}");
        drop(done);
    });
    other.write_at(3 * PAGE, b"x").expect("the guard is gone");
    // Where guards take the rest there is no room, and no hope for any.
    let mut guards = Vec::new();
    let full = (576..1024).find_map(|page| view.page(page).map(|g| guards.push(g)).err());
    let full = full.expect("no room");
    assert!(matches!(full, Error::NoBarrier), "{full}");
    assert!(full.to_string().contains("membarrier"), "{full}");
    drop(guards);
    // What is in memory can be read as before, and what is dirty is written.
    for page in 512..576 {
        assert_eq!(view.page(page).unwrap()[7], byte_at(page * PAGE + 7));
    }
    assert!(
        matches!(view.write_at(517 * PAGE, b"x"), Err(Error::NoBarrier)),
        "the page does not hang"
    );
    view.flush().unwrap();
    pager.validate().unwrap();
    drop(view);
    drop(pager);
    assert_eq!(&std::fs::read(&path).unwrap()[..6], b"bEfore");
}
