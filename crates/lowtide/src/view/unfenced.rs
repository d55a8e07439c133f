//! Which pages may be read without a fence.
//!
//! # Theory
//!
//! A reader that executes a fence costs its thread some nanoseconds, and the misses in the
//! processor's cache that it cannot overlap with those of the hits around it. A reader that
//! executes none is free, and costs the next store to the page a barrier that interrupts every
//! processor of the process ([`lowtide_pin::hazard`]): as much as some hundred fences. So a page
//! that is read some hundred times between two stores should permit readers without a fence, and
//! one that is stored to more often should not.
//!
//! No page has room for a count. Instead
//!
//! * where no page of a table of translations may be dirty, nothing was stored lately: the second
//!   read of a page permits it;
//! * elsewhere one of [`READS`] fenced reads of a thread permits it, whichever page that is. A page
//!   gets its permission after as many fenced reads of it on average: it has then cost about as
//!   much as the barrier that it may cause. Whatever comes next, both together cost at most a small
//!   multiple of what the better choice would have.
//!
//! Pages of regions never count as dirty, so the second rule is for them. Pages that a program
//! reaches through pointers are not read through guards. Where the kernel refuses the barrier no
//! page is permitted any more: it could never be evicted or stored to again.

use crate::space::Space;
use lowtide_pin::hazard;
use std::cell::Cell;

/// Fenced reads for one permission, on average. On a machine of two processors a barrier takes ten
/// microseconds, and a fence 10 to 80 ns.
const READS: u32 = 128;

thread_local! {
    /// Reads of this thread that executed a fence.
    static FENCED: Cell<u32> = const { Cell::new(0) };
}

/// Whether a page that was read with a fence should be read without one from now on.
pub(crate) fn pays(space: &Space, page: u64) -> bool {
    if space.mapped.is_some() || hazard::is_refused() {
        return false;
    }
    if space.anon.is_none() && !space.table.hint(page).may_be_dirty() {
        return true;
    }
    let fenced = FENCED.get().wrapping_add(1);
    FENCED.set(fenced);
    fenced.is_multiple_of(READS)
}
