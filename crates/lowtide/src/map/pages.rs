//! What reclaim and a miss ask of memory that a program reaches through a pointer.
//!
//! A page of a view has its bytes in a frame of the arena. A page of a map has them where the
//! program's pointer leads. Its frame stands for that memory: it is charged, it has a place in the
//! engine's lists, and it never has memory of the arena behind it. So a budget holds for both, and
//! one policy compares them.
//!
//! The processor does not tell a process which pages it has touched. What it does tell is which
//! pages are *present* in the page table, and a page that is taken out of the table without being
//! freed (*zapped*) comes back with the next touch. So a young bit is sampled: zap, wait, see what
//! is present again.
//!
//! # Who provides the bytes, and who takes them
//!
//! This memory knows nothing of files. A miss brings bytes from the backing of the page's space and
//! [installs](MappedPages::install) them; write-back takes the bytes of dirty pages from
//! [`StoredPages`] and carries them to the backing; reclaim [gives back](MappedPages::release) what
//! is clean. So memory whose backing is a swap store, and not a file, needs nothing new here.

use std::fmt;
use std::io;
use std::ops::Range;

/// How pages come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// A thread waits for the first, so that being present says nothing about it yet.
    Touched,
    /// No thread has touched them, and the first touch of each is to be seen.
    Ahead,
    /// The same, of a part of them: a window of what is read in order (`sample.rs`).
    Window,
}

/// The memory of the pages of one map.
pub(crate) trait MappedPages: Send + Sync + fmt::Debug {
    /// Calls `touched` with those of `pages` that were touched since they were last looked at, and
    /// makes the next touch of each visible. Called under the pool's lock.
    ///
    /// Cost: one scan of the range, and one call that zaps it: 4 to 30 µs for 512 pages.
    fn look(&self, pages: Range<u64>, touched: &mut dyn FnMut(u64));

    /// Calls `touched` with those of `pages` that were touched since they were brought in without a
    /// touch, or looked at last. Changes nothing.
    fn see(&self, pages: Range<u64>, touched: &mut dyn FnMut(u64)) {
        let _ = (pages, touched);
    }

    /// Whether pages can be installed so that the first store to each is seen, where that is not so
    /// of all pages.
    fn watches(&self) -> bool {
        false
    }

    /// Gives pages their bytes, all at once: a thread sees none of them or all. The first store to
    /// each is seen if `watched` says so, which takes memory that [watches](Self::watches).
    ///
    /// # Errors
    /// The kernel's; the pages are as absent as before.
    fn install(&self, first: u64, bytes: &[u8], how: Arrival, watched: bool) -> io::Result<()>;

    /// The same as far as it goes: returns how many pages, from the first on, have their bytes now.
    /// The others are as absent as before.
    fn install_run(&self, first: u64, bytes: &[u8], how: Arrival, watched: bool) -> u64;

    /// Copies the bytes of a page that is locked for eviction. False where they are not this
    /// process's to keep, or cannot be had. Called under the pool's lock.
    ///
    /// Cost: a system call, and the copy.
    fn copy(&self, page: u64, to: &mut [u8]) -> bool {
        let _ = (page, to);
        false
    }

    /// Gives the memory of pages back. Called under the pool's lock, while their translations are
    /// locked for eviction, or lead nowhere.
    fn release(&self, pages: Range<u64>);

    /// Gives all memory back: the file is closed, and clean.
    fn close(&self) {}

    /// The pages as write-back sees them, if the program may store to them.
    fn stored(&self) -> Option<&dyn StoredPages> {
        None
    }
}

/// Pages that a program stores to through a pointer. `stores.rs` has the protocol.
pub(crate) trait StoredPages {
    /// Bytes of the file that may be stored to. What lies around them in the first and the last
    /// page belongs to others, and is not written.
    fn bounds(&self) -> Range<u64>;

    /// From its return on, a store to one of these pages waits until it is
    /// admitted, and what was stored before is in their bytes. Called under the
    /// pool's lock.
    ///
    /// # Errors
    /// The kernel's; then stores may go on unnoticed.
    fn protect(&self, pages: Range<u64>) -> io::Result<()>;

    /// Copies bytes of resident pages, from this offset of the file on, without a fault that this
    /// process serves. Where the program stores meanwhile, the copy has some of it.
    ///
    /// # Errors
    /// The kernel's: it has lost a page, or cannot bring it back from its own swap.
    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()>;
}
