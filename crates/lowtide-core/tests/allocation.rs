//! Publishing the statistics of groups allocates nothing: simulations do it all the time.
//!
//! # Safety
//!
//! The allocator is the system's, which keeps the contract; counting touches no memory of its own
//! but a number of the thread.

use lowtide_core::{Engine, EngineConfig, Policy};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: both calls go to the system's allocator with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System` with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn publishing_statistics_allocates_nothing() {
    for (policy, _) in Policy::builtin() {
        let config = EngineConfig { frames: 256, max: 256, page_bytes: 4096, policy, cpus: 1 };
        let mut engine = Engine::new(&config).unwrap();
        let before = ALLOCATIONS.get();
        for _ in 0..100 {
            engine.publish();
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{policy}");
    }
}
