//! Memory in which the bytes of a map's pages arrive before they are installed, and from which they
//! are written: aligned for direct I/O, and the more contiguous the longer it is.
//!
//! A device reads into *physical* memory. A request for 512 KiB of ordinary pages is a list of 128
//! places, and of huge pages it is one. Queues limit the places of a request, and a virtual disk
//! pays for each: the one on which this was measured reads 0.37 GB/s into ordinary pages and
//! 1.5 GB/s into huge ones. So a long landing is a *slot*, a quarter of a huge page:
//!
//! ```text
//!   2 MiB │ slot │ slot │ slot │ slot │   free slots are kept by all threads together
//! ```
//!
//! A short one is a few blocks from the allocator, kept by the thread. What is in use needs no room
//! beyond the budget: its pages are charged, and have no memory yet.
//!
//! **Fork.** The memory of slots is left out of children, which would otherwise copy what direct
//! I/O is filling. So a child forgets the slots of its parent: their addresses may be another
//! mapping's by then.

use lowtide_sys::memory::{HUGE_PAGE_BYTES, HugePages, Mapping};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

/// Memory of this thread for the bytes of pages.
#[derive(Debug)]
pub(crate) struct Landing {
    memory: Memory,
    at: *mut u8,
}

#[derive(Debug)]
enum Memory {
    Blocks(Vec<Block>),
    /// `None` once it is given back.
    Slot(Option<Slot>),
}

#[derive(Clone, Debug)]
#[repr(C, align(4096))]
struct Block([u8; 4096]);

/// A quarter of a huge page.
#[derive(Debug)]
struct Slot {
    whole: Arc<HugePage>,
    /// Its place there, in bytes.
    from: usize,
}

/// Two MiB, which the kernel backs by one huge page where it has one.
#[derive(Debug)]
struct HugePage {
    memory: ManuallyDrop<Mapping>,
    /// The process whose addresses these are.
    process: u32,
}

/// Bytes of a slot: the longest run of a read ahead.
const SLOT: usize = 512 << 10;
/// Landings of this many bytes or more are slots. Shorter ones are not worth a huge page, and are
/// what small budgets read at a time, beside which 2 MiB would be much.
const LONG: usize = 384 << 10;
/// Blocks that a thread keeps for later: 1 MiB.
const KEPT: usize = 256;
/// Slots that all threads keep together: 8 MiB, which is what read-ahead has in flight at a time.
/// Memory that is new each time costs its clearing, its page faults, and a flush of all processors'
/// translations when it goes: a third of the time of a scan.
const KEPT_SLOTS: usize = 16;

thread_local! {
    static FREE: RefCell<Vec<Vec<Block>>> = const { RefCell::new(Vec::new()) };
}

/// Free slots. It is only tried: a child of `fork` may find it locked forever.
static FREE_SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

/// Registers the destructor of this thread's blocks (`thread_locals.rs`).
pub(crate) fn register_blocks() {
    FREE.with(|_| ());
}

impl Landing {
    /// Memory for `bytes` bytes; what is in it is not defined.
    pub(crate) fn take(bytes: usize) -> Self {
        if (LONG..=SLOT).contains(&bytes)
            && let Some(slot) = Slot::take()
        {
            let at = slot.whole.memory.as_ptr().wrapping_add(slot.from);
            return Self { memory: Memory::Slot(Some(slot)), at };
        }
        let count = bytes.div_ceil(size_of::<Block>());
        let kept = FREE.with_borrow_mut(|free| {
            let at = free.iter().position(|blocks| blocks.len() >= count)?;
            Some(free.swap_remove(at))
        });
        let mut blocks = kept.unwrap_or_else(|| vec![Block([0; 4096]); count]);
        let at = blocks.as_mut_ptr().cast();
        Self { memory: Memory::Blocks(blocks), at }
    }

    /// The first byte. Valid as long as this lives.
    pub(crate) const fn as_ptr(&self) -> *mut u8 {
        self.at
    }

