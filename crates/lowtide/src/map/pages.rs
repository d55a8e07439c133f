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

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Mutex;

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

    /// Gives pages their bytes, all at once: a thread sees none of them or all.
    ///
    /// # Errors
    /// The kernel's; the pages are as absent as before.
    fn install(&self, first: u64, bytes: &[u8], how: Arrival) -> io::Result<()>;

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

/// Memory of this thread in which the bytes of a map's pages arrive before they are installed:
/// aligned for direct I/O.
#[derive(Debug)]
pub(crate) struct Landing {
    blocks: Vec<Block>,
    at: *mut u8,
}

#[derive(Clone, Debug)]
#[repr(C, align(4096))]
struct Block([u8; 4096]);

/// Blocks that a thread keeps for later: 1 MiB. What is in use needs no room beyond the budget: its
/// pages are charged, and have no memory yet.
const KEPT: usize = 256;
/// Blocks that all threads keep together beside that: 8 MiB, which is what read-ahead has in flight
/// at a time. Memory that is new each time costs its clearing, its page faults, and a flush of all
/// processors' translations when it goes: a third of the time of a scan.
const KEPT_BY_ALL: usize = 2048;

thread_local! {
    static FREE: RefCell<Vec<Vec<Block>>> = const { RefCell::new(Vec::new()) };
}

/// What threads could not keep. It is only tried: a child of `fork` may find it locked for ever.
static FREE_FOR_ALL: Mutex<Vec<Vec<Block>>> = Mutex::new(Vec::new());

/// Registers the destructor of this thread's blocks (`thread_locals.rs`).
pub(crate) fn register_blocks() {
    FREE.with(|_| ());
}

impl Landing {
    /// Memory for `bytes` bytes; what is in it is not defined.
    pub(crate) fn take(bytes: usize) -> Self {
        let count = bytes.div_ceil(size_of::<Block>());
        let fitting = |free: &mut Vec<Vec<Block>>| {
            let at = free.iter().position(|blocks| blocks.len() >= count)?;
            Some(free.swap_remove(at))
        };
        let kept = FREE.with_borrow_mut(fitting);
        let kept = kept.or_else(|| fitting(&mut *FREE_FOR_ALL.try_lock().ok()?));
        let mut blocks = kept.unwrap_or_else(|| vec![Block([0; 4096]); count]);
        let at = blocks.as_mut_ptr().cast();
        Self { blocks, at }
    }

    /// The first byte. Valid as long as this lives.
    pub(crate) const fn as_ptr(&self) -> *mut u8 {
        self.at
    }

    /// All of it: as many bytes as were requested, and perhaps more.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.blocks.len() * size_of::<Block>();
        // SAFETY: the blocks are bytes that were written, and lie together; they are this one's.
        #[expect(unsafe_code, reason = "blocks are bytes")]
        unsafe {
            std::slice::from_raw_parts_mut(self.at, len)
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut blocks = std::mem::take(&mut self.blocks);
        // A thread that ends may have dropped its list already.
        let _ = FREE.try_with(|free| keep(&mut free.borrow_mut(), &mut blocks, KEPT));
        if !blocks.is_empty()
            && let Ok(mut free) = FREE_FOR_ALL.try_lock()
        {
            keep(&mut free, &mut blocks, KEPT_BY_ALL);
        }
    }
}

/// Takes blocks into a list, if it has no more than `most` then.
fn keep(free: &mut Vec<Vec<Block>>, blocks: &mut Vec<Block>, most: usize) {
    if free.iter().map(Vec::len).sum::<usize>() + blocks.len() <= most {
        free.push(std::mem::take(blocks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_is_aligned_and_used_again() {
        let first = Landing::take(10_000);
        let at = first.as_ptr();
        assert_eq!(at.addr() % 4096, 0);
        let second = Landing::take(4096);
        assert_ne!(second.as_ptr(), at);
        drop(first);
        assert_eq!(Landing::take(8192).as_ptr(), at, "the larger one serves");
    }

    #[test]
    fn a_thread_keeps_little_memory_for_later() {
        drop((0..100).map(|_| Landing::take(512 << 10)).collect::<Vec<_>>());
        let count = |free: &[Vec<Block>]| free.iter().map(Vec::len).sum::<usize>();
        let kept = FREE.with_borrow(|free| count(free));
        assert!(kept > 0 && kept <= KEPT, "{kept} blocks");
        let by_all = count(&FREE_FOR_ALL.lock().unwrap());
        assert!(by_all > 0 && by_all <= KEPT_BY_ALL, "{by_all} blocks");
    }
}
