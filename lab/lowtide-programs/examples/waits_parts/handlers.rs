//! Signal handlers that never come back, or wait for other threads, while their thread maps and
//! unmaps. System calls have no locks, so no such program waits forever.

use crate::map_and_unmap;
use libc::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn handle(signal: c_int, handler: extern "C" fn(c_int)) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeroes are an action, and the handler is a function of this kind.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = handler as usize;
        (*action.as_mut_ptr()).sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, action.as_ptr(), ptr::null_mut());
    }
}

/// Sends SIGALRM to the process again and again.
fn alarm(every: Duration) {
    let time = libc::timeval { tv_sec: 0, tv_usec: every.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the structure is of this kind of call.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
}

extern "C" fn leave(_: c_int) {
    std::process::exit(0);
}

/// A handler calls `exit`, as many programs do at SIGTERM.
pub(crate) fn exit_in_handler(fd: Option<RawFd>) {
    handle(libc::SIGALRM, leave);
    println!("exit is called in a handler");
    map_and_unmap(fd);
    alarm(Duration::from_millis(100));
    loop {
        map_and_unmap(fd);
    }
}

/// Threads that stand still, and the number of the collection that they wait for the end of.
static STOPPED: AtomicI32 = AtomicI32::new(0);
static COLLECTION: AtomicI32 = AtomicI32::new(0);

extern "C" fn stand_still(_: c_int) {
    let now = COLLECTION.load(Ordering::SeqCst);
    STOPPED.fetch_add(1, Ordering::SeqCst);
    while COLLECTION.load(Ordering::SeqCst) == now {
        thread::yield_now();
    }
}

/// A collector stops threads by a signal, and maps and unmaps while they stand still.
pub(crate) fn stop_the_world(fd: Option<RawFd>) {
    const THREADS: i32 = 3;
    handle(libc::SIGPWR, stand_still);
    let start = move || loop {
        map_and_unmap(fd);
    };
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let thread = thread::spawn(start);
            std::os::unix::thread::JoinHandleExt::as_pthread_t(&thread)
        })
        .collect();
    for _ in 0..300 {
        STOPPED.store(0, Ordering::SeqCst);
        for thread in &threads {
            // SAFETY: the threads live as long as the process.
            unsafe { libc::pthread_kill(*thread, libc::SIGPWR) };
        }
        while STOPPED.load(Ordering::SeqCst) < THREADS {
            thread::yield_now();
        }
        map_and_unmap(fd);
        COLLECTION.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(1));
    }
    println!("300 collections");
}

/// What a handler goes on with, and how often it did.
static NEXT: AtomicPtr<libc::ucontext_t> = AtomicPtr::new(ptr::null_mut());
static JUMPS: AtomicUsize = AtomicUsize::new(0);
/// The descriptor, or -1.
static FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn jump(_: c_int) {
    JUMPS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: made below, of a stack of its own. What it leaves is never gone on with.
    unsafe { libc::setcontext(NEXT.load(Ordering::SeqCst)) };
}

extern "C" fn step() {
    const STEPS: usize = 60;
    let fd = Some(FD.load(Ordering::SeqCst)).filter(|fd| *fd >= 0);
    let begin = Instant::now();
    if JUMPS.load(Ordering::SeqCst) >= STEPS {
        // What the jumps have left behind must not be waited for, and no jump ends the wait.
        alarm(Duration::ZERO);
        map_and_unmap(fd);
        // SAFETY: ends the process, which has said so.
        unsafe { libc::_exit(0) };
    }
    loop {
        map_and_unmap(fd);
        assert!(begin.elapsed() < Duration::from_secs(50), "no signal comes");
    }
}

/// A handler leaves a step by a jump to a stack of its own, as a limit of its time: what the
/// interrupted call did is never ended.
pub(crate) fn jumps(fd: Option<RawFd>) {
    FD.store(fd.unwrap_or(-1), Ordering::SeqCst);
    println!("60 steps are left by a jump");
    let mut context = Box::new(MaybeUninit::<libc::ucontext_t>::zeroed());
    let stack = vec![0_u8; 1 << 18].leak();
    // SAFETY: the context is written, and gets a stack that is never freed. Each jump begins again
    // at its upper end.
    unsafe {
        libc::getcontext(context.as_mut_ptr());
        (*context.as_mut_ptr()).uc_stack.ss_sp = stack.as_mut_ptr().cast();
        (*context.as_mut_ptr()).uc_stack.ss_size = stack.len();
        libc::makecontext(context.as_mut_ptr(), step, 0);
    }
    NEXT.store(Box::leak(context).as_mut_ptr(), Ordering::SeqCst);
    handle(libc::SIGALRM, jump);
    alarm(Duration::from_millis(3));
    step();
}
