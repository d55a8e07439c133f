//! Running a program allocates nothing, whatever it does.
//!
//! # Safety
//!
//! The allocator is the system's, which keeps the contract; counting touches no memory of its own
//! but a number of the thread.

use lowtide_bpf::Programs;
use lowtide_core::hooks::{LimitHooks, LimitSnapshot};
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
fn a_run_allocates_nothing() {
    let objects: [(&str, &[u8]); 3] = [
        ("refault_recency", include_bytes!("../../../examples/bpf/refault_recency.bpf.o")),
        ("priority", include_bytes!("../../../examples/bpf/priority.bpf.o")),
        ("features", include_bytes!("programs/features.bpf.o")),
    ];
    for (name, object) in objects {
        let mut programs = Programs::load(object, name).unwrap();
        let before = ALLOCATIONS.get();
        // Groups come and go, more than the maps have room for, and every request waits to be
        // taken.
        for round in 0..10_000 {
            let snapshot = LimitSnapshot {
                group: round % 97,
                usage: 1 + round % 400,
                now_ns: 1,
                ..LimitSnapshot::default()
            };
            programs.throttle(&snapshot);
            programs.below_low(&snapshot);
            programs.below_min(&snapshot);
            programs.proactive(&snapshot);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{name}");
    }
    let before = ALLOCATIONS.get();
    assert_eq!(std::hint::black_box(vec![1]).len(), 1);
    assert_eq!(ALLOCATIONS.get() - before, 1, "they are counted");
}
