//! A program whose handlers of `fork` use pages: they run while the process forks, and a page that
//! comes in then may have to wait for another to go.

#![expect(unsafe_code, reason = "fork(2) and its handlers")]

use crate::common::mapped::{PAGE, file, pager, word};
use crate::common::scene::alone;
use lowtide::View;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A file of eight budgets.
const PAGES: u64 = 512;

static FILE: OnceLock<View> = OnceLock::new();
static READ: AtomicU64 = AtomicU64::new(0);

extern "C" fn read_all() {
    let view = FILE.get().unwrap();
    for page in 0..PAGES {
        assert_eq!(word(&view.page(page).unwrap(), 0), page * PAGE as u64);
    }
    READ.fetch_add(PAGES, Relaxed);
}

#[test]
fn a_handler_of_fork_reads_pages_for_which_others_have_to_go() {
    alone(|| {
        // Handlers run in the reverse order: this one, which is the first, after the library's.
        // SAFETY: a function of this kind, and the program is not unloaded.
        unsafe { libc::pthread_atfork(Some(read_all), None, None) };
        let (file, pager) = (file(PAGES as usize), pager("256K"));
        assert!(FILE.set(pager.open(file.path()).unwrap()).is_ok());
        // The library's handlers come with the first page.
        read_all();
        let (ended, end) = channel();
        std::thread::spawn(move || {
            // SAFETY: the child has this thread alone, and ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(7) };
            }
            let mut status = 0;
            // SAFETY: a child of this process, and a place for its status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            ended.send(libc::WEXITSTATUS(status)).unwrap();
        });
        let Ok(status) = end.recv_timeout(Duration::from_secs(60)) else {
            // Nothing that the thread has can be given back.
            eprintln!("fork waits for itself");
            std::process::abort();
        };
        assert_eq!((status, READ.load(Relaxed)), (7, 2 * PAGES));
        assert!(pager.stat().memory.events.pgsteal > PAGES / 2, "pages had to go");
    });
}
