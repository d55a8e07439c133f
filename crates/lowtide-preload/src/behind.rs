//! What the program writes to files that are kept goes to the device soon, and the program writes
//! no faster than the device (`--files`).
//!
//! A page that was written cannot be dropped before the device has it. The kernel lets a program
//! make a part of all memory dirty (`vm.dirty_ratio`), so one that writes faster than its device
//! would have any multiple of its budget in the page cache, whatever is dropped behind it. So the
//! thread that writes does for the budget what `balance_dirty_pages` does for the machine:
//!
//! ```text
//!   an eighth of the budget was written ──► the writing of it is started
//!                                       ──► the thread sleeps until no more than a quarter of the
//!                                           budget is dirty or being written, and a moment for
//!                                           what is written to be dropped
//! ```
//!
//! What is written by then, the look at uncharged pages drops (`lowtide/map/sweep.rs`), and the
//! policy what it likes least. A file that is written again and again stays, as far as it is used.
//!
//! **All descriptors count together**, and the thread that comes to the eighth starts the writing
//! of all that were written to since. One that was closed since is another file's by now, or none:
//! then a file is written early that nothing was known of.
//!
//! **No failure is taken away.** A `sync_file_range(2)` that waits takes the failure of a write
//! from the open file, and the program's own `fsync(2)` would not report it. One that only starts
//! does not, and neither does `cachestat(2)`. Where the kernel lacks that (before 6.5), or a
//! program may not call it, starting has to do: it waits where the device's queue is full.
//!
//! # Safety
//!
//! Descriptors are borrowed for system calls that change no byte. One that is closed fails.

#![allow(unsafe_code)]

use crate::reads::DESCRIPTORS;
use libc::c_int;
use lowtide_sys::page_cache::{cachestat, start_writing_range};
use rustix::thread::{Timespec, nanosleep};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The part of the budget that is written before its writing is started.
const START: u64 = 8;
/// The part of it that may be dirty or being written.
const UNDER_WAY: u64 = 4;
/// Files that are waited for together.
const FILES: usize = 16;
/// Past this part of the budget what was written waits to be dropped, and for how long at most:
/// other processes may use it.
const EXCESS: u64 = 16;
const DROPPING: Duration = Duration::from_millis(20);
/// Time between two looks at them.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// How long a write waits at most: a device that hangs is the program's to find.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was written since writing was started. All zeroes is: nothing.
#[derive(Debug)]
pub(crate) struct Written {
    bytes: AtomicU64,
    /// Descriptors that were written to.
    to: [AtomicBool; DESCRIPTORS],
}

impl Written {
    /// The program has written to a descriptor of a file that is kept. Waits, if that was too fast
    /// for the device. It does what a handler of a signal may, and no thread is cancelled in it.
    pub(crate) fn add(&self, fd: c_int, bytes: u64, budget: u64) {
        let Some(to) = usize::try_from(fd).ok().and_then(|fd| self.to.get(fd)) else { return };
        to.store(true, Relaxed);
        if self.bytes.fetch_add(bytes, Relaxed) + bytes < budget / START {
            return;
        }
        self.bytes.store(0, Relaxed);
        let (mut started, mut count) = ([fd; FILES], 0);
        for (fd, to) in (0..).zip(&self.to) {
            if to.load(Relaxed) && to.swap(false, Relaxed) {
                let _ = start_writing_range(file(fd), 0, 0);
                if let Some(place) = started.get_mut(count) {
                    (*place, count) = (fd, count + 1);
                }
            }
        }
        let (began, started) = (Instant::now(), &started[..count]);
        loop {
            let (cached, unwritten) = in_memory(started);
            let patience = match () {
                () if unwritten > budget / UNDER_WAY => PATIENCE,
                () if cached > budget + budget / EXCESS => DROPPING,
                () => return,
            };
            if began.elapsed() >= patience {
                return;
            }
            let _ = nanosleep(&LOOK);
        }
    }
}

fn file(fd: c_int) -> BorrowedFd<'static> {
    // SAFETY: see the module documentation.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Bytes of these files that are cached, and those of them that the device does not have yet.
fn in_memory(files: &[c_int]) -> (u64, u64) {
    let page = rustix::param::page_size() as u64;
    files.iter().filter_map(|fd| cachestat(file(*fd), 0, 0).ok()).fold(
        (0, 0),
        |(all, dirty), stat| {
            (all + stat.cached * page, dirty + (stat.dirty + stat.writeback) * page)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiped::{self, Zeroed};
    use std::io::Write as _;
    use std::os::fd::AsRawFd;

    // SAFETY: atomics.
    unsafe impl Zeroed for Written {}

    #[test]
    fn what_is_written_is_started_at_an_eighth_and_waited_for_at_a_quarter() {
        let (budget, piece) = (8 << 20, vec![7_u8; 1 << 18]);
        // SAFETY: zeroes are such a value, and the memory is never unmapped.
        let written = unsafe { wiped::map::<Written>(1).expect("memory").as_ref() };
        let mut all = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        let mut is_slow = false;
        for _ in 0..256 {
            all.write_all(&piece).expect("room");
            let began = Instant::now();
            written.add(all.as_raw_fd(), piece.len() as u64, budget);
            let (_, left) = in_memory(&[all.as_raw_fd()]);
            is_slow |= began.elapsed() >= PATIENCE;
            assert!(is_slow || left <= budget * 3 / 8, "{left} bytes are not written");
        }
        assert!(written.bytes.load(Relaxed) < budget / START);
    }
}
