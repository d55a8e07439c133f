//! What a page fault costs the thread that waits for it, by the way it is served: medians, in
//! nanoseconds, of a touch of one page of a memfd.
//!
//! | what | served |
//! |---|---|
//! | a load from a missing page | by another thread; by a handler of `SIGBUS` |
//! | a first store to a protected page | by another thread; by that handler; by the kernel |
//!
//! By another thread: it sleeps in `epoll_wait(2)`, as lowtide's do. The handler runs in the thread
//! that faulted ([`Features::SIGBUS`]). By the kernel: asynchronous write protection. Decision 10
//! has the figures, and why lowtide has the thread.
//!
//! ```text
//! cargo run -p lowtide-sys --example served_costs
//! ```

#![allow(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache::punch;
use lowtide_sys::shared::{Rights, SharedMapping, Sharing, memfd};
use lowtide_sys::userfault::{Event, Features, Modes, Scope, UserFault};
use rustix::event::epoll;

const ROUNDS: usize = 4001;

/// A page of a memfd whose faults are served.
struct One {
    fault: Arc<UserFault>,
    file: File,
    window: SharedMapping,
}

impl One {
    fn new(more: Features) -> io::Result<One> {
        let wanted = Features::MISSING_SHMEM | Features::WP_SHMEM | more;
        let fault = Arc::new(UserFault::open(Scope::Any, wanted)?);
        if fault.features() != wanted {
            return Err(io::Error::other(format!("this kernel lacks {more:?}")));
        }
        let file = memfd("served", page_size() as u64)?;
        let access = Rights::ReadWrite;
        let window = SharedMapping::map(&file, 0, page_size(), access, Sharing::Shared, false)?;
        // SAFETY: The window belongs to this program, which makes no reference to it.
        unsafe { fault.register(window.addresses(), Modes::MISSING | Modes::WRITE_PROTECT) }?;
        Ok(One { fault, file, window })
    }

    /// The page is missing, or there and protected.
    fn prepare(&self, store: bool) {
        punch(&self.file, 0..page_size() as u64).expect("a memfd has holes");
        if store {
            let page = vec![1; page_size()];
            self.fault.copy(self.window.addresses().start, &page, true).expect("it is missing");
            // SAFETY: The page is there, so this maps it and nothing else.
            unsafe { self.window.as_ptr().read_volatile() };
        }
    }

    /// Medians of the times of a load from a missing page, or of a first store.
    fn time(&self, store: bool) -> u128 {
        let mut times: Vec<_> = (0..ROUNDS)
            .map(|_| {
                self.prepare(store);
                let start = Instant::now();
                let at = self.window.as_ptr();
                if store {
                    // SAFETY: The page is mapped, and only this thread uses it.
                    unsafe { at.write_volatile(2) };
                } else {
                    // SAFETY: As above.
                    unsafe { at.read_volatile() };
                }
                start.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[ROUNDS / 2]
    }
}

/// Answers a fault in a range.
fn answer(fault: &UserFault, range: Range<usize>, page: &[u8]) {
    // One of them is what the thread waits for.
    if fault.copy(range.start, page, false).is_err() {
        fault.write_protect(range, false).expect("the page is there");
    }
}

/// What the handler of the signal needs.
static SIGNALLED: OnceLock<(Arc<UserFault>, Range<usize>, Vec<u8>)> = OnceLock::new();

extern "C" fn on_sigbus(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if let Some((fault, range, page)) = SIGNALLED.get() {
        answer(fault, range.clone(), page);
    }
}

fn by_signal() -> io::Result<(u128, u128)> {
    let one = One::new(Features::SIGBUS)?;
    let page = vec![1; page_size()];
    let _ = SIGNALLED.set((Arc::clone(&one.fault), one.window.addresses(), page));
    // SAFETY: All zeroes are a value of the structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(_, _, _) = on_sigbus;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: The handler makes system calls only, and reads what does not change.
    let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    Ok((one.time(false), one.time(true)))
}

fn by_thread() -> io::Result<(u128, u128)> {
    let one = One::new(Features::empty())?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor is left");
            let data = epoll::EventData::new_u64(0);
            epoll::add(&set, &*one.fault, data, epoll::EventFlags::IN).expect("it can be polled");
            let (page, wait) =
                (vec![1; page_size()], rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 });
            let mut events = [Event::default(); 4];
            while !done.load(SeqCst) {
                while one.fault.read_events(&mut events).is_ok_and(|count| count > 0) {
                    answer(&one.fault, one.window.addresses(), &page);
                }
                let mut ready = [std::mem::MaybeUninit::uninit(); 1];
                let _ = epoll::wait(&set, &mut ready, Some(&wait));
            }
        });
        let times = (one.time(false), one.time(true));
        done.store(true, SeqCst);
        Ok(times)
    })
}

fn main() -> io::Result<()> {
    let (load, store) = by_thread()?;
    println!("by a thread:  a missing page {load:>6} ns, a first store {store:>6} ns");
    let kernel = One::new(Features::WP_ASYNC)?.time(true);
    println!("by the kernel:                      a first store {kernel:>6} ns");
    let (load, store) = by_signal()?;
    println!("by a signal:  a missing page {load:>6} ns, a first store {store:>6} ns");
    Ok(())
}