    /// All of it: as many bytes as were requested, and perhaps more.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = match &self.memory {
            Memory::Blocks(blocks) => blocks.len() * size_of::<Block>(),
            Memory::Slot(_) => SLOT,
        };
        // SAFETY: the bytes were written, or are zeroes from the kernel, and lie together; they are
        // this one's.
        #[expect(unsafe_code, reason = "blocks and slots are bytes")]
        unsafe {
            std::slice::from_raw_parts_mut(self.at, len)
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        match &mut self.memory {
            Memory::Blocks(blocks) => {
                let blocks = std::mem::take(blocks);
                // A thread that ends may have dropped its list already.
                let _ = FREE.try_with(|free| keep(&mut free.borrow_mut(), blocks));
            }
            Memory::Slot(slot) => {
                if let (Some(slot), Ok(mut free)) = (slot.take(), FREE_SLOTS.try_lock())
                    && free.len() < KEPT_SLOTS
                {
                    free.push(slot);
                }
            }
        }
    }
}

/// Takes blocks into a list, if it has no more than [`KEPT`] then.
fn keep(free: &mut Vec<Vec<Block>>, blocks: Vec<Block>) {
    if free.iter().map(Vec::len).sum::<usize>() + blocks.len() <= KEPT {
        free.push(blocks);
    }
}

impl Slot {
    /// A free one, or one of a new huge page. None if the kernel gives none.
    fn take() -> Option<Self> {
        let process = std::process::id();
        if let Ok(mut free) = FREE_SLOTS.try_lock() {
            // Those of a parent are no memory here.
            free.retain(|slot| slot.whole.process == process);
            if let Some(slot) = free.pop() {
                return Some(slot);
            }
        }
        let memory = Mapping::new(HUGE_PAGE_BYTES, HugePages::Yes).ok()?;
        let whole = Arc::new(HugePage { memory: ManuallyDrop::new(memory), process });
        let mut slots =
            (0..HUGE_PAGE_BYTES).step_by(SLOT).map(|from| Self { whole: whole.clone(), from });
        let first = slots.next();
        if let Ok(mut free) = FREE_SLOTS.try_lock() {
            free.extend(slots);
        }
        first
    }
}

impl Drop for HugePage {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: it is dropped once, here, and not used afterwards.
            #[expect(unsafe_code, reason = "a child must not unmap what it does not have")]
            unsafe {
                ManuallyDrop::drop(&mut self.memory);
            }
        }
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
    fn little_memory_is_kept_for_later() {
        let bytes = |bytes: usize| (0..100).map(|_| Landing::take(bytes)).collect::<Vec<_>>();
        drop(bytes(LONG / 2));
        let kept = FREE.with_borrow(|free| free.iter().map(Vec::len).sum::<usize>());
        assert!(kept > 0 && kept <= KEPT, "{kept} blocks");
        drop(bytes(SLOT));
        let kept = FREE_SLOTS.lock().unwrap().len();
        assert!(kept <= KEPT_SLOTS + HUGE_PAGE_BYTES / SLOT, "{kept} slots");
    }

    #[test]
    fn long_landings_are_slots_of_huge_pages_that_do_not_overlap() {
        let mut all: Vec<_> = (0..20).map(|_| Landing::take(SLOT)).collect();
        for (value, landing) in (0_u8..).zip(&mut all) {
            assert!(matches!(landing.memory, Memory::Slot(Some(_))), "{landing:?}");
            assert_eq!(landing.as_ptr().addr() % SLOT, 0);
            landing.as_mut_slice().fill(value);
        }
        for (value, landing) in (0_u8..).zip(&mut all) {
            assert!(landing.as_mut_slice().iter().all(|byte| *byte == value), "slot {value}");
        }
        assert!(matches!(Landing::take(LONG - 1).memory, Memory::Blocks(_)));
        assert!(matches!(Landing::take(SLOT + 1).memory, Memory::Blocks(_)));
    }
}
